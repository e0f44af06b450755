"""The scheduler over the objects of a plan: its cache, queue and cycle, with nobody who watches, pins or evicts.

The objects are those of the cluster, and the groups and pods of what is planned as they would be stored. Whatever is
placed holds its nodes in the cache from then on. The event loop's clock stands still, so that the same objects give the
same plan; it is moved on where a unit waits for a moment for pods that were not created.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final

import msgspec

from covey.admission.compiled_units import stand_in
from covey.admission.entry import SETTLE, Entry, QueueStage
from covey.admission.nodes import Key, key_of
from covey.admission.tree import Unit, WorkloadTemplate
from covey.admission.victims import Candidate
from covey.api import core
from covey.api.constants import LABEL_POD_GROUP, REASON_OVER_QUOTA, REASON_WAITING
from covey.kube.clock import Clock
from covey.kube.turns import Turns
from covey.model import podstate
from covey.placement.cluster import resources
from covey.placement.cluster.device_claims import unmade_claims
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Refusal, Shape, Topology
from covey.planning.facts import ClusterFacts, DeviceFacts
from covey.planning.resource_quotas import refuse
from covey.planning.trees import PlannedWorkload
from covey.scheduler.admission_times import AdmissionTimes
from covey.scheduler.cache import Cache, StoredWorkload
from covey.scheduler.commit import Placement
from covey.scheduler.context import Context
from covey.scheduler.cycle import Scheduler
from covey.scheduler.holding import Holding
from covey.scheduler.index import workload_key
from covey.scheduler.nominations import Nominations
from covey.scheduler.plugin import CycleState, Plugin, Rejection
from covey.scheduler.quotas import Quotas
from covey.scheduler.reservations import Reservations
from covey.scheduler.surroundings import Queueing
from covey.scheduler.topologies import Topologies

#: A label that the API server gives every namespace.
_NAME: Final = "kubernetes.io/metadata.name"
#: Seconds of a wait after which nodes are kept for a gang: a plan keeps none anew.
_NEVER: Final = float("inf")
#: Seconds for which a unit may wait for pods that are being created, twice: for its minimum, and then for surplus.
_LONGEST_WAIT: Final = 2 * SETTLE


class StandingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock moves only where it is moved."""

    now = 0.0

    def time(self) -> float:
        """Seconds since the loop began."""
        return self.now

    def run_in_executor(  # type: ignore[override] # its arguments are variadic
        self,
        executor: object,  # noqa: ARG002 - there is none
        func: Callable[..., Any],
        *args: Any,
    ) -> asyncio.Future[Any]:
        """Run long work at once: nobody else waits."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - whoever awaits it gets it
            future.set_exception(error)
        return future


class _Unwritten:
    """Stands for the writer of a process: a plan changes no pod."""

    def __init__(self) -> None:
        self.turns = Turns(1)

    async def release(self, _pod: core.Pod, _reason: str) -> bool:
        return False


class _Topologies(Topologies):
    """The topologies of a plan: those that were chosen for what is planned."""

    def __init__(self, cache: Cache, chosen: Mapping[Key, Topology]) -> None:
        super().__init__(cache)
        self._chosen = chosen

    def choose(self, unit: Unit) -> Topology:
        """The topology of a unit, as of a scheduler process where the unit is not planned."""
        if (topology := self._chosen.get(unit.key)) is None:
            return super().choose(unit)
        self.show(topology)
        return topology


class _Quotas(Quotas):
    """The quota of a plan.

    Args:
        cache: of the plan.
        priority: of a root.
        is_counted: tells whether Queues count a unit.
    """

    def __init__(self, cache: Cache, priority: Callable[[core.Group], int], is_counted: Callable[[Unit], bool]) -> None:
        super().__init__(cache, priority)
        self._is_counted_unit = is_counted

    def observe(self, unit: Unit) -> None:
        """Charge a unit for what it has, if it is counted."""
        if self._is_counted_unit(unit):
            super().observe(unit)
        else:
            self.refresh()


class _StandingClaims(Nominations):
    """The claims of the cluster, and the nodes that they keep. None is made: ``--preempt`` asks what one would be."""

    post_filter = Plugin.post_filter
    wake_for_nodes = Plugin.wake_for_nodes


class _Record(Plugin):
    """Takes every decision over instead of pins, and notes every refusal and the time that planning took.

    Args:
        cache: is told of pods as if kube-scheduler had bound them.
        clock: seconds.
        refuse: the refusal of a unit whose pods would not be created; None where they would.
    """

    def __init__(self, cache: Cache, clock: Callable[[], float], refuse: Callable[[Unit], Refusal | None]) -> None:
        self._cache = cache
        self._clock = clock
        self._refuse = refuse
        self.refusals: dict[Key, Refusal] = {}
        self.seconds: dict[Key, float] = {}
        #: Units that got nodes.
        self.placed: dict[Key, None] = {}
        #: The last gang of each unit that wanted nodes.
        self.gangs: dict[Key, Gang] = {}

    def note_entry(self, root: Key, entry: Entry) -> None:
        """Note a unit's gang, with the nodes that it has by now."""
        if entry.gang is not None:
            self.gangs[root] = entry.gang

    def shares_refusal(self, root: Key) -> bool:  # noqa: ARG002 - as every plugin
        """Have each unit planned: a shared refusal has no reasons of its own."""
        return False

    @contextmanager
    def snapshot(self, root: Key, inventory: Inventory) -> Iterator[None]:  # noqa: ARG002 - as every plugin
        """Measure the planning of a unit."""
        started = self._clock()
        yield
        self.seconds[root] = self.seconds.get(root, 0.0) + self._clock() - started

    def pre_filter(self, state: CycleState) -> Rejection | None:
        """Refuse a unit whose pods would not be created."""
        self.refusals.pop(state.root, None)
        if state.entry.stage is not QueueStage.MINIMUM or (refusal := self._refuse(state.entry.unit)) is None:
            return None
        self.refusals[state.root] = refusal
        return Rejection(REASON_WAITING, refusal.message)

    def permit(self, entry: Entry, placements: Sequence[Placement]) -> Rejection | None:
        """Have the pods bound, so that the rest of their unit is planned, if anything is left."""
        self.placed[entry.unit.key] = None
        replicas = [replica for role in entry.gang.roles for replica in role.replicas] if entry.gang is not None else []
        if sum(pod.node is None for replica in replicas for pod in replica.pods) == len(placements):
            return Rejection("", "")
        for pod, node in ((placement.pod, placement.node) for placement in placements):
            spec = msgspec.structs.replace(pod.spec, node_name=node, scheduling_gates=None)
            self._cache.put(msgspec.structs.replace(pod, spec=spec))
        return Rejection("", "")

    async def post_filter(self, state: CycleState, entry: Entry) -> None:  # noqa: ARG002 - as every plugin
        """Note a refusal with its reasons."""
        if state.refusal is not None:
            self.refusals[state.root] = state.refusal


class World:
    """The cluster of a plan, and what the scheduler decides in it.

    Args:
        facts: the cluster.
        workloads: what is planned, each with its topology; its units stand for those of the cluster of the same keys.
        default: the topology of the report.
        clock: seconds, by which planning is measured.
        obstacle: the reason for which a pod cannot be planned, or None.
        refuse: as of ``_Record``.
    """

    def __init__(
        self,
        facts: ClusterFacts,
        workloads: Sequence[tuple[PlannedWorkload, Topology]],
        default: Topology,
        *,
        clock: Callable[[], float],
        obstacle: Callable[[core.Pod], str | None],
        refuse: Callable[[Unit], Refusal | None],
    ) -> None:
        self._default, self._obstacle = default, obstacle
        self._clock, self._refuse = clock, refuse
        self._templates = facts.devices.templates if facts.devices is not None else {}
        with asyncio.Runner(loop_factory=StandingLoop) as runner:
            runner.run(self._schedule(facts, workloads))

    async def _schedule(self, facts: ClusterFacts, workloads: Sequence[tuple[PlannedWorkload, Topology]]) -> None:
        loop, began = asyncio.get_running_loop(), time.time()
        assert isinstance(loop, StandingLoop)
        clock = Clock(loop.time, lambda: began + loop.time())
        nobody: Any = None
        self.cache = cache = Cache(nobody, clock, apart=False)
        units = {unit.key: unit for workload, _ in workloads for unit in workload.units}
        for thing in chain(_written_objects(facts, units), _planned_objects(facts, units, self._templates)):
            cache.put(thing)
        await cache.devices.steady.wait()
        self._record = _Record(cache, self._clock, self._refuse)
        chosen = {unit.key: topology for workload, topology in workloads for unit in workload.units}
        self.topologies = _Topologies(cache, chosen)
        self.topologies.show(self._default)
        self.queueing = Queueing(cache, self.topologies, clock, reserve_after=_NEVER, obstacle=self._obstacle)
        uncounted = {unit.key for workload, _ in workloads if not workload.is_counted for unit in workload.units}
        counts = facts.queues is not None
        self.quotas = _Quotas(cache, self.queueing.priority, lambda unit: counts and unit.key not in uncounted)
        holding = Holding(cache, clock)
        self.reservations = Reservations(cache, clock, reserve_after=_NEVER, holding=holding)
        self.quotas.follow(holding)
        writer: Any = _Unwritten()
        context = Context(cache, nobody, writer, nobody, clock, AdmissionTimes(clock.wall))
        parts = (context, self.queueing, self.quotas, self.reservations)
        plugins = (self._record, self.quotas, holding, _StandingClaims(*parts))
        scheduler = Scheduler(context, self.queueing, plugins)
        self._queue = scheduler.queue
        holding.begin()
        known = filter(None, map(cache.index.unit, cache.index.roots()))
        #: All units as they were, with their priorities.
        self.candidates = {unit.key: Candidate(unit, self.queueing.priority(unit.root)) for unit in known}
        scheduler.begin()
        await scheduler.run_pass()
        # Who lacks pods, and surplus, waits for pods that may be about to come; for no longer than that.
        while any(map(_waits, (entry for _, entry in self._queue.entries()))) and loop.now < _LONGEST_WAIT:
            loop.now += SETTLE + 0.1
            # One round in which timers fire, and one for what they began.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await scheduler.run_pass()

    @property
    def inventory(self) -> Inventory:
        """The nodes, with all that holds some of them now."""
        return self.cache.capacity.planned

    def shape(self, pod: core.Pod) -> Shape:
        """The shape of a pod, its claims taken for made."""
        made = [*_made_claims(pod, self._templates)]
        for _, claim in made:
            self.cache.put(claim)
        return self.cache.capacity.shape(_with_claims(pod, made) if made else pod)

    def extended(self, node: core.Node) -> core.Node:
        """A node with its devices of drivers."""
        state = self.inventory.nodes.get(node.metadata.name)
        return state.node if state is not None else node

    def seconds(self, root: Key) -> float:
        """The seconds that planning a unit took."""
        return self._record.seconds.get(root, 0.0)

    def entry(self, root: Key) -> Entry:
        """What was decided about a unit."""
        return self._queue[root]

    def gang(self, root: Key) -> Gang | None:
        """A unit's gang, with the nodes that it has; None where it wanted none, or cannot be planned."""
        return self._record.gangs.get(root)

    @property
    def placed(self) -> Collection[Key]:
        """The units that got nodes, in the order in which they did."""
        return self._record.placed

    def refusal(self, root: Key) -> Refusal | None:
        """Why a unit has no nodes for its minimum, or for surplus; None where nothing of it waits."""
        entry = self.entry(root)
        if entry.stage is QueueStage.NOTHING:
            return None
        if (refusal := self._record.refusals.get(root)) is not None and entry.decision.reason != REASON_OVER_QUOTA:
            return refusal
        message = entry.decision.message
        if not message:
            return None
        entitled = self.quotas.judge(entry) if entry.decision.reason == REASON_OVER_QUOTA else None
        if entitled is None or entitled.short is None:
            return refuse(message)
        resource = entitled.short.pool.resource
        return refuse(message, resource, resources.text(resource, entitled.short.amount))

    def allowed(self, root: Key) -> Gang | Refusal:
        """The part of a unit's gang for which there is quota, or why there is none."""
        entry = self.entry(root)
        assert entry.gang is not None, "it waits for nodes"
        entitled = self.quotas.judge(entry)
        if (why := self.quotas.refusal(entry, entitled)) is not None:
            return self.refusal(root) or refuse(why.message)
        return self.quotas.confine(entry, entry.gang, entitled)

    def refuse_beside(self, root: Key, shapes: Sequence[Shape]) -> Refusal | None:
        """Say why quota leaves no further pods of these shapes, all at once, to a unit; None where it does."""
        if self.quotas.room_for(root, shapes) != 0:
            return None
        name = self.quotas.queue_of(root)
        return refuse(f"queue {name} has no quota left for them" if name else "no queue has quota for them")


def _waits(entry: Entry) -> bool:
    """Tell whether time alone may let a unit be planned."""
    return entry.stage in {QueueStage.PODS, QueueStage.SETTLED} or (
        entry.stage in {QueueStage.MINIMUM, QueueStage.SURPLUS} and not entry.refused
    )


def _written_objects(facts: ClusterFacts, units: Mapping[Key, Unit]) -> Iterator[Any]:
    """The objects of the cluster but for groups and pods: nodes without devices where those of drivers are counted anew."""
    devices = facts.devices or DeviceFacts((), ())
    written = {node.metadata.name for node in devices.nodes}
    yield from chain(facts.priority_classes, facts.topologies, facts.claims, facts.volumes)
    yield from (thing for thing in devices.things if not isinstance(thing, core.ResourceClaimTemplate))
    yield from chain(devices.nodes, (node for node in facts.nodes if node.metadata.name not in written))
    if facts.queues is not None:
        namespaces = {namespace.metadata.name: namespace for namespace in facts.namespaces}
        for name in {*(key.namespace for key in units), *(group.metadata.namespace for group in facts.groups)}:
            namespaces.setdefault(name, core.Namespace(core.Meta(name=name)))
        yield from map(_named, namespaces.values())
        yield from facts.queues


def _planned_objects(
    facts: ClusterFacts,
    units: Mapping[Key, Unit],
    templates: Mapping[tuple[str, str], core.ResourceClaimTemplate],
) -> Iterator[Any]:
    """The groups and pods as an API server would have them, were what is planned created."""
    planned = {key_of(node.group): node for unit in units.values() for node in unit.tree.walk()}
    stored = {key_of(group): group for group in facts.groups}
    yield from (group for key, group in stored.items() if key not in planned and _root_of(group, stored) not in units)
    yield from _workloads(units.values())
    members: dict[str, core.Pod] = {}
    for key, node in planned.items():
        group = node.group
        yield _as_in_cluster(group, stored[key]) if key in units and key in stored else group
        members.update((pod.metadata.uid, _of_group(pod, group)) for pod in node.pods)
    taken = {pod.metadata.key for pod in members.values()}
    for pod in facts.pods:
        if pod.metadata.uid not in members and pod.metadata.key not in taken:
            leaf = Key("PodGroup", pod.metadata.namespace, pod.metadata.label(LABEL_POD_GROUP) or "")
            yield _of_nobody(pod) if leaf in planned and podstate.counts(pod) else pod
    for pod in members.values():
        made = [*_made_claims(pod, templates)]
        yield from (claim for _, claim in made)
        yield _with_claims(pod, made) if made else pod


def _root_of(group: core.Group, groups: Mapping[Key, core.Group]) -> Key:
    key = key_of(group)
    for _ in groups:
        parent = groups[key].spec.parent_composite_pod_group_name if key in groups else None
        if not parent:
            break
        key = Key("CompositePodGroup", key.namespace, parent)
    return key


def _named(namespace: core.Namespace) -> core.Namespace:
    meta = namespace.metadata
    return msgspec.structs.replace(
        namespace, metadata=msgspec.structs.replace(meta, labels={**(meta.labels or {}), _NAME: meta.name})
    )


def _workloads(units: Iterable[Unit]) -> Iterator[StoredWorkload]:
    """The Workloads of units, whose templates are in the order of the units' groups."""
    templates: dict[tuple[str, str], dict[str, WorkloadTemplate]] = {}
    for unit in units:
        names = templates.setdefault(workload_key(unit.root), {})
        for node in unit.tree.walk():
            reference = node.group.spec.workload_ref
            if reference is not None and reference.template_name:
                names.setdefault(reference.template_name, WorkloadTemplate(reference.template_name))
    for (namespace, name), ordered in templates.items():
        spec = WorkloadTemplate(pod_group_templates=tuple(ordered.values()))
        yield StoredWorkload(core.Meta(name=name, namespace=namespace), spec)


def _as_in_cluster(root: core.Group, stored: core.Group) -> core.Group:
    """A root as the cluster would have it: what its spec asks for, and all that others have written on it."""
    meta = msgspec.structs.replace(
        stored.metadata, labels=root.metadata.labels, owner_references=root.metadata.owner_references
    )
    return msgspec.structs.replace(root, metadata=meta, status=stored.status)


def _of_group(pod: core.Pod, group: core.Group) -> core.Pod:
    meta = pod.metadata
    if meta.label(LABEL_POD_GROUP) == group.metadata.name:
        return pod
    labels = {**(meta.labels or {}), LABEL_POD_GROUP: group.metadata.name}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(meta, labels=labels))


def _of_nobody(pod: core.Pod) -> core.Pod:
    """A pod that has no place in what is planned, and holds its node."""
    labels = {name: value for name, value in (pod.metadata.labels or {}).items() if name != LABEL_POD_GROUP}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels))


def _made_claims(
    pod: core.Pod, templates: Mapping[tuple[str, str], core.ResourceClaimTemplate]
) -> Iterator[tuple[str, core.ResourceClaim]]:
    """The claims of a pod that would be made of templates, as kube-controller-manager makes them."""
    for pod_claim in unmade_claims(pod):
        template = templates.get((pod.metadata.namespace, pod_claim["resourceClaimTemplateName"]))
        if template is not None:
            name = f"{pod.metadata.name}-{pod_claim.get('name', '')}"
            uid = stand_in("claim", pod.metadata.namespace, name)
            meta = core.Meta(name=name, namespace=pod.metadata.namespace, uid=uid)
            yield pod_claim.get("name", ""), core.ResourceClaim(meta, template.spec.spec)


def _with_claims(pod: core.Pod, made: Iterable[tuple[str, core.ResourceClaim]]) -> core.Pod:
    statuses = (core.PodClaimStatus(name, claim.metadata.name) for name, claim in made)
    known = pod.status.resource_claim_statuses or ()
    return msgspec.structs.replace(
        pod, status=msgspec.structs.replace(pod.status, resource_claim_statuses=(*known, *statuses))
    )
