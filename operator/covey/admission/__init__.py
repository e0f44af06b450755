"""Who may start: units built from groups and pods, their order, and what their status says. Pure, as the planner is.

Both the scheduler process and `covey plan` stand on it, so that a decision is made in one place.
"""
