"""Defaults of settings, for parts of the scheduler that are made without settings, too."""

from __future__ import annotations

from typing import Final

#: ``system-cluster-critical``, the lower of the two classes that Kubernetes keeps for the system.
SYSTEM_PRIORITY: Final = 2_000_000_000
MAX_HOLD: Final = 120.0
MAX_RESERVATIONS: Final = 4
MAX_RESERVATIONS_PER_NAMESPACE: Final = 1
MAX_RESERVED_PERCENT: Final = 5
MAX_PREEMPTIONS_PER_MINUTE: Final = 6
MAX_MIN_RUN: Final = 1800.0
