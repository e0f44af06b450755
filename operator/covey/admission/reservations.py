"""Domains that are kept for gangs which have waited for too long, and to whom they are closed: pure.

A gang that does not fit blocks nobody behind it, so a large one could be starved by small ones for ever. What comes
free in the domain that is kept for it goes to it, or to gangs before it: gangs behind it are planned without that
domain, and so is surplus of its priority and of lower ones, where it is growth (``growth``). A gang that has members
placed may always replace what it lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from covey.admission.order import Queue
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Path

N = TypeVar("N", bound=tuple[str, ...] | str)


@dataclass(frozen=True, slots=True)
class Kept:
    """A domain of a topology and the gang that it is kept for."""

    topology: str
    path: Path
    gang: Gang


class Reservations(Generic[N]):
    """Who waits for which domain, by any name."""

    def __init__(self) -> None:
        self._kept: dict[N, Kept] = {}
        #: In each domain those who wait for it, the first in the queue first.
        self._domains: dict[tuple[str, Path], Queue[N]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, name: N) -> Kept | None:
        """What is kept for somebody."""
        return self._kept.get(name)

    def items(self) -> Collection[tuple[N, Kept]]:
        """What is kept for everybody."""
        return self._kept.items()

    def put(self, name: N, kept: Kept) -> bool:
        """Keep a domain for somebody, instead of any other; returns whether another one is kept no longer."""
        before = self._kept.get(name)
        if before is not None and (before.topology, before.path) == (kept.topology, kept.path):
            self._kept[name] = kept
            self._domains[kept.topology, kept.path].put(name, kept.gang.order)
            return False
        ended = self.drop(name)
        self._kept[name] = kept
        self._domains.setdefault((kept.topology, kept.path), Queue()).put(name, kept.gang.order)
        return ended

    def drop(self, name: N) -> bool:
        """Keep nothing for somebody; returns whether anything was."""
        before = self._kept.pop(name, None)
        if before is None:
            return False
        domain = self._domains[before.topology, before.path]
        domain.drop(name)
        if not domain:
            del self._domains[before.topology, before.path]
        return True

    def closed_to(self, gang: Gang, *, surplus: bool) -> Iterator[Kept]:
        """The domains that are closed to a gang's minimum, or to its surplus; each once."""
        if not surplus and any(pod.node for role in gang.roles for replica in role.replicas for pod in replica.pods):
            return
        for domain in self._domains.values():
            other = next((kept for name in domain if (kept := self._kept[name]).gang.uid != gang.uid), None)
            if other is None:
                continue
            if other.gang.priority >= gang.priority if surplus else other.gang.order < gang.order:
                yield other


def confine(gang: Gang, kept: Reservations[N], inventory: Inventory, *, surplus: bool) -> tuple[Gang, list[Path]]:
    """A gang as it may be planned, and the domains that are closed to it, being kept for gangs before it.

    What is kept in another topology than the gang's own is closed to it node by node.
    """
    closed: list[Path] = []
    nodes: dict[str, str] = {}
    for each in kept.closed_to(gang, surplus=surplus):
        if each.topology == gang.topology:
            closed.append(each.path)
        else:
            tree = inventory.trees.get(each.topology)
            domain = tree.by_path.get(each.path) if tree else None
            nodes |= dict.fromkeys(domain.nodes if domain else (), "kept for another gang")
    return (replace(gang, excluded_nodes={**nodes, **gang.excluded_nodes}) if nodes else gang), closed


__all__ = ["Kept", "Reservations", "confine"]
