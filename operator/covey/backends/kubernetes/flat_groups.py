"""Kubernetes groups without a hierarchy: one Workload, and PodGroups side by side.

::

    Workload <inference>                       one template for each role
    PodGroup <inference>-<unit>-<role>-<n>     for each replica of several pods: gang of size pods
    PodGroup <inference>-<unit>-<role>         for each role of single pods: gang of minReplicas pods

A role of single pods with ``minReplicas: 0`` has policy ``basic``. The hierarchy is held by gates (``gates``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from covey.api.inference import DisaggregatedInferenceSpec, DisruptionMode
from covey.api.roles import Role
from covey.backends.kubernetes import gates, shared
from covey.compile import Layout, Levels, Owner, Revision, RoleRevision, Slot, identity
from covey.compile.group_hierarchy import replica_template, role_template
from covey.compile.groups import Anchor, CreationLevel, Membership, Object
from covey.compile.layout import Replicas, Scale
from covey.kube.resources import Resource


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
