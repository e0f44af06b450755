"""Objects of the API server as the checker needs them: few fields, values that do not change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from soak.settings import CLASSES

Json = Mapping[str, Any]

GPU: Final = "nvidia.com/gpu"
GANG_GATE: Final = "scheduling.covey.dev/gang"
START_GATE: Final = "scheduling.covey.dev/start"
RELEASE: Final = "scheduling.covey.dev/release"
SCHEDULER: Final = "covey-scheduler"
KIND: Final = "DisaggregatedInference"
#: Taints by which autoscalers say that a node goes: the operator's list where no flag gives another.
AUTOSCALERS: Final = frozenset(
    {"ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler", "karpenter.sh/disrupted"}
)
#: Taints of failed nodes. Pods tolerate their NoExecute for five minutes, as the API server makes them (admission plugin
#: DefaultTolerationSeconds); it stays for a while when the node is Ready again and nothing else keeps pods off.
_FAILED: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
_PREFIX: Final = "covey.dev/"


class Owner(NamedTuple):
    """A resource: namespace and name."""

    namespace: str
    name: str


class Side(NamedTuple):
    """One role of one unit of a resource."""

    owner: Owner
    unit: int
    role: str


class Replica(NamedTuple):
    """One replica."""

    side: Side
    number: int


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod. ``replica`` is None for one that no resource controls, whatever its labels say."""

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str]
    replica: Replica | None
    owner_uid: str
    index: int
    #: Pods of its replica, as it was told in its own environment.
    size: int
    node: str
    gates: frozenset[str]
    gpus: int
    scheduler: str
    #: Its deletion has begun.
    going: bool
    #: It has ended: Failed or Succeeded.
    ended: bool
    ready: bool
    phase: str
    #: The scheduler process wants it replaced.
    released: bool
    #: Its images are being updated in place, so it serves no more than one that goes.
    updated_in_place: bool
    #: The Service that it is found under.
    subdomain: str
    #: A container has not got the image that it should, or is about to start.
    updating: bool
    #: UID of the root that it gives way to.
    claimed: str = ""
    #: Of the object.
    version: int = 0

    @property
    def live(self) -> bool:
        """Neither ended nor on its way out."""
        return not self.going and not self.ended

    @property
    def decided(self) -> bool:
        """It has its place: bound, or let go to the node that it is pinned to."""
        return bool(self.node) or (GANG_GATE not in self.gates and not self.released)

    @property
    def placed(self) -> bool:
        """Bound, or held by nothing but the order of starts."""
        return bool(self.node) or (START_GATE in self.gates and self.decided)

    @property
    def leaves(self) -> bool:
        """Its deletion has begun, it was told that it is to go once it has nothing more to do, or its images change."""
        return self.going or self.updated_in_place or f"{_PREFIX}draining" in self.labels

    @property
    def serves(self) -> bool:
        """Ready, and nobody has asked it to go."""
        return self.live and self.ready and not self.leaves

    @property
    def addressed(self) -> bool:
        """It is found under its replica's address."""
        return f"{_PREFIX}address" in self.labels

    @property
    def mark(self) -> str:
        """Of the set of replicas that it comes together with."""
        return self.labels.get("scheduling.covey.dev/together", "")

    @property
    def ours(self) -> bool:
        """Covey's scheduler places it."""
        return self.scheduler == SCHEDULER


def read_pod(found: Json) -> Pod:
    """A pod from its JSON."""
    metadata, spec, status = found["metadata"], found["spec"], found.get("status") or {}
    labels = metadata.get("labels") or {}
    controller = next(
        (each for each in metadata.get("ownerReferences") or () if each.get("controller") and each["kind"] == KIND),
        None,
    )
    replica = _replica(metadata["namespace"], labels) if controller is not None else None
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    return Pod(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        labels=labels,
        replica=replica,
        owner_uid=controller["uid"] if controller is not None else "",
        index=int(labels.get(f"{_PREFIX}index", 0)) if replica is not None else 0,
        size=_size(spec),
        node=spec.get("nodeName") or "",
        gates=frozenset(each["name"] for each in spec.get("schedulingGates") or ()),
        gpus=sum(_gpus(each) for each in spec["containers"]),
        scheduler=spec.get("schedulerName", ""),
        going=bool(metadata.get("deletionTimestamp")),
        ended=status.get("phase") in {"Failed", "Succeeded"},
        ready=conditions.get("Ready") == "True",
        phase=status.get("phase", ""),
        released=RELEASE in (metadata.get("annotations") or {}),
        updated_in_place=f"{_PREFIX}in-place" in (metadata.get("annotations") or {}),
        subdomain=spec.get("subdomain") or "",
        updating=_is_updating(spec, status),
        claimed=(metadata.get("annotations") or {}).get(f"{_PREFIX}claimed-by", ""),
        version=int(metadata.get("resourceVersion") or 0),
    )


def _is_updating(spec: Json, status: Json) -> bool:
    wanted = {each["name"]: each.get("image") for each in spec["containers"]}
    return any(
        each.get("image") != wanted.get(each["name"]) or bool((each.get("state") or {}).get("waiting"))
        for each in status.get("containerStatuses") or ()
    )


def _replica(namespace: str, labels: Mapping[str, str]) -> Replica | None:
    try:
        side = Side(
            Owner(namespace, labels[f"{_PREFIX}inference"]), int(labels[f"{_PREFIX}unit"]), labels[f"{_PREFIX}role"]
        )
        return Replica(side, int(labels[f"{_PREFIX}replica"]))
    except (KeyError, ValueError):
        return None


def _size(spec: Json) -> int:
    told = {each["name"]: each.get("value") for each in spec["containers"][0].get("env") or ()}
    return int(told.get("COVEY_SIZE") or 1)


def _gpus(container: Json) -> int:
    resources = container.get("resources") or {}
    return int((resources.get("limits") or resources.get("requests") or {}).get(GPU, 0))


@dataclass(frozen=True, slots=True)
class Node:
    """A node; ``fit`` says that new pods may come: Ready, not cordoned, and without a taint that keeps them off.

    ``drives`` says that those which are there may have to go: it is not Ready, is cordoned, or has a taint that says so.
    """

    name: str
    labels: Mapping[str, str]
    gpus: int
    fit: bool
    drives: bool = False
    version: int = 0


def read_node(found: Json) -> Node:
    """A node from its JSON."""
    spec, status = found.get("spec") or {}, found.get("status") or {}
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ())
    taints = [(each["key"], each["effect"]) for each in spec.get("taints") or ()]
    hard = any(effect == "NoSchedule" or (effect == "NoExecute" and key not in _FAILED) for key, effect in taints)
    gone = any(effect == "NoExecute" or key in AUTOSCALERS for key, effect in taints)
    return Node(
        found["metadata"]["name"],
        found["metadata"].get("labels") or {},
        int((status.get("allocatable") or {}).get(GPU, 0)),
        ready and not hard and not spec.get("unschedulable"),
        drives=not ready or gone or bool(spec.get("unschedulable")),
        version=int(found["metadata"].get("resourceVersion") or 0),
    )


@dataclass(frozen=True, slots=True)
class Part:
    """What a spec wants of one role, in each unit."""

    replicas: int
    minimum: int
    size: int
    #: Replicas that may be missing in a rollout; None where nobody has said.
    unavailable: int | None = None
    surge: int = 1
    partition: int = 0
    #: Node label of the domain that a replica must lie in.
    required: str = ""
    #: Somebody else says how many replicas there are, over all units.
    external: bool = False

    @property
    def floor(self) -> int:
        """Serving replicas that no deletion of the operator's may go below while there is room for a surge."""
        if self.external:
            return self.minimum
        found = max(0, self.replicas - (self.unavailable or 0))
        if self.minimum < self.replicas:
            found = max(found, self.minimum)
        return max(found, 1) if self.minimum and self.replicas + self.surge > 1 else found

    @property
    def least(self) -> int:
        """The same where there is none, and ``maxUnavailable`` has not been given."""
        return min(self.floor, self.minimum) if self.unavailable is None else self.floor


class Near(NamedTuple):
    """The node label of a level, and the roles that lie in one domain of it within a unit."""

    label: str
    roles: frozenset[str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A spec."""

    units: int
    suspended: bool
    paused: bool
    parts: Mapping[str, Part]
    #: Node label of the domain that a unit must lie in.
    required: str = ""
    #: It names a level that does not exist, so it is not accepted.
    broken: bool = False
    #: The proximity that it requires.
    near: tuple[Near, ...] = ()

    def pods(self, totals: Mapping[str, int]) -> int:
        """How many there shall be; ``totals`` are replicas of external roles, over all units."""
        count = sum(self.total(role, totals) * part.size for role, part in self.parts.items())
        return 0 if self.suspended or not self.units else count

    def total(self, role: str, totals: Mapping[str, int]) -> int:
        """Replicas of a role over all units."""
        part = self.parts[role]
        if part.external and role in totals:
            return max(totals[role], part.minimum * self.units)
        return part.replicas * self.units


#: Node labels of the levels of the simulated nodes.
LEVELS: Final = {"rack": "cloud.provider.com/topology-rack", "block": "cloud.provider.com/topology-block"}


def read_wanted(spec: Json) -> Wanted:
    """A spec from its JSON."""
    return Wanted(
        units=spec.get("replicas", 1),
        suspended=bool(spec.get("suspend")),
        paused=bool((spec.get("rollout") or {}).get("paused")),
        parts={each["name"]: _part(each) for each in spec["roles"]},
        required=LEVELS.get((spec.get("topology") or {}).get("required") or "", ""),
        broken=((spec.get("topology") or {}).get("preferred") or "rack") not in LEVELS,
        near=tuple(
            Near(LEVELS[each["level"]], frozenset(each["roles"]))
            for each in spec.get("proximity") or ()
            if each.get("mode") == "Required" and each["level"] in LEVELS
        ),
    )


def _part(role: Json) -> Part:
    replicas = role.get("replicas", 1)
    update = role.get("update") or {}
    surge = _share(update.get("maxSurge"), replicas, up=True)
    missing = _share(update.get("maxUnavailable"), replicas, up=False)
    surge = 1 if surge is None else surge
    return Part(
        replicas=replicas,
        minimum=role.get("minReplicas", 1 if replicas else 0),
        size=role.get("size", 1),
        unavailable=1 if not surge and not missing else missing,
        surge=surge,
        partition=update.get("partition") or 0,
        required=LEVELS.get((role.get("topology") or {}).get("required") or "", ""),
        external=(role.get("scaling") or {}).get("mode") == "External",
    )


def _share(value: int | str | None, of: int, *, up: bool) -> int | None:
    if value is None or isinstance(value, int):
        return value
    share = int(value.removesuffix("%")) * of
    return -(-share // 100) if up else share // 100


@dataclass(frozen=True, slots=True)
class Resource:
    """A DisaggregatedInference."""

    owner: Owner
    uid: str
    generation: int
    observed: int
    going: bool
    wanted: Wanted
    conditions: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    #: What the rollout waits for.
    gate: str = ""
    priority: int = 0

    @property
    def escalates(self) -> bool:
        """It has said that it gives up more than was lost, because what was lost finds no place."""
        return self.conditions.get("Escalating", ("", "", ""))[0] == "True"


def read_resource(found: Json) -> Resource:
    """A resource from its JSON."""
    metadata, status = found["metadata"], found.get("status") or {}
    hold = (status.get("rollout") or {}).get("hold") or {}
    return Resource(
        Owner(metadata["namespace"], metadata["name"]),
        metadata["uid"],
        metadata["generation"],
        status.get("observedGeneration", 0),
        bool(metadata.get("deletionTimestamp")),
        read_wanted(found["spec"]),
        {
            each["type"]: (each["status"], each["reason"], each.get("message", ""))
            for each in status.get("conditions") or ()
        },
        hold.get("gate", ""),
        CLASSES.get(found["spec"].get("priorityClassName", ""), 0),
    )


def by_replica(pods: Iterator[Pod]) -> dict[Replica, list[Pod]]:
    """Pods of resources by their replica."""
    found: dict[Replica, list[Pod]] = {}
    for pod in pods:
        if pod.replica is not None:
            found.setdefault(pod.replica, []).append(pod)
    return found
