"""Losses: pods whose node has gone, units below their minimum, and what is given up of them."""
