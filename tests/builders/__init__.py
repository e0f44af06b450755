"""Builders of objects that many tests share, one module for each form in which a test needs them."""
