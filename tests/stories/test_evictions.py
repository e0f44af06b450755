"""Evictions that have an owner (``lifecycle.k8s.io``): somebody wants a member gone, and its replica is moved whole."""

from __future__ import annotations

from collections import Counter

import pytest

from builders.manifests import Object, workers
from cluster.workbench import label, name_of, uid_of, uids
from covey.api.constants import EVICTION_RESPONDER
from scheduler_trees import node_of
from stage import Stage
from stage.evictions import IMPERATIVE, EvictionControllers
from stage.play import fewest_serving, run_covey


def pair() -> list[Object]:
    return [workers("prefill", replicas=2, size=2, minReplicas=2), workers("decode")]


def nodes_of(pods: list[Object]) -> set[str]:
    return {node_of(pod) for pod in pods}


def births(stage: Stage) -> Counter[str]:
    return Counter(label(event.object, "role") for event in stage.history("Pod") if event.change == "ADDED")


@pytest.fixture
def controllers(stage: Stage) -> EvictionControllers:
    return EvictionControllers(stage)


def test_member_when_its_eviction_is_asked_for_has_its_replica_moved_first(
    stage: Stage, controllers: EvictionControllers
) -> None:
    stage.nodes(racks=2, nodes=4)
    stage.create(*pair(), topology={"required": "block"})
    before = stage.ready(5)
    assert {tuple(map(str, pod["spec"]["evictionResponders"])) for pod in before} == {
        (str({"name": EVICTION_RESPONDER, "priority": 10_000}),)
    }
    first = stage.pods(role="prefill", replica=0)
    controllers.request(first[0])
    controllers.run()
    after = stage.ready(5)
    assert uids(before) - uids(after) == uids(first)
    assert node_of(first[0]) not in nodes_of(after)
    assert fewest_serving(stage, "prefill", 2, size=2) == 2
    assert fewest_serving(stage, "decode", 1) == 1
    assert controllers.end(first[0]) == "PodDeleted"
    assert controllers.trace == [
        f"{name_of(first[0])}: {EVICTION_RESPONDER} Active",
        f"{name_of(first[0])}: {EVICTION_RESPONDER} Completed",
        f"{name_of(first[0])}: PodDeleted",
    ]
    assert [stage.condition(kind)[0] for kind in ("Evacuating", "EvacuationBlocked")] == ["", ""]


def test_node_when_the_evictions_of_all_its_pods_are_asked_for_beside_a_cordon_is_one_move(
    stage: Stage, controllers: EvictionControllers
) -> None:
    *_, spare = stage.nodes(nodes=3)
    stage.cordon(spare)
    stage.create(workers("prefill", gpus=1, size=8), workers("decode"))
    before = stage.ready(9)
    members = stage.pods(role="prefill")
    [node] = nodes_of(members)
    controllers.request(*members)
    controllers.run()
    stage.cordon(node)
    stage.uncordon(spare)
    controllers.run()
    after = stage.ready(9)
    assert uids(before) - uids(after) == uids(members)
    assert node not in nodes_of(after)
    assert births(stage) == {"prefill": 16, "decode": 1}
    assert {controllers.end(pod) for pod in members} == {"PodDeleted"}
    assert {controllers.state(pod) for pod in members} == {"Completed"}
    assert fewest_serving(stage, "prefill", 1, size=8) == 1


def test_unit_at_its_minimum_when_there_is_no_capacity_stays_and_says_so(
    stage: Stage, controllers: EvictionControllers
) -> None:
    """The eviction that budgets decide about comes next, and is refused; room lets it be moved all the same."""
    *_, spare = stage.nodes(nodes=6)
    stage.cordon(spare)
    stage.create(*pair(), topology={"required": "block"}, disruption={"evacuateAfterSeconds": 0})
    before = stage.ready(5)
    [decode] = stage.pods(role="decode")
    controllers.request(decode)
    controllers.run()
    assert uids(stage.bound()) == uids(before)
    assert stage.condition("EvacuationBlocked")[:2] == ("True", "NoNodes")
    assert "there is no capacity for a successor" in controllers.answer(decode)["message"]
    assert controllers.trace == [
        f"{name_of(decode)}: {EVICTION_RESPONDER} Active",
        f"{name_of(decode)}: {EVICTION_RESPONDER} Completed",
        f"{name_of(decode)}: {IMPERATIVE} Active",
        f"{name_of(decode)}: refused, 429",
    ]
    stage.uncordon(spare)
    controllers.run()
    after = stage.ready(5)
    assert uids(before) - uids(after) == {uid_of(decode)}
    assert controllers.end(decode) == "PodDeleted"


def test_replica_above_the_minimum_when_there_is_no_capacity_goes_first(
    stage: Stage, controllers: EvictionControllers
) -> None:
    # Whoever waits for no successor shrinks.
    stage.excused.add("budget")
    stage.nodes(nodes=4)
    stage.create(workers("prefill"), workers("decode", replicas=3))
    stage.ready(4)
    victim = stage.pods(role="decode")[0]
    controllers.request(victim)
    controllers.run()
    # Its own node is free again, and nobody has closed it.
    assert uid_of(victim) not in uids(stage.ready(4))
    assert controllers.end(victim) == "PodDeleted"


def test_eviction_when_it_is_withdrawn_half_way_leaves_everything_as_it_was(
    stage: Stage, controllers: EvictionControllers
) -> None:
    *_, spare = stage.nodes(nodes=6)
    stage.cordon(spare)
    stage.create(*pair(), topology={"required": "block"})
    before = stage.ready(5)
    [decode] = stage.pods(role="decode")
    controllers.request(decode)
    controllers.request(decode, requester="example.com/rebalance")
    controllers.run()
    assert len(stage.pods(role="decode")) > 1, "a successor waits for a node"
    controllers.withdraw(decode)
    controllers.run()
    assert controllers.state(decode) == "Active", "somebody else still wants it"
    controllers.withdraw(decode, requester="example.com/rebalance")
    controllers.run()
    assert uids(stage.ready(5)) == uids(before)
    assert controllers.end(decode) == "CanceledDueToNoRequesters"
    assert controllers.state(decode) == "Canceled"
    stage.uncordon(spare)
    assert uids(stage.ready(5)) == uids(before)


@pytest.mark.parametrize("at", [1, 2, 3, 5, 7, 9, 11])
def test_operator_when_it_dies_at_a_write_of_a_move_moves_once(
    stage: Stage, controllers: EvictionControllers, at: int
) -> None:
    stage.nodes(racks=2, nodes=4)
    stage.create(*pair(), topology={"required": "block"})
    before = stage.ready(5)
    first = stage.pods(role="prefill", replica=0)
    death = stage.kill("operator", at)
    controllers.request(first[0])
    controllers.run()
    after = stage.ready(5)
    assert death.at is not None
    assert uids(before) - uids(after) == uids(first)
    assert births(stage) == {"prefill": 6, "decode": 1}
    assert fewest_serving(stage, "prefill", 2, size=2) == 2
    assert controllers.end(first[0]) == "PodDeleted"
    assert controllers.state(first[0]) == "Completed"


def test_pods_when_nobody_answers_for_them_are_born_without_and_stay_so(
    stage: Stage, controllers: EvictionControllers
) -> None:
    """Whether the operator answers is no part of a revision; a drain by Eviction goes on as without it."""
    stage.restart(operator={"eviction_responder": False})
    stage.nodes(nodes=6)
    stage.create(*pair(), topology={"required": "block"})
    before = stage.ready(5)
    assert not any("evictionResponders" in pod["spec"] for pod in before)
    stage.restart()
    assert uids(stage.ready(5)) == uids(before)
    _, explained = run_covey(stage, "explain", "llm", "--namespace", stage.namespace)
    assert "5 of 5 pods of llm were made before the operator answered Evictions" in " ".join(explained.split())
    [decode] = stage.pods(role="decode")
    controllers.request(decode)
    controllers.run()
    assert uids(stage.ready(5)) == uids(before)
    assert f"{name_of(decode)}: refused, 429" in controllers.trace
    assert EVICTION_RESPONDER not in str(controllers.trace)
