"""What a recording of pods says of gangs that were bound in part, at any moment of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from builders.manifests import Object
from cluster.workbench import label, uid_of
from scheduler_trees import node_of

Event = tuple[str, Object]
#: Name of a resource, index of a unit.
Gang = tuple[str, str]
#: Complete bound replicas of each role.
Whole = dict[str, int]


@dataclass(frozen=True)
class Need:
    """What a role of a resource asks for: pods of one replica, and replicas of its minimum."""

    size: int
    minimum: int


@dataclass(frozen=True)
class Partial:
    """A gang that began to be bound and had not its whole minimum for so many seconds; for good when it never had."""

    gang: Gang
    seconds: float
    for_good: bool


class State(Enum):
    """How much of a gang is bound."""

    NONE = "none"
    PARTIAL = "partial"
    WHOLE = "whole"


@dataclass
class Pods:
    """The live pods at one moment of a recording."""

    needs: Mapping[str, Mapping[str, Need]]
    by_uid: dict[str, Object] = field(default_factory=dict)

    def take(self, event: Event) -> Gang | None:
        """Go on by one event; the gang that it is about."""
        kind, pod = event
        if "covey.dev/unit" not in pod["metadata"].get("labels", {}):
            return None
        self.by_uid.pop(uid_of(pod), None)
        ended = pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
        if kind != "DELETED" and not ended and not pod["metadata"].get("deletionTimestamp"):
            self.by_uid[uid_of(pod)] = pod
        return label(pod, "inference"), label(pod, "unit")

    def of(self, gang: Gang) -> list[Object]:
        """The pods of a gang."""
        return [pod for pod in self.by_uid.values() if (label(pod, "inference"), label(pod, "unit")) == gang]

    def whole(self, gang: Gang) -> Whole:
        """Complete bound replicas of each of its roles."""
        bound: dict[tuple[str, str], int] = {}
        for pod in self.of(gang):
            replica = label(pod, "role"), label(pod, "replica")
            bound[replica] = bound.get(replica, 0) + bool(node_of(pod))
        needs = self.needs[gang[0]]
        return {
            role: sum(count == need.size for (of, _), count in bound.items() if of == role)
            for role, need in needs.items()
        }

    def state(self, gang: Gang) -> State:
        """Whether nothing, a part or all of its minimum is bound; roles without a minimum do not count."""
        needs = {role: need for role, need in self.needs[gang[0]].items() if need.minimum}
        if not any(node_of(pod) for pod in self.of(gang) if label(pod, "role") in needs):
            return State.NONE
        whole = self.whole(gang)
        return State.WHOLE if all(whole[role] >= need.minimum for role, need in needs.items()) else State.PARTIAL


def partials(
    events: Sequence[Event], times: Sequence[float], needs: Mapping[str, Mapping[str, Need]]
) -> Iterator[Partial]:
    """Each time that a gang of which nothing was bound was bound in part, until its minimum was whole or gone again.

    A gang that loses pods later is not meant: it had its minimum.

    Args:
        events: recorded pods of one namespace.
        times: when each arrived, in seconds.
        needs: by name of a resource and of a role.
    """
    pods = Pods(needs)
    states: dict[Gang, State] = {}
    begun: dict[Gang, float] = {}
    for event, now in zip(events, times, strict=True):
        gang = pods.take(event)
        if gang is None or gang[0] not in needs:
            continue
        before, state = states.get(gang, State.NONE), pods.state(gang)
        states[gang] = state
        if before is State.NONE and state is State.PARTIAL:
            begun[gang] = now
        elif state is not State.PARTIAL and gang in begun:
            yield Partial(gang, now - begun.pop(gang), for_good=False)
    for gang, since in begun.items():
        yield Partial(gang, times[-1] - since, for_good=True)
