"""Admission of units: built from groups and pods, put in order, and reported in their status. Pure, as the planner is.

Both the scheduler process and `covey plan` stand on it, so that a decision is made in one place.
"""
