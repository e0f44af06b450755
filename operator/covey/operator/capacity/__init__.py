"""Nodes for those that wait, asked of an autoscaler in its own objects."""
