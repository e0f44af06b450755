"""Replicas of one role exchanged for those of another with everything running: as a whole or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.client import ApiException

from builders.files import queue
from builders.manifests import Object, workers
from cluster.workbench import label, uids
from stage import Stage
from stage.record import states

QUEUES = "/apis/scheduling.covey.dev/v1alpha1/queues"
TOGETHER = "llm.together"
#: Devices that the planner may use: four nodes.
BUDGET = 32


def create(stage: Stage, prefill: int, decode: int, *, drain: int = 0, **spec: Any) -> list[Object]:
    """Two roles that are scaled together, in force."""
    fields = {"minReplicas": 1, "drainSeconds": drain, "scaling": {"mode": "Together"}}
    stage.create(workers("prefill", replicas=prefill, **fields), workers("decode", replicas=decode, **fields), **spec)
    pods = stage.ready(prefill + decode)
    assert judged(stage, "True", "Committed")["spec"]["targets"] == {"prefill": prefill, "decode": decode}
    return pods


def aim(stage: Stage, **targets: int) -> None:
    stage.patch("RoleScaler", TOGETHER, {"spec": {"targets": targets}})


def judged(stage: Stage, status: str, reason: str) -> Object:
    """The RoleScaler at rest, which says so of its present generation."""
    stage.settle()
    scaler = stage.get("RoleScaler", TOGETHER)
    [condition] = scaler["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == (status, reason), condition
    assert condition["observedGeneration"] == scaler["metadata"]["generation"]
    return scaler


def message(scaler: Object) -> str:
    return str(scaler["status"]["conditions"][0]["message"])


def counts(stage: Stage) -> dict[str, int]:
    """Bound replicas by role."""
    pods = stage.bound(inference="llm")
    return {role: sum(label(pod, "role") == role for pod in pods) for role in ("prefill", "decode")}


def test_vector_when_the_cluster_is_full_is_exchanged_as_a_whole(stage: Stage) -> None:
    stage.nodes(nodes=4)
    before = create(stage, 3, 1)
    # One more on top finds no room: nothing moves, and the nearest vectors are named.
    aim(stage, prefill=3, decode=2)
    scaler = judged(stage, "False", "NoPlan")
    assert "no capacity for 1 decode" in message(scaler)
    assert scaler["status"]["committed"] == {"prefill": 3, "decode": 1}
    assert uids(stage.pods()) == uids(before)
    aim(stage, prefill=1, decode=3)
    judged(stage, "True", "Committed")
    assert counts(stage) == {"prefill": 1, "decode": 3}
    status = stage.get("CompositePodGroup", "llm-0")["status"]
    assert "claim" not in status
    assert status["exchange"]["feasible"]


def test_vector_when_the_queue_has_no_quota_moves_nothing(stage: Stage) -> None:
    stage.nodes(nodes=4)
    before = create(stage, 2, 1)
    name = f"only-{stage.namespace}"
    tenant = queue(name, 24)
    tenant["spec"]["namespaces"] = {"selector": {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}}}
    stage.cluster.api("POST", QUEUES, tenant)
    stage.after(lambda: stage.cluster.delete(f"{QUEUES}/{name}"))
    stage.settle()
    assert stage.cluster.api("GET", f"{QUEUES}/{name}")["status"]
    aim(stage, prefill=1, decode=3)
    scaler = judged(stage, "False", "NoPlan")
    assert f"16 of 24 nvidia.com/gpu of queue {name} are in use; 8 short" in message(scaler)
    assert scaler["status"]["committed"] == {"prefill": 2, "decode": 1}
    assert uids(stage.pods()) == uids(before)
    # One for one needs no more.
    aim(stage, prefill=1, decode=2)
    judged(stage, "True", "Committed")
    assert counts(stage) == {"prefill": 1, "decode": 2}


def test_scale_subresource_has_no_number_for_a_vector(stage: Stage) -> None:
    stage.nodes(nodes=4)
    create(stage, 2, 2)
    with pytest.raises(RuntimeError, match="exactly one of replicas and targets"):
        stage.kubectl("scale", "rscale", TOGETHER, "--replicas=3")
    stage.ready(4)
    assert counts(stage) == {"prefill": 2, "decode": 2}


def test_processes_when_they_are_killed_half_way_exchange_the_same(stage: Stage) -> None:
    stage.nodes(nodes=4)
    create(stage, 3, 1, drain=120)
    aim(stage, prefill=2, decode=2)
    stage.settle()
    assert stage.get("CompositePodGroup", "llm-0")["status"]["claim"]
    for process in ("operator", "scheduler", "operator"):
        stage.kill_now(process)
    stage.advance(130)
    judged(stage, "True", "Committed")
    assert counts(stage) == {"prefill": 2, "decode": 2}


def write_late(stage: Stage, name: str, body: Object) -> None:
    """Write as somebody who has read a RoleScaler before somebody else changed it: it fails."""
    read = stage.get("RoleScaler", name)["metadata"]["resourceVersion"]
    stage.patch("RoleScaler", name, {"metadata": {"annotations": {"example.com/seen": "1"}}})
    with pytest.raises(ApiException, match="Conflict"):
        stage.patch("RoleScaler", name, {"metadata": {"resourceVersion": read}, **body})


def test_two_writes_when_the_second_fails_pass_the_budget(stage: Stage) -> None:
    """dynamo#12428: decode grows, the write that shrinks prefill fails, and the roles use more than the budget."""
    stage.nodes(nodes=6)
    fields = {"minReplicas": 1, "scaling": {"mode": "External"}}
    stage.create(workers("prefill", replicas=3, **fields), workers("decode", replicas=1, **fields))
    stage.ready(4)
    stage.kubectl("scale", "rscale", "llm-decode", "--replicas=3")
    write_late(stage, "llm-prefill", {"spec": {"replicas": 1}})
    assert 8 * len(stage.ready(6)) > BUDGET


def test_one_write_for_both_never_passes_the_budget(stage: Stage) -> None:
    """The same of roles that are scaled together: a write that fails moves nothing, one that does not moves both."""
    stage.nodes(nodes=6)
    before = create(stage, 3, 1, scaling={"budget": {"resource": "nvidia.com/gpu", "max": BUDGET}})
    write_late(stage, TOGETHER, {"spec": {"targets": {"prefill": 1, "decode": 3}}})
    aim(stage, prefill=3, decode=3)
    judged(stage, "False", "OverBudget")
    assert uids(stage.pods()) == uids(before)
    aim(stage, prefill=1, decode=3)
    judged(stage, "True", "Committed")
    assert counts(stage) == {"prefill": 1, "decode": 3}
    assert 8 * max(len(pods) for _, pods in states(stage.history("Pod"))) == BUDGET
