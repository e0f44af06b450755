"""The model of one resource: what was observed, the actions on it, and the problems it has."""
