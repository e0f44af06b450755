"""The choice of a topology for each unit, and the list of those that the planner must know.

The one the root names, else the ClusterTopology marked default, else the only one, else the preset that the nodes'
labels show. What the labels show is looked at again only when they may have changed.
"""

from __future__ import annotations

from covey.api import core
from covey.api.constants import ANNOTATION_DEFAULT_TOPOLOGY
from covey.placement.cluster import presets
from covey.placement.model import Topology
from covey.scheduler.cache import Cache, Listener


class Topologies:
    """Chooses topologies and keeps the planner's inventory supplied with all that were chosen."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._chosen: dict[str | None, Topology] = {}
        self._known: dict[str, Topology] = {}
        cache.subscribe(Listener(node=lambda _name: self._chosen.clear(), world=self._prune))

    def _prune(self) -> None:
        """Topologies or priorities have changed: the planner need not know those that are gone, Covey's own apart."""
        self._chosen.clear()
        there = {topology.name for topology in presets.PRESETS} | {name for _, name in self._cache.topologies.store}
        if not self._known.keys() <= there:
            self._known = {name: each for name, each in self._known.items() if name in there}
            self._cache.capacity.set_topologies(self._known.values())

    def choose(self, root: core.Group) -> Topology:
        """The topology of a unit.

        Raises:
            LookupError: there is no clear choice; the message says why.
        """
        constraints = root.spec.scheduling_constraints
        name = constraints.topology_name if constraints else None
        if name not in self._chosen:
            topology = self._chosen[name] = self._choose(name)
            if self._known.get(topology.name) != topology:
                self._known[topology.name] = topology
                self._cache.capacity.set_topologies(self._known.values())
        return self._chosen[name]

    def default(self) -> Topology:
        """The topology of whoever names none; the planner need not know it.

        Raises:
            LookupError: there is no clear choice.
        """
        return self._chosen.get(None) or self._choose(None)

    def _choose(self, name: str | None) -> Topology:
        resources = list(self._cache.topologies.store.values())
        return presets.choose(
            name,
            [presets.topology_of(resource) for resource in resources],
            [
                each.metadata.name
                for each in resources
                if each.metadata.annotation(ANNOTATION_DEFAULT_TOPOLOGY) == "true"
            ],
            self._cache.nodes.store.values(),
        )
