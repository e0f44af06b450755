"""``MinimumMet``: whether every unit has the places of its minimum."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.operator.feature import MinimumShortage
from covey.operator.status.ready import Finding

REASON_MINIMUM_MET: Final = "MinimumMet"


def minimum_met(shortages: Iterable[MinimumShortage], served: Collection[int], wanted: int, units: int) -> Finding:
    """Compute the condition ``MinimumMet``.

    Args:
        shortages: the units below their minimum.
        served: numbers of units that have served.
        wanted: how many units there shall be.
        units: how many there are.
    """
    short = sorted(shortages, key=lambda shortage: (shortage.unit not in served, shortage.unit))
    missing = max(wanted - units, 0)
    if not short and not missing:
        return "True", REASON_MINIMUM_MET, f"{wanted}/{wanted} units are assigned nodes for their minimum"
    count = f"{units - len(short)}/{wanted} units are assigned nodes for their minimum"
    if not short:
        return "False", names.REASON_WAITING, count
    first = short[0]
    lost = first.unit in served
    since = f" since {core.rfc3339(first.since)}" if lost else ""
    reason = names.REASON_BELOW_MINIMUM if lost else names.REASON_WAITING
    return "False", reason, f"{count}; unit {first.unit} has {first.text} replicas{since}"
