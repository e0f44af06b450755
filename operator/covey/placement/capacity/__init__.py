"""Capacity: exact tables of whole replicas for every domain, from the nodes upwards."""
