"""Room for the successor of a replica that leaves its node on a full cluster: it gets it, and nobody else."""

from __future__ import annotations

from builders.manifests import Object, workers
from cluster.workbench import label, name_of, uids
from scheduler_trees import node_of
from stage import Stage
from stage.play import INFERENCE

GATE = {"readinessGates": [{"conditionType": "covey.dev/serving"}]}
BOTH = ("operator", "scheduler")


def claim_of(stage: Stage) -> Object | None:
    """The claim of the resource that leaves, at rest."""
    stage.settle()
    claim: Object | None = stage.get("CompositePodGroup", "llm-0").get("status", {}).get("claim")
    return claim


def say_idle(stage: Stage, pods: list[Object]) -> None:
    """Say as an engine does that nothing is under way."""
    for pod in pods:
        stage.patch("Pod", name_of(pod), {"metadata": {"annotations": {"covey.dev/in-flight": "0"}}})


def begin(stage: Stage) -> tuple[list[Object], set[str]]:
    """Drain one node of a surplus replica of two on a cluster of which one node is free.

    A gang that wants two nodes waits before; one that wants the free node comes when the claim stands. Both have a lower
    priority: Covey's time has passed faster than the API server's, by whose clock they would be the older ones.

    Returns:
        The pods of the replica that leaves, and the nodes where a successor fits once it is gone.
    """
    # Whoever waits for no successor shrinks.
    stage.excused.add("budget")
    nodes = stage.nodes(nodes=5)
    wide = workers("decode", replicas=2, size=2, minReplicas=1, drainSeconds=3600, spec=GATE)
    stage.create(wide, disruption={"evacuateAfterSeconds": 0}, priorityClassName=stage.priority_class("high", 1000))
    before = stage.ready(4)
    stage.create(workers("decode", replicas=2, minReplicas=2), name="thief")
    stage.refusal("thief")
    left, beside = (node_of(pod) for pod in stage.pods(inference="llm", replica=1))
    stage.cordon(left)
    claim = claim_of(stage)
    assert claim is not None
    [free] = set(nodes) - {node_of(pod) for pod in before}
    assert (claim["purpose"], set(claim["nodes"]), claim.get("victims", [])) == ("Evacuation", {beside, free}, [])
    going = stage.pods(inference="llm", draining="true")
    assert uids(going) == uids(stage.pods(inference="llm", replica=1))
    assert uids(stage.bound(inference="llm")) == uids(before), "nobody has gone yet"
    stage.create(workers("decode"), name="late")
    stage.refusal("late")
    return going, {beside, free}


def check_arrived(stage: Stage, going: list[Object], places: set[str]) -> None:
    """What was freed has gone to the successor although others wait for it."""
    assert claim_of(stage) is None
    pods = stage.ready(4, inference="llm")
    assert not uids(going) & uids(pods)
    assert {node_of(pod) for pod in pods if label(pod, "replica") not in {"0", "1"}} == places
    assert not stage.bound(inference="thief") + stage.bound(inference="late")


def test_successor_gets_its_room_whoever_waits_for_it(stage: Stage) -> None:
    going, places = begin(stage)
    say_idle(stage, going)
    check_arrived(stage, going, places)


def test_processes_when_they_are_killed_between_claim_and_deletion_keep_the_room(stage: Stage) -> None:
    """Operator and scheduler process, before the first pod is deleted and before the last is gone (L5)."""
    going, places = begin(stage)
    stored = claim_of(stage)
    stage.ground.kill(*BOTH)
    stage.ground.start(*reversed(BOTH))
    claim = claim_of(stage)
    assert stored is not None
    assert claim is not None
    assert (claim["nodes"], claim["since"]) == (stored["nodes"], stored["since"])
    say_idle(stage, going[:1])
    stage.ground.kill(*BOTH)
    say_idle(stage, going[1:])
    stage.ground.start()
    check_arrived(stage, going, places)


def test_room_when_its_beneficiary_is_deleted_half_way_is_for_others(stage: Stage) -> None:
    going, _ = begin(stage)
    stage.delete(INFERENCE, "llm")
    stage.ready(2, inference="thief")
    stage.ready(1, inference="late")
    assert not uids(going) & uids(stage.all("Pod"))


def test_room_when_the_node_is_open_again_is_for_whoever_waits(stage: Stage) -> None:
    """Nothing goes any more."""
    going, _ = begin(stage)
    for pod in going:
        stage.uncordon(node_of(pod))
    stage.ready(1, inference="late")
    assert claim_of(stage) is None
