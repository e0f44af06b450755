"""The groups of a labelled Job, and the end of a pod that has lost its place."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from covey.api import core
from covey.backends import Owned
from covey.kube.client import Client
from covey.kube.errors import AlreadyExists, ApiError, Forbidden, Retryable
from covey.kube.event_series import ObjectRef
from covey.kube.events import EventRecorder
from covey.operator.model.job import Job, disruption, group_patch, has_lost_place, make_groups, make_leader_group
from covey.operator.process.job_groups import LeaderGroups

NAME = "scheduling.covey.dev/pod-group"


def job(label: str = "true", *, group: str = "train", status: dict[str, Any] | None = None, **spec: Any) -> Job:
    metadata = {"name": "train", "namespace": "ml", "uid": "job", "labels": {"covey.dev/gang": label}}
    body = {"parallelism": 4, "completions": 4, "template": {"metadata": {"labels": {NAME: group}}}, **spec}
    return msgspec.convert({"metadata": metadata, "spec": body, "status": status or {}}, Job)


def stored(spec: dict[str, Any] | None = None, created: str = "2026-01-01T00:00:10Z") -> Owned:
    """A PodGroup as it was made for the Job."""
    metadata = {"name": "train", "namespace": "ml", "creationTimestamp": created}
    return msgspec.convert({"metadata": metadata, "spec": spec or make_groups(job())[1]["spec"]}, Owned)


def pod(bound: str | None = None, *, owner: str = "job", **metadata: Any) -> core.Pod:
    """A pod of the Job's; ``bound`` is when it got its node."""
    meta = {
        "name": "train-x",
        "namespace": "ml",
        "uid": "pod",
        "creationTimestamp": "2026-01-01T00:00:05Z",
        "labels": {NAME: "train"},
        "ownerReferences": [{"kind": "Job", "name": "train", "uid": owner, "controller": True}],
        **metadata,
    }
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": bound}] if bound else []
    spec = {"containers": [], **({"nodeName": "n1"} if bound else {})}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"conditions": conditions}}, core.Pod)


def test_the_group_of_a_job_when_a_former_release_has_made_it_basic_is_a_gang() -> None:
    """That was what it became when the Job first ran; what it is now is read from its pods."""
    assert group_patch(job(), stored()) == {}
    patch = group_patch(job(parallelism=2), stored({"schedulingPolicy": {"basic": {}}}))
    assert patch == {"spec": {"desiredCount": 2, "schedulingPolicy": {"gang": {"minCount": 2}, "basic": None}}}


def test_only_pods_of_jobs_that_were_released_and_have_no_node_are_replaced() -> None:
    released = {"annotations": {"scheduling.covey.dev/release": "Timeout"}}
    assert has_lost_place(pod(**released))
    assert not has_lost_place(pod())
    assert not has_lost_place(pod("2026-01-01T00:00:10Z", **released))
    assert not has_lost_place(pod(**released, deletionTimestamp="2026-01-01T00:00:10Z"))
    other = [{"kind": "DisaggregatedInference", "name": "llm", "uid": "x", "controller": True}]
    assert not has_lost_place(pod(**released, ownerReferences=other))


def test_a_lost_place_is_a_disruption_and_was_never_ready() -> None:
    status = disruption(pod(annotations={"scheduling.covey.dev/release": "Timeout"}), 1_767_225_660.0)
    assert status["phase"] == "Failed"
    found = {each["type"]: (each["status"], each["lastTransitionTime"]) for each in status["conditions"]}
    assert found == {
        "DisruptionTarget": ("True", "2026-01-01T00:01:00Z"),
        "Ready": ("False", "2026-01-01T00:00:05Z"),
    }


def leader(size: str = "3", name: str = "llm-0", **more: Any) -> core.Pod:
    labels = {"scheduling.covey.dev/pod-group": "llm-0", "leaderworkerset.sigs.k8s.io/worker-index": "0"}
    annotations = {"leaderworkerset.sigs.k8s.io/size": size}
    metadata = {"name": name, "namespace": "ns", "uid": "u", "labels": labels, "annotations": annotations, **more}
    return msgspec.convert({"metadata": metadata}, core.Pod)


@pytest.mark.parametrize(
    ("answer", "owner", "said"),
    [
        (Forbidden(403, "Forbidden", "exceeded quota: groups"), None, "RequestRefused"),
        (AlreadyExists(409, "AlreadyExists", "x"), None, "NameTaken"),
        (AlreadyExists(409, "AlreadyExists", "x"), {"kind": "Job", "name": "llm-0"}, "NameTaken"),
        (AlreadyExists(409, "AlreadyExists", "x"), {"kind": "Pod", "name": "llm-0"}, None),
    ],
    ids=["denied", "nobody's", "a Job's", "its predecessor's, which goes"],
)
def test_a_leader_without_its_group_says_why(answer: ApiError, owner: dict[str, Any] | None, said: str | None) -> None:
    told: list[str] = []

    class Denying:
        async def create(self, *_: object, **__: object) -> None:
            raise answer

        async def get(self, *_: object, **__: object) -> Owned:
            owners = [{**owner, "uid": "other", "controller": True}] if owner else []
            return msgspec.convert({"metadata": {"name": "llm-0", "ownerReferences": owners}}, Owned)

    class Recorder:
        def event(self, about: ObjectRef, _kind: str, reason: str, _note: str, _action: str) -> None:
            assert (about.kind, about.name, about.uid) == ("Pod", "llm-0", "u")
            told.append(reason)

    made = LeaderGroups(
        cast("Client", Denying()),
        cast("EventRecorder", Recorder()),
        lambda _: leader(),
        lambda _: None,
        lambda _: None,
    )
    with pytest.raises(Retryable):
        asyncio.run(made(("ns", "llm-0")))
    assert told == ([said] if said else [])


@pytest.mark.parametrize(
    "pod",
    [
        leader("0"),
        leader("-1"),
        leader("many"),
        leader(name="another"),
        leader(deletionTimestamp="2026-01-01T00:00:00Z"),
    ],
    ids=["no size", "negative", "no number", "of another group", "going"],
)
def test_a_leader_that_has_none_gets_no_group(pod: core.Pod) -> None:
    assert make_leader_group(pod) is None
