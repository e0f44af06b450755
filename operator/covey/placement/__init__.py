"""Placement of pods: capacity by topology, and the exact planner. Pure: no client, no clock, no network."""
