"""A gang that has waited too long gets what comes free in its best domain.

Gangs that do not fit block nobody behind them, so a large one could be starved by small ones for ever. After
``reserve_after`` seconds the domain that the refusal names as the best is kept for it: gangs behind it in the queue,
and every surplus, are planned without that domain. What waits is written into the root's status, so a restart keeps
it. A unit that runs there already may still replace what it lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from covey.admission import entries
from covey.admission.entries import Entry, Want
from covey.api import core, times
from covey.placement.model import Gang, Path, Refusal
from covey.scheduler.cache import Cache


class Reservations:
    """Who waits for which domain: the reservations in the entries' decisions."""

    def __init__(self, cache: Cache, *, reserve_after: float, clock: Callable[[], float] = time.time) -> None:
        self._cache = cache
        self._reserve_after = reserve_after
        self._clock = clock

    def consider(self, entry: Entry, refused: Refusal) -> Entry:
        """A refused entry, with a reservation once it has waited long enough."""
        unit = self._cache.index.unit(entry.unit.key) or entry.unit  # its status may be newer than the entry
        since = entries.waiting_since(unit.root)
        path = entries.best_domain(refused)
        topology = entry.decision.topology
        if self._nodes(entry) or not path or topology is None or since is None:
            return entry
        if self._clock() < since + self._reserve_after:
            return entry
        level = topology.levels[len(path) - 1].name if len(path) <= len(topology.levels) else ""
        reservation = core.Reservation(path=path, since=times.rfc3339(self._clock()), level=level)
        return replace(entry, decision=replace(entry.decision, reservation=reservation))

    def confine(self, gang: Gang, waiting: Iterable[Entry], *, surplus: bool) -> tuple[Gang, list[Path]]:
        """A gang as it may be planned, and the domains that are closed to it, being kept for gangs before it.

        What is kept in another topology than the gang's own is closed to it node by node.
        """
        closed: list[Path] = []
        nodes: dict[str, str] = {}
        for entry in waiting:
            if not self._before(entry, gang, surplus=surplus):
                continue
            reservation, topology = entry.decision.reservation, entry.decision.topology
            if reservation is None or topology is None:
                continue
            if topology.name == gang.topology:
                closed.append(tuple(reservation.path))
            else:
                nodes |= dict.fromkeys(self._nodes(entry), f"kept for {entry.unit.root.metadata.name}")
        return (replace(gang, excluded_nodes={**nodes, **gang.excluded_nodes}) if nodes else gang), closed

    @staticmethod
    def _before(entry: Entry, gang: Gang, *, surplus: bool) -> bool:
        other = entry.gang
        if not holds(entry) or other is None:
            return False
        if other.uid == gang.uid:
            return False
        if surplus:
            return other.priority >= gang.priority
        running = any(pod.node for role in gang.roles for replica in role.replicas for pod in replica.pods)
        return not running and other.order < gang.order

    def _nodes(self, entry: Entry) -> Collection[str]:
        reservation, topology = entry.decision.reservation, entry.decision.topology
        if reservation is None or topology is None:
            return ()
        return self._cache.capacity.nodes_in(topology, tuple(reservation.path))


def holds(entry: Entry | None) -> bool:
    """A domain is kept for this unit now."""
    return entry is not None and entry.want is Want.MINIMUM and entry.decision.reservation is not None
