"""When a node is avoided, and for how long: flags of the operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Limits:
    """After so many failures of a resource a node is avoided for ``seconds``; never where ``after`` is 0."""

    after: int = 3
    seconds: float = 600.0


DEFAULT: Final = Limits()
