"""The values in which the rooms speak to each other."""
