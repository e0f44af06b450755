"""Sharing of targets from a domain down to its nodes at the least price, once it is known that all fit."""
