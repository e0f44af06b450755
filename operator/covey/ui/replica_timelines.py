"""The life of each replica that there is now, from the times of its pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from covey.admission.nodes import number
from covey.api import constants as names
from covey.api import core
from covey.ui import contract
from covey.ui.history_sources import TimedPod
from covey.ui.pod_view import small
from covey.watching.status_tree import TreeState, pod_state

_LABEL_RESTARTS: Final = "covey.dev/restarts"
_ORDER: Final = tuple(TreeState)


def timelines_of(pods: Iterable[TimedPod]) -> list[contract.ReplicaTimeline]:
    """A lane for each replica, in the order of units, roles and replicas."""
    pods_of: dict[tuple[int, str, int], list[TimedPod]] = {}
    for pod in pods:
        meta = pod.metadata
        place = (
            small(number(meta.label(names.LABEL_UNIT))),
            meta.label(names.LABEL_ROLE) or "",
            small(number(meta.label(names.LABEL_REPLICA))),
        )
        pods_of.setdefault(place, []).append(pod)
    return [_lane(*place, pods_of[place]) for place in sorted(pods_of)]


def _lane(unit: int, role: str, replica: int, pods: Sequence[TimedPod]) -> contract.ReplicaTimeline:
    """A replica has come as far as its slowest pod; a pod that goes takes it along."""
    states = [TreeState.FAILED if core.is_terminal(pod) else pod_state(pod)[0] for pod in pods]
    newest = max(pods, key=lambda pod: pod.metadata.creation_timestamp).metadata
    going = [time for pod in pods if (time := _going(pod)) is not None]
    return contract.ReplicaTimeline(
        unit,
        role,
        replica,
        newest.label(names.LABEL_REVISION) or "",
        max(states, key=_ORDER.index).value,
        min(pod.metadata.creation_timestamp for pod in pods),
        _all(pods, _placed_at),
        _all(pods, _bound),
        _all(pods, _ready),
        min(going, default=None),
        small(max(number(pod.metadata.label(_LABEL_RESTARTS)) for pod in pods)),
    )


def _all(pods: Sequence[TimedPod], time_of: Callable[[TimedPod], str | None]) -> str | None:
    """Time at which the last of them got there; None while one has not."""
    times = [time_of(pod) for pod in pods]
    known = [time for time in times if time is not None]
    return max(known) if len(known) == len(times) else None


def _placed_at(pod: TimedPod) -> str | None:
    """The time that was noted with the pin; a pod that is bound had its place by then."""
    if pod.spec.node_name is None and core.pinned_node(pod) is None:
        return None
    return pod.metadata.annotation(names.ANNOTATION_PINNED_AT) or _bound(pod)


def _bound(pod: TimedPod) -> str | None:
    return _since(pod, "PodScheduled")


def _ready(pod: TimedPod) -> str | None:
    return _since(pod, "Ready")


def _since(pod: TimedPod, kind: str) -> str | None:
    condition = core.condition(pod.status.conditions, kind)
    return condition.last_transition_time if condition is not None and condition.status == "True" else None


def _going(pod: TimedPod) -> str | None:
    return pod.metadata.annotation(names.ANNOTATION_DRAINING_SINCE) or pod.metadata.deletion_timestamp
