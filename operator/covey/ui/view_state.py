"""The state of a view, kept current object by object: only what an object touches is drawn anew.

No I/O. What it shows is a function of the objects that it holds alone, whatever order they came in: ``draw`` is that
function, and a test compares the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from covey.admission.topologies import kept_preset
from covey.api import core
from covey.model import podstate
from covey.operator.model.objects import Inference
from covey.picture.floor import DeviceOwner, owners_of
from covey.placement.cluster import resources
from covey.ui import contract
from covey.ui.gangs import Owners, draw_gang, key_of, number_waiting, role_names
from covey.ui.pod_view import draw_pod, gang_of
from covey.ui.topology_view import ViewLayout, draw_node, lay_out, matters

T = TypeVar("T")
Key = tuple[str, str]
#: Everything that is read.
WatchedObject = core.Node | core.ClusterTopology | core.Group | core.Pod | Inference


@dataclass(frozen=True, slots=True)
class ObjectsView:
    """The parts of a state that the objects make."""

    topology: contract.TopologyView
    resource: str
    device: str
    scale: int
    warnings: tuple[str, ...]
    nodes: Mapping[str, contract.NodeView]
    gangs: Mapping[str, contract.GangView]
    foreign: int
    pods: Mapping[str, contract.PodView]
    waiting: Mapping[str, contract.WaitingView]


class _Entries(dict[str, T], Generic[T]):
    """A map of the state that remembers what has changed."""

    def __init__(self) -> None:
        super().__init__()
        self.changed: dict[str, T | None] = {}

    def draw(self, key: str, entry: T | None) -> None:
        """An entry as it is now, None for none."""
        if self.get(key) == entry:
            return
        self.changed[key] = entry
        if entry is None:
            del self[key]
        else:
            self[key] = entry

    def take(self) -> dict[str, T | None]:
        """The changes since the last call."""
        changes, self.changed = self.changed, {}
        return changes


@dataclass(slots=True)
class _Gang:
    """The objects of one resource, whether or not that is known itself."""

    inference: Inference | None = None
    pods: dict[Key, core.Pod] = field(default_factory=dict)
    waiting: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        return self.inference is None and not self.pods


class ViewBuilder:
    """Objects in, state out.

    Args:
        namespaces: those whose resources are shown; empty for all. Pods of others are only counted.
    """

    def __init__(self, namespaces: Collection[str] = ()) -> None:
        self._namespaces = frozenset(namespaces)
        self._topologies: dict[str, core.ClusterTopology] = {}
        self._nodes: dict[str, core.Node] = {}
        #: Running units by the preset that they keep.
        self._in_use: Counter[str] = Counter()
        self._gangs: dict[str, _Gang] = {}
        self._groups: dict[str, dict[tuple[str, Key], core.Group]] = {}
        #: Roots that no DisaggregatedInference owns.
        self._foreign: set[tuple[str, Key]] = set()
        #: By node: what each pod of others requests.
        self._others: dict[str, dict[Key, Mapping[str, int]]] = {}
        self._layout: ViewLayout | None = None
        self._owners: Owners = {}
        self._same_ground = False
        self._same_roles = False
        self._stale_nodes: dict[str, None] = {}
        self._stale_gangs: dict[str, None] = {}
        self._stale_pods: dict[Key, str] = {}
        self._maps: tuple[
            _Entries[contract.NodeView],
            _Entries[contract.GangView],
            _Entries[contract.PodView],
            _Entries[contract.WaitingView],
        ]
        self._maps = (_Entries(), _Entries(), _Entries(), _Entries())
        self._head: dict[str, Any] = {}

    def update(self, thing: WatchedObject, before: WatchedObject | None = None) -> None:
        """An object is new, or other than ``before``."""
        match thing:
            case core.Pod():
                if isinstance(before, core.Pod):
                    self._leave(before, self._gang_of(thing))
                self._enter(thing)
            case core.Group():
                if isinstance(before, core.Group) and _owner(before) != _owner(thing):
                    self._drop_group(before)
                self._count_kept(before, thing)
                self._groups.setdefault(_owner(thing), {})[thing.kind, thing.metadata.key] = thing
                self._touch_owner(thing)
                if gang_of(thing) is None and thing.spec.parent_composite_pod_group_name is None:
                    self._foreign.add((thing.kind, thing.metadata.key))
            case Inference():
                key = key_of(thing)
                gang = self._gangs.setdefault(key, _Gang())
                self._same_roles &= gang.inference is not None and role_names(gang.inference) == role_names(thing)
                gang.inference = thing
                self._stale_gangs[key] = None
            case core.Node():
                self._same_ground &= not matters(self._nodes.get(thing.metadata.name), thing)
                self._nodes[thing.metadata.name] = thing
            case core.ClusterTopology():
                self._same_ground = False
                self._topologies[thing.metadata.name] = thing

    def drop(self, thing: WatchedObject) -> None:
        """An object is gone; ``thing`` as it was put last."""
        match thing:
            case core.Pod():
                self._leave(thing, None)
            case core.Group():
                self._drop_group(thing)
                self._count_kept(thing, None)
            case Inference():
                key = key_of(thing)
                if (gang := self._gangs.get(key)) is not None:
                    gang.inference = None
                    self._same_roles = False
                    self._stale_gangs[key] = None
            case core.Node():
                self._same_ground = False
                self._nodes.pop(thing.metadata.name, None)
                self._stale_nodes[thing.metadata.name] = None
            case core.ClusterTopology():
                self._same_ground = False
                self._topologies.pop(thing.metadata.name, None)

    def stored(self) -> list[Inference]:
        """The resources that are known."""
        return [gang.inference for gang in self._gangs.values() if gang.inference is not None]

    def change(self) -> dict[str, Any]:
        """The difference to the state after the last call, as a JSON Merge Patch."""
        self._draw()
        now = self._simple()
        patch: dict[str, Any] = {name: value for name, value in now.items() if self._head.get(name) != value}
        self._head = now
        nodes, gangs, pods, waiting = self._maps
        taken = {"nodes": nodes.take(), "gangs": gangs.take(), "pods": pods.take(), "waiting": waiting.take()}
        return patch | {name: values for name, values in taken.items() if values}

    def parts(self) -> ObjectsView:
        """Everything as it is now; the maps are the board's own."""
        self._draw()
        nodes, gangs, pods, waiting = self._maps
        return ObjectsView(**self._simple(), nodes=nodes, gangs=gangs, pods=pods, waiting=waiting)

    def _simple(self) -> dict[str, Any]:
        layout = self._layout
        assert layout is not None
        return {
            "topology": layout.topology,
            "resource": layout.resource,
            "device": layout.device,
            "scale": layout.scale,
            "warnings": layout.warnings,
            "foreign": len(self._foreign),
        }

    def _gang_of(self, pod: core.Pod) -> str | None:
        shown = not self._namespaces or pod.metadata.namespace in self._namespaces
        return gang_of(pod) if shown else None

    def _enter(self, pod: core.Pod) -> None:
        key, gang = pod.metadata.key, self._gang_of(pod)
        if gang is not None:
            self._gangs.setdefault(gang, _Gang()).pods[key] = pod
            self._stale_gangs[gang] = None
            self._stale_pods[key] = gang
        elif (node := podstate.holding(pod)) is not None:
            self._others.setdefault(node, {})[key] = resources.pod_requests(pod)
            self._stale_nodes[node] = None

    def _leave(self, pod: core.Pod, heir: str | None) -> None:
        """Take a pod out; ``heir`` is the gang that it is put into at once."""
        key, gang = pod.metadata.key, self._gang_of(pod)
        if gang is not None and gang != heir:
            self._gangs[gang].pods.pop(key, None)
            self._stale_gangs[gang] = None
            self._stale_pods[key] = gang
        elif gang is None and (node := podstate.holding(pod)) is not None:
            pods = self._others.get(node, {})
            pods.pop(key, None)
            if not pods:
                self._others.pop(node, None)
            self._stale_nodes[node] = None

    def _drop_group(self, group: core.Group) -> None:
        self._touch_owner(group)
        self._foreign.discard((group.kind, group.metadata.key))
        groups = self._groups.get(_owner(group), {})
        groups.pop((group.kind, group.metadata.key), None)
        if not groups:
            self._groups.pop(_owner(group), None)

    def _count_kept(self, before: object, now: core.Group | None) -> None:
        """Count the presets that running units keep: where nodes have labels of several they decide which is drawn."""
        former = kept_preset(before) if isinstance(before, core.Group) else None
        kept = kept_preset(now) if now is not None else None
        if former != kept:
            names = frozenset(+self._in_use)
            self._in_use.update([kept] if kept else [])
            self._in_use.subtract([former] if former else [])
            self._same_ground &= names == frozenset(+self._in_use)

    def _touch_owner(self, group: core.Group) -> None:
        owner = group.metadata.controller
        if owner is not None:
            self._stale_gangs[f"{group.metadata.namespace}/{owner.name}"] = None

    def _draw(self) -> None:
        if not self._same_ground or self._layout is None:
            self._draw_ground()
        if not self._same_roles:
            self._draw_roles()
        nodes, gangs, pods, waiting = self._maps
        layout, self._same_ground, self._same_roles = self._layout, True, True
        assert layout is not None
        for name in self._take(self._stale_nodes):
            node = self._nodes.get(name)
            nodes.draw(name, draw_node(node, layout, self._used_by_others(name, layout)) if node is not None else None)
        for (namespace, name), key in self._stale_pods.items():
            member = self._gangs[key].pods.get((namespace, name)) if key in self._gangs else None
            entry = f"{namespace}/{name}"
            if member is not None or (entry in pods and pods[entry].gang == key):
                pods.draw(entry, draw_pod(member, key, layout) if member is not None else None)
        self._stale_pods.clear()
        for key in self._take(self._stale_gangs):
            self._draw_gang(key, layout, gangs, waiting)

    def _draw_ground(self) -> None:
        """Nodes have come or gone, or are others: everything may look different."""
        before = self._layout
        groups = (group for owned in self._groups.values() for group in owned.values())
        self._layout = layout = lay_out(self._nodes.values(), self._topologies.values(), groups)
        self._stale_nodes |= dict.fromkeys(self._nodes)
        self._stale_gangs |= dict.fromkeys(self._gangs)
        if before is None or (before.resource, before.scale) != (layout.resource, layout.scale):
            self._stale_pods |= {pod: key for key, gang in self._gangs.items() for pod in gang.pods}

    def _draw_roles(self) -> None:
        """Resources have come or gone, or have other roles: letters and colours are given anew, the oldest first."""
        inferences = [gang.inference for gang in self._gangs.values() if gang.inference is not None]
        inferences.sort(key=lambda inference: (inference.metadata.creation_timestamp, inference.metadata.key))
        owners: dict[tuple[str, str], DeviceOwner] = {}
        # Letters are told apart within a resource, P is prefill everywhere; colours over all of them.
        for inference in inferences:
            for place, owner in owners_of((key_of(inference), role) for role in role_names(inference)).items():
                owners[place] = replace(owner, ink=len(owners))
        former, self._owners = self._owners, owners
        changed = (key for (key, role), owner in owners.items() if former.get((key, role)) != owner)
        self._stale_gangs |= dict.fromkeys(changed)

    def _draw_gang(
        self, key: str, layout: ViewLayout, gangs: _Entries[contract.GangView], waiting: _Entries[contract.WaitingView]
    ) -> None:
        gang = self._gangs.get(key)
        if gang is None:
            return
        drawn, waits = None, {}
        if gang.inference is not None:
            groups = self._groups.get(gang.inference.metadata.uid, {}).values()
            drawn, drawn_gangs = draw_gang(gang.inference, groups, gang.pods.values(), layout, self._owners)
            waits = number_waiting(drawn_gangs)
        gangs.draw(key, drawn)
        for name in gang.waiting - waits.keys():
            waiting.draw(name, None)
        for name, entry in waits.items():
            waiting.draw(name, entry)
        gang.waiting = frozenset(waits)
        if gang.is_empty:
            del self._gangs[key]

    def _used_by_others(self, node: str, layout: ViewLayout) -> int:
        return sum(requests.get(layout.resource, 0) for requests in self._others.get(node, {}).values())

    @staticmethod
    def _take(stale: dict[str, None]) -> Iterator[str]:
        names = list(stale)
        stale.clear()
        return iter(names)


def draw(things: Iterable[WatchedObject]) -> ObjectsView:
    """The parts of a state that some objects make."""
    board = ViewBuilder()
    for thing in things:
        board.update(thing)
    return board.parts()


def _owner(group: core.Group) -> str:
    owner = group.metadata.controller
    return owner.uid if owner is not None else ""
