"""Units that may give way to a gang, and the steps in which they do: pure.

A *step* is what is taken as a whole: one replica above the minimum of its role, or all of a unit; or one ordinary pod
(``ordinary``). Any replica may be the one that goes, but of a role never more than it has above its minimum, and of
those that are Ready never more than are Ready above it: so each unit keeps a minimum that serves, or nothing of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from covey.admission.nodes import Key
from covey.admission.priority import priority_of
from covey.admission.roles import Replica, UnitRole
from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import (
    ANNOTATION_SERVES_SINCE,
    INFERENCE_API,
    LABEL_INFERENCE,
)
from covey.api.inference import MIN_RUN_SECONDS
from covey.model import podstate
from covey.placement.cluster import resources
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import sum_requests
from covey.placement.model import Gang
from covey.placement.question.demands import minimum_demands

#: Pods of a unit beyond which nothing of it is taken: a claim names each.
MOST_PODS: Final = 4096
#: Seconds beyond which no unit can ask for its replicas to be spared, unless a flag of the process says otherwise.
LONGEST: Final = 1800.0

Kind = Literal["Replica", "Unit", "Pod"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A unit of which something may be taken, and its priority: the class's, not above the one that is written."""

    unit: Unit
    priority: int

    @property
    def key(self) -> Key:
        """The key of its root."""
        return self.unit.key

    def pods(self) -> Iterable[core.Pod]:
        """Every pod that stands for a place."""
        return self.unit.pods()

    @property
    def has_surplus(self) -> bool:
        """Tell whether a role has more replicas than its minimum."""
        return any(len(role.replicas) > role.minimum for role in self.unit.roles)

    @property
    def resource(self) -> tuple[str, str]:
        """Namespace and name of its workload, as a gang of it has them."""
        meta, reference = self.unit.root.metadata, self.unit.root.spec.workload_ref
        return meta.namespace, (reference.workload_name if reference else "") or meta.name


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms on which replicas are taken.

    Args:
        now: seconds since the epoch.
        longest: seconds of service after which no unit can spare its replicas (``--max-min-run``).
        claimed: UIDs of pods that a claim names already, or that go for another reason.
        resource: by which it is measured what a step takes.
    """

    now: float
    longest: float = LONGEST
    claimed: Collection[str] = frozenset()
    resource: str = resources.CPU

    def seconds_since(self, since: float | None) -> float:
        """Seconds since a time; none where it is not known, as of a pod that is about to be bound."""
        return 0.0 if since is None else max(0.0, self.now - since)

    def min_run(self, unit: Unit) -> float:
        """Seconds for which a replica of a unit must have served before it is taken."""
        preemption = unit.root.spec.preemption
        seconds = preemption.min_run_seconds if preemption is not None else None
        return min(float(MIN_RUN_SECONDS if seconds is None else seconds), self.longest)


@dataclass(frozen=True, slots=True)
class Step:
    """Pods that are taken together or not at all.

    ``keys`` are UIDs; ``count`` what they hold of the resource by which the search measures, and ``devices`` of all
    extended resources, by name, for people; ``since`` when the replica became Ready first, or was bound where it is still
    loading, in seconds since the epoch, of the oldest replica of a unit; ``served`` the seconds since.
    """

    kind: Kind
    unit: Key
    resource: str
    number: int
    keys: tuple[str, ...]
    priority: int
    role: str = ""
    replica: int | None = None
    count: int = 0
    devices: tuple[tuple[str, int], ...] = ()
    since: float | None = None
    served: float = 0.0
    ready: bool = False

    @property
    def text(self) -> str:
        """The step as people write it."""
        unit = f"{self.unit.namespace}/{self.unit.name}"
        if self.kind == "Pod":
            return f"pod {unit}"
        return f"all of {unit}" if self.kind == "Unit" else f"{self.role}/{self.replica} of {unit}"

    def victim(self) -> core.Victim:
        """The step as a claim names it."""
        return core.Victim(
            self.kind, self.unit.namespace, self.resource, self.number, self.role, self.replica, self.keys
        )


@dataclass(frozen=True, slots=True)
class Caps:
    """Replicas of a role that may be taken without its unit: of all that are placed, and of those that are Ready."""

    placed: int
    ready: int


@dataclass(frozen=True, slots=True)
class Offer:
    """The steps that a unit offers: replicas by themselves, at most as many of a role as ``caps`` say, or all of it."""

    replicas: tuple[Step, ...] = ()
    caps: Mapping[str, Caps] = field(default_factory=dict)
    whole: Step | None = None

    def allows(self, steps: Iterable[Step]) -> bool:
        """Tell whether these replicas may be taken together."""
        placed: dict[str, int] = {}
        ready: dict[str, int] = {}
        for step in steps:
            placed[step.role] = placed.get(step.role, 0) + 1
            ready[step.role] = ready.get(step.role, 0) + step.ready
        return all(count <= self.caps[role].placed for role, count in placed.items()) and all(
            count <= self.caps[role].ready for role, count in ready.items()
        )


Rule = Callable[[Candidate], bool]


def lower_priority(gang: Gang) -> Rule:
    """The rule of preemption: units of other resources, of a lower priority than the gang's."""

    def may_take(candidate: Candidate) -> bool:
        return candidate.priority < gang.priority and candidate.resource != (gang.namespace, gang.name)

    return may_take


def is_ours(root: core.Group) -> bool:
    """Tell whether Covey's operator has made a unit, so that it takes it down whole when a claim names it."""
    owner = root.metadata.controller
    kind = (owner.api_version, owner.kind) if owner else None
    return kind == (INFERENCE_API, "DisaggregatedInference") and root.metadata.label(LABEL_INFERENCE) is not None


def root_priority(
    root: core.Group, pods: Callable[[], Iterable[core.Pod]], classes: Mapping[str, core.PriorityClass]
) -> int | None:
    """Find the priority of a root; None when it names a class that does not exist, and has no pods yet.

    Where its class is gone it is the lowest of its pods, to whom the API server has given it: the value of a class is
    changed by making it anew, and meanwhile nobody may take what is below others for a moment. The same where it names
    none, and there is no global default (any more).

    That of a group which Covey's operator has not made is never above the lowest of its pods: whoever may create groups
    names any class, and a ResourceQuota bounds those of pods.

    Args:
        root: the root.
        pods: gives its pods.
        classes: the cluster's classes by name.
    """
    name = root.spec.priority_class_name
    priority = priority_of(root.spec.priority, name, classes)
    has_class = priority is not None and (name or any(known.global_default for known in classes.values()))
    if has_class and is_ours(root):
        return priority
    stated = [pod.spec.priority for pod in pods() if pod.spec.priority is not None]
    if priority is not None and (has_class or not stated or not is_ours(root)):
        stated.append(priority)
    return min(stated, default=None)


def is_eligible(candidate: Candidate) -> bool:
    """Tell whether anything of a unit may be taken at all, by whomever."""
    unit = candidate.unit
    return unit.problem is None and is_ours(unit.root) and sum(1 for _ in unit.pods()) <= MOST_PODS


def offer_of(candidate: Candidate, inventory: Inventory, terms: Terms) -> Offer:
    """The steps of an eligible unit. Replicas that leave already are none of it; neither are those without a place."""
    unit, least = candidate.unit, terms.min_run(candidate.unit)
    found: list[Step] = []
    caps: dict[str, Caps] = {}
    pods: list[core.Pod] = []
    whole: list[Step] = []
    spared = False
    for role in unit.roles:
        staying = [replica for replica in role.replicas if not _leaves(replica, terms)]
        placed = [replica for replica in staying if replica.whole and all(map(podstate.is_placed, replica.pods))]
        steps = [_replica_step(candidate, role, replica, inventory, terms) for replica in placed]
        over, ready = len(placed) - role.minimum, sum(step.ready for step in steps) - role.minimum
        served = [step for step in steps if step.served >= least]
        if over > 0:
            found += [step for step in served if not step.ready or ready > 0]
            caps[role.name] = Caps(over, max(ready, 0))
        pods += [pod for replica in staying for pod in replica.pods if podstate.is_placed(pod)]
        whole += steps
        # A surplus replica that is new must not make all of its unit untouchable: the minimum decides, of what holds any of
        # that by which it is measured. Else a pod without devices that is made anew again and again would keep them all.
        holds = any(step.count for step in steps)
        spared = spared or (holds and len(served) < min(role.minimum, len(placed)))
    spared = spared or (not whole and terms.seconds_since(bound_at(pods)) < least)
    if not pods or spared:
        return Offer(tuple(found), caps)
    since = min((step.since for step in whole if step.since is not None), default=bound_at(pods))
    step = _step(candidate, pods, inventory, terms, since)
    return Offer(tuple(found), caps, replace(step, ready=any(step.ready for step in whole)))


def _leaves(replica: Replica, terms: Terms) -> bool:
    """The replica drains, is being deleted, or was claimed."""
    return any(
        podstate.is_terminating(pod) or podstate.drains_until(pod) is not None or pod.metadata.uid in terms.claimed
        for pod in replica.pods
    )


def _replica_step(candidate: Candidate, role: UnitRole, replica: Replica, inventory: Inventory, terms: Terms) -> Step:
    ready = all(map(_is_ready, replica.pods))
    step = _step(candidate, replica.pods, inventory, terms, _ready_since(replica.pods) if ready else None)
    return replace(step, kind="Replica", role=role.name, replica=replica.number, ready=ready)


def _step(
    candidate: Candidate, pods: Sequence[core.Pod], inventory: Inventory, terms: Terms, since: float | None
) -> Step:
    """All of a unit; ``since`` is when the pods were bound where nothing else is known."""
    unit, since = candidate.unit, bound_at(pods) if since is None else since
    keys = tuple(pod.metadata.uid for pod in pods)
    held = sum_held(keys, inventory)
    return Step(
        "Unit",
        unit.key,
        unit.root.metadata.label(LABEL_INFERENCE) or candidate.resource[1],
        unit.index,
        keys,
        candidate.priority,
        count=held[terms.resource],
        devices=devices_of(held),
        since=since,
        served=terms.seconds_since(since),
    )


def _is_ready(pod: core.Pod) -> bool:
    condition = core.condition(pod.status.conditions, "Ready")
    return condition is not None and condition.status == "True" and podstate.occupies_node(pod)


def _ready_since(pods: Sequence[core.Pod]) -> float | None:
    """Time at which a replica whose pods are Ready became so first: by the operator's note, else by the conditions."""
    noted = [core.seconds(pod.metadata.annotation(ANNOTATION_SERVES_SINCE)) for pod in pods]
    stamps = (core.condition(pod.status.conditions, "Ready") for pod in pods)
    ready = [core.seconds(condition.last_transition_time) for condition in stamps if condition is not None]
    return _latest(noted) or _latest(ready)


def bound_at(pods: Sequence[core.Pod]) -> float | None:
    """Time at which the last of some pods was bound; None where none is, or nobody knows."""
    times: list[float | None] = []
    for pod in pods:
        scheduled = core.condition(pod.status.conditions, "PodScheduled")
        bound = scheduled.last_transition_time if scheduled is not None and scheduled.status == "True" else None
        times.append(core.seconds(bound or pod.status.start_time) if podstate.occupies_node(pod) else None)
    return _latest(times)


def _latest(times: Iterable[float | None]) -> float | None:
    return max((time for time in times if time is not None), default=None)


def measure_taking(gang: Gang, inventory: Inventory) -> str:
    """The resource by which it is measured what is taken for a gang's minimum (``resources.measure``)."""
    missing = Counter(pod.shape for demand in minimum_demands(gang) for pod in demand.missing)
    return resources.measure(sum_requests(missing), inventory.offered())


def sum_held(keys: Iterable[str], inventory: Inventory) -> Counter[str]:
    """Sum up what some holders hold, by resource."""
    holds = (inventory.hold_of(key) for key in keys)
    return sum_requests(Counter(held[1].shape for held in holds if held is not None))


def devices_of(held: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """The extended resources among what is held, by name."""
    return tuple(sorted((name, amount) for name, amount in held.items() if amount > 0 and resources.is_extended(name)))


__all__ = [
    "LONGEST",
    "Candidate",
    "Caps",
    "Offer",
    "Rule",
    "Step",
    "Terms",
    "bound_at",
    "devices_of",
    "is_eligible",
    "is_ours",
    "lower_priority",
    "measure_taking",
    "offer_of",
    "root_priority",
    "sum_held",
]
