"""The floor of a cluster, of a plan or as it is now: a model that any form of picture is drawn from."""
