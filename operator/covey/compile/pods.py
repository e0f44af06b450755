"""Pods: the body of each, and the gate of those whose turn to start comes later.

A body is built only for a pod that is missing; whatever the pods of a role have in common is prepared once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from covey.api import constants as names
from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.roles import Role, Serves, Startup
from covey.api.routing import Compat, LlmdLabels, LwsLabels
from covey.compile import environment, identity, interconnect, pod_budget
from covey.compile.groups import Anchor, Groups, Membership
from covey.compile.identity import Owner, ReplicaKey, Slot
from covey.compile.layout import Layout
from covey.compile.lws_labels import leader_worker_set_labels
from covey.compile.network import ADDRESSED, NetworkCompiler
from covey.compile.restarts import NO_PAST, Past
from covey.compile.revision import Revision, RoleRevision, Template


@dataclass(frozen=True, slots=True)
class RouterLabel:
    """The label by which a router of others knows what a pod serves; of one that serves both it stays as others set it."""

    key: str
    values: Mapping[Serves, str]
    is_asked: Callable[[Compat], bool]


ROUTER_LABELS: Final = (
    RouterLabel(
        names.LABEL_LLMD_ROLE,
        {Serves.PREFILL: "prefill", Serves.DECODE: "decode", Serves.BOTH: "prefill-decode"},
        lambda compat: compat.llmd is LlmdLabels.ALWAYS,
    ),
)


#: ``MaxPodEvictionResponders`` of Kubernetes.
_MOST_RESPONDERS: Final = 10


def is_held(role: Role, index: int) -> bool:
    """Tell whether a pod waits for others: any of a role with dependencies, or a worker that waits for its leader."""
    return bool(role.depends_on) or (role.startup is Startup.LEADER_READY and index > 0)


@dataclass(frozen=True, slots=True)
class Told:
    """Contents of one incarnation of a pod that others of its place do not have.

    ``past``: restarts and failures of those before it. ``waits``: it is born with the start gate, whatever its role
    says. ``marks``: annotations. ``labels``: labels. ``shunned``: nodes that it would rather not go to.
    """

    past: Past = NO_PAST
    waits: bool = False
    marks: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    shunned: tuple[str, ...] = ()


UNTOLD: Final = Told()


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Contents that the leaders, or the workers, of a role have in common."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    spec: Mapping[str, Any]
    containers: Sequence[Mapping[str, Any]]
    init_containers: Sequence[Mapping[str, Any]]


class PodFactory:
    """Builds pods of one resource, each of its replica's revision.

    Args:
        owner: the resource.
        spec: its spec; live fields are taken from here.
        revision: rolled fields of what stands outside the layout.
        layout: the replicas that there are, with their revisions.
        groups: what ties a pod to its group.
        levels: topology levels whose domains the containers have in their environment.
    """

    def __init__(
        self,
        owner: Owner,
        spec: DisaggregatedInferenceSpec,
        revision: Revision,
        layout: Layout,
        groups: Groups,
        levels: Sequence[str] = (),
    ) -> None:
        self._owner = owner
        self._spec = spec
        self._revision = revision
        self._layout = layout
        self._groups = groups
        self._levels = tuple(levels)
        self._roles = {role.name: role for role in spec.roles}
        self._prepared: dict[tuple[str, str, bool], _Prepared] = {}
        #: Labels that all pods of a replica have.
        self._shared: dict[ReplicaKey, dict[str, str]] = {}
        self._peers: dict[int, dict[str, environment.Peer]] = {}
        self._taken: dict[bool, frozenset[str]] = {}
        self._network = NetworkCompiler(owner, spec)
        self.interconnect = interconnect.InterconnectCompiler(owner, spec) if spec.interconnect else None
        self._protected = pod_budget.gang_roles(spec)

    def without_protection(self) -> PodFactory:
        """A copy of the factory, for pods that the budget of their namespace does not select yet."""
        factory = copy.copy(self)
        factory._protected = frozenset()  # noqa: SLF001 - its own copy
        return factory

    def revision_of(self, slot: Slot) -> RoleRevision:
        """The revision that the pod of a slot is made from."""
        return self._layout.revision_of(slot) or self._revision.roles[slot.role]

    def anchor(self, slot: Slot) -> Anchor:
        """The object after whose UID the first pod of a slot is named."""
        return self._groups.anchor(slot, self.revision_of(slot))

    def membership(self, slot: Slot) -> Membership:
        """Fields that tie the pod of a slot to its group."""
        return self._groups.membership(slot, self.revision_of(slot))

    def labels(self, slot: Slot) -> dict[str, str]:
        """The labels that Covey owns on the pod of a slot, the one of its address aside."""
        replica = (slot.unit, slot.role, slot.replica)
        shared = self._shared.get(replica)
        if shared is None:
            together = self._layout.together.get(replica, {})
            own = {names.LABEL_INFERENCE: self._owner.name, **identity.group_labels(*replica)}
            shared = self._shared[replica] = {**own, **self.membership(slot).labels, **together}
        of_lws = self.lws_labels(slot) if self._spec.compat.lws_labels is LwsLabels.ALWAYS else {}
        return {**shared, names.LABEL_INDEX: str(slot.index), **of_lws}

    def protection(self, slot: Slot) -> Mapping[str, str]:
        """The label by which the budget of the namespace selects the pod of a slot; empty where it does not."""
        return pod_budget.PROTECTED if slot.role in self._protected else {}

    def lws_labels(self, slot: Slot) -> dict[str, str]:
        """LeaderWorkerSet's labels of a slot's pod, asked for or not."""
        return leader_worker_set_labels(self._owner, slot, self.revision_of(slot), alone=len(self._roles) == 1)

    def router_labels(self, role: str, labels: Mapping[str, str]) -> Mapping[str, str | None]:
        """Labels of routers on a pod of a role that has these labels: none while it drains."""
        capability = self._roles[role].capability if role in self._roles else None
        if capability is None:
            return {}
        kept = labels if capability is Serves.BOTH else {}
        draining = names.LABEL_DRAINING in labels
        asked = (label for label in ROUTER_LABELS if label.is_asked(self._spec.compat))
        return {label.key: None if draining else kept.get(label.key) or label.values[capability] for label in asked}

    def router_annotations(self, role: str) -> Mapping[str, str]:
        """Annotations by which SGLang's router finds the bootstrap server of a role's pods."""
        port = self._roles[role].bootstrap_port if role in self._roles else None
        return {} if port is None else {names.ANNOTATION_BOOTSTRAP_PORT: str(port)}

    def template_labels(self, slot: Slot) -> Mapping[str, str]:
        """The labels that the template of a slot gives its pod."""
        return self._prepare(slot.role, self.revision_of(slot), leader=slot.index == 0).labels

    def build(self, slot: Slot, predecessor: str, told: Told = UNTOLD) -> dict[str, Any]:
        """The pod of a slot, gated.

        Args:
            slot: its place.
            predecessor: UID of the pod that it succeeds; of its group, when it is the first.
            told: contents that only this incarnation has.
        """
        return self.build_named(slot, identity.pod_name(self._owner.name, slot, predecessor), told)

    def build_named(self, slot: Slot, name: str, told: Told = UNTOLD) -> dict[str, Any]:
        """The pod of a slot under a given name (the command line has no UIDs to hash)."""
        revision = self.revision_of(slot)
        prepared = self._prepare(slot.role, revision, leader=slot.index == 0)
        metadata = self._owner.metadata(name, {})
        metadata["labels"] = {
            **prepared.labels,
            **self.labels(slot),
            **self.protection(slot),
            names.LABEL_REVISION: revision.hash,
            **self._pairing(slot.role, revision),
            **self.router_labels(slot.role, {}),
            names.LABEL_ADDRESS: ADDRESSED,
            names.LABEL_ENDPOINT: ADDRESSED,
            **told.labels,
        }
        annotations = {
            **prepared.annotations,
            **self.membership(slot).annotations,
            **self.router_annotations(slot.role),
            **told.past.annotations(),
            **told.marks,
        }
        if annotations:
            metadata["annotations"] = annotations
        spec = self._pod_spec(slot, prepared, held=told.waits)
        if told.shunned:
            spec["affinity"] = shunning(spec.get("affinity"), told.shunned)
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _pairing(self, role: str, revision: RoleRevision) -> Mapping[str, str]:
        """The pairing of a new pod of the revision in force; of others a rollout knows more (``told``)."""
        serving = [other.name for other in self._spec.roles if other.capability is not None]
        if role not in serving or self._revision.roles[role].hash != revision.hash:
            return {}
        return {names.LABEL_PAIRING: self._revision.pairing(serving)}

    def _pod_spec(self, slot: Slot, prepared: _Prepared, *, held: bool) -> dict[str, Any]:
        ours = self._environment(slot)
        taken = self._names_taken(ours, lws=self.revision_of(slot).lws)
        membership = self.membership(slot)
        first, *others = prepared.containers
        containers = (_with_limits(first, membership.limits), *others)
        spec: dict[str, Any] = {
            **prepared.spec,
            **membership.spec,
            "hostname": identity.hostname(slot),
            "subdomain": self._network.subdomain(slot, self.revision_of(slot)),
            "containers": [environment.with_environment(item, ours, taken) for item in containers],
        }
        if held or (slot.role in self._roles and is_held(self._roles[slot.role], slot.index)):
            spec["schedulingGates"] = [*spec.get("schedulingGates", ()), {"name": names.GATE_START}]
        if membership.responders:
            spec["evictionResponders"] = _with_responders(spec.get("evictionResponders") or (), membership.responders)
        if prepared.init_containers:
            spec["initContainers"] = [
                environment.with_environment(one, ours, taken) for one in prepared.init_containers
            ]
        return self.interconnect.add_claim(slot, spec) if self.interconnect else spec

    def _environment(self, slot: Slot) -> list[environment.Variable]:
        revision, peers = self.revision_of(slot), self._peers_of(slot.unit)
        leader = self._network.address(slot._replace(index=0), revision)
        return environment.pod_environment(slot, revision.size, leader, peers, self._levels, lws=revision.lws)

    def _names_taken(self, ours: Sequence[environment.Variable], *, lws: bool) -> frozenset[str]:
        """The names of our variables, the same for every pod but for LeaderWorkerSet's."""
        if lws not in self._taken:
            self._taken[lws] = frozenset(variable["name"] for variable in ours)
        return self._taken[lws]

    def _peers_of(self, unit: int) -> dict[str, environment.Peer]:
        if unit not in self._peers:
            replicas = self._layout.units.get(unit, {})
            # Of a role without replicas the address is given of the one that it would have first.
            leaders = {name: Slot(unit, name, min(replicas.get(name, ()), default=0), 0) for name in self._roles}
            self._peers[unit] = {
                name: environment.Peer(
                    self._network.address(slot, revision), self._network.service_address(name), revision.size
                )
                for name, slot in leaders.items()
                for revision in [self.revision_of(slot)]
            }
        return self._peers[unit]

    def _prepare(self, role: str, revision: RoleRevision, *, leader: bool) -> _Prepared:
        key = (role, revision.hash, leader)
        if key not in self._prepared:
            self._prepared[key] = self._common(revision.template_of(0 if leader else 1))
        return self._prepared[key]

    def _common(self, template: Template) -> _Prepared:
        metadata = template.get("metadata") or {}
        spec = {
            key: value for key, value in template["spec"].items() if key not in {"containers", "initContainers"}
        } | {"schedulerName": self._spec.effective_scheduler_name}
        if self._spec.priority_class_name:
            spec["priorityClassName"] = self._spec.priority_class_name
        return _Prepared(
            metadata.get("labels") or {},
            metadata.get("annotations") or {},
            spec,
            template["spec"]["containers"],
            template["spec"].get("initContainers") or (),
        )


def _with_responders(own: Sequence[Mapping[str, Any]], added: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The responders of a template, and those of ours that it does not name itself; none is added to a full list."""
    named = {responder.get("name") for responder in own}
    more = [responder for responder in added if responder["name"] not in named]
    return [*own, *more[: max(_MOST_RESPONDERS - len(own), 0)]]


def _with_limits(container: Mapping[str, Any], limits: Mapping[str, str]) -> Mapping[str, Any]:
    """A container with more limits in addition to its own."""
    if not limits:
        return container
    resources = container.get("resources") or {}
    return {**container, "resources": {**resources, "limits": {**(resources.get("limits") or {}), **limits}}}


def shunning(affinity: Mapping[str, Any] | None, nodes: Collection[str]) -> dict[str, Any]:
    """A pod's affinity with a wish to keep off these nodes.

    Only a wish: a pod keeps its affinity for good, and a node is avoided for a while.
    """
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in sorted(nodes)]
    wish = {"weight": 100, "preference": {"matchFields": fields}}
    amended = dict(affinity or {})
    node_affinity = dict(amended.get("nodeAffinity") or {})
    wishes = node_affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    node_affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [*wishes, wish]
    return {**amended, "nodeAffinity": node_affinity}
