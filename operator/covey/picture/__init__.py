"""The floor of a cluster, of a plan or as it is now: a model without ink, for whoever draws it."""
