"""How far a unit has come, in one word."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """How far a unit has come, the worst first."""

    PENDING = "Pending"
    ADMITTED = "Admitted"
    SCHEDULED = "Scheduled"
    PARTIAL = "PartiallyReady"
    READY = "Ready"
