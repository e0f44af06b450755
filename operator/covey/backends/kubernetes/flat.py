"""The dialects of ``Kubernetes`` that have PodGroups, but no groups of groups: 1.36, and 1.37 without its alpha API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Final

from covey.api import constants as names
from covey.api import core
from covey.api.inference import BackendName, DisaggregatedInference, DisaggregatedInferenceSpec, DisruptionMode
from covey.backends.kubernetes import gates, requirements, shared
from covey.backends.kubernetes.fixed import MUTABLE, digest, is_other
from covey.backends.kubernetes.flat_groups import FlatGroups, Version
from covey.backends.kubernetes.flat_reports import Reports
from covey.backends.seam import Cluster, FieldProbe, Identity, Owned, Release, ReleaseFacts, UnitReport
from covey.compile import Layout, Levels, Revision, Tree, compile_inference
from covey.kube.resources import NATIVE_POD_GROUPS_1_36, Resource

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
            requirements.missing_kinds(cluster, self.kinds(), self._release)
            or requirements.missing_field(cluster, shared.MEMBER, "spec.schedulingGroup of pods", "GenericWorkload")
            or self._without_priority(cluster)
        )

    def _without_priority(self, cluster: Cluster) -> str | None:
        if not (self._version.is_first and self._version.prioritised):
            return None
        field = "spec.priorityClassName of PodGroups"
        return requirements.missing_field(cluster, self._preemption, field, "WorkloadAwarePreemption")

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
            why = requirements.missing_field(cluster, self._topology, field, gate)
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
        return gates.release(progress, atomic=self._version.atomic, groups=self._version.pod_groups.type)

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
