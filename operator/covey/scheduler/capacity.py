"""Free capacity, twice: as it is now, for guard and barrier, and as the planner sees it, standing still while it plans.

A planner that may take tens of milliseconds runs in a thread; what happens meanwhile is applied to ``room`` at once,
so that the guard answers from the present, and to ``planning`` when the plan is done.

Held are: what ``Index.holding`` says of every pod, and what was *assumed*: decided here a moment ago, the patch or
the Binding being under way. An assumption ends when the watch confirms it, when the pod is gone, or when whoever made
it takes it back. Assumptions are the only thing here that no API object says yet; a process that dies loses them
together with the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from msgspec.structs import replace

from covey.admission.nodes import counted_spec
from covey.api import core
from covey.model import podstate
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import ports_clash, shape_of
from covey.placement.model import Gang, Shape, Topology
from covey.placement.question.demands import note_outstanding
from covey.scheduler.defaults import SYSTEM_PRIORITY

_Change = Callable[[Inventory], None]


class Keep(NamedTuple):
    """A resource that a gang waits for: ordinary pods that ask for it stay away unless their priority is higher."""

    resource: str
    priority: int
    why: str


class Capacity:
    """Holds by pod UID. Used on the event loop only.

    ``counted``: a pod's spec with all that counts for its place; the spec itself, and at once, for nearly all.
    ``apart``: whether plans are made on an inventory of their own, which stands still meanwhile.
    ``yields_to``: ordinary pods of this priority and more take room whatever is reserved there, and members give way.
    """

    def __init__(
        self,
        counted: Callable[[core.Pod], core.PodSpec] = counted_spec,
        *,
        apart: bool = True,
        yields_to: int = SYSTEM_PRIORITY,
    ) -> None:
        self.yields_to = yields_to
        self.room = Inventory()
        self._counted = counted
        self.assumed: dict[str, str] = {}
        #: Node → our unbound pods that have a place there → their shapes: what strangers must leave alone.
        self.reserved: dict[str, dict[str, Shape]] = {}
        self._reserved_at: dict[str, str] = {}
        #: Node → what is kept there for gangs that wait.
        self.kept: Mapping[str, Sequence[Keep]] = {}
        #: UIDs of pods that give way to gangs that wait.
        self.claimed: Collection[str] = frozenset()
        #: What the planner sees. While it plans (``planning``) nobody else looks at it.
        self.planned = Inventory() if apart else self.room
        self._queued: list[tuple[_Change, Collection[str]]] | None = None
        self._touched: set[str] | None = None
        self._held: dict[str, tuple[str, Shape, core.Meta]] = {}
        #: Of every pod that was taken over: its spec and shape, once somebody has asked for them.
        self._shapes: dict[str, tuple[core.PodSpec, Shape] | None] = {}

    @property
    def pins(self) -> Collection[str]:
        """UIDs of members that have their place and are not bound, and what room is held for."""
        return self._reserved_at.keys()

    def set_node(self, node: core.Node) -> None:
        """Take over a node as it is now."""
        self._apply(lambda inventory: inventory.set_node(node), node.metadata.name)

    def remove_node(self, name: str) -> None:
        """The node is gone; what pods hold there stays noted."""
        self._apply(lambda inventory: inventory.remove_node(name), name)

    def set_topologies(self, topologies: Iterable[Topology]) -> None:
        """Change the topologies the planner sees (guard and barrier need none)."""
        fixed = tuple(topologies)
        self._plan(lambda inventory: inventory.set_topologies(fixed), ())

    def set_pod(self, pod: core.Pod, node: str | None) -> str | None:
        """Take over a pod as it is now. Returns the node where it gave up room, if it did.

        Args:
            pod: its latest state.
            node: where it holds room by itself (``Index.holding``).
        """
        uid = pod.metadata.uid
        self._shapes.setdefault(uid, None)
        # What was decided about a member ends with its gate: its pin counts from then on, or nothing does.
        let_go = podstate.claims_membership(pod) and not podstate.is_gated(pod)
        if node is not None or let_go or core.is_terminal(pod):
            self.assumed.pop(uid, None)
        else:
            node = self.assumed.get(uid) or podstate.nominated_node(pod)
        freed = self._hold(uid, node, pod) if node else self._release(uid)
        self._reserve(pod, node)
        return freed

    def remove_pod(self, uid: str) -> str | None:
        """The pod is gone. Returns the node where it gave up room, if it did."""
        self.assumed.pop(uid, None)
        self._shapes.pop(uid, None)
        self._unreserve(uid)
        return self._release(uid)

    def assume(self, pod: core.Pod, node: str) -> None:
        """Hold a node for a pod from the moment of the decision."""
        self.assumed[pod.metadata.uid] = node
        self._hold(pod.metadata.uid, node, pod)
        self._reserve(pod, node)

    def unassume(self, pod: core.Pod, node: str | None) -> str | None:
        """Take a decision back, unless the pod holds its place by itself by now (as for ``set_pod``)."""
        if self.assumed.pop(pod.metadata.uid, None) is None:
            return None
        return self.set_pod(pod, node)

    def hold_room(self, key: str, node: str, shape: Shape, meta: core.Meta) -> bool:
        """Hold room for a pod that is not there yet, if it is free; a node that is away may come back with it.

        Args:
            key: names the holder.
            node: where.
            shape: what the pod is.
            meta: its namespace and labels.
        """
        state = self.room.nodes.get(node)
        if state is not None and (state.short(shape) or state.conflict(shape, meta)):
            return False
        self._held[key] = (node, shape, meta)
        self._apply(lambda inventory: inventory.hold(key, node, shape, meta), node)
        self.reserved.setdefault(node, {})[key] = shape
        self._reserved_at[key] = node
        return True

    def give_room(self, key: str) -> None:
        """End such a hold."""
        self._unreserve(key)
        self._release(key)

    def note_outstanding(self, unit: Hashable, gang: Gang | None) -> None:
        """Note what a unit lacks in its domain, for the ranking of domains; None where nothing can come of it now."""
        self._plan(lambda inventory: note_outstanding(gang, inventory, unit), ())

    def is_overcommitted(self, node: str) -> bool:
        """More is held on a node than it has."""
        return any(amount < 0 for amount in self.room.free(node).values())

    def shape(self, pod: core.Pod) -> Shape:
        """The pod's shape, computed once for each spec; anew for a pod that is not here (any more)."""
        uid, spec = pod.metadata.uid, self._counted(pod)
        known = self._shapes.get(uid)
        if known is not None and (known[0] is spec or known[0] == spec):
            return known[1]
        shape = shape_of(pod if spec is pod.spec else replace(pod, spec=spec))
        if uid in self._shapes:
            self._shapes[uid] = (spec, shape)
        return shape

    def refusal_in_place(self, pod: core.Pod, node: str, without: Iterable[core.Pod] = ()) -> str | None:
        """The reason for which a pod that holds a node could not go there now; its own hold, and those of ``without``, not counted."""
        aside = {each.metadata.uid for each in (pod, *without)}
        return self.room.fits(self.shape(pod), node, pod.metadata, aside)

    def refusal(self, pod: core.Pod, node: str) -> str | None:
        """The reason for which a pod could not go to a node now, or None."""
        return self.room.fits(self.shape(pod), node, pod.metadata)

    def reserved_away(
        self, pod: core.Pod, node: str, shape: Shape | None = None, without: Collection[str] = ()
    ) -> str | None:
        """The reason for which an ordinary pod must not take a node, being kept for admitted pods; None when there is room.

        Whether the node suits it otherwise is kube-scheduler's business. What the pods of ``without`` (UIDs) hold there
        counts as free.
        """
        kept, waited = self.reserved.get(node), self.kept.get(node)
        if (not kept and not waited) or self.outranks(pod):
            return None
        shape = shape or self.shape(pod)
        for keep in waited or ():
            if (pod.spec.priority or 0) <= keep.priority and dict(shape.requests).get(keep.resource, 0) > 0:
                return keep.why
        if not kept:
            return None
        free = self.room.free(node)
        own = pod.metadata.uid
        if without or own in self._held:
            free = _plus(free, [held for uid in {own, *without} for held in self._held_at(uid, node)])
        for name, amount in shape.requests:
            if amount > free.get(name, 0) and any(name in dict(each.requests) for each in kept.values()):
                return f"{name} is reserved for admitted gangs"
        if shape.host_ports and any(ports_clash(shape.host_ports, each.host_ports) for each in kept.values()):
            return "a host port is reserved for admitted gangs"
        for uid, each in kept.items():
            if not each.anti_affinity and not shape.anti_affinity:
                continue
            # kube-scheduler would refuse the pin: to it a pod that is not bound yet has no neighbours.
            theirs = any(term.matches(pod.metadata) for term in each.anti_affinity)
            if theirs or any(term.matches(self._held[uid][2]) for term in shape.anti_affinity):
                return "anti-affinity keeps it apart from a pod of an admitted gang"
        return None

    def outranks(self, pod: core.Pod) -> bool:
        """Tell whether gangs give way to an ordinary pod."""
        return (pod.spec.priority or 0) >= self.yields_to

    @contextmanager
    def planning(self) -> Iterator[Inventory]:
        """The planner's inventory, which nothing changes meanwhile."""
        if self._queued is not None:
            raise RuntimeError("one plan at a time")
        self._queued = []
        try:
            yield self.planned
        finally:
            changes, self._queued = self._queued, None
            for change, nodes in changes:
                self._plan(change, nodes)

    def take_changed_nodes(self) -> Collection[str]:
        """The nodes whose state has changed in ``planned`` since this was last asked; noted from the first time on."""
        found, self._touched = self._touched, set()
        return found or ()

    def _hold(self, uid: str, node: str, pod: core.Pod) -> str | None:
        shape = self.shape(pod)
        before = self._held.get(uid)
        meta = pod.metadata
        same = before is not None and before[:2] == (node, shape) and before[2].labels == meta.labels
        if same and before is not None and before[2].deletion_timestamp == meta.deletion_timestamp:
            return None
        self._held[uid] = (node, shape, meta)
        places = (node,) if before is None else (before[0], node)
        self._apply(lambda inventory: inventory.hold(uid, node, shape, meta), *places)
        return before[0] if before else None

    def _release(self, uid: str) -> str | None:
        before = self._held.pop(uid, None)
        if before is None:
            return None
        self._apply(lambda inventory: inventory.release(uid), before[0])
        return before[0]

    def _reserve(self, pod: core.Pod, node: str | None) -> None:
        uid = pod.metadata.uid
        self._unreserve(uid)
        if node and pod.spec.node_name is None and podstate.claims_membership(pod):
            self.reserved.setdefault(node, {})[uid] = self.shape(pod)
            self._reserved_at[uid] = node

    def _unreserve(self, uid: str) -> None:
        node = self._reserved_at.pop(uid, None)
        if node is not None:
            kept = self.reserved[node]
            del kept[uid]
            if not kept:
                del self.reserved[node]

    def _held_at(self, uid: str, node: str) -> tuple[Shape, ...]:
        held = self._held.get(uid)
        return (held[1],) if held is not None and held[0] == node else ()

    def _apply(self, change: _Change, *nodes: str) -> None:
        if self.planned is not self.room:
            change(self.room)
        self._plan(change, nodes)

    def _plan(self, change: _Change, nodes: Collection[str]) -> None:
        if self._queued is None:
            change(self.planned)
            if self._touched is not None:
                self._touched.update(nodes)
        else:
            self._queued.append((change, nodes))


def _plus(free: Mapping[str, int], shapes: Iterable[Shape]) -> Mapping[str, int]:
    total = dict(free)
    for shape in shapes:
        for name, amount in shape.requests:
            total[name] = total.get(name, 0) + amount
    return total
