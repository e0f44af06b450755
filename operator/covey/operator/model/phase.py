"""The phase of a unit: its progress, in one word."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """Progress of a unit, the worst first."""

    PENDING = "Pending"
    ADMITTED = "Admitted"
    SCHEDULED = "Scheduled"
    PARTIAL = "PartiallyReady"
    READY = "Ready"
