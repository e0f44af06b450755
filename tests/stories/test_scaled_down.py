"""Who goes when there are too many, where pods lie in real domains."""

from __future__ import annotations

from typing import Final

from builders.manifests import workers
from cluster.workbench import is_ready, label, name_of
from stage import Stage
from stage.play import RACK

COST: Final = "controller.kubernetes.io/pod-deletion-cost"


def scale(stage: Stage, replicas: int) -> set[int]:
    """Ask for so many replicas of prefill; the numbers of those that are left."""
    stage.kubectl("scale", "rscale", "llm-prefill", f"--replicas={replicas}")
    return {int(label(pod, "replica")) for pod in stage.ready(2 * replicas)}


def cheapen(stage: Stage, replica: int) -> None:
    """One pod of a replica costs less to delete than all others."""
    pod = stage.pods(role="prefill", replica=replica)[0]
    stage.patch("Pod", name_of(pod), {"metadata": {"annotations": {COST: "-1"}}})


def test_replicas_when_they_are_too_many_go_by_cost_then_by_room_then_by_number(stage: Stage) -> None:
    stage.nodes(racks=2, nodes=1)
    prefill = workers("prefill", replicas=4, size=2, gpus=2, scaling={"mode": "External"})
    stage.create({**prefill, "topology": {"required": "rack"}})
    stage.ready(8)
    # Two replicas in each rack.
    racks = {replica: stage.domains(stage.pods(replica=replica), RACK) for replica in range(4)}
    first, second = (replica for replica in range(4) if racks[replica] == racks[0])
    others = set(range(4)) - {first, second}
    cheapen(stage, first)
    assert scale(stage, 3) == others | {second}
    # It is alone in its rack now.
    assert scale(stage, 2) == others
    assert scale(stage, 1) == {min(others)}


def test_replicas_that_wait_go_before_those_that_serve(stage: Stage) -> None:
    stage.nodes(nodes=1)
    stage.create(workers("prefill", replicas=5, size=2, gpus=2, scaling={"mode": "External"}))
    stage.settle()
    serving = {int(label(pod, "replica")) for pod in stage.pods() if is_ready(pod)}
    assert len(serving) == 2
    for replica in serving:
        cheapen(stage, replica)
    assert scale(stage, 2) == serving
