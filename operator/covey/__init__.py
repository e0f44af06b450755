"""Covey schedules disaggregated LLM inference on Kubernetes as one thing."""

__version__ = "0.1.0"
