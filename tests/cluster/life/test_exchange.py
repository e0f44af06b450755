"""Replicas of one role exchanged for those of another with everything running: as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from kubernetes.client import ApiException

from builders.files import queue
from builders.manifests import Object
from cluster.conftest import Covey
from cluster.serving import AddNodes, Event, Serving, serving, workers
from cluster.workbench import label, uid_of, uids
from localcluster import eventually
from scheduler_trees import node_of

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")

QUEUES = "/apis/scheduling.covey.dev/v1alpha1/queues"
TOGETHER = {"scaling": {"mode": "Together"}}


def create(serving: Serving, prefill: int, decode: int, *, drain: int = 0, **spec: Any) -> None:
    fields = {"minReplicas": 1, "drainSeconds": drain, **TOGETHER}
    serving.create(
        workers("prefill", replicas=prefill, **fields), workers("decode", replicas=decode, **fields), name="llm", **spec
    )


def aim(serving: Serving, **targets: int) -> None:
    serving.cluster.api("PATCH", serving.path("RoleScaler", "llm.together"), {"spec": {"targets": targets}})


def judged(serving: Serving, status: str, reason: str) -> Object:
    """The RoleScaler once it says so of its present generation."""

    def reached() -> Object:
        found = serving.get("RoleScaler", "llm.together")
        (told,) = found["status"]["conditions"]
        assert (told["status"], told["reason"]) == (status, reason), told
        assert told["observedGeneration"] == found["metadata"]["generation"]
        return found

    return eventually(reached, 60, f"{status}/{reason}")


def counts(serving: Serving) -> dict[str, int]:
    """Bound replicas by role."""
    found = {"prefill": 0, "decode": 0}
    for pod in serving.pods(inference="llm", index=0):
        found[label(pod, "role")] += bool(node_of(pod))
    return found


def test_a_vector_is_exchanged_on_a_full_cluster(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=4)
    create(serving, 3, 1)
    before = uids(serving.await_ready(4, inference="llm"))
    assert judged(serving, "True", "Committed")["spec"]["targets"] == {"prefill": 3, "decode": 1}
    # One more on top finds no room: nothing moves, and the nearest vectors are named.
    aim(serving, prefill=3, decode=2)
    found = judged(serving, "False", "NoPlan")
    assert "no room for 1 decode" in found["status"]["conditions"][0]["message"]
    assert found["status"]["committed"] == {"prefill": 3, "decode": 1}
    assert uids(serving.pods(inference="llm")) == before
    aim(serving, prefill=1, decode=3)
    judged(serving, "True", "Committed")
    eventually(lambda: counts(serving) == {"prefill": 1, "decode": 3}, 60, "all have their places")
    root = serving.get("CompositePodGroup", "llm-0")
    eventually(lambda: "claim" not in serving.get("CompositePodGroup", "llm-0")["status"], 30, "the claim has ended")
    assert root["status"]["exchange"]["feasible"]


def test_nothing_moves_where_the_queue_has_no_quota(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=4)
    create(serving, 2, 1)
    before = uids(serving.await_ready(3, inference="llm"))
    judged(serving, "True", "Committed")
    tenant = queue(f"only-{serving.namespace}", 24)
    tenant["spec"]["namespaces"] = {"selector": {"matchLabels": {"kubernetes.io/metadata.name": serving.namespace}}}
    serving.cluster.api("POST", QUEUES, tenant)
    try:
        used = eventually(
            lambda: serving.cluster.api("GET", f"{QUEUES}/{tenant['metadata']['name']}").get("status"), 60
        )
        assert used
        aim(serving, prefill=1, decode=3)
        found = judged(serving, "False", "NoPlan")
        said = f"16 of 24 nvidia.com/gpu of queue only-{serving.namespace} are in use; 8 short"
        assert said in found["status"]["conditions"][0]["message"]
        assert found["status"]["committed"] == {"prefill": 2, "decode": 1}
        assert uids(serving.pods(inference="llm")) == before
        aim(serving, prefill=1, decode=2)
        judged(serving, "True", "Committed")
        eventually(lambda: counts(serving) == {"prefill": 1, "decode": 2}, 60, "one for one needs no more")
    finally:
        serving.cluster.api("DELETE", f"{QUEUES}/{tenant['metadata']['name']}")


def test_the_scale_subresource_has_no_number_for_it(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=4)
    create(serving, 2, 2)
    serving.await_ready(4, inference="llm")
    judged(serving, "True", "Committed")
    said = serving.cluster.kubectl(
        "scale", "rscale", "llm.together", "-n", serving.namespace, "--replicas=3", check=False
    )
    assert "exactly one of replicas and targets" in said
    assert counts(serving) == {"prefill": 2, "decode": 2}


def test_processes_that_are_killed_exchange_the_same(serving: Serving, nodes: AddNodes, covey_to_kill: Covey) -> None:
    nodes(blocks=1, racks=1, nodes=4)
    create(serving, 3, 1, drain=5)
    serving.await_ready(4, inference="llm")
    judged(serving, "True", "Committed")
    aim(serving, prefill=2, decode=2)
    eventually(lambda: serving.get("CompositePodGroup", "llm-0")["status"].get("claim"), 60, "the claim is written")
    for process in (covey_to_kill.operator, covey_to_kill.scheduler, covey_to_kill.operator):
        process.kill()
        process.start()
    judged(serving, "True", "Committed")
    eventually(lambda: counts(serving) == {"prefill": 2, "decode": 2}, 60, "all have their places")


#: Devices that the planner may use: four nodes.
BUDGET = 32


def write_from(serving: Serving, version: str, name: str, body: Object) -> None:
    """A write of somebody who has read the RoleScaler before somebody else changed it: it fails."""
    with pytest.raises(ApiException, match="Conflict"):
        serving.cluster.api(
            "PATCH", serving.path("RoleScaler", name), {"metadata": {"resourceVersion": version}, **body}
        )


def most_devices(before: Iterable[Object], events: Iterable[Event]) -> int:
    """The most GPUs that pods with a node, a pin or a gate of a resource have asked for at any moment."""
    pods = {uid_of(pod) for pod in before}
    most = len(pods)
    for kind, pod in events:
        pods.discard(uid_of(pod))
        if kind != "DELETED":
            pods.add(uid_of(pod))
        most = max(most, len(pods))
    return 8 * most


def test_two_writes_of_which_the_second_fails(serving: Serving, nodes: AddNodes) -> None:
    """dynamo#12428: decode grows, the write that shrinks prefill fails, and the roles use more than the budget."""
    nodes(blocks=1, racks=1, nodes=6)
    fields = {"minReplicas": 1, "scaling": {"mode": "External"}}
    serving.create(workers("prefill", replicas=3, **fields), workers("decode", replicas=1, **fields))
    serving.await_ready(4)
    read = serving.get("RoleScaler", "llm-prefill")["metadata"]["resourceVersion"]
    serving.kubectl("annotate", "rscale", "llm-prefill", "example.com/seen=1")
    serving.kubectl("scale", "rscale", "llm-decode", "--replicas=3")
    write_from(serving, read, "llm-prefill", {"spec": {"replicas": 1}})
    assert 8 * len(serving.await_bound(6)) > BUDGET


def test_one_write_never_passes_the_budget(serving: Serving, nodes: AddNodes) -> None:
    """The same of roles that are scaled together: a write that fails moves nothing, one that does not moves both."""
    nodes(blocks=1, racks=1, nodes=6)
    create(serving, 3, 1, scaling={"budget": {"resource": "nvidia.com/gpu", "max": BUDGET}})
    before = serving.await_ready(4, inference="llm")
    read = judged(serving, "True", "Committed")["metadata"]["resourceVersion"]
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.kubectl("annotate", "rscale", "llm.together", "example.com/seen=1")
        write_from(serving, read, "llm.together", {"spec": {"targets": {"prefill": 1, "decode": 3}}})
        aim(serving, prefill=3, decode=3)
        judged(serving, "False", "OverBudget")
        assert uids(serving.pods(inference="llm")) == uids(before)
        aim(serving, prefill=1, decode=3)
        judged(serving, "True", "Committed")
        eventually(lambda: counts(serving) == {"prefill": 1, "decode": 3}, 60, "all have their places")
        assert most_devices(before, recording.events) == BUDGET
