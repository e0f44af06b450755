"""Live copies of everything that a reconcile reads, and which resource an event concerns.

What people write (DisaggregatedInferences, RoleScalers, ClusterTopologies) is acted on once Kopf's handlers have told of
it. Every object that Covey makes carries the name of its resource in a label, so an event finds its key at once, and one
index finds all objects of a key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final

from covey.api import constants as names
from covey.api import core
from covey.api.inference import BackendName
from covey.backends import SUPERSEDED, Cluster, Owned
from covey.compile import Owner
from covey.kube import resources
from covey.kube.client import Client
from covey.kube.clock import Clock
from covey.kube.reflector import Exposed, Reflector, expose
from covey.kube.resources import Resource
from covey.kube.watch import DELETED, EventType
from covey.model import podstate
from covey.operator.model.accepted import Record, read_record
from covey.operator.model.claimed import RootClaim
from covey.operator.model.objects import (
    COMMON_KINDS,
    CONTROLLER_REVISIONS,
    ControllerRevision,
    InferenceText,
    StoredScaler,
    group_kinds,
)
from covey.operator.model.observed import Observed, is_former, is_ours, is_shared, place_pods, read_revisions
from covey.operator.model.recorded_status import differ
from covey.operator.observe.applications import Applications
from covey.operator.observe.claims import RootClaims
from covey.operator.observe.evicted import Evicted
from covey.operator.observe.expectations import Expectations, PodExpectations
from covey.operator.observe.hyper_nodes import Domains
from covey.operator.observe.nodes import Nodes
from covey.operator.observe.probing import Probing
from covey.operator.observe.resource_quotas import NamespaceQuotas
from covey.operator.observe.rollout_clock import RolloutClock
from covey.operator.observe.room import ClusterRoom
from covey.operator.observe.scope import EVERYTHING, WatchScope
from covey.operator.observe.shared import NamespaceBudgets
from covey.operator.observe.triggered import Triggered
from covey.operator.observe.watched import Key, Requeue, Watched, owner_key, shows
from covey.placement.cluster.device_claims import unmade_claims

#: Seconds that bursts of events are gathered before the resource is looked at; and those of progress, which calls for
#: nothing by itself: the watch shows what was created, that a pod has got its place, or that all is well with a group.
_GATHER = 0.03
_GATHER_PROGRESS = 0.2
#: With more resources than this in progress it is longer in proportion, and how many times longer at most (decision 5).
_CROWD = 8
_PATIENCE = 10.0
#: Seconds of silence after which a watch no longer counts as alive: a bookmark is due every minute.
_SILENCE = 240.0
#: Annotations by which something is asked of a resource that stays as it is.
_ASKING = (names.ANNOTATION_HEADROOM, names.ANNOTATION_HEADROOM_SECONDS, names.ANNOTATION_REMAKE)
_BUDGETS: Final = resources.POD_DISRUPTION_BUDGETS.type
#: Kinds whose roots may claim room.
_ROOTS: Final = (resources.COMPOSITE_POD_GROUPS.type, resources.POD_GROUPS.type)
#: The index of pods by their node, and of those by their namespace whose claims were not all made yet.
_NODE, _CLAIMANTS = "node", "claimants"


class Caches:
    """All kinds that the operator watches.

    Args:
        client: to the API server.
        scope: what is watched.
        requeue: told of what has to be looked at.
        clock: the time.
    """

    def __init__(
        self,
        client: Client,
        requeue: Requeue,
        scope: WatchScope = EVERYTHING,
        *,
        clock: Clock,
    ) -> None:
        ours, namespaces, backends = names.LABEL_INFERENCE, scope.namespaces, scope.backends
        self._requeue = requeue
        self._client, self._capacity, self._scope = client, scope.capacity, scope
        self.inferences = Triggered(client, resources.DISAGGREGATED_INFERENCES, InferenceText, namespaces, clock=clock)
        self.pods = Watched(client, resources.PODS, core.Pod, namespaces, clock=clock, labels=ours)
        for reflector in self.pods.reflectors:
            reflector.add_index(_NODE, _node_of)
            reflector.add_index(_CLAIMANTS, _claimant_namespace)
        self.nodes = Nodes(
            *(client, self._look_at_node), clock=clock, autoscalers=scope.autoscalers, evacuations=scope.evacuations
        )
        self._kinds = (*group_kinds(backends), *scope.kinds)
        self._pools = (resources.INFERENCE_POOLS,) if scope.pools else ()
        self.objects = {
            # Roots of other controllers claim room as well, which nobody but this process makes.
            kind.type: Watched(
                client, kind, Owned, namespaces, clock=clock, labels=None if kind.type in _ROOTS else ours
            )
            for kind in (*self._kinds, *COMMON_KINDS, *self._pools)
        }
        self.revisions = Watched(client, CONTROLLER_REVISIONS, ControllerRevision, namespaces, clock=clock, labels=ours)
        self.scalers = Triggered(client, resources.ROLE_SCALERS, StoredScaler, namespaces, clock=clock)
        self.topologies = Triggered(client, resources.CLUSTER_TOPOLOGIES, core.ClusterTopology, clock=clock)
        self.domains = Domains(client, self._look_at_all, clock) if BackendName.VOLCANO in backends else None
        self.probing = Probing(
            *(client, scope.probes_in, backends, lambda: self.unserved, self._look_at_all), image=scope.probe_image
        )
        self.room = ClusterRoom(client, self.find_topologies, requeue.resource, clock=clock, nodes=self.nodes.reflector)
        self.evicted = (
            Evicted(client, namespaces, self._look_at_pod, requeue.eviction, clock=clock) if scope.evictions else None
        )
        self.quotas = NamespaceQuotas(client, namespaces, requeue.resource_after, clock)
        self.applications = Applications()
        self.pod_expectations = PodExpectations(partial(shows, self.pods), clock.monotonic)
        #: Since when deadlines of rollouts run.
        self.clock = RolloutClock()
        self._statuses: dict[str, Mapping[str, Any]] = {}
        #: Resources that have made progress since they were looked at.
        self._progressing: set[Key] = set()
        self._new_objects: dict[str, Expectations[Owned]] = {
            kind: Expectations(clock.monotonic) for kind in self.objects
        }
        self._new_revisions: Expectations[ControllerRevision] = Expectations(clock.monotonic)
        self._new_scalers: Expectations[StoredScaler] = Expectations(clock.monotonic)
        self._records: dict[str, Record | None] = {}
        stored, expectations = self.objects[_BUDGETS], self._new_objects[_BUDGETS]
        self.budgets = NamespaceBudgets(stored, expectations, self.inferences, self._enqueue_soon, requeue.namespace)
        roots = [self.objects[kind] for kind in _ROOTS if kind in self.objects]
        self.claims = RootClaims(roots, self._enqueue_soon, self._priority_of, requeue.root, scope.max_drain)
        self._subscribe()

    def may_need_room(self, namespace: str) -> bool:
        """Tell whether a resource of a namespace may need its room first, since it was not looked at yet."""
        return self.quotas.settles(namespace, (inference.metadata.key for inference in self.inferences.every()))

    async def run(self) -> None:
        """Keep everything current until cancelled."""
        expose(self._reflectors())
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors():
                group.create_task(reflector.run())
            group.create_task(self.probing.run())
            group.create_task(self.room.run())

    @property
    def triggered(self) -> tuple[Triggered[Any], ...]:
        """The kinds that Kopf watches."""
        return (self.inferences, self.scalers, self.topologies)

    def find_topologies(self) -> tuple[core.ClusterTopology, ...]:
        """All ClusterTopologies, by name."""
        return tuple(sorted(self.topologies.every(), key=lambda topology: topology.metadata.name))

    async def wait_until_synced(self) -> None:
        """Wait until everything has been listed once that the cluster serves."""
        for event in self._sync_events():
            await event.wait()

    @property
    def is_synced(self) -> bool:
        """Tell whether everything has been listed once that the cluster serves."""
        return all(event.is_set() for event in self._sync_events())

    @property
    def unserved(self) -> frozenset[Resource]:
        """Kinds that the API server does not know."""
        return frozenset(
            watched.resource
            for watched in self.objects.values()
            if not all(reflector.served for reflector in watched.reflectors)
        )

    @property
    def cluster(self) -> Cluster:
        """Kinds and fields that the cluster has, as far as this process knows."""
        cluster = replace(
            self.probing.cluster(self.unserved),
            compute_domains=self._scope.compute_domains,
            detected=self.nodes.detect_topology(),
            evictions=self.evicted is not None and self.evicted.is_served,
        )
        return cluster if self.domains is None else replace(cluster, hyper_nodes=self.domains.found)

    def is_alive(self) -> bool:
        """Tell whether every watch has been heard of lately."""
        watches: tuple[Exposed, ...] = (*self._vital(), *self.room.reflectors)
        return all(watch.silence < _SILENCE for watch in watches)

    def begin_leading(self, now: float) -> None:
        """Note that this process decides from ``now`` on, in seconds since the epoch; another one did so far."""
        self.pod_expectations.forget_tombstones()
        self.clock.begin(now)

    def observe(self, owner: Owner, now: float) -> Observed:
        """The snapshot of one resource, at a time in seconds since the epoch."""
        key = (owner.namespace, owner.name)
        self._progressing.discard(key)
        known = self.pod_expectations
        labelled = [known.latest(key, pod) for pod in chain(self.pods.of(key), known.creations.of(key))]
        pods = [pod for pod in labelled if is_ours(pod.metadata, owner)]
        former = (pod for pod in labelled if is_former(pod.metadata, owner)) if len(pods) < len(labelled) else ()
        for expectations in self._all_expectations():
            if (patience := expectations.patience(key)) is not None:
                # Should the watch never show them, nothing else would bring this resource back.
                self._requeue.resource_after(key, patience)
        placed, strays = place_pods(pods)
        # Of a kind that is served in two versions every object is there twice.
        former_kinds = {kind.type for kind, later in SUPERSEDED.items() if later not in self.unserved}
        objects = {
            (kind, owned.metadata.name): owned
            for kind, watched in self.objects.items()
            if kind not in former_kinds
            for owned in chain(self._new_objects[kind].of(key), watched.of(key))
            if is_ours(owned.metadata, owner)
        }
        stored = chain(self.revisions.of(key), self._new_revisions.of(key))
        revisions = read_revisions((item for item in stored if is_ours(item.metadata, owner)), self._read)
        names_of_nodes = {pod.spec.node_name for pod in pods if pod.spec.node_name}
        notices = self.nodes.notices(names_of_nodes)
        return Observed(
            placed,
            strays,
            objects,
            revisions,
            known.tombstones(key),
            known.retired_pods(key),
            known.pending_deletions(key),
            now,
            nodes=self.nodes.of(names_of_nodes),
            notices=notices,
            candidates=self.nodes.candidates() if any(notice.candidate for notice in notices.values()) else (),
            evictions=self.evicted.of(pods) if self.evicted is not None else {},
            gone=self.nodes.deleted_nodes(names_of_nodes),
            clock_since=self.clock.since(key, now),
            quotas=self.quotas.of(owner.namespace),
            ranges=self.quotas.ranges(owner.namespace),
            reserved=self.quotas.reserved_demand(key),
            former=tuple(pod for pod in former if podstate.is_published(pod)),
            has_orphans=len(pods) < len(labelled) and not all(pod.metadata.owner_references for pod in labelled),
            claims=self.claims.of(key),
            capacity=self._capacity and replace(self._capacity, is_served=self._capacity.kind not in self.unserved),
            elastic=self.nodes.find_elastic(self.topologies.every()) if self._capacity else {},
            pools=resources.INFERENCE_POOLS not in self.unserved if self._pools else None,
            shared=self.budgets.of(owner.namespace),
            applied=self.applications.of(key),
            scalers={
                scaler.metadata.name: scaler
                for scaler in chain(self._new_scalers.of(key), self.scalers.of(key))
                if is_ours(scaler.metadata, owner)
            },
        )

    def _read(self, record: ControllerRevision) -> Record | None:
        """Read a ControllerRevision, once: its data never change."""
        uid = record.metadata.uid
        if uid not in self._records:
            self._records[uid] = read_record(record.data)
        return self._records[uid]

    def welcome_object(self, key: Key, kind: str, item: Owned | ControllerRevision | StoredScaler) -> None:
        """Count an object, no pod, that this process has just created as seen, unless the watch was faster."""
        if isinstance(item, ControllerRevision):
            if not shows(self.revisions, item):
                self._new_revisions.add(key, item)
        elif isinstance(item, StoredScaler):
            if not shows(self.scalers, item):
                self._new_scalers.add(key, item)
        elif is_shared(kind, item.metadata):
            self.budgets.welcome(item)
        elif not shows(self.objects[kind], item):
            self._new_objects[kind].add(key, item)

    def tell(self, uid: str, status: Mapping[str, Any]) -> None:
        """Note a status that is about to be written: the watch will show it, and it is no reason to look again."""
        self._statuses[uid] = status

    def look_again(self, key: Key, delay: float) -> None:
        """Have a resource looked at in ``delay`` seconds: time alone will change something about it."""
        self._requeue.resource_after(key, delay)

    def forget(self, key: Key) -> None:
        """Forget a resource that is gone."""
        self._progressing.discard(key)
        known: Iterable[Any] = (
            *(self.budgets, self.room, self.quotas, self.pod_expectations, self.applications, self.clock),
            *self._all_expectations(),
        )
        for cache in known:
            cache.forget(key)

    def find_claimants(self, namespace: str) -> tuple[core.Pod, ...]:
        """The pods of a namespace for which claims are still to be made: no quota has charged these yet."""
        shown = chain.from_iterable(reflector.by_index(_CLAIMANTS, namespace) for reflector in self.pods.reflectors)
        created = self.pod_expectations.creations.within(namespace)
        return (*shown, *(pod for pod in created if _claimant_namespace(pod)))

    def knows_pod(self, name: Key, uid: str) -> bool:
        """Tell whether the pod of a namespace and name is this one, and one of a resource that there is."""
        pod = self.pods.get(name)
        owned = pod is not None and pod.metadata.uid == uid and any(self._is_ours(key, pod) for key in owner_key(pod))
        return owned or any(pod.metadata.uid == uid for pod in self.pod_expectations.creations.within(name[0]))

    def on_node(self, name: str) -> set[Key]:
        """The resources that have pods on a node."""
        pods = chain.from_iterable(reflector.by_index(_NODE, name) for reflector in self.pods.reflectors)
        return {key for pod in pods for key in owner_key(pod)}

    def _priority_of(self, claim: RootClaim) -> int | None:
        pods = self.pods.of((claim.namespace, claim.name)) if claim.is_of_resource else ()
        return next((pod.spec.priority for pod in pods), None)

    def _look_at_node(self, name: str) -> None:
        for key in self.on_node(name):
            self._enqueue_soon(key)

    def _look_at_pod(self, name: Key) -> None:
        pod = self.pods.get(name)
        for key in owner_key(pod) if pod is not None else ():
            self._enqueue_soon(key)

    def _look_at_all(self) -> None:
        for inference in self.inferences.every():
            self._enqueue_soon(inference.metadata.key)

    def _all_expectations(self) -> Iterable[Expectations[Any]]:
        return (self.pod_expectations.creations, self._new_revisions, self._new_scalers, *self._new_objects.values())

    def _reflectors(self) -> list[Reflector[Any]]:
        kinds: tuple[Watched[Any], ...] = (*self.triggered, self.pods, self.revisions, *self.objects.values())
        reflectors = [reflector for watched in kinds for reflector in watched.reflectors]
        reflectors += [self.nodes.reflector, *self.quotas.reflectors]
        reflectors += self.evicted.reflectors if self.evicted is not None else ()
        return reflectors if self.domains is None else [*reflectors, self.domains.reflector]

    def _vital(self) -> list[Reflector[Any]]:
        """Those without which nothing is decided: a right to InferencePools or to Evictions may be missing."""
        optional = {resources.INFERENCE_POOLS.plural, resources.EVICTIONS.plural}
        return [reflector for reflector in self._reflectors() if reflector.resource not in optional]

    def _sync_events(self) -> list[asyncio.Event]:
        """Events that are set once the objects of a kind are known. A cluster need not have the kinds of a backend."""
        optional: Iterable[Watched[Any]] = (*self.triggered, *(self.objects[kind.type] for kind in self._kinds))
        groups = {reflector for watched in optional for reflector in watched.reflectors}
        if self.domains is not None:
            groups.add(self.domains.reflector)
        listed = [reflector.settled if reflector in groups else reflector.synced for reflector in self._vital()]
        return [*listed, *(kind.synced for kind in self.triggered), self.probing.asked]

    def _subscribe(self) -> None:
        self.inferences.subscribe(self._on_inference)
        self.pods.subscribe(self._on_pod)
        for kind, watched in self.objects.items():
            for reflector in watched.reflectors:
                reflector.on_served(self.probing.stale)
                reflector.on_served(self._look_at_all)
            on_owned = partial(self._on_owned, self._new_objects[kind])
            watched.subscribe(partial(self.budgets.take, on_owned) if kind == _BUDGETS else on_owned)
        self.revisions.subscribe(partial(self._on_owned, self._new_revisions))
        self.scalers.on_served(self._look_at_all)
        self.topologies.subscribe(self._on_topology)
        self.scalers.subscribe(partial(self._on_owned, self._new_scalers))

    def _on_topology(
        self, kind: EventType, topology: core.ClusterTopology, before: core.ClusterTopology | None
    ) -> None:
        if kind == DELETED or before is None or _essence(topology) != _essence(before):
            self._look_at_all()

    def _on_inference(self, kind: EventType, inference: InferenceText, before: InferenceText | None) -> None:
        if kind == DELETED:
            self._statuses.pop(inference.metadata.uid, None)
            # What is known of it must not be taken for its namesake's.
            self.forget(inference.metadata.key)
        if kind == DELETED or before is None or _is_asked_anew(inference.metadata, before.metadata):
            self._requeue.resource(inference.metadata.key)
        elif inference.status != before.status and differ(
            inference.read().status, self._statuses.get(inference.metadata.uid, {})
        ):
            # What somebody else wrote into the status has to be put right; our own write is no news.
            self._enqueue_soon(inference.metadata.key)

    def _on_pod(self, kind: EventType, pod: core.Pod, before: core.Pod | None) -> None:
        for key in owner_key(pod):
            self.pod_expectations.creations.shown(key, pod.metadata.uid)
        now = owner_key(pod) if kind != DELETED else ()
        if kind == DELETED and self.evicted is not None:
            self.evicted.note_end(pod)
        # The label may only have been edited away: the resource that had the pod has to know.
        for key in owner_key(before) if before else ():
            if key not in now:
                self.pod_expectations.note_end(key, before or pod, ours=self._is_ours(key, before or pod))
                self._enqueue_soon(key)
        for key in now:
            self.pod_expectations.shown(key, pod)
            self._enqueue_soon(key, progress=_is_pod_progress(before, pod))

    def _is_ours(self, key: Key, pod: core.Pod) -> bool:
        owner, controller = self.inferences.get(key), pod.metadata.controller
        return owner is not None and controller is not None and controller.uid == owner.metadata.uid

    def _enqueue_soon(self, key: Key, *, progress: bool = False) -> None:
        if not progress:
            self._requeue.resource_after(key, _GATHER)
            return
        self._progressing.add(key)
        rush = min(max(1.0, len(self._progressing) / _CROWD), _PATIENCE)
        self._requeue.resource_after(key, _GATHER_PROGRESS * rush)

    def _on_owned(
        self,
        expectations: Expectations[Any],
        kind: EventType,
        item: Owned | ControllerRevision | StoredScaler,
        before: Owned | ControllerRevision | StoredScaler | None,
    ) -> None:
        if kind == DELETED:
            self._records.pop(item.metadata.uid, None)
        for key in {*owner_key(item), *(owner_key(before) if before else ())}:
            expectations.shown(key, item.metadata.uid)
            self._enqueue_soon(key, progress=kind != DELETED and _is_object_progress(before, item))


def _node_of(pod: core.Pod) -> tuple[str, ...]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def _is_pod_progress(before: core.Pod | None, pod: core.Pod) -> bool:
    """Tell whether a live pod is new, or has lost gates or got its node; the API server labels it by its node then."""
    if podstate.is_terminating(pod) or podstate.is_dead(pod) or podstate.is_ready(pod):
        return False
    if before is None:
        return True
    return core.gates(before) > core.gates(pod) or (before.spec.node_name is None and pod.spec.node_name is not None)


def _is_object_progress(
    before: Owned | ControllerRevision | StoredScaler | None, item: Owned | ControllerRevision | StoredScaler
) -> bool:
    """Tell whether an object is new, or a group to whose status nothing but good news was written."""
    if before is None or not (isinstance(before, Owned) and isinstance(item, Owned)):
        return before is None
    is_same = before.spec == item.spec and before.metadata.labels == item.metadata.labels
    well = is_same and all(condition.status == "True" for condition in item.status.conditions or ())
    return well and before.status != item.status and item.metadata.deletion_timestamp is None


def _claimant_namespace(pod: core.Pod) -> tuple[str, ...]:
    waits = pod.spec.resource_claims and any(unmade_claims(pod)) and not podstate.is_dead(pod)
    return (pod.metadata.namespace,) if waits else ()


def _is_asked_anew(now: core.Meta, before: core.Meta) -> bool:
    return (
        now.generation != before.generation
        or now.deletion_timestamp != before.deletion_timestamp
        or any(now.annotation(name) != before.annotation(name) for name in _ASKING)
    )


def _essence(topology: core.ClusterTopology) -> tuple[object, str | None]:
    """Its levels, and whether it is the one for whoever names none."""
    return topology.spec, topology.metadata.annotation(names.ANNOTATION_DEFAULT_TOPOLOGY)
