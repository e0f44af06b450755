"""Replicas from their pods: how far they have come, which go first, which pods they lack."""
