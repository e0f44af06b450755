"""Kubernetes 1.35 (``v1alpha1``): groups are entries of the Workload, and pods say which copy of an entry they form.

::

    Workload <inference>     podGroups: one for each role; gang of size pods, or of minReplicas single pods
    Pod                      workloadRef: {name, podGroup: <role>, podGroupReplicaKey: <unit>-<replica>, or <unit>}

There are no PodGroups and no status. The list never changes: a Workload of another shape takes the place of the old
one, which concerns only pods that are not bound yet. The hierarchy is held by gates (``gates``).
"""

from __future__ import annotations

from typing import Final

from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.roles import Role
from covey.backends.kubernetes import gates, shared
from covey.compile import Layout, Owner, Revision, RoleRevision, Slot
from covey.compile.layout import Scale
from covey.compile.membership import Anchor, Level, Membership, Object
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

    def levels(self, _layout: Layout) -> tuple[Level, ...]:
        """The Workload."""
        return (Level("workload", () if self._spec.suspend else (self._workload(),)),)

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
