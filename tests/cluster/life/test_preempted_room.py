"""Room that is taken where others are in the way or wait for it too: nobody else goes, and nobody else gets it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from kubernetes.client.exceptions import NotFoundException

from builders.manifests import Object
from cluster.conftest import Covey
from cluster.namespaces import empty_namespace, make_namespace
from cluster.serving import AddNodes, Serving, serving, workers
from cluster.workbench import label, name_of, uid_of, uids
from localcluster import Cluster, eventually
from scheduler_trees import node_of

from .test_preemption import bound, classes, create, of

__all__ = ["classes", "serving"]

pytestmark = pytest.mark.usefixtures("covey")
_GATE = {"readinessGates": [{"conditionType": "covey.dev/serving"}]}


def marked(serving: Serving, **labels: object) -> list[Object]:
    return [
        pod for pod in serving.pods(**labels) if "covey.dev/draining-since" in pod["metadata"].get("annotations", {})
    ]


def await_marked(serving: Serving, count: int, **labels: object) -> list[Object]:
    def there() -> list[Object]:
        found = marked(serving, **labels)
        assert len(found) == count, f"{len(found)} of {count} are marked; {serving.states()}"
        return found

    return eventually(there, 60, f"{count} pods are marked")


def say_idle(serving: Serving, pods: list[Object]) -> None:
    for pod in pods:
        patch = {"metadata": {"annotations": {"covey.dev/in-flight": "0"}}}
        serving.cluster.api("PATCH", serving.path("Pod", name_of(pod)), patch)


def busy(replicas: int, least: int) -> Object:
    """A role of whole nodes, whose requests end when the test says so."""
    return workers("decode", replicas=replicas, minReplicas=least, drainSeconds=3600, spec=_GATE)


def ordinary(serving: Serving, name: str) -> None:
    """A pod without a group that wants a whole node through Covey's kube-scheduler."""
    container = {
        "name": "job",
        "image": "registry.test/job:1",
        "resources": {"limits": {"nvidia.com/gpu": 8, "cpu": "100m"}},
    }
    spec = {"schedulerName": "covey-scheduler", "containers": [container], "terminationGracePeriodSeconds": 0}
    serving.cluster.api("POST", serving.path("Pod"), {"metadata": {"name": name}, "spec": spec})


def test_who_is_not_in_the_way_stays(serving: Serving, nodes: AddNodes, classes: tuple[str, str]) -> None:
    """kueue#10497: one rack has a node of somebody who cannot go, and pods of no interest lie on all nodes."""
    spare, online = classes
    names = nodes(blocks=1, racks=2, nodes=2)
    other = serving.take_room(names[0])
    create(serving, "batch", spare, workers("decode", replicas=3, minReplicas=1))
    serving.await_ready(3, inference="batch")
    router = workers("router", gpus=0, replicas=8, minReplicas=8)
    router["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "60"}}
    create(serving, "router", spare, router)
    kept = serving.await_ready(8, inference="router")
    assert {node_of(pod) for pod in kept} == set(names)
    create(serving, "chat", online, workers("decode", replicas=2, minReplicas=2), topology={"required": "rack"})
    pods = serving.await_bound(2, inference="chat")
    assert {node_of(pod) for pod in pods} == set(names[2:])
    assert bound(serving, "router") == uids(kept)
    assert len(bound(serving, "batch")) == 1
    assert node_of(serving.get("Pod", other)) == names[0]


def test_a_beneficiary_that_goes_half_way_takes_no_more(
    serving: Serving, nodes: AddNodes, classes: tuple[str, str]
) -> None:
    """One of two replicas is gone when the gang is deleted: the other serves on, and a successor of the first one comes."""
    spare, online = classes
    nodes(blocks=1, racks=1, nodes=3)
    create(serving, "batch", spare, busy(3, 1))
    before = uids(serving.await_ready(3, inference="batch"))
    create(serving, "chat", online, workers("decode", replicas=2, minReplicas=2))
    first, second = await_marked(serving, 2, inference="batch")
    say_idle(serving, [first])
    eventually(lambda: uid_of(first) not in uids(serving.all("Pod")), 60, "the first is gone")
    serving.delete("DisaggregatedInference", "chat")
    after = uids(serving.await_ready(3, inference="batch"))
    assert before - after == {uid_of(first)}
    assert uid_of(second) in after
    eventually(
        lambda: not any("covey.dev/draining" in pod["metadata"]["labels"] for pod in of(serving, "batch")),
        60,
        "it serves",
    )


@pytest.fixture
def elsewhere(serving: Serving) -> Iterator[Serving]:
    """A second namespace; a namespace has one claim at a time."""
    other = Serving(serving.cluster, make_namespace(serving.cluster))
    yield other
    for item in other.all("DisaggregatedInference"):
        other.delete("DisaggregatedInference", name_of(item))
    other.await_nothing_left()
    empty_namespace(other.cluster, other.namespace)


def claim_both(serving: Serving, elsewhere: Serving, nodes: AddNodes, classes: tuple[str, str]) -> set[str]:
    """Six nodes are full, and two gangs at once want one and two of them; the UIDs of what is there before."""
    spare, online = classes
    nodes(blocks=1, racks=1, nodes=6)
    create(serving, "batch", spare, busy(6, 1))
    before = uids(serving.await_ready(6, inference="batch"))
    create(serving, "chat", online, workers("decode", replicas=1))
    create(elsewhere, "chat", online, workers("decode", replicas=2, minReplicas=2))
    return before


def test_two_that_take_at_once_take_different_ones(
    serving: Serving, elsewhere: Serving, nodes: AddNodes, classes: tuple[str, str]
) -> None:
    before = claim_both(serving, elsewhere, nodes, classes)
    going = await_marked(serving, 3, inference="batch")
    claims = [each.get("CompositePodGroup", "chat-0")["status"]["claim"] for each in (serving, elsewhere)]
    first, second = ({uid for victim in claim["victims"] for uid in victim["pods"]} for claim in claims)
    assert not first & second
    assert first | second == uids(going)
    # Who comes first in the order may take whatever is free first; so the other's victims go after that.
    say_idle(serving, [pod for pod in going if uids([pod]) <= first])
    serving.await_bound(1, inference="chat")
    say_idle(serving, [pod for pod in going if uids([pod]) <= second])
    elsewhere.await_bound(2, inference="chat")
    assert bound(serving, "batch") == before - uids(going)


def test_two_whose_victims_go_at_once_come_before_the_successors(
    serving: Serving, elsewhere: Serving, nodes: AddNodes, classes: tuple[str, str], covey_to_kill: Covey
) -> None:
    """Who comes first may take a node that was freed for the other, whose room is made up for all the same."""
    # By another claim, of which a minute has six: those of the tests before are not counted by a process that starts.
    covey_to_kill.scheduler.kill()
    covey_to_kill.scheduler.start()
    before = claim_both(serving, elsewhere, nodes, classes)
    say_idle(serving, await_marked(serving, 3, inference="batch"))

    def are_served() -> bool:
        # One that is pardoned, since other room came first, is idle when another claim names it; so are all of before.
        marked = [pod for pod in of(serving, "batch") if "covey.dev/draining" in pod["metadata"]["labels"]]
        with suppress(NotFoundException):
            say_idle(serving, [pod for pod in marked if uid_of(pod) in before])
        return len(bound(serving, "chat")) == 1 and len(bound(elsewhere, "chat")) == 2

    eventually(are_served, 120, "both have their nodes")
    # A node that was freed for nobody in the end is a successor's a moment later.
    eventually(lambda: len(bound(serving, "batch")) == 3, 60, "the other nodes are batch's")


def begin(serving: Serving, nodes: AddNodes, classes: tuple[str, str]) -> set[str]:
    """Three nodes are full, a gang waits for two of them, and a gang and a pod that want one each wait as well.

    The UIDs of what is there before.
    """
    spare, online = classes
    nodes(blocks=1, racks=1, nodes=3)
    create(serving, "batch", spare, busy(3, 1))
    before = uids(serving.await_ready(3, inference="batch"))
    patient = {"delaySeconds": 3600, "minRunSeconds": 0}
    create(serving, "thief", spare, workers("decode", replicas=1), preemption=patient)
    ordinary(serving, "passer-by")
    eventually(lambda: _admitted(serving, "thief-0").get("status") == "False", 60, "thief waits")
    create(serving, "chat", online, workers("decode", replicas=2, minReplicas=2))
    return before


def _admitted(serving: Serving, root: str) -> Object:
    found = serving.get("CompositePodGroup", root).get("status", {}).get("conditions", ())
    return next((each for each in found if each["type"] == "Admitted"), {})


def thefts(serving: Serving) -> list[str]:
    """Names of those that have got a node before chat."""
    return [name_of(pod) for pod in [*of(serving, "thief"), serving.get("Pod", "passer-by")] if node_of(pod)]


def test_nobody_else_gets_what_a_claim_frees(serving: Serving, nodes: AddNodes, classes: tuple[str, str]) -> None:
    before = begin(serving, nodes, classes)
    for going in await_marked(serving, 2, inference="batch"):
        assert not thefts(serving)
        say_idle(serving, [going])
        eventually(lambda pod=going: uid_of(pod) not in uids(serving.all("Pod")), 60, "it is gone")
    serving.await_bound(2, inference="chat")
    assert not thefts(serving)
    assert len(bound(serving, "batch") & before) == 1


def test_somebody_else_gets_what_is_freed_without_a_claim(
    cluster: Cluster, serving: Serving, nodes: AddNodes, classes: tuple[str, str], covey_to_kill: Covey
) -> None:
    """The same by hand, as an administrator would do it: this is how many thefts the claim prevents."""
    covey_to_kill.scheduler.kill()
    try:
        address = f"--bind-address={urlsplit(covey_to_kill.scheduler.url).netloc}"  # where kube-scheduler asks
        without = ("--max-preemptions-per-minute=0", "--max-reservations=0", address)
        cluster.start_covey("scheduler", *without, name="covey-without")
        before = begin(serving, nodes, classes)
        serving.change({"roles": [busy(1, 1)]}, "batch")
        # One after the other: two nodes that come free at once are enough for chat, which is first in the order.
        for number, going in enumerate(await_marked(serving, 2, inference="batch"), start=1):
            say_idle(serving, [going])
            eventually(lambda number=number: len(thefts(serving)) == number, 60, "the node is taken")
        assert not bound(serving, "chat")
        assert len(bound(serving, "batch") & before) == 1
    finally:
        cluster.forget("covey-without")


def test_all_that_is_killed_before_each_deletion(
    cluster: Cluster, serving: Serving, nodes: AddNodes, classes: tuple[str, str], covey_to_kill: Covey
) -> None:
    """Operator, scheduler process, kube-scheduler and API server, between the claim and every deletion (L5)."""
    spare, online = classes
    nodes(blocks=1, racks=1, nodes=4)
    create(serving, "batch", spare, busy(4, 1))
    before = uids(serving.await_ready(4, inference="batch"))
    create(serving, "chat", online, workers("decode", replicas=3, minReplicas=3))
    claim = eventually(lambda: serving.get("CompositePodGroup", "chat-0")["status"].get("claim"), 60, "it is written")
    named = {uid for victim in claim["victims"] for uid in victim["pods"]}
    assert len(named) == 3
    for left in (3, 2, 1):
        for process in (covey_to_kill.operator, covey_to_kill.scheduler, covey_to_kill.kube_scheduler):
            process.kill()
        cluster.processes["kube-apiserver"].restart(kill=True)
        for process in (covey_to_kill.operator, covey_to_kill.scheduler, covey_to_kill.kube_scheduler):
            process.start()
        going = await_marked(serving, left, inference="batch")
        assert uids(going) <= named
        assert {label(pod, "inference") for pod in going} == {"batch"}
        say_idle(serving, going[:1])
        eventually(lambda pod=going[0]: uid_of(pod) not in uids(serving.all("Pod")), 60, "it is gone")
    serving.await_bound(3, inference="chat")
    assert before - uids(of(serving, "batch")) == named
