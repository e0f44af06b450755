"""Quota that comes back to whom it belongs, with everything running: what is borrowed gives way, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from builders.manifests import Object
from cluster.conftest import Covey
from cluster.serving import AddNodes, Serving, serving, workers
from cluster.workbench import uid_of, uids
from localcluster import Cluster, eventually
from scheduler_trees import node_of

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")

QUEUES = "/apis/scheduling.covey.dev/v1alpha1/queues"
API = "scheduling.covey.dev/v1alpha1"
AT_ONCE = {"delaySeconds": 0, "minRunSeconds": 0}
#: Seconds in which claims are followed several times.
REST = 15.0
MakeQueue = Callable[..., str]


@pytest.fixture
def queues(cluster: Cluster, serving: Serving) -> Iterator[MakeQueue]:
    """Makes Queues of one cohort for the namespace, in devices."""
    selector = {"matchLabels": {"kubernetes.io/metadata.name": serving.namespace}}
    made: list[str] = []

    def make(name: str, nominal: int, **spec: Any) -> str:
        flavors = [{"resources": [{"name": "nvidia.com/gpu", "nominal": nominal}]}]
        body = {"namespaces": {"selector": selector}, "cohort": "reclaim", "flavors": flavors, **spec}
        cluster.api("POST", QUEUES, {"apiVersion": API, "kind": "Queue", "metadata": {"name": name}, "spec": body})
        made.append(name)
        return name

    yield make
    for name in made:
        cluster.api("DELETE", f"{QUEUES}/{name}")


def create(serving: Serving, name: str, queue: str, *roles: Object, **spec: Any) -> None:
    serving.create(*roles, name=name, **{"queue": queue, "preemption": AT_ONCE, **spec})


def bound(serving: Serving, name: str) -> set[str]:
    """UIDs of its pods that have nodes."""
    return {uid_of(pod) for pod in serving.pods(inference=name) if node_of(pod)}


def test_surplus_that_is_borrowed_gives_way_exactly_as_much_as_is_needed(
    serving: Serving, nodes: AddNodes, queues: MakeQueue
) -> None:
    """The nodes are idle, so that it is the quota alone that comes back; the condition of both sides says so."""
    mine, other = queues("search", 32), queues("batch", 32)
    nodes(blocks=1, racks=1, nodes=12)
    create(serving, "borrower", other, workers("decode", replicas=8, minReplicas=2))
    before = uids(serving.await_ready(8, inference="borrower"))
    create(serving, "owner", mine, workers("decode", replicas=2, minReplicas=2))
    serving.await_bound(2, inference="owner")
    eventually(lambda: len(serving.pods(inference="borrower")) == 8, 60, "the successors are there")
    assert len(bound(serving, "borrower") & before) == 6
    assert "gave way" in serving.await_condition("Preempted", "True", "Reclaim", "borrower")
    eventually(lambda: "claim" not in serving.get("CompositePodGroup", "owner-0")["status"], 30, "the claim has ended")
    assert len(bound(serving, "borrower")) == 6  # they do not borrow it again
    serving.delete("DisaggregatedInference", "owner")
    serving.await_bound(8, inference="borrower")


def test_room_that_is_borrowed_comes_back_too(serving: Serving, nodes: AddNodes, queues: MakeQueue) -> None:
    """There is quota for both, and not enough nodes."""
    mine, other = queues("search", 32), queues("batch", 16)
    queues("idle", 32)
    nodes(blocks=1, racks=1, nodes=4)
    create(serving, "borrower", other, workers("decode", replicas=4, minReplicas=1))
    before = uids(serving.await_ready(4, inference="borrower"))
    create(serving, "owner", mine, workers("decode", replicas=1))
    serving.await_bound(1, inference="owner")
    assert len(bound(serving, "borrower") & before) == 3


def test_two_queues_that_reclaim_from_each_other_end_at_rest(
    serving: Serving, nodes: AddNodes, queues: MakeQueue
) -> None:
    """C7: each has borrowed, and then each wants its own back; afterwards nobody goes any more."""
    one, two = queues("one", 32), queues("two", 32)
    nodes(blocks=1, racks=1, nodes=8)
    create(serving, "first", one, workers("decode", replicas=8, minReplicas=1))
    serving.await_ready(8, inference="first")
    create(serving, "second", two, workers("decode", replicas=7, minReplicas=3))
    eventually(lambda: len(bound(serving, "second")) >= 3, 120, "the minimum of the second has its places")
    create(serving, "third", one, workers("decode", replicas=3, minReplicas=3))
    serving.await_bound(3, inference="third")
    create(serving, "fourth", two, workers("decode", replicas=1))
    serving.await_bound(1, inference="fourth")

    def place_uids() -> list[set[str]]:
        return [bound(serving, name) for name in ("first", "second", "third", "fourth")]

    seen: list[tuple[float, list[set[str]]]] = [(time.monotonic(), place_uids())]

    def rests() -> bool:
        now = place_uids()
        if now != seen[-1][1]:
            seen.append((time.monotonic(), now))
        return time.monotonic() - seen[-1][0] > REST

    eventually(rests, 180, "nobody goes any more")
    first, second, third, fourth = seen[-1][1]
    assert (len(first), len(second), len(third), len(fourth)) == (1, 3, 3, 1)


def test_a_nominal_below_what_is_used_evicts_nobody(
    serving: Serving, nodes: AddNodes, queues: MakeQueue, cluster: Cluster
) -> None:
    """C6; its owner's minimum takes back only what is borrowed since."""
    queues("search", 16)
    other = queues("batch", 32)
    nodes(blocks=1, racks=1, nodes=6)
    create(serving, "borrower", other, workers("decode", replicas=4, minReplicas=2))
    before = uids(serving.await_ready(4, inference="borrower"))
    flavors = [{"resources": [{"name": "nvidia.com/gpu", "nominal": 16}]}]
    cluster.api("PATCH", f"{QUEUES}/{other}", {"spec": {"flavors": flavors}})
    create(serving, "waits", other, workers("decode", replicas=1))
    serving.await_condition("Admitted", "False", "OverQuota", "waits")
    assert bound(serving, "borrower") == before


def test_processes_that_are_killed_take_the_same_victims(
    serving: Serving, nodes: AddNodes, queues: MakeQueue, covey_to_kill: Covey
) -> None:
    """Killed between the claim and the deletion: the same replicas go, and no other (L5)."""
    mine, other = queues("search", 32), queues("batch", 16)
    nodes(blocks=1, racks=1, nodes=8)
    create(serving, "borrower", other, workers("decode", replicas=6, minReplicas=1, drainSeconds=5))
    before = uids(serving.await_ready(6, inference="borrower"))
    create(serving, "owner", mine, workers("decode", replicas=2, minReplicas=2))
    claim = eventually(lambda: serving.get("CompositePodGroup", "owner-0")["status"].get("claim"), 60, "a claim")
    assert claim["purpose"] == "Reclaim"
    named = {uid for victim in claim["victims"] for uid in victim["pods"]}
    for process in (covey_to_kill.scheduler, covey_to_kill.operator, covey_to_kill.scheduler):
        process.kill()
        process.start()
    serving.await_bound(2, inference="owner")
    eventually(lambda: len(serving.pods(inference="borrower")) == 6, 60, "the successors are there")
    assert bound(serving, "borrower") & before == before - named
