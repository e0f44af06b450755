"""What operator and scheduler both read of the cluster's objects, with one meaning for both. Pure."""
