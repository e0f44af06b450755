"""Quota that is being given back: what is promised to a minimum until it has its places, and which pod is which charge.

A promise follows from the claim in a root's status, so a restart knows it again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NamedTuple

from covey.admission.entitlement import claimant, victims
from covey.admission.quota import Amounts, Charge, Flavor, Ledger, Policy
from covey.admission.reclaim import Right
from covey.admission.tree import Key, Unit
from covey.admission.wishes import first_choice, minimum_shapes
from covey.api import core
from covey.placement.model import Gang, Shape

#: The purpose of a claim by which borrowed quota is given back.
RECLAIM: Final = "Reclaim"
#: The age of what is promised: older than an admission that no status tells yet.
_PROMISED: Final = "}"


class Promise(NamedTuple):
    """The charge that a minimum will be, and the pods (UIDs) that go for it."""

    charge: Charge
    victims: frozenset[str]

    @classmethod
    def of(
        cls,
        root: Key,
        claim: core.Claim,
        policy: Policy,
        shapes: Sequence[Shape],
        flavor_of: Callable[[str], Flavor | None],
    ) -> Promise:
        """The promise of a claim: on the flavors of its nodes."""
        there = {flavor_of(node) for node in claim.nodes}
        flavors = tuple(each for each in policy.flavors if each in there) or policy.flavors
        amounts = first_choice(replace(policy, flavors=flavors), shapes)
        charge = Charge(policy.name, root, None, tuple(sorted(amounts.items())), since=_PROMISED)
        return cls(charge, frozenset(uid for victim in claim.victims for uid in victim.pods))


class Promises:
    """The promises that stand."""

    def __init__(self) -> None:
        self._of: dict[Key, Promise] = {}

    def enter(self, root: Key, now: Promise | None) -> bool:
        """Take a promise to a root for the one before; returns whether something is promised no longer."""
        before = self._of.pop(root, None)
        if now is not None:
            self._of[root] = now
        return before not in {None, now}

    @contextmanager
    def charge_others(self, ledger: Ledger, root: Key) -> Iterator[None]:
        """Charge what is promised to other roots, as if they had it already."""
        before = {other: ledger.of(other) for other in self._of if other != root}
        for other, charged in before.items():
            ledger.enter(other, (*charged, self._of[other].charge))
        try:
            yield
        finally:
            for other, charged in before.items():
                ledger.enter(other, charged)

    def keep_for_others(self, ledger: Ledger, root: Key, charge_of: Mapping[str, Charge]) -> Ledger:
        """A copy of a ledger on which others than a root have what is promised to them, and their victims are gone."""
        others = {other: promise for other, promise in self._of.items() if other != root}
        gone = {charge_of[uid] for each in others.values() for uid in each.victims if uid in charge_of}
        found = ledger.without(gone)
        for other, each in others.items():
            found.enter(other, (*found.of(other), each.charge))
        return found


def charges_of_pods(units: Iterable[Unit], ledger: Ledger) -> dict[str, Charge]:
    """By UID of a pod of some units: the charge of its replica, or of the minimum."""
    found: dict[str, Charge] = {}
    for unit in units:
        of = {each.member: each for each in ledger.of(unit.key)}
        for role in unit.roles:
            for replica in role.replicas:
                charge = of.get((role.name, replica.number)) or of.get(None)
                found |= {pod.metadata.uid: charge for pod in replica.pods if charge is not None}
    return found


def charges_by_flavor(policy: Policy, shapes: Sequence[Shape]) -> Iterator[Amounts]:
    """The charges that a minimum may be, with one flavor after another as the first."""
    seen: list[Amounts] = []
    for number in range(len(policy.flavors)):
        amounts = first_choice(replace(policy, flavors=policy.flavors[number:]), shapes)
        if amounts and amounts not in seen:
            seen.append(amounts)
            yield amounts


def right_of(
    ledger: Ledger,
    queue: str,
    root: Key,
    gang: Gang,
    nodes: Mapping[Flavor | None, Collection[str]],
    charge_of: Mapping[str, Charge],
    wanted: Charge | None,
) -> Right | None:
    """The right of a minimum: to judge its quota alone, or by what it would be charged for also who must give way.

    Args:
        ledger: all charges; nobody else changes it.
        queue: of the unit.
        root: of the unit.
        gang: the unit's.
        nodes: of each flavor; those of none under None.
        charge_of: by the UID of a pod.
        wanted: what it would be charged for.
    """
    order: tuple[Charge, ...] = ()
    if wanted is not None:
        who = claimant(ledger, queue, wanted)
        if who is None:
            return None
        order = tuple(victims(ledger, who))
    own = next((each for each in ledger.of(root) if each.member is None), None)
    return Right(ledger, queue, minimum_shapes(gang), own, nodes, order, charge_of)


__all__ = ["RECLAIM", "Promise", "Promises", "charges_by_flavor", "charges_of_pods", "right_of"]
