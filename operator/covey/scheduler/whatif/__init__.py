"""Plugins that answer what would be: could a unit have other numbers of replicas, and how many more have nodes."""
