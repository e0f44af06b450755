"""Volcano, from 1.14: the first release whose PodGroups have a minimum for each role (``subGroupPolicy``)."""

from covey.backends.volcano.backend import Volcano

__all__ = ["Volcano"]
