"""Room that others give up for a gang, while processes die: it is for that gang, and for nobody who came along."""

from __future__ import annotations

from itertools import product

import pytest

from builders.manifests import Object, workers
from cluster.workbench import label, uids
from scheduler_trees import node_of
from soak.settings import CLASSES
from stage import Stage

#: Nobody waits before room is taken, and nothing is spared for being young.
AT_ONCE = {"delaySeconds": 0, "minRunSeconds": 0}


@pytest.fixture
def before(stage: Stage) -> list[Object]:
    """Three replicas of low priority on all nodes, of which two may go; another gang of that priority waits."""
    low = stage.priority_class("low", CLASSES["low"])
    stage.nodes(nodes=3)
    batch = workers("decode", replicas=3, minReplicas=1)
    stage.create(batch, name="batch", priorityClassName=low, preemption=AT_ONCE)
    pods = stage.ready(3)
    stage.create(workers("decode"), name="thief", priorityClassName=low)
    stage.refusal("thief")
    return pods


def take_two_nodes(stage: Stage) -> None:
    high = stage.priority_class("high", CLASSES["high"])
    chat = workers("decode", replicas=2, minReplicas=2)
    stage.create(chat, name="chat", priorityClassName=high, preemption=AT_ONCE)


def check_that_chat_alone_got_them(stage: Stage, before: list[Object]) -> None:
    stage.ready(2, inference="chat")
    assert stage.never("Pod", lambda pod: label(pod, "inference") == "thief" and node_of(pod))
    assert len(uids(stage.bound(inference="batch")) & uids(before)) == 1


@pytest.mark.parametrize(("scheduler", "operator"), [*product((1, 2), (9, 10, 11, 12)), (3, 9), (6, 12)])
def test_room_of_a_claim_when_both_processes_die_before_its_victims_are_gone_goes_to_nobody_else(
    stage: Stage, before: list[Object], scheduler: int, operator: int
) -> None:
    """The scheduler process at the claim or what it tells then, the operator at a mark or a deletion."""
    deaths = [stage.kill("scheduler", scheduler), stage.kill("operator", operator)]
    take_two_nodes(stage)
    check_that_chat_alone_got_them(stage, before)
    assert all(death.at for death in deaths)


@pytest.mark.parametrize("operator", [1, 2, 3, 4])
def test_room_of_a_claim_when_its_victims_go_while_the_scheduler_is_away_goes_to_nobody_else(
    stage: Stage, before: list[Object], operator: int
) -> None:
    with stage.away("operator"):
        take_two_nodes(stage)
    stage.await_event(
        lambda: stage.was("CompositePodGroup", lambda root: root.get("status", {}).get("claim")), "the claim"
    )
    with stage.away("scheduler"):
        death = stage.kill("operator", operator)
        stage.settle()
    check_that_chat_alone_got_them(stage, before)
    assert death.at is not None
