"""A gang's story: what its objects, their conditions and the Events about them say of the past, with where it is written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from covey.admission.nodes import number
from covey.api import constants as names
from covey.api import core
from covey.api.core import rfc3339, seconds
from covey.api.core.preemption import GIVEN_UP
from covey.kube import resources
from covey.kube.client import Client
from covey.operator.model.objects import Inference
from covey.ui import contract
from covey.ui.facts import Lister
from covey.ui.history_sources import HistorySources, StoredEvent, TimedPod
from covey.ui.pod_view import small
from covey.ui.replica_timelines import timelines_of

#: What one story has at most; the newest events, the first lanes.
MOST_EVENTS: Final = 500
MOST_LANES: Final = 1000
#: Beyond so many pods the Events about each of them are left out.
_MANY_PODS: Final = 500
#: Seconds within which a condition and an Event with the same words are the same.
_SAME_SECONDS: Final = 3.0
_SCHEDULED: Final = "Scheduled"
#: By the action of Covey's own Events; the second word is for warnings.
_ACTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "Create": ("created", "failed"),
    "ScaleUp": ("scaled", "scaled"),
    "ScaleDown": ("scaled", "scaled"),
    "Rollout": ("rollout", "rollout"),
    "Evacuate": ("evacuation", "evacuation"),
    "Admit": ("admitted", "waiting"),
    "Bind": ("bound", "bound"),
    "Start": ("ready", "failed"),
    "Drain": ("draining", "draining"),
    "Preempt": ("draining", "draining"),
    "Replace": ("failed", "failed"),
    "Restart": ("failed", "failed"),
    "Escalate": ("failed", "failed"),
    "Remake": ("failed", "failed"),
}
#: By the reason of Events of Kubernetes' own programs about pods.
_POD_REASONS: Final[Mapping[str, str]] = {
    _SCHEDULED: "bound",
    "Binding": "bound",
    "FailedScheduling": "waiting",
    "Killing": "draining",
    "Preempted": "failed",
}
#: By condition: what it is that became true, and what that it became false.
_CONDITIONS: Final[Mapping[str, tuple[str, str]]] = {
    names.ADMITTED: ("admitted", "waiting"),
    names.SCHEDULED: ("bound", "waiting"),
    names.AVAILABLE: ("ready", "other"),
    names.READY: ("ready", "other"),
    names.MINIMUM_MET: ("admitted", "waiting"),
    names.DEGRADED: ("failed", "other"),
    names.STALLED: ("failed", "other"),
    names.PROGRESSING: ("rollout", "failed"),
    names.PAUSED: ("rollout", "rollout"),
    names.EVACUATING: ("evacuation", "evacuation"),
    names.EVACUATION_BLOCKED: ("evacuation", "evacuation"),
    names.SCALING_LIMITED: ("scaled", "scaled"),
    names.QUOTA_LIMITED: ("waiting", "other"),
    names.ROUTING_HELD: ("rollout", "other"),
    names.CAPABILITY_LACKING: ("failed", "other"),
    names.CONSTRAINTS_UNKEPT: ("other", "other"),
    names.POOL_MISSING: ("failed", "other"),
    names.PREEMPTING: ("waiting", "other"),
    names.PREEMPTED: ("draining", "other"),
    names.ESCALATING: ("failed", "other"),
    names.NODES_AVOIDED: ("failed", "other"),
    names.REMAKE_PENDING: ("other", "other"),
}


async def read_story(client: Client, namespace: str, name: str, now: float) -> contract.History:
    """The story of a resource, read with its viewer's rights.

    Raises:
        NotFound: there is no such resource.
        Forbidden: it may not be read.
    """
    inference = await client.get(resources.DISAGGREGATED_INFERENCES, name, namespace, type=Inference)
    lister = Lister(client, (namespace,))
    label = f"{names.LABEL_INFERENCE}={name}"
    pods, composites, groups, preemptions, about = await asyncio.gather(
        lister.within(resources.PODS, TimedPod, namespace, "the lives of replicas are not told", labels=label),
        lister.within(resources.COMPOSITE_POD_GROUPS, core.Group, namespace, "units are not told of", labels=label),
        lister.within(resources.POD_GROUPS, core.Group, namespace, "units are not told of", labels=label),
        lister.within(resources.PREEMPTIONS, core.Preemption, namespace, "who has given way is not told"),
        _events(lister, namespace, f"regarding.kind=DisaggregatedInference,regarding.name={name}"),
    )
    mine = tuple(pod for pod in pods or () if _is_owned_by(pod.metadata, inference))
    events = list(about or ())
    if about is not None and 0 < len(mine) <= _MANY_PODS:
        uids = {pod.metadata.uid for pod in mine}
        pod_events = await _events(lister, namespace, "regarding.kind=Pod")
        events += (event for event in pod_events or () if event.regarding.uid in uids)
    roots = tuple(group for group in [*(composites or ()), *(groups or ())] if _is_owned_by(group.metadata, inference))
    return tell(
        HistorySources(inference, mine, roots, tuple(events), tuple(preemptions or ()), tuple(lister.denied)), now
    )


async def _events(lister: Lister, namespace: str, fields: str) -> list[StoredEvent] | None:
    return await lister.within(resources.EVENTS, StoredEvent, namespace, "events are not told", fields=fields)


def _is_owned_by(meta: core.Meta, inference: Inference) -> bool:
    owner = meta.controller
    return owner is not None and owner.uid == inference.metadata.uid


def tell(chronicle: HistorySources, now: float) -> contract.History:
    """The story that some objects tell, the oldest first.

    Args:
        chronicle: the objects.
        now: seconds since the epoch.
    """
    meta = chronicle.inference.metadata
    lanes = timelines_of(chronicle.pods)
    events = [
        *_of_resource(chronicle.inference),
        *_of_groups(chronicle.groups),
        *_of_preemptions(chronicle),
        *_of_pods(chronicle.pods),
        *_of_lanes(lanes),
        *_of_events(chronicle),
    ]
    shown = sorted(_once(event for event in events if event.time), key=lambda event: event.time)
    left_out = max(0, len(shown) - MOST_EVENTS) + max(0, len(lanes) - MOST_LANES)
    return contract.History(
        f"{meta.namespace}/{meta.name}",
        rfc3339(now),
        tuple(shown[-MOST_EVENTS:]),
        tuple(lanes[:MOST_LANES]),
        left_out,
        chronicle.denied,
    )


def _event(time: str | None, kind: str, reason: str, message: str, source: str, **more: Any) -> contract.HistoryEvent:
    fields: dict[str, Any] = {
        "type": "Normal",
        "count": 1,
        "last": None,
        "unit": None,
        "role": None,
        "replica": None,
        "object": "",
    }
    return contract.HistoryEvent(
        time=_whole(time), kind=kind, reason=reason, message=message, source=source, **(fields | more)
    )


def _whole(time: str | None) -> str:
    """Without fractions of a second, so that times of all sources are ordered as text."""
    head, dot, _ = (time or "").partition(".")
    return f"{head}Z" if dot else head


def _of_resource(inference: Inference) -> Iterator[contract.HistoryEvent]:
    meta = inference.metadata
    who = f"DisaggregatedInference/{meta.name}"
    yield _event(meta.creation_timestamp, "created", "Created", "", "metadata", object=who)
    if meta.deletion_timestamp:
        yield _event(meta.deletion_timestamp, "draining", "Deleted", "it is being deleted", "metadata", object=who)
    for entry in _dicts(inference.status.get("conditions")):
        yield from _of_condition(entry, who)
    rollout = inference.status.get("rollout")
    if isinstance(rollout, dict):
        yield from _of_rollout(rollout, who)
    for entry in _dicts(inference.status.get("unitStatuses")):
        since = entry.get("belowMinimumSince")
        if since:
            yield _event(
                since, "failed", "BelowMinimum", str(entry.get("message", "")), "status", type="Warning",
                unit=entry.get("unit"), object=who,
            )  # fmt: skip


def _dicts(value: object) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _of_condition(condition: Mapping[str, Any], who: str, **more: Any) -> Iterator[contract.HistoryEvent]:
    kind, is_true = condition.get("type", ""), condition.get("status") == "True"
    yes, no = _CONDITIONS.get(kind, ("other", "other"))
    tone = "Normal" if (is_true == (kind not in _BAD)) else "Warning"
    message = f"{kind} is {condition.get('status')}: {condition.get('message') or condition.get('reason')}"
    yield _event(
        condition.get("lastTransitionTime"), yes if is_true else no, str(condition.get("reason", "")), message,
        "condition", **{"type": tone, "object": who, **more},
    )  # fmt: skip


#: Conditions that are True where something is not as it should be.
_BAD: Final = frozenset(
    {
        names.DEGRADED,
        names.STALLED,
        names.EVACUATION_BLOCKED,
        names.SCALING_LIMITED,
        names.QUOTA_LIMITED,
        names.ROUTING_HELD,
        names.CAPABILITY_LACKING,
        names.CONSTRAINTS_UNKEPT,
        names.POOL_MISSING,
        names.PREEMPTED,
        names.ESCALATING,
        names.NODES_AVOIDED,
        names.REMAKE_PENDING,
    }
)


def _of_rollout(rollout: Mapping[str, Any], who: str) -> Iterator[contract.HistoryEvent]:
    ready, left = rollout.get("ready", 0), rollout.get("outdated", 0)
    message = f"revision {rollout.get('toRevision')}: {ready} Ready, {left} of other revisions left"
    yield _event(rollout.get("progressedAt"), "rollout", "Progressed", message, "status", object=who)
    hold = rollout.get("hold")
    if isinstance(hold, dict):
        gate, why = str(hold.get("gate", "")), str(hold.get("message", ""))
        yield _event(hold.get("since"), "rollout", gate, f"held: {why}", "status", type="Warning", object=who)


def _of_groups(groups: Iterable[core.Group]) -> Iterator[contract.HistoryEvent]:
    for group in groups:
        unit = group.metadata.label(names.LABEL_UNIT)
        if group.spec.parent_composite_pod_group_name is not None or unit is None:
            continue
        who, place = f"{group.kind or 'Group'}/{group.metadata.name}", small(number(unit))
        admitted = core.condition(group.status.conditions, names.ADMITTED)
        if admitted is not None:
            yield from _of_condition(msgspec.to_builtins(admitted), who, unit=place)
        kept = group.status.claim
        if kept is not None and kept.nodes:
            message = f"what comes free in {kept.where} is kept for it"
            message = f"{kept.message}; {message}" if kept.message else message
            yield _event(kept.since, "waiting", kept.purpose or "Reserved", message, "status", unit=place, object=who)


def _of_preemptions(chronicle: HistorySources) -> Iterator[contract.HistoryEvent]:
    """Yield what others have given up for a unit; who gives way now is told by the claim of its root."""
    roots = {group.metadata.uid: group for group in chronicle.groups}
    for preemption in chronicle.preemptions:
        root, spec, status = roots.get(preemption.spec.beneficiary.uid), preemption.spec, preemption.status
        if root is None or not status.outcome:
            continue
        unit = root.metadata.label(names.LABEL_UNIT)
        place: dict[str, Any] = {
            "unit": small(number(unit)) if unit is not None else None,
            "object": f"Preemption/{preemption.metadata.name}",
        }
        begun = preemption.metadata.creation_timestamp
        yield _event(begun, "waiting", spec.reason, f"{spec.summary} to give way", "status", **place)
        tone = "Warning" if status.outcome == GIVEN_UP else "Normal"
        message = f"{status.outcome}: {status.message}"
        yield _event(status.end_time, "waiting", status.reason, message, "status", type=tone, **place)


def _of_pods(pods: Iterable[TimedPod]) -> Iterator[contract.HistoryEvent]:
    for pod in pods:
        for status in pod.status.container_statuses or ():
            for state in (status.last_state, status.state):
                if state is not None and state.terminated is not None:
                    yield _container_end(pod, status.name, state.terminated)


def _container_end(pod: TimedPod, container: str, ended: core.Terminated) -> contract.HistoryEvent:
    failed = ended.exit_code != 0
    message = f"container {container} has ended with {ended.exit_code} ({ended.reason})"
    return _event(
        ended.finished_at, "failed" if failed else "other", ended.reason or "Ended", message, "pod",
        **{"type": "Warning" if failed else "Normal", **_place(pod)},
    )  # fmt: skip


def _place(pod: TimedPod) -> dict[str, Any]:
    meta = pod.metadata
    return {
        "unit": small(number(meta.label(names.LABEL_UNIT))),
        "role": meta.label(names.LABEL_ROLE),
        "replica": small(number(meta.label(names.LABEL_REPLICA))),
        "object": f"Pod/{meta.name}",
    }


def _of_lanes(lanes: Iterable[contract.ReplicaTimeline]) -> Iterator[contract.HistoryEvent]:
    """Events of replicas: one for all of a role at the same time."""
    replicas_of: dict[tuple[str, str, int, str, str], list[int]] = {}
    for lane in lanes:
        for word, kind, time in _steps(lane):
            if time is not None:
                replicas_of.setdefault((_whole(time), kind, lane.unit, lane.role, word), []).append(lane.replica)
    for (time, kind, unit, role, word), replicas in replicas_of.items():
        alone = replicas[0] if len(replicas) == 1 else None
        which = f"replica {alone}" if alone is not None else f"{len(replicas)} replicas"
        message = f"unit {unit}, {role}: {which} {'is' if alone is not None else 'are'} {_WORDS[word]}"
        yield _event(time, kind, word, message, "pod", unit=unit, role=role, replica=alone)


#: How the steps of a replica's life read in a sentence.
_WORDS: Final = {
    "Created": "created",
    "Placed": "assigned nodes",
    "Bound": "bound",
    "Ready": "Ready",
    "Draining": "about to go",
}


def _steps(lane: contract.ReplicaTimeline) -> tuple[tuple[str, str, str | None], ...]:
    """Each with its word, its kind and its time."""
    return (
        ("Created", "created", lane.created),
        ("Placed", "admitted", lane.placed),
        ("Bound", "bound", lane.bound),
        ("Ready", "ready", lane.ready),
        ("Draining", "draining", lane.draining),
    )


def _once(events: Iterable[contract.HistoryEvent]) -> list[contract.HistoryEvent]:
    """Without conditions of which an Event says the same, at about the same time: the Event says how often."""
    every = list(events)
    with_message = [event for event in every if event.source == "event" and event.message]
    return [
        other
        for other in every
        if other.source != "condition"
        or not any(
            other.message.endswith(event.message) and _are_near(other.time, event.time) for event in with_message
        )
    ]


def _are_near(one: str, other: str) -> bool:
    first, second = seconds(one), seconds(other)
    return first is not None and second is not None and abs(first - second) <= _SAME_SECONDS


def _of_events(chronicle: HistorySources) -> Iterator[contract.HistoryEvent]:
    places = {pod.metadata.uid: _place(pod) for pod in chronicle.pods}
    for event in chronicle.events:
        kind = _kind(event)
        if kind is None or (
            event.regarding.uid not in places and event.regarding.uid != chronicle.inference.metadata.uid
        ):
            continue
        time = event.event_time or event.deprecated_first_timestamp or event.metadata.creation_timestamp
        last = event.series.last_observed_time if event.series else event.deprecated_last_timestamp
        count = event.series.count if event.series else max(1, event.deprecated_count)
        more = places.get(event.regarding.uid, {"object": f"{event.regarding.kind}/{event.regarding.name}"})
        yield _event(
            time, kind, event.reason, event.note, "event",
            **{"type": event.type, "count": count, "last": _whole(last) if count > 1 else None, **more},
        )  # fmt: skip


def _kind(event: StoredEvent) -> str | None:
    """None for what says nothing that lanes do not say."""
    warning = event.type == "Warning"
    if event.regarding.kind == "Pod":
        known = _POD_REASONS.get(event.reason)
        return known or ("failed" if warning else None) if event.reason != _SCHEDULED else None
    good, bad = _ACTIONS.get(event.action, ("other", "failed"))
    return bad if warning else good
