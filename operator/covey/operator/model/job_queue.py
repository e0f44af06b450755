"""The turn of a Job that Covey suspends: when its pods may come, and when they are given back. Pure.

=============================================  ======================================================================
the Job                                        so
=============================================  ======================================================================
is suspended, and pods of it are there still   it waits until they are gone
was given up a moment ago                      it rests, longer each time
is suspended                                   quota and nodes are looked for; it is resumed when it has both
was resumed, and its minimum has no pins yet   quota and places are reserved for it, for 60 s at most
... and these are over, or a place was lost    it is suspended again: its pods go, and no failure is counted
has pods with nodes, or its minimum has pins   it runs; nothing is done
has run, and none of its pods has a node now   it is suspended again as well, where that lasts for 60 s
=============================================  ======================================================================
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from covey.api import constants as names
from covey.api import core
from covey.kube.resources import JOBS, PODS
from covey.operator.model.job import Job, has_lost_place

Object = dict[str, Any]

#: Seconds for which a gang that was resumed may have no pins: quota and places are reserved for it as long.
RESERVED: Final = 60.0
#: Seconds for which a Job rests that was suspended again: doubled from the first to the last, as the Job controller's own.
_FIRST_REST: Final = 10.0
_LAST_REST: Final = 3600.0
#: Of the pod that is created in a dry run. The operator's own policy knows it.
PROBE: Final = "covey-probe"


class JobStep(Enum):
    """What is to be done with a Job."""

    REST = "it waits for its pods to go, or rests"
    ASK = "quota and nodes are looked for"
    RESERVE = "its pods are to come"
    RUN = "its gang runs, or is about to"
    SUSPEND = "it gives back what it has"


@dataclass(frozen=True, slots=True)
class Turn:
    """A step, why, and in how many seconds it may be another one by time alone."""

    step: JobStep
    why: str = ""
    again: float | None = None


def judge_turn(job: Job, pods: Iterable[core.Pod], now: float) -> Turn:
    """Judge whose turn it is.

    Args:
        job: one that Covey suspends and resumes.
        pods: those that carry its name.
        now: seconds since the epoch.
    """
    pods = own_pods(job, pods)
    live = [pod for pod in pods if not core.is_terminal(pod)]
    if job.is_queued:
        if live:
            return Turn(JobStep.REST, f"{len(live)} pods of it are still to go")
        left = _rests_until(job) - now
        return (
            Turn(JobStep.REST, "its pods did not come, or had no nodes, in time", left)
            if left > 0
            else Turn(JobStep.ASK)
        )
    if any(pod.spec.node_name for pod in live) or sum(map(is_pinned, live)) >= job.minimum:
        return Turn(JobStep.RUN)
    if any(map(has_lost_place, live)):
        return Turn(JobStep.SUSPEND, "nodes of its pods were given up before they ran")
    resumed = core.seconds(job.metadata.annotation(names.ANNOTATION_RESUMED)) or 0.0
    # The controller may wait for minutes before it makes pods in place of failed ones.
    has_run = any(pod.spec.node_name and (_created(pod) or 0.0) >= resumed for pod in pods)
    if has_run and not live:
        return Turn(JobStep.RUN)
    left = max((resumed, *(time for pod in live if (time := _created(pod)) is not None))) + RESERVED - now
    if left > 0:
        return Turn(JobStep.RUN if has_run else JobStep.RESERVE, again=left)
    there = (
        f"{len(live)} of the {job.minimum} pods of its minimum exist" if len(live) < job.minimum else "it has no nodes"
    )
    return Turn(JobStep.SUSPEND, f"{RESERVED:.0f} s are over, and {there}")


def own_pods(job: Job, pods: Iterable[core.Pod]) -> list[core.Pod]:
    """The pods that a Job's controller has made, of those that carry its name."""
    owners = ((pod, pod.metadata.controller) for pod in pods)
    return [pod for pod, owner in owners if owner is not None and owner.uid == job.metadata.uid]


def is_pinned(pod: core.Pod) -> bool:
    """Tell whether the scheduler process has pinned a pod, which keeps its place."""
    return pod.metadata.annotation(names.ANNOTATION_PINNED) == pod.metadata.uid and not has_lost_place(pod)


def resume(job: Job, now: float) -> Object:
    """The merge patch with which Covey lets the pods of a Job come; for the Job as it was read, and no other."""
    notes = {names.ANNOTATION_QUEUED: "false", names.ANNOTATION_RESUMED: core.rfc3339(now)}
    return _patch(job, notes, suspend=False)


def suspend(job: Job, now: float) -> Object:
    """The merge patch with which Covey suspends a Job whose gang does not run."""
    notes = {names.ANNOTATION_QUEUED: "true", names.ANNOTATION_GIVEN_UP: f"{core.rfc3339(now)} {_times(job, now) + 1}"}
    return _patch(job, notes, suspend=True)


def make_probe(job: Job) -> Object:
    """A pod of a Job as its controller would make it, for a dry run."""
    meta = job.metadata
    given = job.spec.template.get("metadata") or {}
    owner = {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "name": meta.name, "uid": meta.uid, "controller": True}
    labels = {names.LABEL_JOB_NAME: meta.name, "job-name": meta.name, **(given.get("labels") or {})}
    metadata = {
        "name": PROBE,
        "namespace": meta.namespace,
        "labels": labels,
        "annotations": given.get("annotations") or {},
        "ownerReferences": [owner],
    }
    spec = job.spec.template.get("spec") or {}
    return {"apiVersion": PODS.api_version, "kind": PODS.kind, "metadata": metadata, "spec": spec}


def _patch(job: Job, notes: dict[str, str], *, suspend: bool) -> Object:
    metadata = {"resourceVersion": job.metadata.resource_version, "annotations": notes}
    return {"metadata": metadata, "spec": {"suspend": suspend}}


def _created(pod: core.Pod) -> float | None:
    return core.seconds(pod.metadata.creation_timestamp)


def _given_up(job: Job) -> tuple[float, int]:
    """When a Job was suspended again last, and how often in a row; long ago where it never was."""
    time, _, count = (job.metadata.annotation(names.ANNOTATION_GIVEN_UP) or "").partition(" ")
    since = core.seconds(time)
    return (since, max(1, int(count))) if since is not None and count.isdecimal() and len(count) < 4 else (0.0, 0)


def _rests_until(job: Job) -> float:
    since, times = _given_up(job)
    return since + _rest(times)


def _rest(times: int) -> float:
    return min(_FIRST_REST * 2.0 ** max(0, times - 1), _LAST_REST) if times else 0.0


def _times(job: Job, now: float) -> int:
    """How often in a row a Job has been suspended again: what ran for a while since begins anew."""
    since, times = _given_up(job)
    return times if now < since + 2 * _rest(times) + 2 * RESERVED else 0
