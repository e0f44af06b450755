"""Who goes when there are too many, where all of Covey runs and pods lie in real domains."""

from __future__ import annotations

from cluster.conftest import AddNodes, Covey
from cluster.serving import RACK, Serving, serves, serving, workers
from cluster.workbench import is_gated, label, name_of
from localcluster import eventually

__all__ = ["serving"]

COST = "controller.kubernetes.io/pod-deletion-cost"


def scale(serving: Serving, replicas: int) -> set[str]:
    """Ask for so many replicas of prefill; the numbers of those that are left."""
    serving.kubectl("scale", "rscale", "llm-prefill", f"--replicas={replicas}")
    return {label(pod, "replica") for pod in serving.await_bound(2 * replicas, role="prefill")}


def cheapen(serving: Serving, replica: int) -> None:
    """One pod of a replica costs less to delete than all others."""
    (pod, *_) = serving.pods(role="prefill", replica=replica)
    serving.cluster.api("PATCH", serving.path("Pod", name_of(pod)), {"metadata": {"annotations": {COST: "-1"}}})


def rack_of(serving: Serving, replica: int) -> str:
    ((rack,),) = serving.domains(serving.bound(role="prefill", replica=replica), RACK)
    return rack


def test_costs_then_room_then_numbers(serving: Serving, covey: Covey, nodes: AddNodes) -> None:
    assert covey
    nodes(blocks=1, racks=2, nodes=1)
    prefill = workers("prefill", replicas=4, size=2, gpus=2, scaling={"mode": "External"})
    serving.create({**prefill, "topology": {"required": "rack"}})
    serving.await_bound(8, role="prefill")
    eventually(lambda: all(map(serves, serving.pods())), 60, "all pods are Ready")
    # Two replicas in each rack.
    racks = {replica: rack_of(serving, replica) for replica in range(4)}
    lowest = [replica for replica in range(4) if racks[replica] == racks[0]]
    assert len(lowest) == 2
    cheapen(serving, lowest[0])
    assert scale(serving, 3) == {str(replica) for replica in range(4) if replica != lowest[0]}
    # The other one is alone in its rack now.
    assert scale(serving, 2) == {str(replica) for replica in range(4) if racks[replica] != racks[0]}
    assert scale(serving, 1) == {min(str(replica) for replica in range(4) if racks[replica] != racks[0])}


def test_what_waits_goes_before_what_serves(serving: Serving, covey: Covey, nodes: AddNodes) -> None:
    assert covey
    nodes(blocks=1, racks=1, nodes=1)
    serving.create(workers("prefill", replicas=5, size=2, gpus=2, scaling={"mode": "External"}))

    def two_serve() -> list[str]:
        pods = serving.pods(role="prefill")
        assert len(pods) == 10
        assert sum(map(serves, pods)) == 4
        return sorted({label(pod, "replica") for pod in pods if is_gated(pod)})

    waiting = eventually(two_serve, 120, "two replicas fill the node")
    assert len(waiting) == 3
    for replica in range(5):
        if str(replica) not in waiting:
            cheapen(serving, replica)
    assert scale(serving, 2).isdisjoint(waiting)
