"""Quota that is being given back: what is promised to a minimum until it has its places.

A promise follows from the claim in a root's status, so a restart knows it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NamedTuple

from covey.admission.ledger import Amounts, Charge, Flavor, Ledger, Policy
from covey.admission.nodes import Key
from covey.admission.order import Order
from covey.admission.wishes import first_choice, minimum_shapes
from covey.api import core
from covey.placement.model import Gang, Shape

#: The age of what is promised: older than an admission that no status tells yet.
_PROMISED: Final = "}"


class Promise(NamedTuple):
    """The charge that a minimum will be, the pods (UIDs) that go for it, and its place among gangs."""

    charge: Charge
    victims: frozenset[str]
    order: Order

    @classmethod
    def of(
        cls,
        root: Key,
        claim: core.Claim,
        policy: Policy,
        gang: Gang,
        flavor_of: Callable[[str], Flavor | None],
    ) -> Promise:
        """The promise of a claim: on the flavors of its nodes."""
        there = {flavor_of(node) for node in claim.nodes}
        flavors = tuple(flavor for flavor in policy.flavors if flavor in there) or policy.flavors
        amounts = first_choice(replace(policy, flavors=flavors), minimum_shapes(gang))
        sums = tuple(sorted(amounts.items()))
        charge = Charge(policy.name, root, None, sums, priority=gang.priority, since=_PROMISED)
        return cls(charge, frozenset(uid for victim in claim.victims for uid in victim.pods), gang.order)


class Promises:
    """The promises that stand."""

    def __init__(self) -> None:
        self._of: dict[Key, Promise] = {}
        #: Grows with each change.
        self.version = 0

    def enter(self, root: Key, now: Promise | None) -> Promise | None:
        """Take a promise to a root for the one before, which is returned."""
        before = self._of.pop(root, None)
        if now is not None:
            self._of[root] = now
        self.version += before != now
        return before

    @contextmanager
    def charge_others(self, ledger: Ledger, root: Key, order: Order | None = None) -> Iterator[None]:
        """Charge what is promised to other roots, of minimums to those before a place in the order alone, as if they had it."""
        before = {other: ledger.of(other) for other in self._find_others(root, order)}
        for other, charged in before.items():
            ledger.enter(other, (*charged, self._of[other].charge))
        try:
            yield
        finally:
            for other, charged in before.items():
                ledger.enter(other, charged)

    def _find_others(self, root: Key, order: Order | None) -> list[Key]:
        """The other roots to which something is promised, or those of them that are before a place in the order."""
        return [other for other, right in self._of.items() if other != root and (order is None or right.order < order)]

    def keep_for_others(self, ledger: Ledger, root: Key, order: Order, charge_of: Mapping[str, Charge]) -> Ledger:
        """A copy of a ledger as it will be once those before a place in the order have what is promised to them.

        Nothing is known there of those behind it, not even that their victims go: a claim rests on those before it alone,
        as it does for nodes, so that no two claims end each other. The first of all rests on nobody.
        """
        copied, before = ledger.copy(), self._find_others(root, order)
        copied.give_up({charge_of[uid] for other in before for uid in self._of[other].victims if uid in charge_of})
        for other in before:
            copied.enter(other, (*copied.of(other), self._of[other].charge))
        return copied

    def find_behind(self, root: Key, order: Order) -> list[Key]:
        """The other roots to which something is promised that are behind a place in the order."""
        return [other for other, promise in self._of.items() if other != root and order < promise.order]

    def find_victims(self) -> Iterator[str]:
        """UIDs of pods that go for what is promised."""
        return (uid for right in self._of.values() for uid in right.victims)


def charges_by_flavor(policy: Policy, shapes: Sequence[Shape]) -> Iterator[Amounts]:
    """The charges that a minimum may be, with one flavor after another as the first."""
    seen: list[Amounts] = []
    for number in range(len(policy.flavors)):
        amounts = first_choice(replace(policy, flavors=policy.flavors[number:]), shapes)
        if amounts and amounts not in seen:
            seen.append(amounts)
            yield amounts
