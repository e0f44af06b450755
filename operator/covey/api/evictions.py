"""Refused evictions of ordinary pods, as the operator writes them on the root that they were claimed for.

``ANNOTATION_EVICTIONS_REFUSED`` is a JSON object of pod UID to the time (RFC 3339) until which the pod is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from covey.api import core

#: Seconds for which a pod is left alone whose eviction was refused. What was written for longer counts as gone.
LEFT_ALONE: Final = 300.0
#: Pods that one annotation names.
_MOST: Final = 256


def read_refused(text: str | None, now: float) -> dict[str, float]:
    """Read the pods that are left alone now, by UID, and until when; nothing where the text means nothing."""
    try:
        found = msgspec.json.decode(text or "{}", type=dict[str, str])
    except msgspec.DecodeError:
        return {}
    times = ((uid, core.seconds(until) or 0.0) for uid, until in found.items())
    return {uid: until for uid, until in times if 0.0 < until - now <= LEFT_ALONE + 1.0}


def write_refused(refused: Mapping[str, float]) -> str:
    """Write the pods that are left alone; of too many those that are so for longest."""
    latest = sorted(refused.items(), key=lambda each: (-each[1], each[0]))[:_MOST]
    return msgspec.json.encode({uid: core.rfc3339(until) for uid, until in sorted(latest)}).decode()


__all__ = ["LEFT_ALONE", "read_refused", "write_refused"]
