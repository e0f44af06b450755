"""The cluster as the planner sees it: nodes, what is free on them, domains, and which shape each admits."""
