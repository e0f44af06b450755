"""A gang that has waited too long gets what comes free in its best domain.

Gangs that do not fit block nobody behind them, so a large one could be starved by small ones for ever. After
``reserve_after`` seconds the domain that the refusal names as the best is kept for it: gangs behind it in the queue,
and every surplus, are planned without that domain's nodes. What waits is written into the root's status, so a
restart keeps it. A unit that runs there already may still replace what it lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from covey.api import core
from covey.placement.model import Gang, Refusal
from covey.scheduler import entries, times
from covey.scheduler.cache import Cache
from covey.scheduler.entries import Entry, Want
from covey.scheduler.tree import Key


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
        if entry.decision.reservation is not None or not path or topology is None or since is None:
            return entry
        if self._clock() < since + self._reserve_after:
            return entry
        level = topology.levels[len(path) - 1].name if len(path) <= len(topology.levels) else ""
        reservation = core.Reservation(path=path, since=times.rfc3339(self._clock()), level=level)
        return replace(entry, decision=replace(entry.decision, reservation=reservation))

    def confine(self, gang: Gang, waiting: Mapping[Key, Entry], *, surplus: bool) -> Gang:
        """A gang as it may be planned: without the nodes that are kept for gangs before it."""
        kept = {
            node: f"kept for {entry.unit.root.metadata.name}, which has waited longer"
            for entry in waiting.values()
            if self._before(entry, gang, surplus=surplus)
            for node in self._nodes(entry)
        }
        return replace(gang, excluded_nodes={**kept, **gang.excluded_nodes}) if kept else gang

    @staticmethod
    def _before(entry: Entry, gang: Gang, *, surplus: bool) -> bool:
        other = entry.gang
        if entry.want is not Want.MINIMUM or entry.decision.reservation is None or other is None:
            return False
        if other.uid == gang.uid:
            return False
        if surplus:
            return other.priority >= gang.priority
        running = any(pod.node for role in gang.roles for replica in role.replicas for pod in replica.pods)
        return not running and other.order < gang.order

    def _nodes(self, entry: Entry) -> list[str]:
        reservation, topology = entry.decision.reservation, entry.decision.topology
        if reservation is None or topology is None:
            return []
        depth = len(reservation.path)
        return [
            name
            for _, name in self._cache.nodes.store
            if self._cache.path(topology, name)[:depth] == tuple(reservation.path)
        ]
