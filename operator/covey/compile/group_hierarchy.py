"""The tree of groups: one Workload for the resource, and for each unit a root, its roles and their replicas.

::

    CompositePodGroup <inference>-<unit>              gang of the roles with minReplicas > 0
    ├─ CompositePodGroup …-<role>   (size > 1)        gang of minReplicas replicas
    │   └─ PodGroup …-<role>-<replica>                gang of size pods
    └─ PodGroup …-<role>            (size 1)          gang of minReplicas pods

A role with ``minReplicas: 0`` hangs under the root with ``basic`` policy. The Workload's templates describe one unit;
every unit refers to it. Template names have a prefix for their kind, so that they are unique in the whole tree
whatever the roles are called (upstream's rule for ``scheduling.k8s.io`` Workloads).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from covey.api import constants as names
from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.model import Mode
from covey.api.roles import Role, RoleTopology
from covey.compile import identity
from covey.compile.groups import Anchor, CreationLevel, Membership, Object
from covey.compile.identity import Owner, Slot
from covey.compile.layout import Layout, Replicas, RoleCount, Scale
from covey.compile.revision import Revision, RoleRevision

#: Template of a unit's root.
UNIT_TEMPLATE = "unit"


_POD_GROUP: Final = f"PodGroup.{names.VERSION}.{names.SCHEDULING_GROUP}"


def role_template(role: str) -> str:
    """The name of the template of a role's group."""
    return f"role-{role}"


def replica_template(role: str) -> str:
    """The name of the template of the group of one replica."""
    return f"replica-{role}"


class GroupCompiler:
    """Builds the Workload and the groups of one resource.

    Args:
        owner: the resource.
        spec: its spec.
        revision: has the number of pods in a role's replica.
        responders: who answers Evictions of its pods.
    """

    def __init__(
        self,
        owner: Owner,
        spec: DisaggregatedInferenceSpec,
        revision: Revision,
        responders: tuple[Object, ...] = (),
    ) -> None:
        self._responders = responders
        self._owner = owner
        self._spec = spec
        self._sizes = {name: role.size for name, role in revision.roles.items()}
        self._scale = Scale.of(spec)
        self._common: Object = {"priorityClassName": spec.priority_class_name} if spec.priority_class_name else {}

    def levels(self, layout: Layout) -> tuple[CreationLevel, ...]:
        """The Workload, then the groups from the root down."""
        return (
            CreationLevel("workload", () if self._spec.suspend else (self.workload(),)),
            CreationLevel("units", tuple(self.roots(layout))),
            CreationLevel("roles", tuple(self.composites(layout))),
            CreationLevel("podgroups", tuple(self.pod_groups(layout))),
        )

    def membership(self, slot: Slot, revision: RoleRevision) -> Membership:
        """Tie a pod to its PodGroup by a label; its gate waits for a node, its limit marks it for the barrier."""
        _, group = self.anchor(slot, revision)
        gates = [{"name": names.GATE_GANG}]
        return Membership(
            {names.LABEL_POD_GROUP: group},
            {"schedulingGates": gates},
            limits={names.RESOURCE_MEMBER: "0"},
            responders=self._responders,
        )

    def anchor(self, slot: Slot, revision: RoleRevision) -> Anchor:
        """The PodGroup: the replica's, or the role's where replicas are single pods."""
        replica = slot.replica if revision.size > 1 else None
        return _POD_GROUP, identity.group_name(self._owner.name, slot.unit, slot.role, replica)

    def workload(self) -> Object:
        """The Workload; its templates describe one unit as it is meant to be when it is new."""
        composites = [self._role_template(role) for role in self._spec.roles if self._is_composite(role)]
        leaves = [self._role_template(role) for role in self._spec.roles if not self._is_composite(role)]
        unit: Object = {"name": UNIT_TEMPLATE, **self._root_body()}
        if composites:
            unit["compositePodGroupTemplates"] = composites
        if leaves:
            unit["podGroupTemplates"] = leaves
        reference = {"apiGroup": names.INFERENCE_GROUP, "kind": "DisaggregatedInference", "name": self._owner.name}
        spec = {"controllerRef": reference, "compositePodGroupTemplates": [unit]}
        return _object("Workload", self._owner.metadata(self._owner.name, {}), spec)

    def roots(self, layout: Layout) -> Iterator[Object]:
        """The CompositePodGroup of each unit."""
        for unit in layout.units:
            spec = {**self._reference(UNIT_TEMPLATE), **self._root_body()}
            yield _object("CompositePodGroup", self._metadata(unit), spec)

    def composites(self, layout: Layout) -> Iterator[Object]:
        """The CompositePodGroup of each role of more than one pod a replica."""
        for unit, roles in layout.units.items():
            for role in self._spec.roles:
                count = self._count(layout, unit, role)
                if role.name in roles and (body := self._side(role, roles[role.name], count, composite=True)):
                    spec = {**self._child(role_template(role.name), unit), **body}
                    yield _object("CompositePodGroup", self._metadata(unit, role.name), spec)

    def pod_groups(self, layout: Layout) -> Iterator[Object]:
        """The PodGroups: one for each replica, or for the whole role where replicas are single pods."""
        for unit, roles in layout.units.items():
            for role in self._spec.roles:
                if role.name in roles:
                    yield from self._pod_groups(unit, role, roles[role.name], layout)

    def _pod_groups(self, unit: int, role: Role, replicas: Replicas, layout: Layout) -> Iterator[Object]:
        if body := self._side(role, replicas, self._count(layout, unit, role), composite=False):
            spec = {**self._child(role_template(role.name), unit), **body}
            yield _object("PodGroup", self._metadata(unit, role.name), spec)
        for replica, revision in replicas.items():
            if revision.size == 1:
                continue
            spec = {**self._child(replica_template(role.name), unit, role.name), **_replica_body(role, revision.size)}
            spec |= self._common
            metadata = self._metadata(unit, role.name, replica)
            metadata["labels"] |= layout.together.get((unit, role.name, replica), {})
            yield _object("PodGroup", metadata, spec)

    def _count(self, layout: Layout, unit: int, role: Role) -> RoleCount:
        return (layout.scale or self._scale).count(unit, role.name)

    def _side(self, role: Role, replicas: Replicas, count: RoleCount, *, composite: bool) -> Object | None:
        """The body of a role's group of one kind; None where it has none. What runs counts, not what is to come."""
        mine = sum((revision.size > 1) == composite for revision in replicas.values())
        if not mine and (replicas or self._is_composite(role) != composite):
            return None
        # With a surge there are more than are wanted.
        desired = max(count.replicas, mine)
        return self._role_body(role, composite=composite, least=count.minimum, desired=desired)

    def _is_composite(self, role: Role) -> bool:
        return self._sizes[role.name] > 1

    def _metadata(self, unit: int, role: str | None = None, replica: int | None = None) -> Object:
        name = identity.group_name(self._owner.name, unit, role, replica)
        return self._owner.metadata(name, identity.group_labels(unit, role, replica))

    def _reference(self, template: str) -> Object:
        return {"workloadRef": {"workloadName": self._owner.name, "templateName": template}}

    def _child(self, template: str, unit: int, role: str | None = None) -> Object:
        parent = identity.group_name(self._owner.name, unit, role)
        return {"parentCompositePodGroupName": parent, **self._reference(template)}

    def _role_template(self, role: Role) -> Object:
        count, composite = self._scale.roles[role.name], self._is_composite(role)
        body = self._role_body(role, composite=composite, least=count.minimum, desired=count.replicas)
        template = {"name": role_template(role.name), **body}
        if composite:
            replica = {"name": replica_template(role.name), **_replica_body(role, self._sizes[role.name])}
            template["podGroupTemplates"] = [replica | self._common]
        return template

    def _root_body(self) -> Object:
        preemption = self._spec.preemption
        gang_roles = sum(count.minimum > 0 for count in self._scale.roles.values())
        return {
            "schedulingPolicy": _policy("minGroupCount", gang_roles),
            "desiredGroupCount": len(self._spec.roles),
            "timeoutSeconds": self._spec.gang.timeout_seconds,
            "holdSeconds": self._spec.hold_seconds,
            **_present("schedulingConstraints", self._root_constraints()),
            **_present("preemption", preemption.model_dump(by_alias=True, exclude_none=True) if preemption else None),
            **_present("queue", self._spec.queue),
            **self._common,
        }

    def _role_body(self, role: Role, *, composite: bool, least: int, desired: int) -> Object:
        constraints: Object = {} if role.topology.follow_unit else {"followUnit": False}
        if not composite:
            constraints |= _present("topology", _topology(role.topology.required, role.topology.preferred, "Pod"))
        return {
            "schedulingPolicy": _policy("minGroupCount" if composite else "minCount", least),
            "desiredGroupCount" if composite else "desiredCount": desired,
            **_present("schedulingConstraints", constraints),
            **self._common,
        }

    def _root_constraints(self) -> Object:
        topology, spread = self._spec.topology, self._spec.spread
        proximity = [
            {"roles": list(rule.roles), "level": rule.level, "mode": rule.mode.value} for rule in self._spec.proximity
        ]
        return {
            **_present("topologyName", topology.name),
            **_present("topology", _topology(topology.required, topology.preferred, "Group")),
            **_present("proximity", proximity),
            **_present("spread", spread.as_object() if spread else None),
        }


def levels_named(spec: DisaggregatedInferenceSpec) -> tuple[str, ...]:
    """Every topology level that a spec names, each once, in the order of its first mention."""
    topologies: list[RoleTopology | Any] = [spec.topology, *(role.topology for role in spec.roles)]
    levels = [level for topology in topologies for level in (topology.required, topology.preferred)]
    levels += [rule.level for rule in spec.proximity]
    levels.append(spec.spread.level if spec.spread else None)
    return tuple(dict.fromkeys(level for level in levels if level))


def _replica_body(role: Role, size: int) -> Object:
    topology = _topology(role.topology.required, role.topology.preferred, "Group")
    return {
        "schedulingPolicy": _policy("minCount", size),
        "desiredCount": size,
        **_present("schedulingConstraints", _present("topology", topology)),
    }


def _object(kind: str, metadata: Object, spec: Object) -> Object:
    return {"apiVersion": names.SCHEDULING_API, "kind": kind, "metadata": metadata, "spec": spec}


def _policy(count: str, minimum: int) -> Object:
    return {"gang": {count: minimum}} if minimum else {"basic": {}}


def _present(key: str, value: object) -> Object:
    """The pair, unless the value is empty: an absent field is not the same as an empty one to server-side apply."""
    return {key: value} if value else {}


def _topology(required: str | None, preferred: str | None, scope: str) -> list[Object]:
    wanted = ((required, Mode.REQUIRED), (preferred, Mode.PREFERRED))
    return [{"level": level, "mode": mode.value, "scope": scope} for level, mode in wanted if level]
