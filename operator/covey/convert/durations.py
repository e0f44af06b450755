"""Go's durations, as Kubernetes writes them: ``4h``, ``15m``, ``1h30m``."""

from __future__ import annotations

import re
from typing import Final

_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_TERM: Final = re.compile(r"(\d+(?:\.\d+)?)(h|ms|us|µs|ns|m|s)")


def seconds(text: str) -> int | None:
    """Whole seconds, rounded up; None for a text that is no duration."""
    terms = _TERM.findall(text)
    if not terms or "".join(number + unit for number, unit in terms) != text:
        return None
    exact = sum(float(number) * _SECONDS[unit] for number, unit in terms)
    return int(-(-exact // 1))
