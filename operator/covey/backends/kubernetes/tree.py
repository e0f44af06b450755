"""The groups of Kubernetes 1.37 and 1.38: one Workload for the resource, and for each unit a tree of its gang's roles.

::

    CompositePodGroup <inference>-<unit>              gang of the roles with minReplicas > 0
    ├─ CompositePodGroup …-<role>   (size > 1)        gang of minReplicas replicas
    │   └─ PodGroup …-<role>-<replica>                gang of size pods
    └─ PodGroup …-<role>            (size 1)          gang of minReplicas pods

    PodGroup …-<role>-<replica>     (minReplicas 0, size > 1)    gang of size pods, on its own

Roles with ``minReplicas: 0`` stand outside: upstream counts any child that has one pod placed, so a router could stand
in for the decode role that the unit cannot do without. Single pods outside need no group.
So every child of a gang is a gang, and of what is taken as one (``all``) everything is: 1.38 takes no other tree.
The Workload's templates describe one unit; what stands outside the unit has none, for a Workload has either trees or
flat groups. While a role is rolled from single pods to replicas of several, or back, it has a group of each kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from covey.api.inference import DisaggregatedInferenceSpec, DisruptionMode
from covey.api.roles import Role
from covey.backends.kubernetes import shared
from covey.backends.kubernetes.shared import COMPOSITE_POD_GROUPS, POD_GROUPS, WORKLOADS
from covey.compile import Layout, Levels, Owner, Revision, RoleRevision, Scale, Slot, identity
from covey.compile.group_hierarchy import UNIT_TEMPLATE, replica_template, role_template
from covey.compile.groups import Anchor, CreationLevel, Membership, Object
from covey.compile.layout import Replicas
from covey.kube.resources import Resource

_ALL: Final[Mapping[str, Any]] = {"all": {}}
_SINGLE: Final[Mapping[str, Any]] = {"single": {}}


class GroupTree:
    """Builds the Workload and the groups of one resource.

    Args:
        owner: the resource.
        spec: its spec.
        revision: which roles have replicas of several pods.
        levels: those of the topology in use.
        composites: the version of CompositePodGroups.
    """

    def __init__(
        self,
        owner: Owner,
        spec: DisaggregatedInferenceSpec,
        revision: Revision,
        levels: Levels | None = None,
        composites: Resource = COMPOSITE_POD_GROUPS,
    ) -> None:
        self._composite_kind = composites
        self._owner = owner
        self._spec = spec
        self._levels = levels
        self._sizes = {name: role.size for name, role in revision.roles.items()}
        self._scale = Scale.of(spec)
        self._mode = shared.disruption_of(spec)

    def levels(self, layout: Layout) -> tuple[CreationLevel, ...]:
        """The Workload, then the groups from the root down."""
        return (
            CreationLevel("workload", () if self._spec.suspend else (self.workload(),)),
            CreationLevel("units", tuple(self._roots(layout))),
            CreationLevel("roles", tuple(self._composites(layout))),
            CreationLevel("podgroups", tuple(self._pod_groups(layout))),
        )

    def membership(self, slot: Slot, revision: RoleRevision) -> Membership:
        """The pod names its PodGroup. It has no gate: one pod with a gate would keep its whole tree from the queue."""
        kind, group = self.anchor(slot, revision)
        return Membership(spec={"schedulingGroup": {"podGroupName": group}} if kind == POD_GROUPS.type else {})

    def anchor(self, slot: Slot, revision: RoleRevision) -> Anchor:
        """The PodGroup; the Workload for a single pod outside the gang, which has none."""
        if revision.size == 1 and not self._scale.roles[slot.role].minimum:
            return WORKLOADS.type, self._owner.name
        replica = slot.replica if revision.size > 1 else None
        return POD_GROUPS.type, identity.group_name(self._owner.name, slot.unit, slot.role, replica)

    def workload(self) -> Object:
        """The Workload."""
        gang = [role for role in self._spec.roles if self._is_in_gang(role)]
        composites = [self._role_template(role) for role in gang if self._is_composite(role)]
        leaves = [
            {"name": role_template(role.name), **self._role_body(role, composite=False)}
            for role in gang
            if self._is_single(role)
        ]
        unit: Object = {"name": UNIT_TEMPLATE, **self._root_body()}
        if composites:
            unit["compositePodGroupTemplates"] = composites
        if leaves:
            unit["podGroupTemplates"] = leaves
        spec = {"controllerRef": shared.controller_of(self._owner), "compositePodGroupTemplates": [unit]}
        return shared.object_of(WORKLOADS, self._owner.metadata(self._owner.name, {}), spec)

    def _role_template(self, role: Role) -> Object:
        replica = {"name": replica_template(role.name), **self._replica_body(role, self._sizes[role.name])}
        return {
            "name": role_template(role.name),
            **self._role_body(role, composite=True),
            "podGroupTemplates": [replica],
        }

    def _roots(self, layout: Layout) -> Iterator[Object]:
        for unit in layout.units:
            spec = {**self._reference(UNIT_TEMPLATE), **self._root_body()}
            yield shared.object_of(self._composite_kind, self._metadata(unit), spec)

    def _composites(self, layout: Layout) -> Iterator[Object]:
        for unit, roles in layout.units.items():
            for role in self._spec.roles:
                sides = {
                    self._is_composite(role),
                    *(revision.size > 1 for revision in roles.get(role.name, {}).values()),
                }
                if role.name in roles and self._is_in_gang(role) and True in sides:
                    spec = {**self._child(role_template(role.name), unit), **self._role_body(role, composite=True)}
                    yield shared.object_of(self._composite_kind, self._metadata(unit, role.name), spec)

    def _pod_groups(self, layout: Layout) -> Iterator[Object]:
        for unit, roles in layout.units.items():
            for role in self._spec.roles:
                if role.name in roles:
                    yield from self._groups_of(unit, role, roles[role.name])

    def _groups_of(self, unit: int, role: Role, replicas: Replicas) -> Iterator[Object]:
        singles = sum(revision.size == 1 for revision in replicas.values())
        if self._is_in_gang(role) and (singles or self._is_single(role)):
            # Next to replicas of several pods it has no more members than these.
            least = singles if singles < len(replicas) else None
            body = self._role_body(role, composite=False, most=least)
            spec = {**self._child(role_template(role.name), unit), **body}
            yield shared.object_of(POD_GROUPS, self._metadata(unit, role.name), spec)
        for replica, revision in replicas.items():
            if revision.size == 1:
                continue
            parent = self._child(replica_template(role.name), unit, role.name) if self._is_in_gang(role) else {}
            spec = {**parent, **self._replica_body(role, revision.size)}
            yield shared.object_of(POD_GROUPS, self._metadata(unit, role.name, replica), spec)

    def _is_in_gang(self, role: Role) -> bool:
        return self._scale.roles[role.name].minimum > 0

    def _is_composite(self, role: Role) -> bool:
        return self._sizes[role.name] > 1

    def _is_single(self, role: Role) -> bool:
        return not self._is_composite(role)

    def _metadata(self, unit: int, role: str | None = None, replica: int | None = None) -> Object:
        name = identity.group_name(self._owner.name, unit, role, replica)
        return self._owner.metadata(name, identity.group_labels(unit, role, replica))

    def _reference(self, template: str) -> Object:
        return {"workloadRef": {"workloadName": self._owner.name, "templateName": template}}

    def _child(self, template: str, unit: int, role: str | None = None) -> Object:
        parent = identity.group_name(self._owner.name, unit, role)
        return {"parentCompositePodGroupName": parent, **self._reference(template)}

    def _root_body(self) -> Object:
        gang = sum(count.minimum > 0 for count in self._scale.roles.values())
        return {
            "schedulingPolicy": {"gang": {"minGroupCount": gang}},
            **shared.constraints(self._spec.topology.required, self._levels),
            **self._common(whole=self._mode is DisruptionMode.UNIT),
        }

    def _role_body(self, role: Role, *, composite: bool, most: int | None = None) -> Object:
        # minCount and minGroupCount count children: replicas, whether they are groups or single pods.
        least = self._scale.roles[role.name].minimum
        if most is not None:
            least = max(1, min(least, most))
        return {
            "schedulingPolicy": {"gang": {"minGroupCount" if composite else "minCount": least}},
            **self._common(whole=self._mode is DisruptionMode.UNIT),
        }

    def _replica_body(self, role: Role, size: int) -> Object:
        return {
            "schedulingPolicy": {"gang": {"minCount": size}},
            **shared.constraints(shared.replica_level(role, self._spec, self._levels), self._levels),
            **self._common(whole=self._mode is not DisruptionMode.POD),
        }

    def _common(self, *, whole: bool) -> Object:
        return {"disruptionMode": dict(_ALL if whole else _SINGLE), **shared.priority_fields(self._spec)}
