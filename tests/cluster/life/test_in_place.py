"""``update.inPlace: IfPossible`` with everything running: pods that get other images keep their names, nodes and groups.

What a rolebasedgroup or AIBrix promises of it: image-only changes keep UID and node, a change of the environment falls
back to replacement; what is under way counts against the budget; the way an image is spelled does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from builders.manifests import Object
from cluster.conftest import Covey
from cluster.kubelet import Kubelet, runs_its_images
from cluster.serving import AddNodes, Event, Serving, serves, serving, workers
from cluster.workbench import label, name_of, uid_of
from localcluster import eventually
from scheduler_trees import node_of

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")

#: One may be missing, none is added.
NO_SURGE = {"inPlace": "IfPossible", "maxSurge": 0, "maxUnavailable": 1}
SURGE = {"inPlace": "IfPossible"}
SIZES = {"prefill": 2, "decode": 1}


def pair(
    *, prefill: str = "1", decode: str = "1", update: Object = NO_SURGE, decodes: int = 3, **fields: Any
) -> list[Object]:
    """Two replicas of two pods and three of one."""
    found = [workers("prefill", replicas=2, size=2), workers("decode", replicas=decodes)]
    for each, image in zip(found, (prefill, decode), strict=True):
        each["template"]["spec"]["containers"][0]["image"] = image_of(image)
        each.update({"update": update, **fields})
    return found


def image_of(tag: str) -> str:
    return f"registry.test/engine:{tag}"


@pytest.fixture
def kubelet(serving: Serving) -> Iterator[Kubelet]:
    with Kubelet(serving, missing=[image_of("missing")]) as playing:
        yield playing


@pytest.fixture
def ready(serving: Serving, nodes: AddNodes, kubelet: Kubelet) -> Serving:
    """Everything has nodes for what is wanted, and no others."""
    assert kubelet
    nodes(blocks=1, racks=1, nodes=7)
    return serving


def create(serving: Serving, *roles: Object, count: int = 7, **spec: Any) -> list[Object]:
    serving.create(*roles, **spec)
    serving.await_bound(count)
    eventually(lambda: all(map(serves, serving.pods())), 60, "all pods are Ready")
    serving.await_condition("Progressing", "True", "Complete")
    return serving.pods()


def images(pods: Sequence[Object]) -> set[tuple[str, str]]:
    return {(label(pod, "role"), pod["spec"]["containers"][0]["image"].rpartition(":")[2]) for pod in pods}


def identities(pods: Sequence[Object]) -> set[tuple[str, str, str, str]]:
    """Name, UID, node and group of every pod."""
    group = "scheduling.covey.dev/pod-group"
    return {(name_of(pod), uid_of(pod), node_of(pod), pod["metadata"]["labels"][group]) for pod in pods}


def await_updated(serving: Serving, *wanted: tuple[str, str]) -> list[Object]:
    def updated() -> bool:
        pods = serving.pods()
        assert images(pods) == set(wanted), f"{images(pods)}; {serving.states()}"
        assert all(map(runs_its_images, pods))
        assert all(map(serves, pods))
        annotated = [pod for pod in pods if "covey.dev/in-place" in pod["metadata"].get("annotations", {})]
        assert not annotated, f"{len(annotated)} updates are open"
        return True

    eventually(updated, 180, "all pods run the new images")
    serving.await_condition("Progressing", "True", "Complete")
    return serving.pods()


def fewest(before: Sequence[Object], events: Sequence[Event], role: str) -> int:
    """The fewest replicas of a role that served at any moment, all their pods with the images that they shall have."""
    pods = {uid_of(pod): pod for pod in before}
    least = 99
    for kind, pod in [("ADDED", before[0]), *events]:
        pods.pop(uid_of(pod), None)
        if kind != "DELETED":
            pods[uid_of(pod)] = pod
        members: dict[str, list[Object]] = {}
        for each in pods.values():
            if label(each, "role") == role and serves(each) and runs_its_images(each):
                members.setdefault(label(each, "replica"), []).append(each)
        least = min(least, sum(len(found) == SIZES[role] for found in members.values()))
    return least


def test_images_change_in_the_pods_that_run(ready: Serving) -> None:
    before = create(ready, *pair())
    groups = {uid_of(each) for kind in ("PodGroup", "CompositePodGroup", "Workload") for each in ready.owned(kind)}
    with ready.cluster.record(ready.path("Pod")) as recording:
        ready.change({"roles": pair(prefill="2", decode="2")})
        after = await_updated(ready, ("prefill", "2"), ("decode", "2"))
        history = list(recording.events)
    assert identities(after) == identities(before)
    assert {uid_of(pod) for _, pod in history} == {uid_of(pod) for pod in before}, "no pod was added"
    assert fewest(before, history, "prefill") == 1
    assert fewest(before, history, "decode") == 2
    assert groups == {
        uid_of(each) for kind in ("PodGroup", "CompositePodGroup", "Workload") for each in ready.owned(kind)
    }
    assert "3 replicas of decode" not in ready.await_event("UpdatedInPlace")
    status = ready.get("DisaggregatedInference", "llm")["status"]
    assert {each["name"]: (each["updated"], each["restarts"]) for each in status["roles"]} == {
        "prefill": (2, 0),
        "decode": (3, 0),
    }
    assert {label(pod, "revision") for pod in after if label(pod, "role") == "decode"} != {
        label(pod, "revision") for pod in before if label(pod, "role") == "decode"
    }


def test_where_none_may_be_missing_a_surge_replica_serves_meanwhile(ready: Serving, nodes: AddNodes) -> None:
    """And goes when all that was there before serves again."""
    nodes(blocks=1, racks=1, nodes=3)
    before = create(ready, *pair(update=SURGE))
    with ready.cluster.record(ready.path("Pod")) as recording:
        ready.change({"roles": pair(prefill="2", decode="2", update=SURGE)})

        def back() -> bool:
            assert identities(ready.pods()) == identities(before)
            return True

        eventually(lambda: images(ready.pods()) == {("prefill", "2"), ("decode", "2")}, 180, "all have the new images")
        eventually(back, 120, "the pods of before are those that stay")
        await_updated(ready, ("prefill", "2"), ("decode", "2"))
        history = list(recording.events)
    assert fewest(before, history, "prefill") == 2
    assert fewest(before, history, "decode") == 3


def test_any_other_change_replaces_pods(ready: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=3)
    before = create(ready, *pair())
    roles = pair(decode="2")
    roles[1]["template"]["spec"]["containers"][0]["env"] = [{"name": "MORE", "value": "yes"}]
    ready.change({"roles": roles})
    after = await_updated(ready, ("prefill", "1"), ("decode", "2"))
    of = {
        name: {uid_of(pod) for pod in pods if label(pod, "role") == "decode"}
        for name, pods in (("before", before), ("after", after))
    }
    assert not of["before"] & of["after"]
    assert "UpdatedInPlace" not in ready.events()


def test_paused_and_partition_hold_it(ready: Serving) -> None:
    before = create(ready, *pair(), rollout={"paused": True})
    ready.change({"roles": pair(decode="2")})
    ready.await_condition("Progressing", "Unknown", "RolloutPaused")
    assert images(ready.pods()) == {("prefill", "1"), ("decode", "1")}
    kept = {**NO_SURGE, "partition": 2}
    ready.change({"rollout": {"paused": False}, "roles": pair(decode="2", update=kept)})

    def held() -> bool:
        new = {
            label(pod, "replica")
            for pod in ready.pods(role="decode")
            if runs_its_images(pod) and pod["spec"]["containers"][0]["image"] == image_of("2")
        }
        assert new == {"2"}, str(new)
        rollout = ready.get("DisaggregatedInference", "llm")["status"].get("rollout", {})
        assert rollout.get("hold", {}).get("gate") == "Partition", str(rollout)
        return True

    eventually(held, 60, "the partition keeps two")
    ready.change({"roles": pair(decode="2")})
    assert identities(await_updated(ready, ("prefill", "1"), ("decode", "2"))) == identities(before)


def test_an_image_that_cannot_be_pulled_is_got_over_in_place(ready: Serving) -> None:
    before = create(ready, *pair(), rollout={"progressDeadlineSeconds": 5})
    with ready.cluster.record(ready.path("Pod")) as recording:
        ready.change({"roles": pair(decode="missing")})
        assert "1 of decode" in ready.await_condition("Progressing", "False", "ProgressDeadlineExceeded")
        ready.change({"roles": pair(decode="3")})
        after = await_updated(ready, ("prefill", "1"), ("decode", "3"))
        history = list(recording.events)
    assert identities(after) == identities(before)
    assert fewest(before, history, "decode") == 2


def test_a_rollout_that_fails_is_taken_back_in_place(ready: Serving) -> None:
    before = create(ready, *pair(), rollout={"progressDeadlineSeconds": 5, "onFailure": "Rollback"})
    ready.change({"roles": pair(decode="missing")})
    eventually(lambda: images(ready.pods()) == {("prefill", "1"), ("decode", "missing"), ("decode", "1")}, 60)
    eventually(lambda: ready.condition("Progressing")["reason"] == "RolledBack", 60)
    eventually(lambda: all(map(runs_its_images, ready.pods())), 60)
    assert images(ready.pods()) == {("prefill", "1"), ("decode", "1")}
    assert identities(ready.pods()) == identities(before)


def test_an_operator_that_is_killed_goes_on_where_it_was(ready: Serving, covey_to_kill: Covey) -> None:
    """Pods of one replica may be of two revisions then: it is brought to its end and counts as serving after that."""
    before = create(ready, *pair())
    with ready.cluster.record(ready.path("Pod")) as recording:
        ready.change({"roles": pair(prefill="2", decode="2")})
        for pods in (1, 4):
            recording.wait(lambda events, pods=pods: changed(events) >= pods, 60)
            covey_to_kill.operator.kill()
            covey_to_kill.operator.start()
        after = await_updated(ready, ("prefill", "2"), ("decode", "2"))
        history = list(recording.events)
    assert identities(after) == identities(before)
    assert fewest(before, history, "prefill") == 1
    assert fewest(before, history, "decode") == 2


def changed(events: Sequence[Event]) -> int:
    """Pods that have the new image."""
    return len({uid_of(pod) for _, pod in events if pod["spec"]["containers"][0]["image"] == image_of("2")})
