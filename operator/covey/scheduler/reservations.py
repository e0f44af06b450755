"""A gang that has waited too long gets what comes free in its best domain.

Gangs that do not fit block nobody behind them, so a large one could be starved by small ones for ever. After
``reserve_after`` seconds the domain that the refusal names as the best is kept for it: gangs behind it in the queue,
and every surplus, are planned without that domain. What waits is written into the root's status, so a restart keeps
it. A unit that runs there already may still replace what it lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from covey.admission import entries, reservations
from covey.admission.entries import Entry, Want
from covey.admission.reservations import Kept
from covey.admission.tree import Key
from covey.api import core, times
from covey.placement.model import Gang, Path, Refusal
from covey.scheduler.cache import Cache


class Reservations:
    """Who waits for which domain: the reservations in the entries' decisions."""

    def __init__(self, cache: Cache, *, reserve_after: float, clock: Callable[[], float] = time.time) -> None:
        self._cache = cache
        self._reserve_after = reserve_after
        self._clock = clock
        self._kept: reservations.Reservations[Key] = reservations.Reservations()

    def consider(self, entry: Entry, refused: Refusal) -> Entry:
        """A refused entry, with a reservation once it has waited long enough."""
        unit = self._cache.index.unit(entry.unit.key) or entry.unit  # its status may be newer than the entry
        since = entries.waiting_since(unit.root)
        path = entries.best_domain(refused)
        topology = entry.decision.topology
        reservation = entry.decision.reservation
        standing = topology is not None and reservation is not None
        if standing and topology is not None and reservation is not None:
            standing = bool(self._cache.capacity.nodes_in(topology, tuple(reservation.path)))
        if standing or not path or topology is None or since is None:
            return entry
        if self._clock() < since + self._reserve_after:
            return entry
        level = topology.levels[len(path) - 1].name if len(path) <= len(topology.levels) else ""
        reservation = core.Reservation(path=path, since=times.rfc3339(self._clock()), level=level)
        return replace(entry, decision=replace(entry.decision, reservation=reservation))

    def file(self, root: Key, entry: Entry | None) -> bool:
        """Keep for a unit what its entry says; returns whether something is not kept any more."""
        kept = kept_for(entry)
        return self._kept.drop(root) if kept is None else self._kept.put(root, kept)

    def keeps(self, root: Key) -> bool:
        """A domain is kept for a unit."""
        return self._kept.get(root) is not None

    def confine(self, gang: Gang, *, surplus: bool) -> tuple[Gang, list[Path]]:
        """A gang as it may be planned, and the domains that are closed to it, being kept for gangs before it.

        What is kept in another topology than the gang's own is closed to it node by node.
        """
        closed: list[Path] = []
        nodes: dict[str, str] = {}
        for kept in self._kept.closed_to(gang, surplus=surplus):
            if kept.topology == gang.topology:
                closed.append(kept.path)
            else:
                tree = self._cache.capacity.planned.trees.get(kept.topology)
                domain = tree.by_path.get(kept.path) if tree else None
                nodes |= dict.fromkeys(domain.nodes if domain else (), f"kept for {kept.gang.name}")
        return (replace(gang, excluded_nodes={**nodes, **gang.excluded_nodes}) if nodes else gang), closed


def kept_for(entry: Entry | None) -> Kept | None:
    """The domain that is kept for a unit now."""
    if entry is None or entry.want is not Want.MINIMUM or entry.gang is None:
        return None
    reservation, topology = entry.decision.reservation, entry.decision.topology
    if reservation is None or topology is None:
        return None
    return Kept(topology.name, tuple(reservation.path), entry.gang)
