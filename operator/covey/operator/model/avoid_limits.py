"""Limits from which on nodes are avoided, and for how long: flags of the operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class AvoidLimits:
    """Avoid a node for ``seconds`` after ``after`` failures of a resource there; never where ``after`` is 0."""

    after: int = 3
    seconds: float = 600.0


DEFAULT: Final = AvoidLimits()
