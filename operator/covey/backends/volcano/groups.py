"""The one PodGroup of a unit, and what ties a pod to it.

Volcano starts a PodGroup when enough of each role's subgroups (replicas) fit to meet every minimum, and binds the
rest as there is room. Facts: Volcano 1.14.1, ``pkg/scheduler/api/{job_info,sub_job_info}.go``, ``actions/allocate``.

- *No minTaskMember*, nowhere: it counts pods, so that two halves of replicas would do for a whole one. What it says of
  roles of single pods, ``minSubGroups`` says as well.
- *No task-spec on the pods*: it makes Volcano skip, for a worker, the nodes that were too small for its leader.
- *Tiers by number*: a ``highestTierName`` is replaced by the number when Volcano writes the object back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from covey.api import constants as names
from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.roles import Role
from covey.backends.volcano.min_resources import requests_together
from covey.compile import Layout, Membership, Owner, Revision, RoleRevision, Scale, Slot
from covey.compile.groups import Anchor, CreationLevel, Object
from covey.compile.identity import group_labels, group_name
from covey.compile.layout import Replicas
from covey.kube.resources import VOLCANO_POD_GROUPS

#: On a pod: the PodGroup, of its own namespace, that it belongs to.
ANNOTATION_GROUP: Final = "scheduling.k8s.io/group-name"
TYPE: Final = VOLCANO_POD_GROUPS.type

#: ``networkTopology`` of a level.
Constraint = Callable[[str], Mapping[str, Any]]


class UnitCompiler:
    """Builds the PodGroups of one resource.

    Args:
        owner: the resource.
        spec: its spec.
        revision: of roles that have no replicas.
        constraint: how a required level is written.
    """

    def __init__(
        self, owner: Owner, spec: DisaggregatedInferenceSpec, revision: Revision, constraint: Constraint
    ) -> None:
        self._owner = owner
        self._spec = spec
        self._revision = revision
        self._constraint = constraint
        self._scale = Scale.of(spec)

    def levels(self, layout: Layout) -> tuple[CreationLevel, ...]:
        """The PodGroups, and nothing else."""
        return (
            CreationLevel("podgroups", tuple(self._pod_group(unit, roles) for unit, roles in layout.units.items())),
        )

    def membership(self, slot: Slot, revision: RoleRevision) -> Membership:
        """An annotation names the PodGroup; the gate keeps the pod until the operator lets it go."""
        _, group = self.anchor(slot, revision)
        return Membership(spec={"schedulingGates": [{"name": names.GATE_GANG}]}, annotations={ANNOTATION_GROUP: group})

    def anchor(self, slot: Slot, _revision: RoleRevision) -> Anchor:
        """The unit's PodGroup."""
        return TYPE, group_name(self._owner.name, slot.unit)

    def _pod_group(self, unit: int, roles: Mapping[str, Replicas]) -> Object:
        minimum = [replica for role in self._spec.roles for replica in self._minimum(role, roles.get(role.name, {}))]
        spec: Object = {
            "minMember": sum(replica.size for replica in minimum),
            "subGroupPolicy": [
                policy for role in self._spec.roles for policy in self._policies(role, roles.get(role.name, {}))
            ],
        }
        if requests := requests_together(minimum):
            spec["minResources"] = requests
        # The API server fills in a queue of its own, which is nobody's edit.
        if self._spec.queue:
            spec["queue"] = self._spec.queue
        if self._spec.priority_class_name:
            spec["priorityClassName"] = self._spec.priority_class_name
        spec |= self._topology(self._spec.topology.required)
        metadata = self._owner.metadata(group_name(self._owner.name, unit), group_labels(unit))
        return {"apiVersion": VOLCANO_POD_GROUPS.api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec}

    def _minimum(self, role: Role, replicas: Replicas) -> Sequence[RoleRevision]:
        return tuple(replicas.values())[: self._scale.roles[role.name].minimum]

    def _policies(self, role: Role, replicas: Replicas) -> Iterator[Object]:
        """Return one policy for the role; while it has replicas of several sizes, one for each size, by revision.

        A role outside the gang (``minReplicas: 0``) has one too: without, each of its pods would be placed on its own.
        """
        sizes: dict[int, list[str]] = {}
        for revision in replicas.values() or (self._revision.roles[role.name],):
            sizes.setdefault(revision.size, []).append(revision.hash)
        minimum = [replica.size for replica in self._minimum(role, replicas)]
        for size, hashes in sizes.items():
            selector: Object = {"matchLabels": {names.LABEL_ROLE: role.name}}
            if len(sizes) > 1:
                selector["matchExpressions"] = [
                    {"key": names.LABEL_REVISION, "operator": "In", "values": sorted(set(hashes))}
                ]
            yield {
                "name": role.name if len(sizes) == 1 else f"{role.name}-{size}",
                "subGroupSize": size,
                "minSubGroups": minimum.count(size),
                "labelSelector": selector,
                # Without a key nothing would be in a subgroup. Volcano takes those of lower number first, and reads
                # the number from the first key.
                "matchLabelKeys": [names.LABEL_REPLICA],
                **self._topology(role.topology.required),
            }

    def _topology(self, level: str | None) -> Object:
        return {"networkTopology": {"mode": "hard", **self._constraint(level)}} if level else {}
