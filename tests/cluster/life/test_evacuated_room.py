"""Room for the successor of a replica that leaves its node on a full cluster, with everything running: it and nobody else."""

from __future__ import annotations

import pytest

from builders.manifests import Object
from cluster.conftest import Covey
from cluster.serving import AddNodes, Serving, serving, workers
from cluster.workbench import uids
from localcluster import eventually
from scheduler_trees import node_of

from .test_preempted_room import _GATE, _admitted, await_marked, say_idle
from .test_preemption import bound, of

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")


def claim_of(serving: Serving) -> Object | None:
    """The claim as it is stored."""
    found: Object | None = serving.get("CompositePodGroup", "llm-0").get("status", {}).get("claim")
    return found


def await_refused(serving: Serving, name: str) -> None:
    eventually(lambda: _admitted(serving, f"{name}-0").get("status") == "False", 60, f"{name} waits")


def begin(serving: Serving, nodes: AddNodes) -> tuple[list[Object], set[str]]:
    """Drain one node of a surplus replica of two on a cluster of which one node is free.

    A gang that wants two nodes waits before; one that wants the free node comes when the claim stands.

    Returns:
        The pods of the replica that leaves, and the nodes where a successor fits once it is gone.
    """
    names = nodes(blocks=1, racks=1, nodes=5)
    wide = workers("decode", replicas=2, size=2, minReplicas=1, drainSeconds=3600, spec=_GATE)
    serving.create(wide, disruption={"evacuateAfterSeconds": 0})
    before = serving.await_ready(4, inference="llm")
    serving.create(workers("decode", replicas=2, minReplicas=2), name="thief")
    await_refused(serving, "thief")
    left, beside = (node_of(pod) for pod in serving.pods(inference="llm", replica=1))
    serving.cluster.kubectl("cordon", left)
    claim = eventually(lambda: claim_of(serving), 90, "room is kept for the successor")
    (free,) = set(names) - {node_of(pod) for pod in before}
    # It goes because that places its successor, on nodes that are kept before it is told to, and until it has gone.
    assert (claim["purpose"], set(claim["nodes"]), claim.get("victims", [])) == ("Succession", {beside, free}, [])
    going = await_marked(serving, 2, inference="llm")
    eventually(lambda: (claim_of(serving) or {}).get("purpose") == "Evacuation", 60, "room is kept while it drains")
    kept = claim_of(serving)
    assert kept is not None
    assert (set(kept["nodes"]), kept.get("victims", [])) == ({beside, free}, [])
    assert bound(serving, "llm") == uids(before), "nobody has gone yet"
    serving.create(workers("decode"), name="late")
    await_refused(serving, "late")
    return going, {beside, free}


def check_arrived(serving: Serving, going: list[Object], places: set[str]) -> None:
    """What was freed goes to the successor although others wait for it."""
    eventually(lambda: not uids(going) & uids(of(serving, "llm")), 60, "the replica is gone")
    found = serving.await_bound(4, inference="llm")
    assert {node_of(pod) for pod in found if label_of(pod) not in {"0", "1"}} == places
    assert not bound(serving, "thief") | bound(serving, "late")
    eventually(lambda: claim_of(serving) is None, 30, "the claim has ended")


def label_of(pod: Object) -> str:
    """The number of its replica."""
    return str(pod["metadata"]["labels"]["covey.dev/replica"])


def test_the_successor_gets_its_room_whoever_waits_for_it(serving: Serving, nodes: AddNodes) -> None:
    going, places = begin(serving, nodes)
    say_idle(serving, going)
    check_arrived(serving, going, places)


def test_all_that_is_killed_between_the_claim_and_the_deletion(
    serving: Serving, nodes: AddNodes, covey_to_kill: Covey
) -> None:
    """Operator and scheduler process, before the first pod is deleted and before the last is gone (L5)."""
    going, places = begin(serving, nodes)
    stored, processes = claim_of(serving), (covey_to_kill.operator, covey_to_kill.scheduler)
    for process in processes:
        process.kill()
    for process in reversed(processes):
        process.start()
    assert stored is not None
    now = claim_of(serving)
    assert now is not None
    assert (now["nodes"], now["since"]) == (stored["nodes"], stored["since"])
    say_idle(serving, going[:1])
    for process in processes:
        process.kill()
    say_idle(serving, going[1:])
    for process in processes:
        process.start()
    check_arrived(serving, going, places)


def test_a_beneficiary_that_is_deleted_half_way_leaves_the_room_to_others(serving: Serving, nodes: AddNodes) -> None:
    going, _ = begin(serving, nodes)
    serving.delete("DisaggregatedInference", "llm")
    serving.await_bound(2, inference="thief")
    serving.await_bound(1, inference="late")
    # The garbage collector may come to them last.
    eventually(lambda: not uids(going) & uids(serving.all("Pod")), 60, "they are gone")


def test_a_node_that_is_open_again_opens_the_room(serving: Serving, nodes: AddNodes) -> None:
    """Nothing goes any more, so the free node is for whoever waits."""
    going, _ = begin(serving, nodes)
    serving.cluster.kubectl("uncordon", *{node_of(pod) for pod in going})
    serving.await_bound(1, inference="late")
    eventually(lambda: claim_of(serving) is None, 60, "the claim has ended")
