"""The turn of a Job that Covey suspends and resumes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from covey.api import core
from covey.operator.model.job import Job
from covey.operator.model.job_queue import JobStep, judge_turn, resume, suspend
from unit.operator.test_job_gangs import job as plain
from unit.operator.test_job_gangs import pod

QUEUED, RESUMED, GIVEN_UP = "covey.dev/queued", "covey.dev/resumed", "covey.dev/given-up"
RESUMED_AT = "2026-01-01T00:00:00Z"
NOW = 1_767_225_600.0
PINNED = {"annotations": {"scheduling.covey.dev/pinned": "pod"}}
LOST = {"annotations": {"scheduling.covey.dev/release": "Timeout"}}
LATE = {"creationTimestamp": "2026-01-01T00:00:30Z"}


def job(annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None, **spec: Any) -> Job:
    found = plain(parallelism=1, completions=1, **spec)
    meta = msgspec.structs.replace(
        found.metadata, annotations=annotations or {}, labels={**(found.metadata.labels or {}), **(labels or {})}
    )
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(meta, resource_version="7"))


def queued(**annotations: str) -> Job:
    return job({QUEUED: "true", **annotations}, suspend=True)


def resumed(at: str = RESUMED_AT) -> Job:
    return job({QUEUED: "false", RESUMED: at})


def ended(**metadata: Any) -> core.Pod:
    """A pod that has run."""
    found = pod("2026-01-01T00:00:10Z", **metadata)
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, phase="Succeeded"))


@pytest.mark.parametrize(
    ("found", "pods", "after", "step"),
    [
        (queued(), (), 0, JobStep.ASK),
        (queued(), (pod(),), 0, JobStep.REST),
        (queued(), (pod(owner="namesake"),), 0, JobStep.ASK),
        (queued(**{GIVEN_UP: f"{RESUMED_AT} 1"}), (), 9, JobStep.REST),
        (queued(**{GIVEN_UP: f"{RESUMED_AT} 1"}), (), 10, JobStep.ASK),
        (queued(**{GIVEN_UP: f"{RESUMED_AT} 3"}), (), 39, JobStep.REST),
        (queued(**{GIVEN_UP: f"{RESUMED_AT} 99"}), (), 3600, JobStep.ASK),
        (queued(**{GIVEN_UP: "soon 9"}), (), 0, JobStep.ASK),
        (resumed(), (), 59, JobStep.RESERVE),
        (resumed(), (), 60, JobStep.SUSPEND),
        (resumed(), (pod(),), 64, JobStep.RESERVE),
        (resumed(), (pod(),), 66, JobStep.SUSPEND),
        (resumed(), (pod(**LATE),), 89, JobStep.RESERVE),
        (resumed(), (pod(**PINNED),), 900, JobStep.RUN),
        (resumed(), (pod("2026-01-01T00:00:10Z"),), 900, JobStep.RUN),
        (resumed(), (pod(**LOST),), 0, JobStep.SUSPEND),
        (resumed(), (pod("2026-01-01T00:00:10Z"), pod(**LOST)), 0, JobStep.RUN),
        (resumed(), (ended(),), 900, JobStep.RUN),
        (resumed(), (ended(), pod(**LATE)), 89, JobStep.RUN),
        (resumed(), (ended(), pod(**LATE)), 91, JobStep.SUSPEND),
        (resumed(), (ended(creationTimestamp="2025-12-31T23:59:59Z"),), 59, JobStep.RESERVE),
    ],
    ids=str,
)
def test_the_turn_of_a_job_follows_from_its_mark_and_its_pods(
    found: Job, pods: tuple[core.Pod, ...], after: float, step: JobStep
) -> None:
    assert judge_turn(found, pods, NOW + after).step is step


@pytest.mark.parametrize(
    ("found", "managed", "wanted"),
    [
        (queued(), True, 1),
        (resumed(), True, 1),
        (job(), False, 1),
        (job(suspend=True), False, 0),
        (job({QUEUED: "false"}, suspend=True), False, 0),
        (job({QUEUED: "true"}), False, 1),
        (job({QUEUED: "true"}, {"kueue.x-k8s.io/queue-name": "q"}, suspend=True), False, 0),
        (job({QUEUED: "false"}, {"kueue.x-k8s.io/queue-name": "q"}), False, 1),
    ],
    ids=[
        "queued",
        "resumed",
        "without a mark",
        "its user's",
        "its user's since it ran",
        "resumed by hand",
        "Kueue's",
        "Kueue's later",
    ],
)
def test_a_job_is_covey_s_to_suspend_only_with_its_mark(found: Job, managed: bool, wanted: int) -> None:  # noqa: FBT001 - a column
    assert (found.is_managed, found.pod_count) == (managed, wanted)


def test_a_job_when_it_is_changed_is_changed_as_it_was_read() -> None:
    patch = resume(queued(), NOW)
    assert patch["metadata"]["resourceVersion"] == "7"
    assert patch["metadata"]["annotations"] == {QUEUED: "false", RESUMED: RESUMED_AT}
    assert patch["spec"] == {"suspend": False}


@pytest.mark.parametrize(
    ("before", "after", "times"),
    [("", 0, 1), (f"{RESUMED_AT} 1", 130, 2), (f"{RESUMED_AT} 3", 190, 4), (f"{RESUMED_AT} 3", 9000, 1)],
    ids=["never", "once", "often", "long ago"],
)
def test_a_job_when_it_is_suspended_again_rests_longer_each_time(before: str, after: float, times: int) -> None:
    found = job({QUEUED: "false", RESUMED: RESUMED_AT, **({GIVEN_UP: before} if before else {})})
    patch = suspend(found, NOW + after)
    assert patch["spec"] == {"suspend": True}
    assert patch["metadata"]["annotations"][QUEUED] == "true"
    assert patch["metadata"]["annotations"][GIVEN_UP].endswith(f" {times}")
