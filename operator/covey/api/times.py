"""Times as the API writes them: RFC 3339 in UTC, whole seconds."""

from __future__ import annotations

from datetime import UTC, datetime

#: The first and the last second of the years that are written with four digits: anybody may have written any time.
_FIRST, _LAST = -30_610_224_000.0, 253_402_300_799.0


def rfc3339(seconds: float) -> str:
    """A time given in seconds since the epoch; one outside the years 1000 to 9999 as the nearest of theirs."""
    return datetime.fromtimestamp(min(max(seconds, _FIRST), _LAST), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(text: str | None) -> float | None:
    """Seconds since the epoch of a time; None for none, and for what is no time."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None
