"""The topology of each unit, kept from the decision about its first pods on (``admission.topologies`` chooses it).

The name is on the root's status before the first pin is: whoever leads next goes on with the same. Between the decision
and the moment when the watch shows that status it is remembered here, and for groups whose status is not Covey's as long
as the process lives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from covey.admission.nodes import Key
from covey.admission.topologies import TopologyChoice, kept_preset
from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import HOSTNAME_LABEL
from covey.kube.client import Client, Ignored
from covey.kube.errors import NotFound
from covey.kube.resources import COMPOSITE_POD_GROUPS, POD_GROUPS
from covey.model import podstate
from covey.observability.logging import get_logger
from covey.placement.cluster import presets
from covey.placement.model import Topology
from covey.scheduler.cache import Cache, Listener

log = get_logger(__name__)

_KINDS = {resource.kind: resource for resource in (COMPOSITE_POD_GROUPS, POD_GROUPS)}


class Topologies:
    """Chooses topologies, keeps those of placed units, and supplies the planner's inventory with all in use."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._counts = presets.LabelCounts(cache.nodes.store.values())
        #: Those that the planner knows.
        self._planned: dict[str, Topology] = {}
        #: Placed units whose status does not tell their topology yet: UID of the root, and name.
        self._decided: dict[Key, tuple[str, str]] = {}
        #: Running units that name no topology, and the one that they keep; and the same counted.
        self._kept: dict[Key, str] = {}
        self._in_use: Counter[str] = Counter()
        self._choice: TopologyChoice | None = None
        self._detected: str | None = None
        self._tell_change: Callable[[str, str, str], None] = _tell_nobody
        self._tell_twin: Callable[[str, str, str], None] = _tell_nobody
        #: Names of nodes by the label of their hostname.
        self._hostnames: dict[str, set[str]] = {}
        for root in cache.index.roots():
            self._note_root(root)
        cache.subscribe(
            Listener(node=self._note_node, world=self._note_topologies, tree=self._note_root, status=self._note_root)
        )

    def begin(self, tell_change: Callable[[str, str, str], None], tell_twin: Callable[[str, str, str], None]) -> None:
        """Begin to lead: from now on each change of what the labels of nodes show is told.

        Args:
            tell_change: called with the node whose labels made the change, the preset before, and the one now.
            tell_twin: called with a node, another one that has the same label of its hostname, and that; also for those
                that are there.
        """
        self._detected = self._detect()
        self._tell_change, self._tell_twin = tell_change, tell_twin
        self._hostnames.clear()
        for _, name in sorted(self._cache.nodes.store):
            self._note_hostname(name)

    def choose(self, unit: Unit) -> Topology:
        """The topology of a unit.

        Raises:
            LookupError: there is no clear choice; the message says why.
        """
        uid, name = self._decided.get(unit.key, ("", ""))
        kept = name if uid == unit.root.metadata.uid else self._stored_name(unit)
        assumed = self._cache.capacity.assumed
        topology = self._current().of_unit(unit, self._labels_of, assumed=assumed, kept=kept)
        if any(podstate.place_of(pod, assumed) for pod in unit.pods()):
            self.keep(unit, topology)
        self.show(topology)
        return topology

    def show(self, topology: Topology) -> None:
        """Let the planner know a topology."""
        if self._planned.get(topology.name) != topology:
            self._planned[topology.name] = topology
            self._cache.capacity.set_topologies(self._planned.values())

    def keep(self, unit: Unit, topology: Topology) -> None:
        """Remember the topology of a unit whose pods are placed, or about to be, as long as its status does not tell it."""
        if self._stored_name(unit) == topology.name:
            self._decided.pop(unit.key, None)
        else:
            self._decided[unit.key] = (unit.root.metadata.uid, topology.name)

    def default(self) -> Topology:
        """The topology of whoever names none and has no placed pods; the planner need not know it.

        Raises:
            LookupError: there is no clear choice.
        """
        return self._current().choose()

    def _stored_name(self, unit: Unit) -> str | None:
        """The topology that a root's status names; it may be newer than the unit."""
        return (self._cache.index.root(unit.key) or unit.root).status.topology

    def _current(self) -> TopologyChoice:
        if self._choice is None:
            self._choice = TopologyChoice.of(self._cache.topologies.store.values(), self._counts, self._in_use)
        return self._choice

    def _labels_of(self, name: str) -> Mapping[str, str] | None:
        node = self._cache.node(name)
        return (node.metadata.labels or {}) if node is not None else None

    def _detect(self) -> str | None:
        """The preset that the labels of nodes show; None where ClusterTopologies decide."""
        return self._current().choose().name if not self._cache.topologies.store else None

    def _note_hostname(self, name: str) -> None:
        """Tell of a node whose hostname is another's too: cloned machines have it so."""
        node = self._cache.node(name)
        value = node.metadata.label(HOSTNAME_LABEL) if node is not None else None
        known = self._hostnames.get(value or "", set())
        if value and name in known:
            return
        for names in self._hostnames.values():
            names.discard(name)
        if value:
            twin = min(known, default=None)
            self._hostnames.setdefault(value, set()).add(name)
            if twin is not None:
                self._tell_twin(name, twin, value)

    def _note_node(self, name: str) -> None:
        self._note_hostname(name)
        if not self._counts.note(name, self._cache.node(name)):
            return
        before, self._detected = self._detected, self._detect()
        if before and self._detected and before != self._detected:
            log.info("another topology detected", node=name, before=before, now=self._detected)
            self._tell_change(name, before, self._detected)

    def _note_topologies(self) -> None:
        """Topologies or priorities have changed: the planner need not know those that are gone, the presets apart."""
        self._choice = None
        there = {topology.name for topology in presets.PRESETS} | {name for _, name in self._cache.topologies.store}
        if not self._planned.keys() <= there:
            self._planned = {name: topology for name, topology in self._planned.items() if name in there}
            self._cache.capacity.set_topologies(self._planned.values())

    def _note_root(self, root: Key) -> None:
        group = self._cache.index.root(root)
        if group is None:
            self._decided.pop(root, None)
        before, now = self._kept.pop(root, None), kept_preset(group) if group is not None else None
        if now is not None:
            self._kept[root] = now
        if before != now:
            self._in_use.update([now] if now else [])
            self._in_use.subtract([before] if before else [])


def _tell_nobody(_node: str, _before: str, _now: str) -> None:
    """Nobody leads yet."""


async def write_topology(client: Client, root: core.Group, name: str) -> None:
    """Write the topology of a root on its status, unless it is there; not on groups whose status is not Covey's.

    Only this field: the rest of the status follows when there is time (``statuses``), which takes this one along.

    Raises:
        KubeError: the API server has not taken it.
    """
    if root.is_native or root.status.topology == name:
        return
    body = {"status": {"topology": name}}
    meta = root.metadata
    try:
        await client.merge_patch(_KINDS[root.kind], meta.name, meta.namespace, body, subresource="status", type=Ignored)
    except NotFound:
        return  # so are its pods, or about to be
