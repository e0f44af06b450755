"""Replicas of one unit as the planner's question, whatever groups their backend has: pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from covey.admission.compiled_units import compiled_units
from covey.admission.gangs import Surroundings, build_gang
from covey.admission.taken_room import counted_shape
from covey.admission.tree import Unit
from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInference, DisaggregatedInferenceSpec
from covey.backends import ReplicaProgress
from covey.compile import Layout, Revision, RoleRevision, Slot, compile_inference
from covey.compile.group_hierarchy import levels_named
from covey.compile.identity import slot_of
from covey.placement.cluster import presets
from covey.placement.cluster.inventory import NO_TOPOLOGY
from covey.placement.model import Gang, Topology

#: By the place of a pod: labels of the nodes that it may go to.
Confined = Mapping[Slot, Mapping[str, str]]

_GATE: Final = core.SchedulingGate(names.GATE_GANG)
_TOGETHER: Final = frozenset({names.LABEL_TOGETHER, names.LABEL_TOGETHER_COUNT})


@dataclass(frozen=True, slots=True)
class Asked:
    """The question, with the unit and the pods that it is about."""

    unit: Unit
    gang: Gang
    replicas: tuple[ReplicaProgress, ...]
    #: The narrowest level that anything of the resource requires.
    level: str | None
    topology: Topology

    @property
    def pods(self) -> tuple[core.Pod, ...]:
        """All pods that the question is about."""
        return tuple(pod for replica in self.replicas for pod in replica.pods)

    def domain_labels(self, nodes: Mapping[str, str], labels: Callable[[str], Mapping[str, str]]) -> Confined:
        """Labels of each pod's domain, of every level down to the required one; empty where none is required.

        Pods that may go anywhere have their domain too: they would take the room of those that may not.

        Args:
            nodes: UID → node, of the pods that had none.
            labels: those of a node.
        """
        labels_of: dict[Slot, Mapping[str, str]] = {}
        for pod in self.pods if self.level is not None else ():
            slot, node = slot_of(pod.spec.hostname), nodes.get(pod.metadata.uid)
            if slot is not None and node is not None and self.level is not None:
                labels_of[slot] = _domain(self.topology, self.level, labels(node))
        return labels_of


def _domain(topology: Topology, level: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Labels of a node for a level and all broader ones: of each the first key that the node carries."""
    wider = topology.levels[: topology.depth(level) + 1]
    keys = (next((key for key in wider_level.keys if labels.get(key)), None) for wider_level in wider)
    return {key: labels[key] for key in keys if key is not None}


def topology_of(
    spec: DisaggregatedInferenceSpec, topologies: Sequence[core.ClusterTopology], nodes: Iterable[core.Node]
) -> Topology:
    """The topology of a resource; one without levels where it names none.

    Raises:
        LookupError: the choice is not clear; the message says why.
    """
    if not levels_named(spec):
        return NO_TOPOLOGY
    marked = [
        topology.metadata.name
        for topology in topologies
        if topology.metadata.annotation(names.ANNOTATION_DEFAULT_TOPOLOGY) == "true"
    ]
    return presets.choose(spec.topology.name, [presets.topology_of(topology) for topology in topologies], marked, nodes)


def expand(inference: DisaggregatedInference, replicas: Sequence[ReplicaProgress], topology: Topology) -> Asked:
    """Make the question for all of these replicas together. Pods that have nodes keep them.

    Raises:
        UnplannableError: the spec asks for something that the topology or the planner does not have.
    """
    spec = inference.spec
    counts = Counter(replica.role for replica in replicas)
    roles = tuple(
        role.model_copy(update={"replicas": counts[role.name], "min_replicas": counts[role.name]})
        for role in spec.roles
    )
    narrowed = spec.model_copy(update={"replicas": 1, "roles": roles, "suspend": False})
    revision = _with_sizes(Revision.of(spec), replicas)
    tree = compile_inference(
        inference.model_copy(update={"spec": narrowed}),
        layout=_layout(revision, replicas),
        revision=revision,
        levels={},
    )
    placed = {
        slot: _askable(pod) for replica in replicas for pod in replica.pods if (slot := slot_of(pod.spec.hostname))
    }
    (unit,), _ = compiled_units(tree, placed, (role.name for role in spec.roles))
    gang = build_gang(unit, topology, counted_shape, Surroundings())
    required = [spec.topology.required, *(role.topology.required for role in spec.roles)]
    level = max(filter(None, required), key=topology.depth, default=None)
    return Asked(unit, gang, tuple(replicas), level, topology)


def _with_sizes(revision: Revision, replicas: Sequence[ReplicaProgress]) -> Revision:
    """The revision with the sizes that the replicas have: a change of size may be under way."""
    sizes = {replica.role: len(replica.slots) for replica in replicas}
    return replace(revision, roles={n: role.of_size(sizes.get(n, role.size)) for n, role in revision.roles.items()})


def _layout(revision: Revision, replicas: Sequence[ReplicaProgress]) -> Layout:
    roles: dict[str, dict[int, RoleRevision]] = {name: {} for name in revision.roles}
    for replica in replicas:
        slot = replica.slots[0]
        roles[slot.role][slot.replica] = revision.roles[slot.role].of_size(len(replica.slots))
    return Layout({replicas[0].slots[0].unit: roles})


def _askable(pod: core.Pod) -> core.Pod:
    """A pod that is not bound yet may go anywhere, also where its gate has been lifted already.

    What comes together is what is asked for together, whatever its labels say of replicas that are asked for apart.
    """
    labels = {key: value for key, value in (pod.metadata.labels or {}).items() if key not in _TOGETHER}
    pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels))
    if pod.spec.node_name is not None or names.GATE_GANG in core.gates(pod):
        return pod
    gates = (*(pod.spec.scheduling_gates or ()), _GATE)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduling_gates=gates))
