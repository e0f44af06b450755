"""Quota of queues as the documentation states it, in as few lines as it takes: the judge of ``covey.admission.ledger``.

One flavor and one resource, unlike the product; charges are (queue, unit, replica or None, amount, priority, age).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Tenant:
    """A queue of the one cohort; None for no limit."""

    nominal: int
    borrow: int | None = None
    lend: int | None = None
    weight: int = 1
    borrow_minimums: bool = False


class Taken(NamedTuple):
    """Something that is charged."""

    queue: str
    unit: str
    replica: int | None
    amount: int
    priority: int = 0
    age: int = 0


def used(taken: Sequence[Taken], queue: str) -> int:
    return sum(each.amount for each in taken if each.queue == queue)


def within(tenant: Tenant, taken: Sequence[Taken], queue: str) -> list[Taken]:
    """Q2: minimums, then priority, then age; each that fits whole, and no surplus of a minimum that does not."""
    left, found, out = tenant.nominal, [], set[str]()
    own = [each for each in taken if each.queue == queue]
    for each in sorted(own, key=lambda e: (e.replica is not None, -e.priority, e.age, e.unit, e.replica or 0)):
        if each.amount <= left and each.unit not in out:
            left -= each.amount
            found.append(each)
        elif each.replica is None:
            out.add(each.unit)
    return found


def room(tenants: Mapping[str, Tenant], taken: Sequence[Taken], queue: str) -> int:
    """Q3: what is kept back for it, and what of the common pot nobody uses, up to nominal + borrow."""
    keeps = {
        name: each.nominal - min(each.nominal if each.lend is None else each.lend, each.nominal)
        for name, each in tenants.items()
    }
    pot = sum(each.nominal - keeps[name] for name, each in tenants.items())
    pot -= sum(max(0, used(taken, name) - keeps[name]) for name in tenants)
    mine, own = tenants[queue], used(taken, queue)
    most = max(0, keeps[queue] - own) + pot
    return most if mine.borrow is None else min(most, mine.nominal + mine.borrow - own)


def may_start(tenants: Mapping[str, Tenant], taken: Sequence[Taken], queue: str, amount: int) -> bool:
    """A minimum has quota."""
    minimums = sum(each.amount for each in within(tenants[queue], taken, queue) if each.replica is None)
    inside = minimums + amount <= tenants[queue].nominal
    return amount <= room(tenants, taken, queue) and (inside or tenants[queue].borrow_minimums)


def must_give_way(tenants: Mapping[str, Tenant], taken: Sequence[Taken], new: Taken, other: Taken) -> bool:
    """Q4: whether a charge is one that a minimum within nominal may reclaim."""
    if other.queue == new.queue:
        minimums = [each for each in taken if each.replica is None]
        surplus = [each for each in taken if each.replica is not None]
        first = [*minimums, new._replace(priority=-(10**6), age=10**6), *surplus]
        outside = other not in within(tenants[other.queue], first, other.queue)
        return outside and (other.replica is not None or other.priority < new.priority)
    return other not in within(tenants[other.queue], taken, other.queue)


def share(tenants: Mapping[str, Tenant], taken: Sequence[Taken], queue: str) -> float:
    mine = tenants[queue]
    return max(0, used(taken, queue) - mine.nominal) / max(mine.nominal, 1) / mine.weight
