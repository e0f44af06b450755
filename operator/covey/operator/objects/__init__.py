"""Objects of a resource, kept as they should be: applied, corrected, and deleted at their end."""
