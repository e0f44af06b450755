"""All that the scheduler process watches, and who is told when it changes.

Pods and nodes of the whole cluster, because every owner's pods hold capacity; groups, Workloads (whose creation time
is a gang's age), PriorityClasses and ClusterTopologies; PersistentVolumes and claims, which tie pods to nodes; Queues,
where the API server knows them, and the labels of namespaces, by which they select; devices of drivers (``dra``); Preemptions. The
reflectors keep the objects; ``Index`` and ``Capacity`` keep what follows from them. Everything runs on the event loop; a
listener is called after both are up to date.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from covey.admission import obstacles
from covey.admission.expected import find_expected
from covey.admission.native import MemberPod, StoredGroup, adapt
from covey.admission.nodes import Key, counted_spec
from covey.admission.tree import Unit, WorkloadTemplate, positions
from covey.admission.volumes import PersistentVolume, VolumeClaim, Volumes
from covey.api import core
from covey.api.constants import (
    ANNOTATION_AVOID,
    ANNOTATION_CAPACITY_ASKED,
    ANNOTATION_EVICTIONS_REFUSED,
    ANNOTATION_EXPECTED,
    ANNOTATION_SUCCESSION,
)
from covey.kube.client import Client
from covey.kube.clock import Clock
from covey.kube.reflector import Reflector, Selection, expose
from covey.kube.resources import (
    CLUSTER_TOPOLOGIES,
    COMPOSITE_POD_GROUPS,
    NAMESPACES,
    NATIVE_GROUPS,
    NODES,
    POD_GROUPS,
    PODS,
    PREEMPTIONS,
    PRIORITY_CLASSES,
    QUEUES,
    VOLUME_CLAIMS,
    VOLUMES,
    WORKLOADS,
    Resource,
)
from covey.model import podstate
from covey.placement.cluster.inventory import path_of
from covey.placement.model import Path, Topology
from covey.scheduler.capacity import Capacity
from covey.scheduler.dra import DriverDevices
from covey.scheduler.index import Index, workload_key

#: Annotations by which the operator tells of a root what changes plans.
_FROM_OPERATOR: Final = (
    ANNOTATION_AVOID,
    ANNOTATION_EVICTIONS_REFUSED,
    ANNOTATION_CAPACITY_ASKED,
    ANNOTATION_EXPECTED,
    ANNOTATION_SUCCESSION,
)

#: The index of Preemptions by the UID of their root.
_ROOT: Final = "root"


class StoredWorkload(core.Read, frozen=True):
    """A Workload of ``scheduling.covey.dev``: its age, and the declared order of its templates."""

    metadata: core.Meta
    spec: WorkloadTemplate = WorkloadTemplate()


@dataclass(frozen=True, slots=True)
class Listener:
    """The callbacks of one subscriber.

    ``unit``: a root's key; what is wanted, or a pod, has changed. ``tree``: what is wanted has. ``status``: only what
    the groups' status says has.
    ``claim``: a claim that a pod of a root names has come, gone, or changed. ``room``: a node may have more room or
    became usable. ``node``: it changed. ``pod``: it changed. ``gone``: a pod is gone.
    ``quota``: queues, or the labels of namespaces. ``world``: topologies, priorities or quota.
    """

    unit: Callable[[Key], None] = lambda _key: None
    tree: Callable[[Key], None] = lambda _key: None
    status: Callable[[Key], None] = lambda _key: None
    claim: Callable[[Key], None] = lambda _key: None
    room: Callable[[str], None] = lambda _node: None
    node: Callable[[str], None] = lambda _node: None
    pod: Callable[[core.Pod], None] = lambda _pod: None
    gone: Callable[[core.Pod], None] = lambda _pod: None
    quota: Callable[[], None] = lambda: None
    world: Callable[[], None] = lambda: None


class Cache:
    """The reflectors and what is derived from them.

    Args:
        client: to the API server.
        clock: the time.
        namespaces: where groups are looked for; empty means everywhere.
        native: whether Kubernetes' own groups are planned too.
        apart: whether plans are made in threads, beside what happens meanwhile (``Capacity``).
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        namespaces: Sequence[str] = (),
        *,
        native: bool = False,
        apart: bool = True,
    ) -> None:
        self.index = Index()
        self.volumes = Volumes()
        self.capacity = Capacity(self._counted_spec, apart=apart)
        self._listeners: list[Listener] = []
        #: UIDs of pods that have the place of one that was expected, until they are pinned there with their mates.
        self.arrived: set[str] = set()
        #: As what pods are read, wherever they come from.
        self.pod_type = MemberPod if native else core.Pod
        self.pods = Reflector(client, PODS, self.pod_type, clock=clock, on_event=self._on_pod)
        self.nodes = Reflector(client, NODES, core.Node, clock=clock, on_event=self._on_node)
        self.devices = DriverDevices(
            client,
            self.capacity,
            clock=clock,
            node=self.node,
            changed=self._tell_node,
            refusals_changed=partial(self._on_world, "", None, None),
            pods_changed=self._look_at_places,
        )
        self.priority_classes = Reflector(
            client, PRIORITY_CLASSES, core.PriorityClass, clock=clock, on_event=self._on_world
        )
        self.topologies = Reflector(
            client, CLUSTER_TOPOLOGIES, core.ClusterTopology, clock=clock, on_event=self._on_world
        )
        self.queues = Reflector(client, QUEUES, core.Queue, clock=clock, on_event=self._on_queue)
        self.namespaces = Reflector(client, NAMESPACES, core.Namespace, clock=clock, on_event=self._on_namespace)
        watch = partial(self._reflectors, client, clock, namespaces or (None,))
        own = (COMPOSITE_POD_GROUPS, POD_GROUPS)
        self._groups = [each for kind in own for each in watch(kind, core.Group, self._on_group)]
        self._native = [
            each
            for resource in (NATIVE_GROUPS if native else ())
            for each in watch(resource, StoredGroup, partial(self._on_native_group, resource))
        ]
        self.persistent_volumes = Reflector(client, VOLUMES, PersistentVolume, clock=clock, on_event=self._on_volume)
        self._claims = watch(VOLUME_CLAIMS, VolumeClaim, self._on_claim)
        self._workloads = watch(WORKLOADS, StoredWorkload, self._on_workload)
        #: What was taken for whom; index by the UID of the root.
        self.preemptions = watch(PREEMPTIONS, core.Preemption, lambda *_: None)
        for each in self.preemptions:
            each.add_index(_ROOT, lambda preemption: (preemption.spec.beneficiary.uid,))
        self._by_type = {reflector.type: reflector for reflector in self.reflectors}

    def put(self, item: Any) -> None:
        """Take an object as its watch would bring it; for a cluster that nobody watches.

        Raises:
            TypeError: it is of no kind that is watched.
        """
        reflector = self._by_type.get(type(item))
        if isinstance(item, core.Group):
            reflector = self._groups[0 if item.kind == COMPOSITE_POD_GROUPS.kind else -1]
        if reflector is None:
            raise TypeError(f"no {type(item).__name__} is watched")
        reflector.put(item)

    def subscribe(self, listener: Listener) -> None:
        """Tell a listener about every change from now on."""
        self._listeners.append(listener)

    @property
    def reflectors(self) -> list[Reflector[Any]]:
        """Every reflector."""
        return [
            self.nodes,
            self.pods,
            self.priority_classes,
            self.topologies,
            self.queues,
            self.namespaces,
            self.persistent_volumes,
            *self.devices.reflectors,
            *self._claims,
            *self._groups,
            *self._native,
            *self._workloads,
            *self.preemptions,
        ]

    @property
    def synced(self) -> bool:
        """Every kind was listed completely once, but for those that the API server need not know."""
        return all(self._first_list(reflector).is_set() for reflector in self.reflectors)

    async def wait_synced(self) -> None:
        """Return when every kind was listed completely, and devices are counted."""
        await asyncio.gather(*(self._first_list(reflector).wait() for reflector in self.reflectors))
        await self.devices.steady.wait()

    def _first_list(self, reflector: Reflector[Any]) -> asyncio.Event:
        """Without the newest CRDs there are no queues and no Preemptions, in an old cluster neither devices nor groups."""
        optional = reflector in {self.queues, *self.preemptions, *self.devices.reflectors, *self._native}
        return reflector.settled if optional else reflector.synced

    async def steady(self) -> None:
        """Return when no collection is being listed anew: what is told piece by piece is nothing to decide on."""
        for reflector in self.reflectors:
            if not reflector.steady.is_set():
                await reflector.steady.wait()

    async def run(self) -> None:
        """Watch for ever."""
        expose(self.reflectors)
        async with asyncio.TaskGroup() as tasks:
            for reflector in self.reflectors:
                tasks.create_task(reflector.run())

    def preemptions_of(self, uid: str) -> list[core.Preemption]:
        """The Preemptions of a root, by its UID."""
        return [found for each in self.preemptions for found in each.by_index(_ROOT, uid)]

    def workload(self, root: core.Group) -> StoredWorkload | None:
        """The Workload that a root refers to."""
        key = workload_key(root)
        return next((found for each in self._workloads if (found := each.store.get(key)) is not None), None)

    def node(self, name: str) -> core.Node | None:
        """A node by name."""
        return self.nodes.store.get(("", name))

    def pod(self, namespace: str, name: str, uid: str) -> core.Pod | None:
        """The pod of this name and UID, if it is there."""
        found = self.pods.store.get((namespace, name))
        return found if found is not None and found.metadata.uid == uid else None

    def _counted_spec(self, pod: core.Pod) -> core.PodSpec:
        spec = counted_spec(pod)
        if spec.resource_claims:
            spec = self.devices.count_claims(pod, spec)
        return self.volumes.confine_to_volumes(pod, spec) if spec.volumes else spec

    def path(self, topology: Topology, node: str) -> Path:
        """A node's domain path; empty when the node is unknown."""
        found = self.node(node)
        return path_of(topology, found.metadata.labels or {}) if found else ()

    def unit_of(self, pod: core.Pod) -> Unit | None:
        """The unit that a pod's label points into."""
        root = self.index.root_of_pod(pod)
        return self.index.unit(root) if root else None

    def leaving(self, node: str) -> list[core.Pod]:
        """The unbound pods that keep room on a node until they are gone, but do not go there any more.

        Whoever is judged for that node is judged without them: their room comes free by itself, and a pod that had to
        go because room is short must not take the next one with it.
        """
        pods = (self.index.pod(uid) for uid in self.capacity.reserved.get(node, ()))
        return [pod for pod in pods if pod is not None and not podstate.counts(pod)]

    def assume(self, pod: core.Pod, node: str) -> None:
        """Reserve a node for a pod from the moment of the decision."""
        self.capacity.assume(pod, node)

    def unassume(self, uid: str) -> None:
        """Take a decision back; the room is free again unless the watch says otherwise."""
        latest = self.index.member(uid)
        self.arrived.discard(uid)
        if latest is None:
            freed = self.capacity.remove_pod(uid)
        else:
            freed = self.capacity.unassume(latest, self.index.holding(latest))
        if freed:
            self._tell_room(freed)

    def tell_quota(self) -> None:
        """Say that quota has to be reckoned anew, for every unit."""
        for listener in self._listeners:
            listener.quota()
        for listener in self._listeners:
            listener.world()

    def tell_room(self, node: str) -> None:
        """Say that somebody may find room on a node who did not before."""
        self._tell_room(node)

    @staticmethod
    def _reflectors(
        client: Client,
        clock: Clock,
        namespaces: Iterable[str | None],
        resource: Resource,
        kind: type[Any],
        on_event: Callable[[str, Any, Any], None],
    ) -> list[Reflector[Any]]:
        return [
            Reflector(client, resource, kind, clock=clock, selection=Selection(each), on_event=on_event)
            for each in namespaces
        ]

    def _on_pod(self, event: str, pod: core.Pod, _previous: core.Pod | None) -> None:
        if event == "DELETED":
            self._drop_pod(pod)
            return
        self.volumes.set_pod(pod)
        self._take_expected_place(pod)
        roots = self.index.set_pod(pod)
        freed = self.capacity.set_pod(pod, self.index.holding(pod))
        self.devices.set_pod(pod, freed)
        self._expect_pods(self.index.leaf_of(pod))
        self._tell_units(roots)
        for listener in self._listeners:
            listener.pod(pod)
        if freed:
            self._tell_room(freed)

    def _drop_pod(self, pod: core.Pod) -> None:
        self.volumes.remove_pod(pod.metadata.uid)
        roots = self.index.remove_pod(pod.metadata.uid)
        freed = self.capacity.remove_pod(pod.metadata.uid)
        self.devices.remove_pod(pod, freed)
        self.arrived.discard(pod.metadata.uid)
        self._expect_pods(self.index.leaf_of(pod))
        self._tell_units(roots)
        for listener in self._listeners:
            listener.gone(pod)
        if freed:
            self._tell_room(freed)

    def _take_expected_place(self, pod: core.Pod) -> None:
        """Give a pod that has come the place of one that was expected, at once: nobody gets in between."""
        group = self.index.leaf_of(pod)
        expected = self.index.expected(group) if group is not None else {}
        if group is None or not expected or self.index.pod(pod.metadata.uid) is not None:
            return
        if not podstate.is_member(pod, group) or not podstate.counts(pod) or obstacles.obstacle(pod) is not None:
            return
        shape = self.capacity.shape(pod)
        for uid, stand_in in expected.items():
            node = self.capacity.assumed.get(uid)
            if node is not None and self.capacity.shape(stand_in) == shape:
                self._remove_expected(uid)
                self.index.set_expected(group, {other: each for other, each in expected.items() if other != uid})
                self.capacity.assume(pod, node)
                self.arrived.add(pod.metadata.uid)
                return

    def _expect_pods(self, group: core.Group | None) -> None:
        """Have a group expect as many pods as it lacks (``admission.expected``)."""
        if group is None or group.is_native:
            return
        before = self.index.expected(group)
        known = self.index.group(group)
        pods = find_expected(group, self.index.existing(group), before) if known is group else {}
        if pods == before:
            return
        freed = [node for uid in before.keys() - pods.keys() if (node := self._remove_expected(uid))]
        for uid, pod in pods.items():
            if uid not in before:
                self.volumes.set_pod(pod)
                self.capacity.set_pod(pod, None)
        self._tell_units(self.index.set_expected(group, pods))
        for node in freed:
            self._tell_room(node)

    def _remove_expected(self, uid: str) -> str | None:
        self.volumes.remove_pod(uid)
        return self.capacity.remove_pod(uid)

    def _on_node(self, event: str, node: core.Node, previous: core.Node | None) -> None:
        name = node.metadata.name
        if event != "DELETED" and previous is not None and _same_for_us(node, previous):
            return  # a heartbeat
        if event == "DELETED":
            self.devices.remove_node(name)
            for listener in self._listeners:
                listener.node(name)
        else:
            self.devices.set_node(node)
            self._tell_node(name)

    def _tell_node(self, name: str) -> None:
        for listener in self._listeners:
            listener.node(name)
        self._tell_room(name)

    def _on_group(self, event: str, group: core.Group, previous: core.Group | None) -> None:
        changed = self.index.remove_group(group) if event == "DELETED" else self.index.set_group(group)
        if event == "DELETED" or previous is None or previous.metadata.controller != group.metadata.controller:
            self._look_at_pins(group)
        self._expect_pods(group)
        if event != "DELETED" and previous is not None and _same_wish(group, previous):
            for root in changed:
                for listener in self._listeners:
                    listener.status(root)
        else:
            self._tell_trees(changed)

    def _on_native_group(
        self, resource: Resource, event: str, stored: StoredGroup, previous: StoredGroup | None
    ) -> None:
        """One that is being deleted, and only waits for its pods to go, is as good as gone: nothing more starts in it."""
        goes = event == "DELETED" or stored.metadata.deletion_timestamp is not None
        found = partial(adapt, resource.kind, resource.api_version)
        self._on_group("DELETED" if goes else event, found(stored), found(previous) if previous is not None else None)

    def _look_at_pins(self, group: core.Group) -> None:
        """A PodGroup has come, gone, or changed its owner: pins below it count from now on, or no more.

        Only the group's own pods are looked at, so that listing all groups after all pods costs one look at each.
        """
        for pod in self.index.pins_below(group):
            freed = self.capacity.set_pod(pod, self.index.holding(pod))
            for listener in self._listeners:
                listener.pod(pod)
            if freed:
                self._tell_room(freed)

    def _on_claim(self, event: str, claim: VolumeClaim, _previous: VolumeClaim | None) -> None:
        volume = "" if event == "DELETED" else claim.spec.volume_name
        self._look_at_places(self.volumes.set_claim(claim.metadata.key, volume))
        pods = (self.index.pod(uid) for uid in self.volumes.naming(claim.metadata.key))
        for root in {root for pod in pods if pod is not None and (root := self.index.root_of_pod(pod)) is not None}:
            for listener in self._listeners:
                listener.claim(root)

    def _on_volume(self, event: str, volume: PersistentVolume, _previous: PersistentVolume | None) -> None:
        affinity = None if event == "DELETED" else volume.spec.node_affinity
        self._look_at_places(self.volumes.set_volume(volume.metadata.name, affinity.required if affinity else None))

    def _look_at_places(self, uids: Iterable[str]) -> None:
        """Look again at unbound pods: where they may go has changed, or what pods take of nodes."""
        for uid in uids:
            pod = self.index.pod(uid)
            if pod is not None:
                self.capacity.set_pod(pod, self.index.holding(pod))
                root = self.index.root_of_pod(pod)
                self._tell_units([root] if root else [])

    def _on_workload(self, event: str, workload: StoredWorkload, previous: StoredWorkload | None) -> None:
        if event == "DELETED":
            self.index.set_declared(workload.metadata.key, {})
            return
        roots = self.index.set_declared(workload.metadata.key, positions(workload.spec))
        if previous is None:
            self._tell_trees(roots)

    def _on_queue(self, event: str, queue: core.Queue, previous: core.Queue | None) -> None:
        if event == "DELETED" or previous is None or previous.spec != queue.spec:
            self.tell_quota()

    def _on_namespace(self, event: str, namespace: core.Namespace, previous: core.Namespace | None) -> None:
        known = self.queues.store and event != "DELETED"
        if known and (previous is None or previous.metadata.labels != namespace.metadata.labels):
            self.tell_quota()

    def _on_world(self, _event: str, _thing: object, _previous: object) -> None:
        for listener in self._listeners:
            listener.world()

    def _tell_trees(self, roots: Collection[Key]) -> None:
        self._tell_units(roots)
        for root in roots:
            for listener in self._listeners:
                listener.tree(root)

    def _tell_units(self, roots: Iterable[Key]) -> None:
        for root in roots:
            for listener in self._listeners:
                listener.unit(root)

    def _tell_room(self, node: str) -> None:
        for listener in self._listeners:
            listener.room(node)


def _same_wish(group: core.Group, previous: core.Group) -> bool:
    """Tell whether only the status, or what nobody here reads, has changed."""
    one, other = group.metadata, previous.metadata
    return (
        group.spec == previous.spec
        and one.uid == other.uid
        and one.labels == other.labels
        and all(one.annotation(name) == other.annotation(name) for name in _FROM_OPERATOR)
        and one.owner_references == other.owner_references
    )


def _same_for_us(node: core.Node, previous: core.Node) -> bool:
    """Tell whether nothing changed that planning or binding looks at. Heartbeats change times only."""

    def essence(each: core.Node) -> object:
        ready = core.condition(each.status.conditions, "Ready")
        offered = (each.status.allocatable, each.status.declared_features)
        return (each.metadata.uid, each.metadata.labels, each.spec, offered, ready and ready.status)

    return essence(node) == essence(previous)
