"""Replicas that are replaced one after another: for another revision, or because their node is to be empty."""
