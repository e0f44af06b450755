"""The dialect of ``Kubernetes`` for 1.35, whose groups are entries of the Workload.

::

    Workload <inference>     podGroups: one for each role; gang of size pods, or of minReplicas single pods
    Pod                      workloadRef: {name, podGroup: <role>, podGroupReplicaKey: <unit>-<replica>, or <unit>}

Pods say which copy of an entry they form (``v1alpha1``). There are no PodGroups and no status. The list never changes: a
Workload of another shape takes the place of the old one, which concerns only pods that are not bound yet. The hierarchy
is held by gates (``gates``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final

from covey.api import constants as names
from covey.api import core
from covey.api.inference import BackendName, DisaggregatedInference, DisaggregatedInferenceSpec, DisruptionMode
from covey.api.roles import Role
from covey.backends.kubernetes import gates, requirements, shared
from covey.backends.kubernetes.fixed import digest, is_other
from covey.backends.kubernetes.flat import refused_everywhere, refused_strays
from covey.backends.seam import Cluster, FieldProbe, Identity, Owned, Release, ReleaseFacts, UnitReport
from covey.compile import Layout, Levels, Owner, Revision, RoleRevision, Slot, Tree, compile_inference
from covey.compile.groups import Anchor, CreationLevel, Membership, Object
from covey.compile.layout import Scale
from covey.kube.resources import Resource

WORKLOADS: Final = Resource(shared.GROUP, "v1alpha1", "workloads", "Workload")


class EmbeddedGroups:
    """Builds the Workload of one resource.

    Args:
        owner: the resource.
        spec: its spec.
        revision: which roles have replicas of several pods.
    """

    def __init__(self, owner: Owner, spec: DisaggregatedInferenceSpec, revision: Revision) -> None:
        self._owner = owner
        self._spec = spec
        self._sizes = {name: role.size for name, role in revision.roles.items()}
        self._scale = Scale.of(spec)

    def levels(self, _layout: Layout) -> tuple[CreationLevel, ...]:
        """The Workload."""
        return (CreationLevel("workload", () if self._spec.suspend else (self._workload(),)),)

    def membership(self, slot: Slot, revision: RoleRevision) -> Membership:
        """The pod names the entry and its copy, and has the gate that the operator lifts."""
        key = f"{slot.unit}-{slot.replica}" if revision.size > 1 else str(slot.unit)
        reference = {"name": self._owner.name, "podGroup": slot.role, "podGroupReplicaKey": key}
        return Membership(spec={"workloadRef": reference, **gates.GATED})

    def anchor(self, _slot: Slot, _revision: RoleRevision) -> Anchor:
        """The Workload."""
        return WORKLOADS.type, self._owner.name

    def _workload(self) -> Object:
        groups = [{"name": role.name, "policy": self._policy(role)} for role in self._spec.roles]
        spec = {"controllerRef": shared.controller_of(self._owner), "podGroups": groups}
        return shared.object_of(WORKLOADS, self._owner.metadata(self._owner.name, {}), spec)

    def _policy(self, role: Role) -> Object:
        size = self._sizes[role.name]
        minimum = size if size > 1 else self._scale.roles[role.name].minimum
        return {"gang": {"minCount": minimum}} if minimum else {"basic": {}}


_MEMBER: Final = shared.pod_probe(
    "kubernetes-pod-workload-ref",
    {"workloadRef": {"name": "covey-probe", "podGroup": "probe"}},
    ("spec", "workloadRef", "name"),
)


class Embedded:
    """The backend ``Kubernetes`` with groups inside the Workload."""

    name: ClassVar[BackendName] = BackendName.KUBERNETES
    dialect: ClassVar[str] = "1.35"
    silence: ClassVar[str] = "its Workload is being created"
    needs_room: ClassVar[bool] = True
    has_fixed_levels: ClassVar[bool] = True

    def kinds(self) -> tuple[Resource, ...]:
        """Return the Workload."""
        return (WORKLOADS,)

    def probes(self) -> tuple[FieldProbe, ...]:
        """Return a probe of pods' membership, which stands behind a feature gate."""
        return (_MEMBER,)

    def absent(self, cluster: Cluster) -> str | None:
        """Return what the cluster lacks, or None: the kind is needed, and pods that may name it."""
        return requirements.missing_kinds(cluster, self.kinds(), "1.35") or requirements.missing_field(
            cluster, _MEMBER, "spec.workloadRef of pods", "GenericWorkload"
        )

    def refusals(self, spec: DisaggregatedInferenceSpec, levels: Levels | None, _cluster: Cluster) -> tuple[str, ...]:
        """Report the fields that these groups cannot carry: they have a name and a count."""
        return (*shared.refused_fields(spec, levels), *_refusals(spec, levels))

    def compile(
        self,
        inference: DisaggregatedInference,
        *,
        layout: Layout | None = None,
        revision: Revision | None = None,
        levels: Levels | None = None,
    ) -> Tree:
        """Compile to a Workload."""
        return compile_inference(inference, layout=layout, revision=revision, levels=levels, groups=EmbeddedGroups)

    def read_back(self, inference: str, _unit: int, objects: Mapping[Identity, Owned]) -> UnitReport | None:
        """Report that the minimum was let go: a Workload has no status, and who keeps a minimum says why."""
        workload = objects.get((WORKLOADS.type, inference))
        if workload is None:
            return None
        admitted = core.Condition(names.ADMITTED, "True", gates.REASON, gates.LET_GO)
        return UnitReport(workload.metadata.uid, workload.metadata.creation_timestamp, admitted)

    def in_use(self, _objects: Mapping[Identity, Owned], _pods: Iterable[core.Pod]) -> frozenset[Identity]:
        """Return nothing: pods that are bound do without their Workload."""
        return frozenset()

    def is_fixed(self, stored: Owned, wanted: Mapping[str, Any]) -> bool:
        """Tell whether anything differs."""
        return is_other(stored, wanted["spec"], frozenset())

    def fixed_fields(self, body: Mapping[str, Any]) -> str:
        """Compute a digest of all fields."""
        return digest(body["spec"], frozenset())

    def release(self, progress: ReleaseFacts) -> Release:
        """Release the minimum of a unit together, then its surplus."""
        return gates.release(progress)


def _refusals(spec: DisaggregatedInferenceSpec, levels: Levels | None) -> Iterator[str]:
    yield from refused_everywhere(spec)
    yield from refused_strays(spec)
    for role in spec.roles:
        yield from shared.refused_single_pods(role, spec, levels)
    if spec.disruption_mode is DisruptionMode.REPLICA:
        yield (
            "spec.disruptionMode Replica cannot be said to Kubernetes 1.35, which preempts pod by pod: remove it, or use "
            "backend Extender, or a later Kubernetes"
        )
