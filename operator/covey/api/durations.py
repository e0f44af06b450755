"""Durations as Kubernetes and Go write them: ``300s``, ``4h``, ``1h30m``."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_TERM: Final = re.compile(r"(\d+(?:\.\d+)?)(h|ms|us|µs|ns|m|s)")


def parse_duration(text: str) -> float | None:
    """Return the seconds of a duration (Go's ``time.ParseDuration`` without signs); None for a text that is none."""
    terms = _TERM.findall(text)
    if not terms or "".join(number + unit for number, unit in terms) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in terms)
