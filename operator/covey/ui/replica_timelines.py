"""The life of each replica that there is now, from the times of its pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from covey.admission.tree import number
from covey.api import constants as names
from covey.api import core
from covey.ui import contract
from covey.ui.facts import small
from covey.ui.history_sources import Pod
from covey.watching.status_tree import State, pod_state

_LABEL_RESTARTS: Final = "covey.dev/restarts"
_ORDER: Final = tuple(State)


def lanes_of(pods: Iterable[Pod]) -> list[contract.Lane]:
    """A lane for each replica, in the order of units, roles and replicas."""
    found: dict[tuple[int, str, int], list[Pod]] = {}
    for pod in pods:
        meta = pod.metadata
        place = (
            small(number(meta.label(names.LABEL_UNIT))),
            meta.label(names.LABEL_ROLE) or "",
            small(number(meta.label(names.LABEL_REPLICA))),
        )
        found.setdefault(place, []).append(pod)
    return [_lane(*place, found[place]) for place in sorted(found)]


def _lane(unit: int, role: str, replica: int, pods: Sequence[Pod]) -> contract.Lane:
    """A replica has come as far as its slowest pod; a pod that goes takes it along."""
    states = [State.FAILED if core.is_terminal(pod) else pod_state(pod)[0] for pod in pods]
    newest = max(pods, key=lambda pod: pod.metadata.creation_timestamp).metadata
    going = [time for pod in pods if (time := _going(pod)) is not None]
    return contract.Lane(
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


def _all(pods: Sequence[Pod], time_of: Callable[[Pod], str | None]) -> str | None:
    """Time at which the last of them got there; None while one has not."""
    times = [time_of(pod) for pod in pods]
    found = [time for time in times if time is not None]
    return max(found) if len(found) == len(times) else None


def _placed_at(pod: Pod) -> str | None:
    """The time that was noted with the pin; a pod that is bound had its place by then."""
    if pod.spec.node_name is None and core.pinned_node(pod) is None:
        return None
    return pod.metadata.annotation(names.ANNOTATION_PINNED_AT) or _bound(pod)


def _bound(pod: Pod) -> str | None:
    return _since(pod, "PodScheduled")


def _ready(pod: Pod) -> str | None:
    return _since(pod, "Ready")


def _since(pod: Pod, kind: str) -> str | None:
    found = core.condition(pod.status.conditions, kind)
    return found.last_transition_time if found is not None and found.status == "True" else None


def _going(pod: Pod) -> str | None:
    return pod.metadata.annotation(names.ANNOTATION_DRAINING_SINCE) or pod.metadata.deletion_timestamp
