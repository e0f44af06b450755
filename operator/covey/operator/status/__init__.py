"""The status of a resource: conditions, units, and the metrics made of them."""
