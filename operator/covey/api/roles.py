"""A role of a DisaggregatedInference: how many replicas, what a replica is, and where it may lie."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, WithJsonSchema

from covey.api import constants
from covey.api.model import (
    BY_NAME,
    IMMUTABLE,
    LABEL_VALUE,
    LIVE,
    LIVE_FOR_NEW_PODS,
    ROLLED,
    VERBATIM,
    CelRule,
    DnsLabel,
    IntOrPercent,
    LabelKey,
    LevelName,
    ListMap,
    Model,
    RoleName,
)
from covey.api.template import PodTemplate


class Startup(StrEnum):
    """The order in which the pods of one replica start."""

    PARALLEL = "Parallel"
    LEADER_READY = "LeaderReady"


class RestartPolicy(StrEnum):
    """The pods that are recreated when one fails."""

    RECREATE_REPLICA = "RecreateReplica"
    RECREATE_REPLICA_AFTER_START = "RecreateReplicaAfterStart"
    RECREATE_UNIT = "RecreateUnit"
    NONE = "None"


class InPlace(StrEnum):
    """The use of in-place changes of containers of a running pod."""

    NEVER = "Never"
    IF_POSSIBLE = "IfPossible"


class ScalingMode(StrEnum):
    """The owner of the number of replicas of a role."""

    STATIC = "Static"
    EXTERNAL = "External"
    TOGETHER = "Together"


class Subdomain(StrEnum):
    """The headless Services of a role."""

    SHARED = "Shared"
    UNIQUE_PER_REPLICA = "UniquePerReplica"


class Endpoints(StrEnum):
    """The pods of a replica that take requests."""

    LEADERS = "Leaders"
    ALL = "All"


class Serves(StrEnum):
    """The part of a request that a role serves."""

    PREFILL = "Prefill"
    DECODE = "Decode"
    BOTH = "Both"


class DependencyCondition(StrEnum):
    """The condition on the other role."""

    SCHEDULED = "Scheduled"
    READY = "Ready"


class RoleTopology(Model):
    """The domains in which the pods of one replica may lie. Holds for each replica on its own."""

    RULES: ClassVar = (
        CelRule(
            "!has(self.required) || !has(self.preferred) || self.required != self.preferred",
            "preferred is the same level as required and adds nothing: remove it, or name a finer level",
            at=".preferred",
        ),
    )

    required: Annotated[LevelName | None, LIVE_FOR_NEW_PODS] = None
    """A level of the topology, such as rack: all pods of a replica lie in one domain of it, or the replica does not
    start. On a role of size 1 it only asks that the node has that level. A level as coarse as the unit's own adds
    nothing. Default: none."""
    preferred: Annotated[LevelName | None, LIVE_FOR_NEW_PODS] = None
    """The finest level that is wanted; each coarser one up to required is tried in turn. Default: none."""
    follow_unit: Annotated[bool, LIVE_FOR_NEW_PODS] = True
    """False: this role (a CPU router, say) need not lie in the domain of its unit. Default: true."""


class Dependency(Model):
    """A role that has to come first."""

    role: Annotated[RoleName, LIVE]
    """The name of the other role. Its minReplicas must not be 0, unless it has no replicas: what is outside the gang is
    placed once the gang runs, so nobody can wait for it."""
    condition: Annotated[DependencyCondition, LIVE]
    """The condition of its minimum under which this role starts: Scheduled or Ready."""


#: Seconds, as RoleBasedGroup has them: the first is about what a pull and a start take, the last is well below the
#: hour after which people are asked.
BACKOFF_BASE: Final = 30
BACKOFF_MAX: Final = 600


class Backoff(Model):
    """The delay before a replica that fails again and again is started once more. The first time it does not."""

    RULES: ClassVar = (
        CelRule(
            f"(has(self.baseSeconds) ? self.baseSeconds : {BACKOFF_BASE}) <= "
            f"(has(self.maxSeconds) ? self.maxSeconds : {BACKOFF_MAX})",
            f"baseSeconds (default {BACKOFF_BASE}) is greater than maxSeconds (default {BACKOFF_MAX}): lower the one or "
            "raise the other",
            at=".baseSeconds",
        ),
    )

    base_seconds: Annotated[int | None, LIVE, Field(ge=0, le=3600)] = None
    """Seconds before the second start in a row; they double with each further one. 0 to 3600. Default: 30."""
    max_seconds: Annotated[int | None, LIVE, Field(ge=0, le=3600)] = None
    """The most seconds. Twice as long without a failure, and ten minutes at least, and it is counted from the beginning.
    0 to 3600. Default: 600."""

    @property
    def base(self) -> int:
        """``baseSeconds``, or its default."""
        return BACKOFF_BASE if self.base_seconds is None else self.base_seconds

    @property
    def most(self) -> int:
        """``maxSeconds``, or its default."""
        return BACKOFF_MAX if self.max_seconds is None else self.max_seconds


class Restart(Model):
    """The reaction to a failed pod of the role."""

    policy: Annotated[RestartPolicy | None, LIVE] = None
    """RecreateReplica: all pods of the replica are replaced together when one is lost, or when a container restarts once
    the replica has been Ready. RecreateReplicaAfterStart: the same, but before it has been Ready only the pod itself.
    RecreateUnit: all replicas of the unit that belong to its gang. None: only the pod itself.
    Default: RecreateReplica where size > 1, else None."""
    backoff: Backoff | None = None
    """The delay before a replica that fails again and again is started once more."""
    max_restarts: Annotated[int | None, LIVE, Field(ge=0, le=1000)] = None
    """After so many restarts in a row the replica is left failed. 0 to 1000. Default: no limit."""


class Update(Model):
    """The replacement of replicas of the role inside one unit when a rolled field changes."""

    RULES: ClassVar = (
        CelRule(
            "!has(self.maxSurge) || !has(self.maxUnavailable) || !(self.maxSurge == 0 || self.maxSurge == '0%') || "
            "!(self.maxUnavailable == 0 || self.maxUnavailable == '0%')",
            "maxSurge and maxUnavailable are both 0, so nothing could be replaced: raise one of them",
            at=".maxUnavailable",
        ),
    )

    max_surge: Annotated[IntOrPercent | None, LIVE] = None
    """Replicas that may exist beyond the wanted number: a number, or a percentage such as 25%, rounded up.
    Default: 1."""
    max_unavailable: Annotated[IntOrPercent | None, LIVE] = None
    """Replicas that may be missing at a time: a number, or a percentage such as 25%, rounded down. At least 1 where
    maxSurge is 0. Default: none while new replicas have nodes; else, down to minReplicas, as many as it is proven to take
    for one new replica to have its nodes. A 0 that is written out means none."""
    partition: Annotated[int | None, LIVE, Field(ge=0, le=9999)] = None
    """So many replicas, those of the lowest numbers, keep the old revision. Where one role keeps some, each role that
    changes with it keeps one at least. 0 to 9999. Default: 0."""
    in_place: Annotated[InPlace | None, LIVE] = None
    """IfPossible: where only images of containers change (not those of init containers), running pods are given the new
    ones and keep their nodes. The budgets are the same: a surge replica serves meanwhile where it has nodes; where it has
    none and maxUnavailable is not set, one replica of a role is updated at a time without it. Default: Never."""

    @property
    def moves_nothing(self) -> bool:
        """Neither more nor fewer replicas are allowed, in so many words."""
        return all(budget in {0, "0%"} for budget in (self.max_surge, self.max_unavailable))


class Scaling(Model):
    """The owner of the number of replicas."""

    RULES: ClassVar = (
        CelRule(
            "!has(self.min) || !has(self.max) || self.min <= self.max",
            "min is greater than max: lower min or raise max",
            at=".min",
        ),
        CelRule(
            "!(has(self.min) || has(self.max)) || (has(self.mode) && self.mode == 'External')",
            "min and max bound what an autoscaler asks for: set mode to External, or remove them",
            at=".mode",
        ),
    )

    mode: Annotated[ScalingMode | None, LIVE] = None
    """Static: spec.roles[].replicas. External: the RoleScaler of the role, which has a scale subresource for an
    autoscaler; it begins with what runs. Its replicas are summed over all units and spread evenly. Together: the one
    RoleScaler of all such roles, <resource>.together, whose targets are taken as a whole or not at all; two roles at
    least. Only for backend Extender. Default: Static."""
    min: Annotated[int | None, LIVE, Field(ge=0, le=20000)] = None
    """With External, the fewest replicas, summed over all units. Never fewer than minReplicas in each unit. 0 to 20000.
    Default: minReplicas times units."""
    max: Annotated[int | None, LIVE, Field(ge=0, le=20000)] = None
    """With External, the most replicas, summed over all units; minReplicas in each unit come first. 0 to 20000.
    Default: as many as 20000 pods of the resource allow."""


class Port(Model):
    """A port of the role's Services."""

    name: Annotated[DnsLabel, LIVE]
    """The port's name in the Service; a DNS label."""
    port: Annotated[int, LIVE, Field(ge=1, le=65535)]
    """The number of the port, which the container listens on."""
    protocol: Annotated[Literal["TCP", "UDP", "SCTP"], LIVE] = "TCP"
    """TCP, UDP or SCTP. Default: TCP."""
    app_protocol: Annotated[LabelKey | None, LIVE] = None
    """The protocol that the application speaks, for meshes and gateways: http, kubernetes.io/h2c, grpc. Default: none."""


def _texts(what: str, value: Mapping[str, Any]) -> WithJsonSchema:
    """A map of texts without keys of Covey's, which say whose a Service is and what was applied of it."""
    rule = CelRule(
        "self.all(key, !key.startsWith('covey.dev/') && !key.contains('.covey.dev/'))",
        f"{what} under covey.dev are Covey's own: remove them, or use a prefix of yours",
        forbids=True,
    )
    return WithJsonSchema(
        {
            VERBATIM: True,
            "type": "object",
            "maxProperties": 32,
            "additionalProperties": {"type": "string", **value},
            "x-kubernetes-validations": [rule.as_schema()],
        }
    )


_ServiceLabels = Annotated[dict[str, str], _texts("labels", {"maxLength": 63, "pattern": LABEL_VALUE})]
_ServiceAnnotations = Annotated[dict[str, str], _texts("annotations", {"maxLength": 16384})]


class ServiceMetadata(Model):
    """Labels and annotations of the role's Services."""

    labels: Annotated[_ServiceLabels | None, LIVE] = None
    """Labels, beside those that Covey sets. At most 32."""
    annotations: Annotated[_ServiceAnnotations | None, LIVE] = None
    """Annotations, such as a mesh or a cloud reads. At most 32."""


class RoleService(Model):
    """A Service with a cluster IP, named <inference>-<role>-svc, over the Ready replicas of all units."""

    endpoints: Annotated[Endpoints, LIVE] = Endpoints.LEADERS
    """Leaders: the pods with index 0. All: every pod, as engines with data parallelism want it. A replica that drains
    takes no new requests. Default: Leaders."""


class Network(Model):
    """The names and Services of the role's pods."""

    RULES: ClassVar = (
        CelRule(
            "!has(self.ports) || self.ports.all(a, self.ports.exists_one(b, "
            "b.port == a.port && b.protocol == a.protocol))",
            "two names for one port, which a Service cannot have: remove one, or give it another port or protocol",
            at=".ports",
        ),
        CelRule(
            "!has(self.service) || (has(self.ports) && self.ports.size() > 0)",
            "a Service with a cluster IP needs a port: name one in ports, or remove service",
            at=".service",
        ),
        CelRule(
            "!has(self.metadata) || (has(self.ports) && self.ports.size() > 0) || "
            "(has(self.subdomain) && self.subdomain == 'UniquePerReplica')",
            "the role has no Service of its own: name a port in ports, or remove metadata",
            at=".metadata",
        ),
    )

    subdomain: Annotated[Subdomain | None, ROLLED] = None
    """Shared: one headless Service for all replicas; the role's own where it has ports, else <name>-pods, which such roles of
    the resource have in common. UniquePerReplica: one for each, which costs the control plane about
    7 ms each, and more with thousands of them in one namespace. A pod cannot change its subdomain, so it is replaced.
    Default: Shared."""
    ports: Annotated[tuple[Port, ...], BY_NAME, Field(max_length=32)] = ()
    """Ports that the role's Services name. At most 32."""
    metadata: ServiceMetadata | None = None
    """Labels and annotations of all Services of the role. Default: none."""
    service: RoleService | None = None
    """A Service with a cluster IP, beside the headless ones. Default: none."""


_BY_NAME: Final = {"prefill": Serves.PREFILL, "decode": Serves.DECODE}


def _least(role: Mapping[str, Any]) -> int:
    """The minimum of a role that states none: a stored default would have to be lowered together with replicas."""
    return 1 if role.get("replicas", 1) else 0


class Role(Model):
    """One part of the engine, such as prefill or decode, run as a number of equal replicas in every unit."""

    RULES: ClassVar = (
        CelRule(
            "!has(self.minReplicas) || self.minReplicas <= self.replicas",
            "minReplicas is greater than replicas: lower minReplicas or raise replicas",
            at=".minReplicas",
        ),
        CelRule(
            "!has(self.dependsOn) || self.dependsOn.all(d, d.role != self.name)",
            "a role cannot depend on itself: remove it from dependsOn",
            at=".dependsOn",
        ),
    )

    name: Annotated[RoleName, IMMUTABLE]
    """The role's name: a lower-case DNS label of at most 20 characters."""
    replicas: Annotated[int, LIVE, Field(ge=0, le=9999)] = 1
    """Copies of this role in each unit. 0 to 9999. Default: 1."""
    min_replicas: Annotated[int, LIVE, Field(ge=0, le=9999)] = Field(default_factory=_least)
    """Complete replicas of this role without which the unit must not start; what goes beyond is surplus, added once
    the minimum runs. 0 puts the role outside the gang. Counts replicas whatever their size. At most replicas.
    Default: 1, and 0 where replicas is 0."""
    size: Annotated[int, ROLLED, Field(ge=1, le=999)] = 1
    """Pods in one replica; a replica is always placed as a whole or not at all. 1 to 999. Default: 1."""
    template: Annotated[PodTemplate, ROLLED]
    """The pod template. nodeName, schedulerName, schedulingGates, schedulingGroup, priorityClassName, priority,
    hostname and subdomain are Covey's and refused."""
    leader_template: Annotated[PodTemplate | None, ROLLED] = None
    """The pod template of the leader, the pod with index 0, of each replica. Default: template."""
    topology: RoleTopology = RoleTopology()
    """The domains in which the pods of one replica may lie."""
    depends_on: Annotated[tuple[Dependency, ...], ListMap(("role",)), Field(max_length=16)] = ()
    """Roles that come first. The gang is placed as a whole before; only the start is held. At most 16, no cycles."""
    startup: Annotated[Startup | None, LIVE] = None
    """Parallel: all pods of a replica start at once. LeaderReady: the workers' nodes are reserved, they start when
    the leader is Ready. Default: Parallel."""
    restart: Restart | None = None
    """The reaction to a pod that fails."""
    drain_seconds: Annotated[int | None, LIVE, Field(ge=0, le=86400)] = None
    """Seconds that a replica which is to go has for the requests that it serves: it is marked (covey.dev/draining),
    loses its address, and is deleted when they have passed, or when the annotation covey.dev/in-flight of every pod
    of it is 0. Failures do not wait. 0 to 86400. Default: 0."""
    start_deadline_seconds: Annotated[int | None, LIVE, Field(ge=1, le=86400)] = None
    """A pod that has a node and is not Ready after so many seconds has failed, until its replica has once been Ready.
    1 to 86400. Default: none, a replica may load for as long as it takes."""
    update: Update | None = None
    """The way in which replicas are replaced when a rolled field changes."""
    scaling: Scaling | None = None
    """The owner of the number of replicas."""
    network: Network | None = None
    """The names under which the pods are found."""
    serves: Annotated[Serves | None, LIVE] = None
    """The part of a request that the role serves, for routers: Prefill, Decode, or Both, which a router's controller may
    switch at run time. Pods of roles that serve have the label covey.dev/pairing. Default: by the role's name, prefill or
    decode; else none."""

    interconnect: Annotated[bool | None, IMMUTABLE] = None
    """True: the pods join the domain of spec.interconnect, at most one on a node. Default: false."""

    @property
    def bootstrap_port(self) -> int | None:
        """The port of its bootstrap server, by the name that ports have for it; None where none has."""
        ports = self.network.ports if self.network is not None else ()
        return next((port.port for port in ports if port.name == constants.BOOTSTRAP), None)

    @property
    def capability(self) -> Serves | None:
        """The part of a request that it serves, as stated or by its name; None for a role that serves none."""
        return self.serves or _BY_NAME.get(self.name)

    @property
    def is_scaled(self) -> bool:
        """Its number of replicas is set by its RoleScaler."""
        return self.scaling is not None and self.scaling.mode is ScalingMode.EXTERNAL

    @property
    def is_exchanged(self) -> bool:
        """Its number of replicas is one of the vector that all roles with mode Together share."""
        return self.scaling is not None and self.scaling.mode is ScalingMode.TOGETHER

    @property
    def restart_policy(self) -> RestartPolicy:
        """The policy in force, the default where none is set."""
        if self.restart and self.restart.policy:
            return self.restart.policy
        return self.default_restart_policy

    @property
    def backoff(self) -> Backoff:
        """The back-off after failures, the default where none is set."""
        return (self.restart and self.restart.backoff) or Backoff()

    @property
    def default_restart_policy(self) -> RestartPolicy:
        """Replicas of several pods are one process group and restart as one."""
        return RestartPolicy.RECREATE_REPLICA if self.size > 1 else RestartPolicy.NONE
