"""Kubernetes 1.37 and 1.38: kube-scheduler places a unit as one tree of groups.

What upstream lacks is held by the operator: minimums come before surplus, which is created only once they are bound.
What its groups cannot carry is refused: a sentence each, with the field and what to do.

1.38 has CompositePodGroups in ``v1beta1`` (``v1alpha3`` in 1.37), the same objects: what was made on 1.37 is looked after in
either version. There ``minGroupCount`` may be changed, and groups take every priority. Read in 1.38.0-beta.0, not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final

from covey.api import constants as names
from covey.api import core
from covey.api.inference import BackendName, DisaggregatedInference, DisaggregatedInferenceSpec
from covey.api.roles import Role
from covey.backends.kubernetes import shared
from covey.backends.kubernetes.fixed import MUTABLE, MUTABLE_1_38, digest, is_other
from covey.backends.kubernetes.release import release
from covey.backends.kubernetes.shared import (
    COMPOSITE_POD_GROUPS,
    COMPOSITE_POD_GROUPS_1_38,
    POD_GROUPS,
    WORKLOADS,
)
from covey.backends.kubernetes.tree import GroupTree
from covey.backends.kubernetes.units import UnitTree
from covey.backends.seam import Cluster, FieldProbe, Identity, Owned, Release, ReleaseFacts, UnitReport
from covey.compile import Layout, Levels, Revision, Tree, compile_inference
from covey.kube.resources import Resource

_EXTENDER = "or use backend Extender"
#: Their priorities are above 1e9, which groups do not take.
_SYSTEM = ("system-cluster-critical", "system-node-critical")


def refusals_of(spec: DisaggregatedInferenceSpec, levels: Levels | None, *, bounded: bool = True) -> Iterator[str]:
    """All that is refused of a spec. The tree is three levels deep, of the four that a Workload may have.

    Args:
        spec: what is wanted.
        levels: those of the topology in use.
        bounded: groups do not take the priorities of the system's classes.
    """
    yield from shared.refused_fields(spec, levels)
    if bounded and spec.priority_class_name in _SYSTEM:
        yield (
            f"spec.priorityClassName {spec.priority_class_name} has a priority above 1000000000, which Kubernetes' groups "
            f"do not take: use a PriorityClass of your own, {_EXTENDER}"
        )
    gang = [role for role in spec.roles if role.min_replicas]
    yield from _too_many("of several pods", [role for role in gang if role.size > 1])
    yield from _too_many("of single pods", [role for role in gang if role.size == 1])
    for role in spec.roles:
        yield from shared.refused_single_pods(role, spec, levels)
        yield from _strays(role, spec)


def _too_many(what: str, roles: list[Role]) -> Iterator[str]:
    if len(roles) > shared.MOST_TEMPLATES:
        yield (
            f"spec.roles: {len(roles)} roles of the gang have replicas {what}, but a list of templates in a Workload "
            f"takes {shared.MOST_TEMPLATES}: join some of them, {_EXTENDER}"
        )


def _strays(role: Role, spec: DisaggregatedInferenceSpec) -> Iterator[str]:
    """The unit's level holds for the whole tree of its gang, and for nothing else."""
    unit, path = spec.topology.required, f"spec.roles[{role.name}]"
    if unit is None:
        return
    if role.min_replicas and not role.topology.follow_unit:
        yield (
            f"{path}.topology.followUnit is false, but kube-scheduler confines every role of the gang to the unit's "
            f"{unit}: set minReplicas 0, which takes the role out of the gang, {_EXTENDER}"
        )
    if not role.min_replicas and role.topology.follow_unit:
        yield (
            f"{path} has minReplicas 0 and stands outside the unit's group, where kube-scheduler cannot confine it to "
            f"the unit's {unit}: set topology.followUnit false or minReplicas 1, {_EXTENDER}"
        )


_TOPOLOGY: Final = "kubernetes-1.37-topology"
_PARENT: Final = "kubernetes-1.37-parent"
_MEMBER: Final = "kubernetes-pod-scheduling-group"
_GATE_OF: Final = {
    _MEMBER: "GenericWorkload",
    _TOPOLOGY: "TopologyAwareWorkloadScheduling",
    _PARENT: "CompositePodGroup",
}


@dataclass(frozen=True, slots=True)
class Hierarchical:
    """The backend ``Kubernetes`` in its dialects with CompositePodGroups.

    Args:
        dialect: ``1.38``, or ``1.37`` for what was made on it.
        composites: the version of CompositePodGroups that is written and read.
    """

    dialect: str = "1.37"
    composites: Resource = COMPOSITE_POD_GROUPS

    dialects: ClassVar[tuple[str, ...]] = ("1.38", "1.37")
    name: ClassVar[BackendName] = BackendName.KUBERNETES
    silence: ClassVar[str] = (
        "kube-scheduler has not tried it yet; if this stays, see whether it runs with the feature gates GenericWorkload, "
        "TopologyAwareWorkloadScheduling and CompositePodGroup"
    )
    needs_room: ClassVar[bool] = False
    has_fixed_levels: ClassVar[bool] = True

    @classmethod
    def of(cls, dialect: str) -> Hierarchical:
        """Return a dialect in the version of its own release."""
        return cls(dialect, COMPOSITE_POD_GROUPS_1_38 if dialect == "1.38" else COMPOSITE_POD_GROUPS)

    def within(self, cluster: Cluster) -> Hierarchical:
        """Return the same dialect, in the later version where the cluster serves it."""
        is_later = cluster.serves(COMPOSITE_POD_GROUPS_1_38)
        return replace(self, composites=COMPOSITE_POD_GROUPS_1_38 if is_later else COMPOSITE_POD_GROUPS)

    def kinds(self) -> tuple[Resource, ...]:
        """Return the Workload, and its groups from the root down."""
        return WORKLOADS, self.composites, POD_GROUPS

    def probes(self) -> tuple[FieldProbe, ...]:
        """Return probes of the fields that an API server without their feature gate drops without a word."""
        metadata = {"name": "covey-probe"}
        spec = {
            "parentCompositePodGroupName": "covey-probe",
            "workloadRef": {"workloadName": "covey-probe", "templateName": "probe"},
            "schedulingPolicy": {"gang": {"minCount": 1}},
            "schedulingConstraints": {"topology": [{"key": names.HOSTNAME_LABEL}]},
        }
        group = shared.object_of(POD_GROUPS, metadata, spec)
        membership = {"schedulingGroup": {"podGroupName": "covey-probe"}}
        return (
            shared.pod_probe(_MEMBER, membership, ("spec", "schedulingGroup", "podGroupName")),
            FieldProbe(_TOPOLOGY, POD_GROUPS, group, ("spec", "schedulingConstraints", "topology", 0, "key")),
            FieldProbe(_PARENT, POD_GROUPS, group, ("spec", "parentCompositePodGroupName")),
        )

    def absent(self, cluster: Cluster) -> str | None:
        """Return what the cluster lacks, or None: its kinds are needed, and three feature gates of the API server."""
        # What was made on 1.37 is in 1.38, in one version or both.
        own = self.within(cluster) if self.dialect == "1.37" else self
        missing = [kind for kind in own.kinds() if kind in cluster.unserved]
        if missing:
            kinds = ", ".join(f"{kind.plural} of {kind.api_version}" for kind in missing)
            return (
                f"the cluster does not serve {kinds}, which Kubernetes {self.dialect} has: set --runtime-config="
                f"{WORKLOADS.api_version}=true,{COMPOSITE_POD_GROUPS.api_version}=true on kube-apiserver, and the feature "
                f"gates {', '.join(_GATE_OF.values())} on kube-apiserver, kube-scheduler and kube-controller-manager"
            )
        for probe, gate in _GATE_OF.items():
            if probe in cluster.unprobed:
                return f"whether kube-apiserver has the feature gate {gate} is not known: {cluster.unprobed[probe]}"
            if probe not in cluster.kept:
                return (
                    f"kube-apiserver drops what the feature gate {gate} is for: set it on kube-apiserver, kube-scheduler "
                    "and kube-controller-manager"
                )
        return None

    def refusals(
        self,
        spec: DisaggregatedInferenceSpec,
        levels: Levels | None,
        cluster: Cluster,
    ) -> tuple[str, ...]:
        """Report the fields that these groups cannot carry."""
        return tuple(refusals_of(spec, levels, bounded=not cluster.serves(COMPOSITE_POD_GROUPS_1_38)))

    def compile(
        self,
        inference: DisaggregatedInference,
        *,
        layout: Layout | None = None,
        revision: Revision | None = None,
        levels: Levels | None = None,
    ) -> Tree:
        """Compile to the tree of groups, and pods that name theirs."""
        groups = partial(GroupTree, levels=levels, composites=self.composites)
        return compile_inference(inference, layout=layout, revision=revision, levels=levels, groups=groups)

    def read_back(self, inference: str, unit: int, objects: Mapping[Identity, Owned]) -> UnitReport | None:
        """Return what kube-scheduler says of the PodGroups, counted up to the root, and of the root where it says anything."""
        tree = UnitTree.of(inference, unit, objects, self.composites)
        if tree is None:
            return None
        admitted = tree.failed
        if admitted is not None:
            admitted = core.Condition(names.ADMITTED, "False", admitted.reason, admitted.message)
        if tree.is_scheduled:
            admitted = core.Condition(names.ADMITTED, "True", names.REASON_ADMITTED, "kube-scheduler has placed it")
        root = tree.root.metadata
        return UnitReport(root.uid, root.creation_timestamp, admitted)

    def in_use(self, objects: Mapping[Identity, Owned], pods: Iterable[core.Pod]) -> frozenset[Identity]:
        """Return the groups that pods and groups name in their spec."""
        leaves = {(POD_GROUPS.type, (pod.spec.scheduling_group or {}).get("podGroupName", "")) for pod in pods}
        parents = {
            (self.composites.type, owned.spec.get("parentCompositePodGroupName", "")) for owned in objects.values()
        }
        return frozenset(leaves | parents)

    def is_fixed(self, stored: Owned, wanted: Mapping[str, Any]) -> bool:
        """Tell whether anything differs that may not be changed."""
        return is_other(stored, wanted["spec"], self._mutable)

    def fixed_fields(self, body: Mapping[str, Any]) -> str:
        """Compute a digest of all fields that may not be changed."""
        return digest(body["spec"], self._mutable)

    @property
    def _mutable(self) -> frozenset[str]:
        return MUTABLE_1_38 if self.composites == COMPOSITE_POD_GROUPS_1_38 else MUTABLE

    def release(self, progress: ReleaseFacts) -> Release:
        """Release surplus after the minimum."""
        return release(progress)
