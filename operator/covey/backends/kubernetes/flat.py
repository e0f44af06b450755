"""The dialects of ``Kubernetes`` that have PodGroups, but no groups of groups: 1.36, and 1.37 without its alpha API.

Kubernetes groups without a hierarchy: one Workload, and PodGroups side by side.

::

    Workload <inference>                       one template for each role
    PodGroup <inference>-<unit>-<role>-<n>     for each replica of several pods: gang of size pods
    PodGroup <inference>-<unit>-<role>         for each role of single pods: gang of minReplicas pods

A role of single pods with ``minReplicas: 0`` has policy ``basic``. The hierarchy is held by gates (``gates``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from covey.api import constants as names
from covey.api import core
from covey.api.inference import BackendName, DisaggregatedInference, DisaggregatedInferenceSpec, DisruptionMode
from covey.api.roles import Role
from covey.backends.kubernetes import gates, shared
from covey.backends.kubernetes.fixed import MUTABLE, digest, is_other
from covey.backends.kubernetes.units import Reports
from covey.backends.seam import Cluster, FieldProbe, Identity, Owned, Release, ReleaseFacts, UnitReport
from covey.compile import Layout, Levels, Owner, Revision, RoleRevision, Slot, Tree, compile_inference, identity
from covey.compile.group_hierarchy import replica_template, role_template
from covey.compile.groups import Anchor, CreationLevel, Membership, Object
from covey.compile.layout import Replicas, Scale
from covey.kube.resources import NATIVE_POD_GROUPS_1_36, Resource


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the API that has PodGroups as objects.

    ``counts``: ``minCount`` may be changed; everything else of a group never may. ``prioritised``: groups have a
    priority and a disruption mode. ``atomic``: one pod with a gate keeps its whole group from the queue.
    """

    workloads: Resource
    pod_groups: Resource
    counts: bool = False
    prioritised: bool = True
    atomic: bool = False

    @property
    def is_first(self) -> bool:
        """Tell whether it is ``v1alpha2``, which names some fields in another way."""
        return self.workloads.version == "v1alpha2"


class FlatGroups:
    """Builds the Workload and the groups of one resource.

    Args:
        version: of the API.
        owner: the resource.
        spec: its spec.
        revision: which roles have replicas of several pods.
        levels: those of the topology in use.
    """

    def __init__(
        self,
        version: Version,
        owner: Owner,
        spec: DisaggregatedInferenceSpec,
        revision: Revision,
        levels: Levels | None = None,
    ) -> None:
        self._version = version
        self._owner = owner
        self._spec = spec
        self._levels = levels
        self._sizes = {name: role.size for name, role in revision.roles.items()}
        self._scale = Scale.of(spec)

    def levels(self, layout: Layout) -> tuple[CreationLevel, ...]:
        """The Workload, then the groups, which may not be there before their template is (1.36)."""
        return (
            CreationLevel("workload", () if self._spec.suspend else (self._workload(),)),
            CreationLevel("podgroups", tuple(self._groups(layout))),
        )

    def membership(self, slot: Slot, revision: RoleRevision) -> Membership:
        """The pod names its PodGroup, and has the gate that the operator lifts."""
        return Membership(spec={"schedulingGroup": {"podGroupName": self.anchor(slot, revision)[1]}, **gates.GATED})

    def anchor(self, slot: Slot, revision: RoleRevision) -> Anchor:
        """The PodGroup: the replica's, or the role's where replicas are single pods."""
        replica = slot.replica if revision.size > 1 else None
        name = identity.group_name(self._owner.name, slot.unit, slot.role, replica)
        return self._version.pod_groups.type, name

    def _workload(self) -> Object:
        templates = [
            {"name": self._template(role), **self._body(role, self._sizes[role.name])} for role in self._spec.roles
        ]
        spec = {"controllerRef": shared.controller_of(self._owner), "podGroupTemplates": templates}
        return shared.object_of(self._version.workloads, self._owner.metadata(self._owner.name, {}), spec)

    def _groups(self, layout: Layout) -> Iterator[Object]:
        for unit, roles in layout.units.items():
            for role in self._spec.roles:
                if role.name in roles:
                    yield from self._groups_of(unit, role, roles[role.name])

    def _groups_of(self, unit: int, role: Role, replicas: Replicas) -> Iterator[Object]:
        if self._sizes[role.name] == 1:
            yield self._group(unit, role, None, 1)
            return
        for replica, revision in replicas.items():
            yield self._group(unit, role, replica, revision.size)

    def _group(self, unit: int, role: Role, replica: int | None, size: int) -> Object:
        name = identity.group_name(self._owner.name, unit, role.name, replica)
        metadata = self._owner.metadata(name, identity.group_labels(unit, role.name, replica))
        spec = {**self._reference(self._template(role)), **self._body(role, size)}
        return shared.object_of(self._version.pod_groups, metadata, spec)

    def _template(self, role: Role) -> str:
        return replica_template(role.name) if self._sizes[role.name] > 1 else role_template(role.name)

    def _reference(self, template: str) -> Object:
        if self._version.is_first:
            workload = {"workloadName": self._owner.name, "podGroupTemplateName": template}
            return {"podGroupTemplateRef": {"workload": workload}}
        return {"workloadRef": {"workloadName": self._owner.name, "templateName": template}}

    def _body(self, role: Role, size: int) -> Object:
        several = self._sizes[role.name] > 1
        minimum = size if several else self._scale.roles[role.name].minimum
        level = shared.replica_level(role, self._spec, self._levels) if several else None
        return {
            "schedulingPolicy": {"gang": {"minCount": minimum}} if minimum else {"basic": {}},
            **shared.constraints(level, self._levels),
            **(self._preemption(whole=several) if self._version.prioritised else {}),
        }

    def _preemption(self, *, whole: bool) -> Object:
        """Preemption takes whole replicas, unless it may take single pods; that it takes units cannot be said."""
        whole = whole and self._spec.disruption_mode is not DisruptionMode.POD
        if self._version.is_first:
            mode: str | Object = "PodGroup" if whole else "Pod"
        else:
            mode = {"all": {}} if whole else {"single": {}}
        return {"disruptionMode": mode, **shared.priority_fields(self._spec)}


WORKLOADS_1_36: Final = Resource(shared.GROUP, "v1alpha2", "workloads", "Workload")
POD_GROUPS_1_36: Final = NATIVE_POD_GROUPS_1_36

_VERSIONS: Final[Mapping[str, Version]] = {
    "1.37-flat": Version(shared.WORKLOADS, shared.POD_GROUPS, counts=True, atomic=True),
    "1.36-preemption": Version(WORKLOADS_1_36, POD_GROUPS_1_36),
    "1.36": Version(WORKLOADS_1_36, POD_GROUPS_1_36, prioritised=False),
}
#: PriorityClasses that every cluster has, beyond 1,000,000,000, which is the most that a PodGroup takes.
_SYSTEM: Final = ("system-cluster-critical", "system-node-critical")
_UNIT_LEVEL: Final = (
    "spec.topology.required asks for one domain for all roles of a unit, which groups of Kubernetes 1.37 say as a tree only: "
    "turn on the feature gate CompositePodGroup and serve scheduling.k8s.io/v1alpha3, or use backend Extender"
)


class Flat:
    """The backend ``Kubernetes`` with flat groups.

    Args:
        dialect: one of ``Flat.dialects``.
    """

    name: ClassVar[BackendName] = BackendName.KUBERNETES
    dialects: ClassVar[tuple[str, ...]] = tuple(_VERSIONS)
    silence: ClassVar[str] = "its groups are being created"
    needs_room: ClassVar[bool] = True
    has_fixed_levels: ClassVar[bool] = True

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self._version = _VERSIONS[dialect]
        self._release = dialect.partition("-")[0]
        self._reports = Reports(self._version.pod_groups.type)
        #: A group without a priority gets a mode by default, should the feature gate be turned on later.
        silent = frozenset() if self._version.prioritised else frozenset({"disruptionMode"})
        self._mutable = silent | (MUTABLE if self._version.counts else frozenset())
        self._topology = self._probe(
            "topology",
            {"schedulingConstraints": {"topology": [{"key": names.HOSTNAME_LABEL}]}},
            ("spec", "schedulingConstraints", "topology", 0, "key"),
        )
        # One feature gate is for both: it is asked by the field that takes any value.
        self._preemption = self._probe("preemption", {"disruptionMode": "PodGroup"}, ("spec", "disruptionMode"))

    def kinds(self) -> tuple[Resource, ...]:
        """Return the Workload, and the groups."""
        return self._version.workloads, self._version.pod_groups

    def probes(self) -> tuple[FieldProbe, ...]:
        """Return probes of feature gates: for pods' membership, groups' topology, and in 1.36 groups' priority."""
        return (shared.MEMBER, self._topology, *((self._preemption,) if self._version.is_first else ()))

    def absent(self, cluster: Cluster) -> str | None:
        """Return what the cluster lacks, or None: its kinds are needed, and pods that may name their group."""
        return (
            shared.missing_kinds(cluster, self.kinds(), self._release)
            or shared.missing_field(cluster, shared.MEMBER, "spec.schedulingGroup of pods", "GenericWorkload")
            or self._without_priority(cluster)
        )

    def _without_priority(self, cluster: Cluster) -> str | None:
        if not (self._version.is_first and self._version.prioritised):
            return None
        field = "spec.priorityClassName of PodGroups"
        return shared.missing_field(cluster, self._preemption, field, "WorkloadAwarePreemption")

    def refusals(self, spec: DisaggregatedInferenceSpec, levels: Levels | None, cluster: Cluster) -> tuple[str, ...]:
        """Report the fields that flat groups cannot carry."""
        return (*shared.refused_fields(spec, levels), *self._refusals(spec, cluster, levels))

    def _refusals(self, spec: DisaggregatedInferenceSpec, cluster: Cluster, levels: Levels | None) -> Iterator[str]:
        yield from refused_everywhere(spec)
        if spec.topology.required is not None and self._version.atomic:
            yield _UNIT_LEVEL
        yield from refused_strays(spec)
        confined = False
        for role in spec.roles:
            yield from shared.refused_single_pods(role, spec, levels)
            confined |= role.size > 1 and role.topology.required is not None
        if confined and self._topology.name not in cluster.kept:
            field, gate = "spec.schedulingConstraints of PodGroups", "TopologyAwareWorkloadScheduling"
            why = shared.missing_field(cluster, self._topology, field, gate)
            yield f"spec.roles[].topology.required cannot be carried, because {why}; or remove it"
        if self._version.prioritised and spec.priority_class_name in _SYSTEM:
            yield (
                f"spec.priorityClassName {spec.priority_class_name} is higher than PodGroups may have: use a PriorityClass of "
                "at most 1,000,000,000, or backend Extender"
            )
        if spec.disruption_mode is DisruptionMode.REPLICA and not self._version.prioritised:
            yield (
                "spec.disruptionMode Replica cannot be carried, because the API server drops spec.disruptionMode of "
                "PodGroups: turn on the feature gate WorkloadAwarePreemption, or remove it"
            )

    def compile(
        self,
        inference: DisaggregatedInference,
        *,
        layout: Layout | None = None,
        revision: Revision | None = None,
        levels: Levels | None = None,
    ) -> Tree:
        """Compile to a Workload and PodGroups side by side."""
        groups = partial(FlatGroups, self._version, levels=levels)
        return compile_inference(inference, layout=layout, revision=revision, levels=levels, groups=groups)

    def read_back(self, _inference: str, unit: int, objects: Mapping[Identity, Owned]) -> UnitReport | None:
        """Return what kube-scheduler says of a unit's PodGroups."""
        return self._reports.of(unit, objects)

    def in_use(self, _objects: Mapping[Identity, Owned], pods: Iterable[core.Pod]) -> frozenset[Identity]:
        """Return the groups that pods name; each group has a finalizer as long as they do."""
        kind = self._version.pod_groups.type
        named = (pod.spec.scheduling_group for pod in pods)
        return frozenset((kind, str(group.get("podGroupName"))) for group in named if group)

    def is_fixed(self, stored: Owned, wanted: Mapping[str, Any]) -> bool:
        """Tell whether anything differs but ``minCount``, which may change from 1.37 on."""
        return is_other(stored, wanted["spec"], self._mutable)

    def fixed_fields(self, body: Mapping[str, Any]) -> str:
        """Compute a digest of all fields but, from 1.37 on, ``minCount``."""
        return digest(body["spec"], self._mutable)

    def release(self, progress: ReleaseFacts) -> Release:
        """Release the minimum of a unit together, then its surplus."""
        return gates.release(progress, atomic=self._version.atomic)

    def _probe(self, what: str, body: Mapping[str, Any], path: tuple[str | int, ...]) -> FieldProbe:
        spec = {"schedulingPolicy": {"gang": {"minCount": 1}}, **body}
        group = shared.object_of(self._version.pod_groups, {"name": "covey-probe"}, spec)
        return FieldProbe(f"kubernetes-{self._release}-{what}", self._version.pod_groups, group, path)


def refused_strays(spec: DisaggregatedInferenceSpec) -> Iterator[str]:
    """Refuse a required domain for roles that are all outside the gang: nothing would tell them where the unit is."""
    following = [role for role in spec.roles if role.topology.follow_unit]
    if spec.topology.required is not None and following and not any(role.min_replicas for role in following):
        yield (
            "spec.topology.required confines only roles with minReplicas 0, whose replicas come one by one: set minReplicas of "
            "one of them, or followUnit false"
        )


def refused_everywhere(spec: DisaggregatedInferenceSpec) -> Iterator[str]:
    """Yield the refusals that all dialects without a hierarchy have in common."""
    if len(spec.roles) > shared.MOST_TEMPLATES:
        yield (
            f"spec.roles: {len(spec.roles)} roles, but a Workload takes {shared.MOST_TEMPLATES}: join some of them, or use "
            "backend Extender"
        )
    if spec.disruption_mode is DisruptionMode.UNIT:
        yield (
            "spec.disruptionMode Unit cannot be said where groups stand side by side: preemption would take one of them "
            "and leave the others; remove it, or use backend Extender"
        )
