"""A DisaggregatedInference as a workload: expanded as the operator would, existing pods put in their slots.

Topology and levels of each workload, as the scheduler chooses them; unknown levels are bad input here.

Upstream groups name label keys, not levels. A key that is in no level becomes a level of its own, put as deep as its
values nest inside the broader levels, so that a domain of it is exactly the nodes with one value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from covey.admission.compiled_units import stand_in
from covey.admission.nodes import key_of
from covey.admission.topologies import NodeLabels
from covey.api import core
from covey.api.constants import LABEL_INDEX, LABEL_INFERENCE, LABEL_REPLICA, LABEL_ROLE, LABEL_UNIT
from covey.api.inference import BackendName, DisaggregatedInference, UnitTopology
from covey.api.roles import Role, RoleTopology
from covey.api.unsupported import unkept_constraints, unsupported_fields
from covey.compile import Layout, ReplicaKey, Revision, RoleRevision, Slot
from covey.manifests.documents import Document
from covey.manifests.errors import InputError, ManifestProblem
from covey.model import podstate
from covey.operator.model.template_faults import asks_for_devices
from covey.operator.validation import find_revision
from covey.placement.cluster.inventory import path_of
from covey.placement.model import Level, Path, Topology
from covey.planning.changes import Change, Existing, expand, find_outdated, is_of
from covey.planning.facts import ClusterFacts
from covey.planning.trees import Mention, PlannedWorkload, age


def choose_topologies(workloads: Sequence[PlannedWorkload], facts: ClusterFacts) -> list[Topology]:
    """A topology for each workload, in their order.

    Raises:
        InputError: the choice is not clear, or a workload names a level that its topology lacks.
    """
    choose = _Chooser(facts).choose
    return [_extend_topology(workload, choose(workload), facts.nodes) for workload in workloads]


def default_topology(facts: ClusterFacts) -> Topology:
    """Return the topology of workloads that name none.

    Raises:
        InputError: several, and none is marked default.
    """
    try:
        return facts.topology_choice().choose()
    except LookupError as error:
        raise InputError("--topology", _text(error), "mark one as default") from None


def labels_of_nodes(facts: ClusterFacts) -> NodeLabels:
    """A function from the names of nodes to their labels."""
    return {node.metadata.name: node.metadata.labels or {} for node in facts.nodes}.get


class _Chooser:
    """Chooses topologies as the scheduler process does: what runs keeps its own, unless the manifest names another.

    The units of a workload are planned in one topology, that of the first of them that has placed pods.
    """

    def __init__(self, facts: ClusterFacts) -> None:
        self._choice = facts.topology_choice()
        self._stored = {key_of(group): group for group in facts.groups}
        self._labels_of = labels_of_nodes(facts)

    def choose(self, workload: PlannedWorkload) -> Topology:
        """The topology of a workload, with every level that it names.

        Raises:
            InputError: the choice is not clear, or a level is not there.
        """
        try:
            topology = self._choose(workload)
        except LookupError as error:
            what = _text(error)
            raise InputError(workload.place, what, "give the ClusterTopology with --topology, or name one") from None
        if problems := list(_level_problems(workload, topology)):
            raise InputError.of(problems)
        return topology

    def _choose(self, workload: PlannedWorkload) -> Topology:
        if workload.topology_name is None:
            for unit in workload.units:
                if any(map(podstate.is_placed, unit.pods())):
                    root = self._stored.get(unit.key, unit.root)
                    constraints = root.spec.scheduling_constraints
                    kept = (constraints.topology_name if constraints else None) or root.status.topology
                    return self._choice.of_unit(unit, self._labels_of, kept=kept)
        return self._choice.choose(workload.topology_name)


def _level_problems(workload: PlannedWorkload, topology: Topology) -> Iterator[ManifestProblem]:
    known = {level.name for level in topology.levels}
    for mention in workload.mentions:
        if mention.level and mention.level not in known:
            what = f"topology {topology.name} has no level {mention.level}"
            yield ManifestProblem(mention.place, what, f"use one of {_names(topology)}")
    for mention in workload.mentions:
        if {mention.level, mention.within} <= known and _coarser(topology, mention):
            what = f"{mention.level} is coarser than {mention.within}, which is required"
            yield ManifestProblem(mention.place, what, "prefer a finer one")


def _coarser(topology: Topology, mention: Mention) -> bool:
    return mention.within is not None and topology.depth(mention.level) < topology.depth(mention.within)


def _extend_topology(workload: PlannedWorkload, topology: Topology, nodes: Sequence[core.Node]) -> Topology:
    """The topology with a level for each label key that the workload names and no level has."""
    for key in dict.fromkeys(mention.key for mention in workload.mentions if mention.key):
        if any(key in level.keys for level in topology.levels):
            continue
        depth = _depth(key, topology, nodes)
        levels = (*topology.levels[:depth], Level(key, (key,)), *topology.levels[depth:])
        topology = Topology(f"{topology.name}+{key}", levels)
    return topology


def _depth(key: str, topology: Topology, nodes: Iterable[core.Node]) -> int:
    """Compute how many levels may stand above a key without splitting the nodes of one of its values."""
    seen: dict[str, Path] = {}
    depth = len(topology.levels)
    for node in nodes:
        labels = node.metadata.labels or {}
        value = labels.get(key)
        if value is not None:
            path = path_of(topology, labels)
            first = seen.setdefault(value, path)
            depth = min(depth, _common(first, path))
    hosts = [number for number, level in enumerate(topology.levels) if level.name == "host"]
    return min([depth, *hosts])


def _common(one: Path, other: Path) -> int:
    return next((index for index, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]), len(one))


def _names(topology: Topology) -> str:
    return ", ".join(level.name for level in topology.levels)


def _text(error: LookupError) -> str:
    return str(error.args[0]) if error.args else "the topology is not clear"


def inference_workload(
    document: Document,
    inference: DisaggregatedInference,
    number: int,
    pods: Iterable[core.Pod],
    stored: Sequence[Revision] = (),
    store: Callable[[core.Pod], core.Pod] = lambda pod: pod,
) -> PlannedWorkload:
    """Expand a resource.

    Args:
        document: where it stands.
        inference: the resource.
        number: its place among the documents.
        pods: pods of the cluster; those that are its members take their slots.
        stored: its revisions, the newest first.
        store: completes a pod that does not exist yet, as the API server would.
    """
    metadata = inference.metadata
    spec = inference.spec
    existing = _members(inference, pods)
    if (unkept := unkept_constraints(spec)) and not existing:
        raise InputError.of([ManifestProblem(document.place.at("spec.roles"), what) for what in unkept])
    uid = metadata.uid or _owner_uid(existing) or stand_in("inference", metadata.namespace, metadata.name)
    inference = inference.model_copy(update={"metadata": metadata.model_copy(update={"uid": uid})})
    created = age(metadata.creation_timestamp, number)
    target = find_revision(spec, stored)
    known = {(name, role.hash): role for revision in stored for name, role in revision.roles.items()}
    outdated = find_outdated(existing, target, known)
    # Without places it gets the template of today.
    existing = {slot: pod for slot, pod in existing.items() if slot[:3] in outdated or is_of(pod, target, slot.role)}
    change = Change(inference, target, outdated, existing, created, store)
    units, members = expand(change, _layout(inference, existing, target, outdated))
    return PlannedWorkload(
        document.place,
        metadata.namespace,
        metadata.name,
        created,
        units,
        members,
        inference.spec.topology.name,
        tuple(_mentions(document, inference)),
        inference.spec.priority_class_name,
        warnings=tuple(f"{metadata.namespace}/{metadata.name}: {text}" for text in _remarks(inference)),
        summed=frozenset(role.name for role in spec.roles if role.is_scaled),
        is_counted=spec.effective_backend is BackendName.EXTENDER,
        change=change if outdated else None,
    )


def _members(inference: DisaggregatedInference, pods: Iterable[core.Pod]) -> Existing:
    """Pods of the cluster that stand for a slot; a bound one before any other."""
    meta = inference.metadata
    members: dict[Slot, core.Pod] = {}
    for pod in pods:
        labels = pod.metadata.labels or {}
        if pod.metadata.namespace != meta.namespace or labels.get(LABEL_INFERENCE) != meta.name:
            continue
        owner = pod.metadata.controller
        if not podstate.counts(pod) or (meta.uid and owner and owner.uid and owner.uid != meta.uid):
            continue
        numbers = [labels.get(label, "") for label in (LABEL_UNIT, LABEL_REPLICA, LABEL_INDEX)]
        if not all(text.isdecimal() for text in numbers):
            continue
        slot = Slot(int(numbers[0]), labels.get(LABEL_ROLE, ""), int(numbers[1]), int(numbers[2]))
        if slot not in members or (podstate.holding(pod) and not podstate.holding(members[slot])):
            members[slot] = pod
    return members


def _owner_uid(existing: Existing) -> str | None:
    owners = (pod.metadata.controller for pod in existing.values())
    return next((owner.uid for owner in owners if owner and owner.uid), None)


def _layout(
    inference: DisaggregatedInference,
    existing: Existing,
    target: Revision,
    outdated: Mapping[ReplicaKey, RoleRevision],
) -> Layout:
    """Numbers in use stay, those that hold places first; the lowest free ones are added."""
    spec = inference.spec
    if spec.suspend:
        return Layout({})
    units = _numbers(spec.replicas, [(slot.unit, pod) for slot, pod in existing.items()])
    return Layout(
        {
            unit: {
                role.name: {
                    number: outdated.get((unit, role.name, number), target.roles[role.name])
                    for number in _replicas(
                        role, [(s.replica, pod) for s, pod in existing.items() if (s.unit, s.role) == (unit, role.name)]
                    )
                }
                for role in spec.roles
            }
            for unit in units
        }
    )


def _replicas(role: Role, used: Sequence[tuple[int, core.Pod]]) -> tuple[int, ...]:
    """Return the numbers of a role's replicas; under an autoscaler as many as exist, but no fewer than its minimum."""
    there = len({number for number, _ in used})
    return _numbers(max(there, role.min_replicas) if role.is_scaled and there else role.replicas, used)


def _numbers(count: int, used: Iterable[tuple[int, core.Pod]]) -> tuple[int, ...]:
    places: dict[int, bool] = {}
    for number, pod in used:
        places[number] = places.get(number, False) or podstate.holding(pod) is not None
    kept = sorted(places, key=lambda number: (not places[number], number))[:count]
    free = (number for number in range(count + len(kept)) if number not in places)
    return tuple(sorted([*kept, *(next(free) for _ in range(count - len(kept)))]))


def _mentions(document: Document, inference: DisaggregatedInference) -> Iterator[Mention]:
    spec, place = inference.spec, document.place
    scopes: list[tuple[str, UnitTopology | RoleTopology]] = [("spec.topology", spec.topology)]
    scopes += [(f"spec.roles[{number}].topology", role.topology) for number, role in enumerate(spec.roles)]
    for path, topology in scopes:
        if topology.required:
            yield Mention(place.at(f"{path}.required"), topology.required)
        if topology.preferred:
            yield Mention(place.at(f"{path}.preferred"), topology.preferred, within=topology.required)
    for number, rule in enumerate(spec.proximity):
        yield Mention(place.at(f"spec.proximity[{number}].level"), rule.level)
    if spec.spread:
        yield Mention(place.at("spec.spread.level"), spec.spread.level)


def _remarks(inference: DisaggregatedInference) -> Iterator[str]:
    yield from unsupported_fields(inference.spec)
    yield from unkept_constraints(inference.spec)
    templates = (
        template for role in inference.spec.roles for template in (role.template, role.leader_template) if template
    )
    if not any(asks_for_devices(template.get("spec") or {}) for template in templates):
        yield "none of its pods asks for a device, such as nvidia.com/gpu in resources.limits"
    if inference.spec.suspend:
        yield "spec.suspend is true: there is nothing to place"
    elif not inference.spec.replicas:
        yield "spec.replicas is 0: there is nothing to place"
