"""``inference.covey.dev/v1alpha1``: the DisaggregatedInference, the one object that people write."""

from enum import StrEnum
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from covey.api import constants
from covey.api.interconnect import OF_INTERCONNECT, Interconnect
from covey.api.model import (
    ATOMIC,
    BY_NAME,
    IMMUTABLE,
    IMMUTABLE_WITH_UNITS,
    LIVE,
    LIVE_FOR_NEW_PODS,
    SET,
    CelRule,
    CelRules,
    LevelName,
    Mode,
    Model,
    ObjectMeta,
    ObjectName,
    RoleName,
)
from covey.api.roles import Role
from covey.api.routing import Compat, RoutingSettings
from covey.api.status import DisaggregatedInferenceStatus


class BackendName(StrEnum):
    """The scheduler that places the pods."""

    AUTO = "Auto"
    EXTENDER = "Extender"
    KUBERNETES = "Kubernetes"
    VOLCANO = "Volcano"


class DisruptionMode(StrEnum):
    """The pods that preemption may take at a time."""

    UNIT = "Unit"
    REPLICA = "Replica"
    POD = "Pod"


class DeviceBudget(Model):
    """The most devices that all pods of the resource may ask for."""

    resource: Annotated[str, LIVE, Field(min_length=1, max_length=317)]
    """The resource of the pods' containers that is counted, such as nvidia.com/gpu."""
    max: Annotated[int, LIVE, Field(ge=0, le=10_000_000)]
    """The most of it that pods with a node, assigned one or behind their gate ask for together, those of a surge
    included. 0 to 10000000."""


class VectorScaling(Model):
    """Settings for roles with scaling.mode Together."""

    budget: DeviceBudget | None = None
    """The devices within which replicas of one role are exchanged for those of another. Default: none."""


class RolloutStrategy(StrEnum):
    """The way in which a change of several roles is rolled out."""

    COHERENT = "Coherent"


class OnFailure(StrEnum):
    """The reaction of a rollout to a new revision that does not become Ready."""

    HOLD = "Hold"
    ROLLBACK = "Rollback"


#: Pods of one resource, all units together: its objects are planned, compared and written as one.
MOST_PODS: Final = 20_000

SCHEDULER_NAMES: Final = {
    BackendName.AUTO: constants.DEFAULT_SCHEDULER_NAME,
    BackendName.EXTENDER: constants.DEFAULT_SCHEDULER_NAME,
    BackendName.KUBERNETES: "default-scheduler",
    BackendName.VOLCANO: "volcano",
}


class UnitTopology(Model):
    """The domains in which the pods of one unit may lie. Holds for all of them, later growth and replacements included."""

    RULES: ClassVar = (
        CelRule(
            "!has(self.required) || !has(self.preferred) || self.required != self.preferred",
            "preferred is the same level as required and adds nothing: remove it, or name a finer level",
            at=".preferred",
        ),
    )

    name: Annotated[ObjectName | None, IMMUTABLE_WITH_UNITS] = None
    """The ClusterTopology that the levels come from. Default: the one marked default, else the only one, else one
    detected from the labels of the nodes."""
    required: Annotated[LevelName | None, LIVE_FOR_NEW_PODS] = None
    """A level of the topology, such as block: all pods of a unit lie in one domain of it, or the unit does not start.
    Default: none."""
    preferred: Annotated[LevelName | None, LIVE_FOR_NEW_PODS] = None
    """The finest level that is wanted; each coarser one up to required is tried in turn. Default: none."""


class Proximity(Model):
    """Roles that should lie together."""

    roles: Annotated[tuple[RoleName, ...], SET, LIVE, Field(min_length=1, max_length=16)]
    """Names of the roles whose pods all lie together."""
    level: Annotated[LevelName, LIVE]
    """The level of the topology whose domain they share within a unit."""
    mode: Annotated[Mode, LIVE] = Mode.PREFERRED
    """Required: the unit does not start otherwise. Preferred: wanted. Default: Preferred."""


class UnitSpread(Model):
    """Keeps the units of this resource apart."""

    level: Annotated[LevelName, LIVE]
    """The level of the topology whose domains the units are spread over."""
    mode: Annotated[Mode, LIVE] = Mode.PREFERRED
    """Required: a unit that finds no domain waits. Preferred: wanted. Default: Preferred."""
    max_per_domain: Annotated[int, LIVE, Field(ge=1, le=999)] = 1
    """Units that may share one domain. 1 to 999. Default: 1."""


class GangSettings(Model):
    """Timeouts of a gang."""

    timeout_seconds: Annotated[int, LIVE, Field(ge=1, le=3600)] = 300
    """Seconds from admission until the whole minimum is bound; after that it is released and planned again.
    1 to 3600. Default: 300."""
    termination_delay_seconds: Annotated[int | None, LIVE, Field(ge=0, le=86400)] = None
    """Seconds below the minimum after which a unit that has served is taken down and queued whole again. Below it is a
    unit as long as fewer replicas of a role are assigned nodes than the minReplicas that it met last; that others are
    not Ready yet is none of it, nor is a minReplicas that was raised since, nor what a rollout or an evacuation was
    allowed to take. 0 to 86400. Default: never."""


#: Seconds for which the capacity of what was lost is held, where ``spec.disruption.holdSeconds`` says nothing.
HOLD_SECONDS: Final = 60


class Disruption(Model):
    """The treatment of pods that have to go, and of the capacity of those that were lost."""

    evacuate_after_seconds: Annotated[int | None, LIVE, Field(ge=0, le=86400)] = None
    """Seconds for which a node may be a mere candidate for deletion (a soft taint of an autoscaler) before its replicas
    are moved, and for which it may be cordoned before replicas that serve leave it without a successor, where there is no
    capacity for one. Successors are built at once. Hard taints of autoscalers, and ``covey drain``, count at once. 0 to
    86400. Default: 60."""
    allow_below_minimum: Annotated[bool | None, LIVE] = None
    """True: where there is no capacity for a successor, a replica goes even though its role has no more than minReplicas.
    Default: false: it stays, and the condition EvacuationBlocked says what would help."""
    hold_seconds: Annotated[int | None, LIVE, Field(ge=0, le=3600)] = None
    """Seconds for which the capacity of pods that were lost (evicted, preempted, their node failed) is held for their
    successors: until those are assigned nodes, no other gang is placed there, and no other pod of a scheduler that asks
    Covey. Pods of other schedulers cannot be held off. Only for backend Extender, the others place nothing. 0 to 3600, 0
    is none. Default: 60."""


#: Seconds of ``spec.preemption``, where it says nothing.
PREEMPTION_DELAY_SECONDS: Final = 60
MIN_RUN_SECONDS: Final = 600


class PreemptionTerms(Model):
    """The terms on which a unit takes capacity from others of lower priority, and gives its own."""

    delay_seconds: Annotated[int | None, LIVE, Field(ge=0, le=86400)] = None
    """Seconds after the first refusal of a unit before capacity is taken from others for its minimum. 0 to 86400. Default:
    60."""
    min_run_seconds: Annotated[int | None, LIVE, Field(ge=0, le=86400)] = None
    """Seconds for which a replica has served before others of higher priority may take its capacity. The scheduler process
    has a limit of its own (--max-min-run). 0 to 86400. Default: 600."""


class Routing(StrEnum):
    """The revisions that take requests while a rollout is on its way."""

    PAIRED = "Paired"
    EXCLUSIVE = "Exclusive"


class Rollout(Model):
    """Settings for rolling out a change of rolled fields."""

    strategy: Annotated[RolloutStrategy | None, LIVE] = None
    """Coherent: roles that change together arrive together. Default: Coherent."""
    paused: Annotated[bool | None, LIVE] = None
    """True: nothing more is replaced until it is false again. Default: false."""
    progress_deadline_seconds: Annotated[int | None, LIVE, Field(ge=1, le=86400)] = None
    """Seconds without progress after which the rollout counts as failed. 1 to 86400. Default: 1800."""
    on_failure: Annotated[OnFailure | None, LIVE] = None
    """Hold: stop and wait for a person. Rollback: return to the newest revision that was once complete.
    Default: Hold."""
    history_limit: Annotated[int | None, LIVE, Field(ge=0, le=100)] = None
    """Revisions that are kept for a return. 0 to 100. Default: 10."""
    routing: Annotated[Routing | None, LIVE] = None
    """Paired: all Ready replicas take requests, for routers that keep to covey.dev/pairing. Exclusive: only pods of one
    pairing have covey.dev/endpoint=true, the newest once it has as many Ready, for routers that know no pairing.
    Default: Paired."""


_NOT_EXCLUSIVE: Final = "!has(self.rollout) || !has(self.rollout.routing) || self.rollout.routing == 'Paired'"


#: CelRules of the roles alone. They stand on the list, as each look at a field of the spec costs the API server a copy of the
#: schema of all its fields, with every write of a status too (decision 5).
_OF_ROLES: Final = CelRules(
    (
        CelRule(
            "self.map(r, r.name) == oldSelf.map(o, o.name) || "
            "self.size() == oldSelf.size() && self.all(r, oldSelf.exists(o, o.name == r.name))",
            "the set of role names is immutable: delete the resource and create it anew to add, remove or rename a role",
            forbids=True,
        ),
        CelRule(
            "self.exists(r, has(r.minReplicas) ? r.minReplicas > 0 : r.replicas > 0)",
            "no role has minReplicas > 0, so nothing would make up the gang: set it on at least one role",
        ),
        CelRule(
            "self.all(r, !has(r.dependsOn) || r.dependsOn.all(d, self.exists(o, o.name == d.role)))",
            "dependsOn names a role that is not in spec.roles: correct the name or add the role",
        ),
        CelRule(
            "self.all(r, !has(r.dependsOn) || r.dependsOn.all(d, !self.exists(o, o.name == d.role && o.replicas > 0 && "
            "has(o.minReplicas) && o.minReplicas == 0)))",
            "dependsOn names a role with minReplicas 0, for which nobody would wait: set its minReplicas to 1 or more, or "
            "remove the dependency",
        ),
        CelRule(
            "self.filter(r, has(r.scaling) && has(r.scaling.mode) && r.scaling.mode == 'Together').size() != 1",
            "one role alone has scaling.mode Together: set it on another role too, or set mode to External",
        ),
    )
)


class DisaggregatedInferenceSpec(Model):
    """The desired state."""

    RULES: ClassVar = (
        CelRule(
            "(has(self.queue) ? has(oldSelf.queue) && self.queue == oldSelf.queue : !has(oldSelf.queue)) || "
            "self.backend != 'Volcano'",
            "queue is immutable: delete the object and create it anew to change it",
            at=".queue",
            forbids=True,
        ),
        CelRule(
            "!has(self.proximity) || self.proximity.all(p, p.roles.all(n, self.roles.exists(r, r.name == n)))",
            "proximity names a role that is not in spec.roles: correct the name or add the role",
            says="'there is no role ' + self.proximity.filter(p, !p.roles.all(n, self.roles.exists(r, r.name == n)))[0]"
            ".roles.filter(n, !self.roles.exists(r, r.name == n))[0] + ': correct the name or add the role'",
            at=".proximity",
        ),
        CelRule(
            f"self.replicas * self.roles.map(r, r.replicas * r.size).sum() <= {MOST_PODS}",
            f"more than {MOST_PODS} pods (units times replicas times size, over all roles): lower one of these, or "
            "split the units over several resources",
            at=".roles",
        ),
        CelRule(
            "!has(self.compat) || !has(self.compat.llmd) || self.compat.llmd == 'Never' || "
            "self.roles.exists(r, has(r.serves) || r.name == 'prefill' || r.name == 'decode')",
            "no role serves prefill or decode, so no pod would have llm-d's label: set serves on a role, or remove compat.llmd",
            at=".compat.llmd",
        ),
        CelRule(
            f"{_NOT_EXCLUSIVE} || self.roles.exists(r, has(r.serves) || r.name == 'prefill' || r.name == 'decode')",
            "no role serves prefill or decode, so there is nothing to route: set serves on a role, or remove rollout.routing",
            at=".rollout.routing",
        ),
        CelRule(
            f"{_NOT_EXCLUSIVE} || !self.roles.exists(r, has(r.update) && has(r.update.inPlace) && "
            "r.update.inPlace == 'IfPossible')",
            "a pod whose images change in place would answer with the former ones while routers take it for the new "
            "revision: set inPlace to Never, or rollout.routing to Paired",
            at=".rollout.routing",
        ),
        *OF_INTERCONNECT,
        CelRule(
            "!has(self.routing) || !has(self.routing.pool) || self.roles.filter(r, has(r.serves) || r.name == 'prefill' || "
            "r.name == 'decode').size() in [1, self.roles.size()]",
            "an InferencePool selects by equal labels, so it has the pods of one role or of all of them: set serves on every "
            "role, or on one alone, or remove routing.pool",
            at=".routing.pool",
        ),
    )

    suspend: Annotated[bool, LIVE] = False
    """True: no pods; its position in the queue is given up. Default: false."""
    replicas: Annotated[int, LIVE, Field(ge=0, le=999)] = 1
    """Serving units. Each is one whole gang of all roles and is admitted on its own. 0 to 999. Default: 1."""
    backend: Annotated[BackendName, IMMUTABLE] = BackendName.AUTO
    """The scheduler that places the pods: Extender (Covey), Kubernetes or Volcano; Auto means Extender. Default: Auto."""
    scheduler_name: Annotated[ObjectName | None, IMMUTABLE] = None
    """The scheduler that binds the pods. Default: covey-scheduler for Extender, default-scheduler for
    Kubernetes, volcano for Volcano."""
    priority_class_name: Annotated[ObjectName | None, IMMUTABLE_WITH_UNITS] = None
    """The PriorityClass of all pods. Default: none."""
    queue: Annotated[ObjectName | None, LIVE] = None
    """The queue whose quota the units use: a Queue of Covey's for backend Extender, one of Volcano's, which is immutable,
    for Volcano. Default: the only Queue that selects the namespace; the one that Volcano gives to whoever names none."""
    topology: UnitTopology = UnitTopology()
    """The domains in which the pods of one unit may lie."""
    proximity: Annotated[tuple[Proximity, ...], ATOMIC, Field(max_length=8)] = ()
    """Roles that should lie together. At most 8 rules."""
    interconnect: Interconnect | None = None
    """The domain of GPUs that roles with interconnect: true share. Default: none."""
    spread: UnitSpread | None = None
    """Keeps the units of this resource apart. Default: none."""
    disruption_mode: Annotated[DisruptionMode | None, LIVE] = None
    """The pods that preemption may take at a time. Unit: surplus replicas one by one, then all of a unit; it is the only value of
    backend Extender. Unit, Replica or Pod for Kubernetes from 1.36 on, where a change replaces the units. Default: Unit."""
    preemption: PreemptionTerms | None = None
    """The terms on which a unit takes capacity from others of lower priority, and gives its own. Only for backend Extender:
    surplus replicas give way one by one, then whole units, never a part of a minimum."""
    gang: GangSettings = GangSettings()
    """Timeouts of a gang."""
    disruption: Disruption | None = None
    """The treatment of pods that have to go, and of the capacity of those that were lost."""
    roles: Annotated[tuple[Role, ...], BY_NAME, _OF_ROLES, Field(min_length=1, max_length=16)]
    """The roles, 1 to 16, by name. Their names are immutable; at least one has minReplicas > 0."""
    scaling: VectorScaling | None = None
    """Settings for roles with scaling.mode Together."""
    rollout: Rollout | None = None
    """Settings for rolling out a change of rolled fields."""
    routing: RoutingSettings | None = None
    """Objects that gateways read. Default: none."""
    compat: Compat = Compat()
    """Compatibility with engines and routers that were written for another controller."""

    @property
    def hold_seconds(self) -> int:
        """Seconds for which the capacity of what was lost is held."""
        seconds = self.disruption.hold_seconds if self.disruption is not None else None
        return HOLD_SECONDS if seconds is None else seconds

    @property
    def is_exchanged(self) -> bool:
        """Tell whether some roles are scaled together."""
        return any(role.is_exchanged for role in self.roles)

    @property
    def pods(self) -> int:
        """The number of pods of all units together."""
        return self.replicas * sum(role.replicas * role.size for role in self.roles)

    @property
    def effective_backend(self) -> BackendName:
        """The backend in force: Auto means Extender."""
        return BackendName.EXTENDER if self.backend is BackendName.AUTO else self.backend

    @property
    def effective_scheduler_name(self) -> str:
        """The scheduler of the pods, the backend's own where none is named."""
        return self.scheduler_name or SCHEDULER_NAMES[self.backend]


class DisaggregatedInference(Model):
    """An LLM engine whose parts (prefill, decode, router and so on) are scheduled as one.

    Either a working set of all roles starts, close together on the network, or nothing starts and the status says
    why.
    """

    RULES: ClassVar = (
        CelRule(
            "self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')",
            "the name is part of labels and of host names: use at most 63 lower-case letters, digits and -",
            at=".metadata.name",
        ),
    )

    api_version: Literal["inference.covey.dev/v1alpha1"] = "inference.covey.dev/v1alpha1"
    kind: Literal["DisaggregatedInference"] = "DisaggregatedInference"
    metadata: ObjectMeta
    spec: DisaggregatedInferenceSpec
    """The desired state."""
    status: DisaggregatedInferenceStatus | None = None
    """The observed state, as the operator saw it last."""
