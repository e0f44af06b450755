"""How many replicas of each role could have places, as it is told."""

from __future__ import annotations

from covey.planning.report import Shape


class RoleReport(Shape, frozen=True):
    """One role: replicas that are wanted, that have places, and that could have some (None where nobody knows)."""

    name: str
    replicas: int
    admitted: int
    max_feasible: int | None


class HeadroomReport(Shape, frozen=True):
    """One resource. ``observed_at`` and ``asked`` are empty where no cluster was asked."""

    namespace: str
    name: str
    roles: tuple[RoleReport, ...]
    message: str = ""
    observed_at: str = ""
    asked: str = ""
