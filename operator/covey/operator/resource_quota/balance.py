"""The balance of a namespace's ResourceQuotas, while pods are taken from it one after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from covey.api import core
from covey.operator.resource_quota.charge import PodCharge
from covey.operator.resource_quota.scopes import amounts_in
from covey.placement.cluster.resources import parse_quantity

#: Pods, by what each is charged.
Demand = Mapping[PodCharge, int]
_BYTES: Final = ("memory", "ephemeral-storage")
_UNITS: Final = (("Ti", 4), ("Gi", 3), ("Mi", 2), ("Ki", 1))


@dataclass(frozen=True, slots=True)
class QuotaShortage:
    """The lack of one resource in one quota. ``left`` is None while the quota's status does not say."""

    quota: str
    resource: str
    needed: Fraction
    left: Fraction | None

    def __str__(self) -> str:
        """The text that a condition shows: ``quota team-a/gpus: requests.nvidia.com/gpu 16 needed, 8 left``."""
        if self.left is None:
            return f"quota {self.quota}: {self.resource} is not counted yet"
        needed, left = (_text(self.resource, amount) for amount in (self.needed, max(self.left, Fraction(0))))
        return f"quota {self.quota}: {self.resource} {needed} needed, {left} left"


class Balance:
    """The balance of all quotas of a namespace.

    Args:
        quotas: as the API server has them; ``status.used`` counts pods from their creation on.
        reserved: pods that are to come first, and are not there yet.
    """

    def __init__(self, quotas: Iterable[core.ResourceQuota], reserved: Demand | None = None) -> None:
        self._quotas = tuple(sorted(quotas, key=lambda quota: quota.metadata.key))
        self._left = [_left(quota) for quota in self._quotas]
        if reserved:
            self.take(reserved)

    def shortages(self, demand: Demand) -> tuple[QuotaShortage, ...]:
        """List what quotas lack for these pods; empty where they fit."""
        shortages = []
        for quota, left in zip(self._quotas, self._left, strict=True):
            name = "/".join(quota.metadata.key)
            for resource, needed in sorted(_charge_of(quota, demand).items()):
                if resource not in left:
                    if resource in (quota.spec.hard or {}):
                        shortages.append(QuotaShortage(name, resource, needed, None))
                elif needed > left[resource]:
                    shortages.append(QuotaShortage(name, resource, needed, left[resource]))
        return tuple(shortages)

    def take(self, demand: Demand) -> None:
        """Count these pods as there."""
        for quota, left in zip(self._quotas, self._left, strict=True):
            for resource, needed in _charge_of(quota, demand).items():
                if resource in left:
                    left[resource] -= needed


def _left(quota: core.ResourceQuota) -> dict[str, Fraction]:
    """Amounts left, by resource; one without an entry in ``status.used`` is left out: it is not counted yet."""
    used = quota.status.used or {}
    return {
        name: parse_quantity(hard) - parse_quantity(used[name])
        for name, hard in (quota.status.hard or {}).items()
        if name in used
    }


def _charge_of(quota: core.ResourceQuota, demand: Demand) -> Mapping[str, Fraction]:
    total: dict[str, Fraction] = {}
    for charge, count in demand.items():
        for name, value in amounts_in(quota, charge) if count else ():
            total[name] = total.get(name, Fraction(0)) + value * count
    return total


def merge_demands(demands: Iterable[Demand]) -> Demand:
    """All pods of several demands."""
    total = Counter[PodCharge]()
    for part in demands:
        total.update(part)
    return total


def _text(resource: str, value: Fraction) -> str:
    """A quantity as people write it."""
    if value.denominator != 1:
        return f"{float(value * 1000):g}m"
    if resource.endswith(_BYTES):
        for suffix, power in _UNITS:
            if value and value % 1024**power == 0:
                return f"{value // 1024**power}{suffix}"
    return str(value)
