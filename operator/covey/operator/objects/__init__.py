"""Objects beside pods and groups: revisions, budgets, and the order in which objects are applied."""
