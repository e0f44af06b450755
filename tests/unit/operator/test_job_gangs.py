"""The groups of a labelled Job, and the end of a pod that has lost its place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from covey.api import core
from covey.backends import Owned
from covey.kube.client import Client
from covey.kube.clock import SYSTEM
from covey.kube.connection import Connection
from covey.kube.errors import AlreadyExists, ApiError, Forbidden, Retryable
from covey.kube.events import EventRecorder, ObjectRef
from covey.kube.kubeconfig_guards import Configuration
from covey.kube.resources import POD_GROUPS, WORKLOADS
from covey.operator.execute.jobs import JobGroups, LeaderGroups
from covey.operator.model.job import Job, disruption, group_patch, has_lost_place, make_groups, make_leader_group
from covey.operator.process.jobs import JobGangs, LeaderWorkerSets, LostPlaces

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


@pytest.mark.parametrize(
    ("found", "wanted", "minimum"),
    [
        (job(), 4, 4),
        (job("3"), 4, 3),
        (job("9"), 4, 4),
        (job("0"), 4, 4),
        (job(completions=None), 4, 4),
        (job(completions=9), 4, 4),
        (job(completions=9, status={"succeeded": 7}), 2, 2),
        (job("3", completions=9, status={"succeeded": 7}), 2, 2),
        (job(completions=9, status={"succeeded": 2, "failedIndexes": "0,3-5"}), 3, 3),
        (job(completions=4, status={"succeeded": 1, "failedIndexes": "1-3"}), 0, 0),
        (job(completions=4, status={"failedIndexes": "x," + "9" * 5000}), 0, 0),
        (job(parallelism=0), 0, 0),
        (job(suspend=True), 0, 0),
        (job(group="other"), 0, 0),
        (job(status={"conditions": [{"type": "Complete", "status": "True"}]}), 0, 0),
        (job(status={"conditions": [{"type": "Failed", "status": "True"}]}), 0, 0),
    ],
)
def test_a_gang_is_as_large_as_the_pods_that_the_job_controller_makes(found: Job, wanted: int, minimum: int) -> None:
    assert (found.pod_count, found.minimum) == (wanted, minimum)


def test_a_gang_follows_its_job_until_it_is_bound() -> None:
    assert group_patch(job(), stored(), []) == {}
    patch = group_patch(job(parallelism=2), stored(), [])
    assert patch == {"desiredCount": 2, "schedulingPolicy": {"gang": {"minCount": 2}, "basic": None}}


@pytest.mark.parametrize(
    ("member", "turns"),
    [
        (pod("2026-01-01T00:00:10Z"), True),
        (pod("2026-01-01T00:00:11Z"), True),
        (pod("2026-01-01T00:00:09Z"), False),
        (pod("2026-01-01T00:00:11Z", owner="namesake"), False),
        (pod(), False),
    ],
    ids=["at once", "later", "of the group before a suspension", "of another Job", "not bound"],
)
def test_once_bound_later_pods_wait_for_nobody(member: core.Pod, turns: bool) -> None:  # noqa: FBT001 - a column
    patch = group_patch(job(), stored(), [member])
    assert (patch == {"desiredCount": None, "schedulingPolicy": {"gang": None, "basic": {}}}) is turns
    assert bool(patch) is turns


def test_what_has_started_is_no_gang_again() -> None:
    assert group_patch(job(), stored({"schedulingPolicy": {"basic": {}}}), []) == {}


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


def test_a_job_whose_group_is_denied_says_so_and_is_not_tried_again_at_once() -> None:
    told: list[tuple[str, str]] = []

    class Denying:
        async def create(self, *_: object, **__: object) -> None:
            raise Forbidden(403, "Forbidden", "exceeded quota: groups")

    class Recorder:
        def event(self, about: ObjectRef, _kind: str, reason: str, note: str, _action: str) -> None:
            assert (about.kind, about.name) == ("Job", "train")
            told.append((reason, note))

    def nothing(_: object) -> None:
        return None

    groups = JobGroups(
        cast("Client", Denying()),
        cast("EventRecorder", Recorder()),
        lambda _: job(),
        {WORKLOADS: nothing, POD_GROUPS: nothing},
        lambda _: (),
    )
    with pytest.raises(Retryable) as raised:
        asyncio.run(groups(("ml", "train")))
    assert raised.value.delay == 30
    assert [reason for reason, _ in told] == ["RequestRefused"]
    assert "exceeded quota: groups" in told[0][1]


async def make_gangs() -> JobGangs:
    return JobGangs(Client(Connection(Configuration(host="http://127.0.0.1:9")), user_agent="test"), (), clock=SYSTEM)


def test_a_process_that_waits_to_lead_gathers_no_names() -> None:
    """CronJobs have a new one each time, and it may wait for months."""

    async def run() -> None:
        gangs = await make_gangs()
        (jobs,), (pods,) = gangs._found.jobs.reflectors, gangs._found.pods.reflectors
        released = {"annotations": {"scheduling.covey.dev/release": "Timeout"}}
        for number in range(100):
            one = msgspec.convert({"metadata": {"name": f"train-{number}", "namespace": "ml"}}, Job)
            jobs._take("ADDED", one)
            jobs._take("DELETED", one)
            lost = pod(**{**released, "name": f"train-{number}-x"})
            pods._take("ADDED", lost)
            pods._take("DELETED", lost)
        jobs._take("ADDED", job())
        pods._take("ADDED", pod(**released))
        assert (len(gangs._jobs), len(gangs._pods)) == (0, 0)
        for each in gangs._found.reflectors:
            each.synced.set()
        working = asyncio.create_task(gangs.work(cast("Client", None), cast("EventRecorder", None)))
        # Its first step ends where the workers are about to begin.
        await asyncio.sleep(0)
        assert (len(gangs._jobs), len(gangs._pods)) == (1, 1)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    asyncio.run(run())


def test_jobs_that_may_not_be_listed_end_no_process() -> None:
    """The rights may be missing: gangs of Jobs are not all that the operator is there for."""

    async def run() -> None:
        gangs = await make_gangs()
        reflectors = gangs._found.reflectors
        for each in reflectors:
            each.last_contact -= 3600
        assert gangs.is_alive()
        for each in reflectors:
            each.synced.set()
        assert not gangs.is_alive()

    asyncio.run(run())


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
        cast("Client", Denying()), cast("EventRecorder", Recorder()), lambda _: leader(), lambda _: None
    )
    with pytest.raises(Retryable):
        asyncio.run(made(("ns", "llm-0")))
    assert told == ([said] if said else [])


@pytest.mark.parametrize("make", [LeaderWorkerSets, LostPlaces.of_native_groups])
def test_pods_that_could_not_be_listed_yet_end_no_process(make: Callable[..., LeaderWorkerSets | LostPlaces]) -> None:
    """As of Jobs: an API server that is away when the operator begins would have it begin again and again."""

    async def run() -> None:
        found = make(Client(Connection(Configuration(host="http://127.0.0.1:9")), user_agent="test"), (), clock=SYSTEM)
        reflectors = [*found._pods.reflectors, *(found._groups.reflectors if hasattr(found, "_groups") else ())]
        for each in reflectors:
            each.last_contact -= 3600
        assert found.is_alive()
        for each in reflectors:
            each.synced.set()
        assert not found.is_alive()

    asyncio.run(run())


def test_a_leader_s_group_is_its_own_and_has_the_size_of_all() -> None:
    group = make_leader_group(leader())
    assert group is not None
    assert group["metadata"]["ownerReferences"][0] | {"apiVersion": "v1"} == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "llm-0",
        "uid": "u",
        "controller": True,
    }
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
    assert (group["spec"]["desiredCount"], group["spec"]["membership"]) == (3, "Namespace")


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


def test_pods_of_stateful_sets_and_native_groups_are_replaced_too() -> None:
    released = {"annotations": {"scheduling.covey.dev/release": "Timeout"}}
    owner = {"kind": "StatefulSet", "name": "llm", "uid": "x", "controller": True}
    assert has_lost_place(pod(**released, ownerReferences=[owner]))
    assert not has_lost_place(pod(**released, ownerReferences=[owner], labels={}))
    lost = pod(**released, ownerReferences=[{**owner, "kind": "Anything"}])
    assert not has_lost_place(lost)
    spec = msgspec.structs.replace(lost.spec, scheduling_group={"podGroupName": "g"})
    assert has_lost_place(msgspec.structs.replace(lost, spec=spec))
    alone = msgspec.structs.replace(lost, spec=spec, metadata=pod(**released, ownerReferences=[]).metadata)
    assert not has_lost_place(alone)
    ours = pod(**released, ownerReferences=[{**owner, "kind": "DisaggregatedInference"}]).metadata
    assert not has_lost_place(msgspec.structs.replace(lost, spec=spec, metadata=ours))
