"""Pictures of a plan or of a cluster: a floor of domains and nodes, as text."""
