"""Repair: failures of replicas, lost minimums, and units that are given up."""
