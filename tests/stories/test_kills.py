"""A process that dies at any of its writes: every gang is whole in the end, and never was anything else."""

from __future__ import annotations

from collections import Counter

import pytest

from builders.manifests import workers
from cluster.workbench import label, name_of, uid_of, uids
from stage import Stage

GANG = (
    workers("prefill", gpus=1, replicas=3, minReplicas=3, size=4, topology={"required": "rack"}),
    workers("decode", gpus=1, replicas=4, minReplicas=4),
)


def births(stage: Stage) -> Counter[str]:
    """How many pods each place has had."""
    return Counter(event.object["spec"]["hostname"] for event in stage.history("Pod") if event.change == "ADDED")


@pytest.mark.parametrize("at", [1, 2, 5, 9, 10, 17, 25])
def test_operator_when_it_dies_at_a_write_of_a_creation_makes_no_pod_twice(stage: Stage, at: int) -> None:
    """Workload, five groups above pods, four of pods, Service, budget, sixteen pods: and then statuses."""
    stage.nodes(racks=2, nodes=2)
    death = stage.kill("operator", at)
    stage.create(*GANG, topology={"required": "block"})
    stage.ready(16)
    assert death.at is not None
    assert set(births(stage).values()) == {1}
    assert len(births(stage)) == 16
    assert stage.condition("Available")[:2] == ("True", "Available")


@pytest.mark.parametrize("at", [1, 2, 8, 16, 17, 24, 32])
def test_scheduler_when_it_dies_at_a_pin_or_a_bind_leaves_no_gang_in_part(stage: Stage, at: int) -> None:
    """Sixteen pins, sixteen binds, and statuses between."""
    stage.nodes(racks=2, nodes=2)
    death = stage.kill("scheduler", at)
    stage.create(*GANG, topology={"required": "block"})
    stage.ready(16)
    assert death.at is not None
    assert set(births(stage).values()) == {1}, "no pod had to be made anew"


@pytest.mark.parametrize("at", [1, 2, 4])
def test_operator_when_it_dies_at_a_write_of_a_repair_repairs_once(stage: Stage, at: int) -> None:
    stage.nodes(racks=2, nodes=2)
    stage.create(*GANG, topology={"required": "block"})
    before = stage.ready(16)
    lost = next(pod for pod in before if label(pod, "role") == "prefill")
    replica = [
        pod for pod in before if (label(pod, "role"), label(pod, "replica")) == ("prefill", label(lost, "replica"))
    ]
    death = stage.kill("operator", at)
    stage.delete("Pod", name_of(lost))
    after = stage.ready(16)
    assert death.at is not None
    assert uids(before) & uids(after) == uids(before) - uids(replica)
    assert {births(stage)[pod["spec"]["hostname"]] for pod in replica} == {2}


def test_everybody_when_away_while_a_resource_grows_finds_what_is_to_be_done(stage: Stage) -> None:
    """Nobody is there when the spec changes and a pod goes; whoever comes back finds it on the API server."""
    stage.nodes(racks=4, nodes=2)
    roles = [workers("prefill", size=2, topology={"required": "rack"}), workers("decode")]
    stage.create(*roles, topology={"required": "block"})
    before = stage.ready(3)
    [decode] = stage.pods(role="decode")
    with stage.away("operator", "scheduler", "kube-scheduler"):
        stage.delete("Pod", name_of(decode), grace=0)
        stage.change(roles=[{**role, "replicas": 2} for role in roles])
    after = uids(stage.ready(6))
    assert uids(before) - {uid_of(decode)} <= after
