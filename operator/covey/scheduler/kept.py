"""Nodes that are kept for gangs which have waited too long, as the roots' status tells.

Every replica knows it, leading or not, for each answers its own kube-scheduler: ordinary pods that ask for the resource
such a gang waits for are kept off these nodes (``Capacity.reserved_away``), unless their priority is higher. Pods that
ask for no such resource are not touched.
"""

from __future__ import annotations

from covey.admission.tree import Key
from covey.api import core
from covey.api.constants import ADMITTED
from covey.placement.cluster import resources
from covey.scheduler.cache import Cache, Listener
from covey.scheduler.capacity import Keep
from covey.scheduler.queueing import root_priority


class KeptNodes:
    """Keeps ``Capacity.kept`` up to date."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._claims: dict[Key, core.Claim] = {}
        cache.subscribe(Listener(unit=self._look, status=self._look, world=self._renew))

    def _look(self, root: Key) -> None:
        group = self._cache.index.root(root)
        claim = group.status.claim if group is not None and _waits(group) else None
        if claim == self._claims.get(root):
            return
        if claim is None:
            del self._claims[root]
        else:
            self._claims[root] = claim
        self._renew()

    def _renew(self) -> None:
        before = self._cache.capacity.kept
        if not self._claims and not before:
            return
        kept: dict[str, list[Keep]] = {}
        for root, claim in self._claims.items():
            group = self._cache.index.root(root)
            if group is None or not claim.resource or claim.resource in resources.ORDINARY:
                continue
            # Whoever is refused may not see the gang's namespace.
            why = f"{claim.resource} is kept for a gang that has waited for long"
            keep = Keep(claim.resource, root_priority(self._cache, group) or 0, why)
            for node in claim.nodes:
                kept.setdefault(node, []).append(keep)
        self._cache.capacity.kept = kept
        for node in before:
            if before[node] != kept.get(node):
                self._cache.tell_room(node)


def _waits(root: core.Group) -> bool:
    admitted = core.condition(root.status.conditions, ADMITTED)
    return admitted is None or admitted.status != "True"
