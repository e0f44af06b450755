"""The terms of a rollout with everything running: budgets, gates, deadlines, and what happens while it waits."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from builders.manifests import Object
from cluster.router import Router, asks
from cluster.serving import AddNodes, Serving, fewest_serving, serves, serving, workers
from cluster.workbench import label, name_of, uid_of, uids
from localcluster import eventually

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")


@pytest.fixture
def router(serving: Serving) -> Iterator[Router]:
    with Router(serving) as running:
        yield running


def decode(image: str = "1", replicas: int = 3, **fields: Any) -> Object:
    made = workers("decode", replicas=replicas, **fields)
    made["template"]["spec"]["containers"][0]["image"] = f"registry.test/engine:{image}"
    return made


def prefill(**fields: Any) -> Object:
    return workers("prefill", replicas=2, size=2, **fields)


def start(serving: Serving, *roles: Object, count: int, **spec: Any) -> list[Object]:
    serving.create(*roles, **spec)
    serving.await_bound(count)
    eventually(lambda: all(map(serves, serving.pods())), 60, "all pods are Ready")
    serving.await_condition("Progressing", "True", "Complete")
    return serving.pods()


def images(pods: Sequence[Object]) -> Counter[str]:
    return Counter(pod["spec"]["containers"][0]["image"].rpartition(":")[2] for pod in pods)


def hold_of(serving: Serving) -> Object:
    found = serving.get("DisaggregatedInference", "llm")["status"].get("rollout", {})
    assert "hold" in found, str(found)
    return dict(found["hold"])


def await_hold(serving: Serving, gate: str) -> Object:
    def held() -> Object:
        hold = hold_of(serving)
        assert hold["gate"] == gate, str(hold)
        return hold

    return eventually(held, 60, f"it waits at {gate}")


def of(serving: Serving, image: str) -> list[Object]:
    """Live decode pods with an image."""
    return [pod for pod in serving.pods(role="decode") if images([pod])[image]]


def ready_of(serving: Serving) -> int:
    roles = serving.get("DisaggregatedInference", "llm")["status"]["roles"]
    return next(each["ready"] for each in roles if each["name"] == "decode")


def test_nothing_goes_before_the_router_has_said_that_the_new_serve(
    serving: Serving, nodes: AddNodes, router: Router
) -> None:
    nodes(blocks=1, racks=1, nodes=9)
    before = start(serving, prefill(), decode(), count=7)
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.change({"roles": [prefill(), asks(decode("2"))]})
        hold = await_hold(serving, "Readiness")
        assert "1 of decode" in hold["message"]
        time.sleep(2)
        assert images(serving.pods(role="decode")) == {"1": 3, "2": 1}
        assert hold_of(serving) == hold, "since when does not move"
        for _ in range(3):
            (asking,) = eventually(
                lambda: [pod for pod in of(serving, "2") if not serves(pod) and pod["spec"].get("nodeName")], 60
            )
            router.allow([asking])
            eventually(lambda pod=asking: serves(serving.get("Pod", name_of(pod))), 60, "it serves")
        serving.await_condition("Progressing", "True", "Complete")
        history = list(recording.events)
    assert images(serving.pods(role="decode")) == {"2": 3}
    assert fewest_serving(before, history, "decode", 1) == 3


def test_a_replica_that_the_router_takes_out_does_not_serve(serving: Serving, nodes: AddNodes, router: Router) -> None:
    """The kubelet, here kwok, has not heard of it: its word is not waited for."""
    nodes(blocks=1, racks=1, nodes=8)
    serving.create(prefill(), asks(decode()))
    serving.await_bound(7)
    router.allow(serving.pods(role="decode"))
    eventually(lambda: ready_of(serving) == 3, 60, "all serve")
    out = serving.pods(role="decode")[0]
    router.say(out, serves=False)
    eventually(lambda: ready_of(serving) == 2, 60, "one does not")
    assert serves(serving.get("Pod", name_of(out))), "to the kubelet it is Ready"
    # One is missing already, and none may be: what serves is left alone until the new ones do.
    serving.change({"roles": [prefill(), asks(decode("2"))]})
    await_hold(serving, "Readiness")
    assert len(of(serving, "1")) == 3
    router.say(out, serves=True)
    eventually(lambda: ready_of(serving) >= 3, 60, "it serves again")


def test_percentages_are_of_the_replicas_that_are_wanted(serving: Serving, nodes: AddNodes) -> None:
    """Surge is rounded up, what may be missing down: 2 and 1 of 4."""
    nodes(blocks=1, racks=1, nodes=12)
    update = {"maxSurge": "30%", "maxUnavailable": "45%"}
    before = start(serving, prefill(), decode(replicas=4, update=update), count=8)
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.change({"roles": [prefill(), decode("2", replicas=4, update=update)]})
        eventually(lambda: images(serving.pods(role="decode")) == {"2": 4}, 120)
        serving.await_condition("Progressing", "True", "Complete")
        history = list(recording.events)
    assert fewest_serving(before, history, "decode", 1) >= 3
    live: dict[str, Object] = {uid_of(pod): pod for pod in before}
    most = 0
    for kind, pod in history:
        live.pop(uid_of(pod), None)
        if kind != "DELETED" and not pod["metadata"].get("deletionTimestamp"):
            live[uid_of(pod)] = pod
        most = max(most, sum(label(each, "role") == "decode" for each in live.values()))
    assert most == 6


def test_a_change_of_the_leaders_template_replaces_that_role_only(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=10)
    roles = [prefill(), decode()]
    before = start(serving, *roles, count=7)
    leader = decode("leader")["template"]
    serving.change({"roles": [prefill(leaderTemplate=leader), decode()]})

    def rolled() -> bool:
        told = Counter((label(pod, "index"), *images([pod])) for pod in serving.pods(role="prefill"))
        assert told == {("0", "leader"): 2, ("1", "1"): 2}, str(told)
        return all(map(serves, serving.pods()))

    eventually(rolled, 120, "leaders are of the other template")
    serving.await_condition("Progressing", "True", "Complete")
    after = serving.pods()
    assert uids([pod for pod in after if label(pod, "role") == "decode"]) == uids(
        [pod for pod in before if label(pod, "role") == "decode"]
    )
    assert not uids([pod for pod in after if label(pod, "role") == "prefill"]) & uids(before)


def test_a_partition_keeps_so_many_and_is_complete(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=8)
    before = start(serving, prefill(), decode(), count=7)
    serving.change({"roles": [prefill(), decode("2", update={"partition": 2})]})
    await_hold(serving, "Partition")
    eventually(lambda: images(serving.pods(role="decode")) == {"1": 2, "2": 1}, 60)
    kept = of(serving, "1")
    assert uids(kept) <= uids(before)
    assert {label(pod, "replica") for pod in kept} == {"0", "1"}
    said = "partitioned roll out complete: 1 of 3 replicas of decode (partition 2) are of revision "
    eventually(lambda: serving.await_condition("Progressing", "True", "Complete").startswith(said), 60, said)
    serving.change({"roles": [prefill(), decode("2")]})
    eventually(lambda: images(serving.pods(role="decode")) == {"2": 3}, 120)


def test_after_the_deadline_it_stands_still_until_somebody_says_something_else(
    serving: Serving, nodes: AddNodes, router: Router
) -> None:
    assert router
    nodes(blocks=1, racks=1, nodes=9)
    before = start(serving, prefill(), decode(), count=7, rollout={"progressDeadlineSeconds": 4})
    serving.change({"roles": [prefill(), asks(decode("2"))]})
    said = serving.await_condition("Progressing", "False", "ProgressDeadlineExceeded")
    assert "no progress for 4 s" in said
    assert hold_of(serving)["gate"] == "Failed"
    assert uids(of(serving, "1")) <= uids(before)
    assert images(serving.pods(role="decode")) == {"1": 3, "2": 1}
    serving.change({"roles": [prefill(), decode("3")]})
    eventually(lambda: images(serving.pods(role="decode")) == {"3": 3}, 120)
    serving.await_condition("Progressing", "True", "Complete")


def test_a_failed_rollout_is_taken_back_where_that_is_asked_for(
    serving: Serving, nodes: AddNodes, router: Router
) -> None:
    assert router
    nodes(blocks=1, racks=1, nodes=9)
    terms = {"progressDeadlineSeconds": 4, "onFailure": "Rollback"}
    before = start(serving, prefill(), decode(), count=7, rollout=terms)
    serving.change({"roles": [prefill(), asks(decode("2"))]})
    serving.await_condition("Progressing", "False", "RolledBack")
    eventually(lambda: uids(serving.pods()) == uids(before), 60, "what served is what is there")
    records = serving.cluster.api("GET", f"/apis/apps/v1/namespaces/{serving.namespace}/controllerrevisions")["items"]
    marks = [each["metadata"].get("annotations") or {} for each in sorted(records, key=lambda each: each["revision"])]
    assert {key for each in marks for key in each} == {"covey.dev/completed", "covey.dev/failed"}
    assert not any(len(each) > 1 for each in marks), "what was complete has not failed"


def test_what_is_lost_in_the_middle_comes_back_as_it_was(serving: Serving, nodes: AddNodes, router: Router) -> None:
    """An old replica as an old one, a new one as a new one; and scaling goes on."""
    nodes(blocks=1, racks=1, nodes=10)
    start(serving, prefill(), decode(), count=7)
    serving.change({"roles": [prefill(), asks(decode("2"))]})
    await_hold(serving, "Readiness")
    lost = {image: of(serving, image)[0] for image in ("1", "2")}
    for pod in lost.values():
        serving.cluster.api("DELETE", f"{serving.path('Pod', name_of(pod))}?gracePeriodSeconds=0")

    def back() -> bool:
        pods = serving.pods(role="decode")
        assert images(pods) == {"1": 3, "2": 1}, str(images(pods))
        assert not uids(pods) & uids(list(lost.values()))
        places = {label(pod, "replica"): label(pod, "revision") for pod in pods}
        assert all(places[label(pod, "replica")] == label(pod, "revision") for pod in lost.values())
        return all(pod["spec"].get("nodeName") for pod in pods)

    eventually(back, 60, "both are back as they were")
    serving.change({"roles": [prefill(), asks(decode("2", replicas=4))]})
    eventually(lambda: len(serving.pods(role="decode")) == 5, 60, "it grows meanwhile")

    def served() -> bool:
        router.allow(of(serving, "2"))
        return images(serving.pods(role="decode")) == {"2": 4}

    eventually(served, 120, "all are new in the end")


def test_the_first_of_a_revision_come_together_or_not_at_all(serving: Serving, nodes: AddNodes) -> None:
    """There is room for one more prefill replica, and none for a decode replica beside it; no old one may be missing."""
    kept = {"update": {"maxUnavailable": 0}}
    nodes(blocks=1, racks=1, nodes=9)
    before = start(serving, prefill(**kept), decode(**kept), count=7)
    new_prefill = prefill(**kept)
    new_prefill["template"]["spec"]["containers"][0]["image"] = "registry.test/engine:2"
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.change({"roles": [new_prefill, decode("2", **kept)]})
        hold = await_hold(serving, "Room")
        assert "1 of prefill, 1 of decode" in hold["message"]
        time.sleep(5)
        assert not [pod for pod in serving.bound() if images([pod])["2"]], "half of a revision"
        nodes(blocks=1, racks=1, nodes=1)
        eventually(lambda: images(serving.pods()) == {"2": 7}, 180)
        serving.await_condition("Progressing", "True", "Complete")
        history = list(recording.events)
    for role, size, count in (("prefill", 2, 2), ("decode", 1, 3)):
        assert fewest_serving(before, history, role, size) == count
