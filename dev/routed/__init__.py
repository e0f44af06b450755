"""Requests through a rollout: an HTTP stand-in for engines, and a router that pairs prefill and decode by label."""

from routed.requests import Request, Traffic

__all__ = ["Request", "Traffic"]
