"""What is kept for gangs that have waited too long, node by node, as the roots' status tells.

Every replica knows it, leading or not, for each answers its own kube-scheduler: ordinary pods that ask for the resource
such a gang waits for are kept off its domain (``Capacity.reserved_away``), unless their priority is higher. Pods that
ask for no such resource are not touched.
"""

from __future__ import annotations

from collections.abc import Callable

from covey.admission.tree import Key
from covey.api import core
from covey.api.constants import ADMITTED
from covey.placement.cluster import resources
from covey.placement.model import Topology
from covey.scheduler.cache import Cache, Listener
from covey.scheduler.capacity import Keep
from covey.scheduler.queueing import root_priority


class KeptDomains:
    """Keeps ``Capacity.kept`` up to date."""

    def __init__(self, cache: Cache, topology: Callable[[core.Group], Topology]) -> None:
        self._cache = cache
        self._topology = topology
        self._roots: dict[Key, core.Reservation] = {}
        cache.subscribe(
            Listener(unit=self._look, status=self._look, node=lambda _name: self._renew(), world=self._renew)
        )

    def _look(self, root: Key) -> None:
        group = self._cache.index.root(root)
        reservation = group.status.reservation if group is not None and _waits(group) else None
        if reservation == self._roots.get(root):
            return
        if reservation is None:
            del self._roots[root]
        else:
            self._roots[root] = reservation
        self._renew()

    def _renew(self) -> None:
        before = self._cache.capacity.kept
        if not self._roots and not before:
            return
        kept: dict[str, list[Keep]] = {}
        for root, reservation in self._roots.items():
            group = self._cache.index.root(root)
            if group is None or not reservation.resource or reservation.resource in resources.ORDINARY:
                continue
            try:
                topology = self._topology(group)
            except LookupError:
                continue
            # Whoever is refused may not see the gang's namespace.
            why = f"{reservation.resource} is kept for a gang that has waited for long"
            keep = Keep(reservation.resource, root_priority(self._cache, group) or 0, why)
            for node in reservation.nodes or self._cache.capacity.nodes_in(topology, tuple(reservation.path)):
                kept.setdefault(node, []).append(keep)
        self._cache.capacity.kept = kept
        for node in before:
            if before[node] != kept.get(node):
                self._cache.tell_room(node)


def _waits(root: core.Group) -> bool:
    admitted = core.condition(root.status.conditions, ADMITTED)
    return admitted is None or admitted.status != "True"
