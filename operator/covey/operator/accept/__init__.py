"""Acceptance of a spec: validation, and the verdict on what is run."""
