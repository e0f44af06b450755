"""Nodes that are kept for gangs which have waited for too long, and to whom they are closed: pure.

A gang that does not fit blocks nobody behind it, so a large one could be starved by small ones for ever. What comes
free on the nodes that are kept for it goes to it, or to gangs before it: gangs behind it are planned without those
nodes, and so is surplus of its priority and of lower ones, where it is growth (``growth``). A gang that has members
placed may always replace what it lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from covey.placement.model import Gang
from covey.placement.refusal.exclusions import RESERVED

N = TypeVar("N", bound=tuple[str, ...] | str)


@dataclass(frozen=True, slots=True)
class Kept:
    """Nodes, the gang that they are kept for, and the resource that it waits for: without one, any is."""

    gang: Gang
    nodes: frozenset[str]
    resource: str = ""


class Reservations(Generic[N]):
    """Kept nodes by the gang that waits for them, under any name."""

    def __init__(self) -> None:
        self._kept: dict[N, Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, name: N) -> Kept | None:
        """The nodes that are kept for one gang."""
        return self._kept.get(name)

    def items(self) -> Collection[tuple[N, Kept]]:
        """The nodes that are kept for each gang."""
        return self._kept.items()

    def put(self, name: N, kept: Kept) -> bool:
        """Keep nodes for somebody, instead of any others; returns whether some are kept no longer."""
        before = self._kept.get(name)
        self._kept[name] = kept
        return before is not None and not before.nodes <= kept.nodes

    def drop(self, name: N) -> bool:
        """Keep nothing for somebody; returns whether anything was."""
        return self._kept.pop(name, None) is not None

    def closed_to(self, gang: Gang, *, surplus: bool) -> Iterator[Kept]:
        """The claims whose nodes are closed to a gang's minimum, or to its surplus."""
        if not surplus and any(pod.node for role in gang.roles for replica in role.replicas for pod in replica.pods):
            return
        for other in self._kept.values():
            before = other.gang.priority >= gang.priority if surplus else other.gang.order < gang.order
            if before and other.gang.uid != gang.uid and _asks_for(gang, other.resource):
                yield other


def _asks_for(gang: Gang, resource: str) -> bool:
    """A pod without a place asks for a resource."""
    pods = (pod for role in gang.roles for replica in role.replicas for pod in replica.pods)
    return not resource or any(pod.node is None and dict(pod.shape.requests).get(resource, 0) > 0 for pod in pods)


def confine(gang: Gang, kept: Reservations[N], *, surplus: bool) -> tuple[Gang, frozenset[str]]:
    """A gang as it may be planned, without the nodes that are kept for gangs before it, and the UIDs of those gangs."""
    others = list(kept.closed_to(gang, surplus=surplus))
    nodes = dict.fromkeys((node for each in others for node in each.nodes), RESERVED)
    asked = replace(gang, excluded_nodes={**nodes, **gang.excluded_nodes}) if nodes else gang
    return asked, frozenset(each.gang.uid for each in others)


__all__ = ["Kept", "Reservations", "confine"]
