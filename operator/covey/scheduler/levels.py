"""Counts which preferred levels were reached."""

from __future__ import annotations

from typing import Final

from covey.admission.preferences import Preference
from covey.observability import scheduler_metrics as metrics
from covey.placement.model import Topology

#: A preferred level that the topology does not have: upstream groups name label keys, which anybody can make up.
OTHER: Final = "Other"


def count_level(preference: Preference, topology: Topology) -> None:
    """Count a preference of a gang that has its places."""
    known = any(level.name == preference.level for level in topology.levels)
    reached = preference.reached(topology)
    met = str(preference.is_met(topology)).lower()
    metrics.PREFERRED_LEVELS.labels(preference.scope, preference.level if known else OTHER, reached, met).inc()
