"""Room that others give up for a gang, while processes die: it is for that gang, and for nobody who came along."""

from __future__ import annotations

from itertools import product

import pytest

from builders.manifests import workers
from cluster.workbench import label, uid_of, uids
from scheduler_trees import node_of
from stage import Stage

#: Nobody waits before room is taken, and nothing is spared for being young.
AT_ONCE = {"delaySeconds": 0, "minRunSeconds": 0}


@pytest.mark.parametrize(("scheduler", "operator"), [*product((1, 2, 3), (1, 2, 3)), (5, 4), (4, 6), (8, 8)])
def test_room_of_a_claim_when_both_processes_die_at_a_write_goes_to_nobody_else(
    stage: Stage, scheduler: int, operator: int
) -> None:
    spare, online = stage.priority_class("spare", 1), stage.priority_class("online", 1000)
    stage.nodes(nodes=3)
    stage.create(workers("decode", replicas=3, minReplicas=1), name="batch", priorityClassName=spare)
    before = stage.ready(3)
    stage.create(workers("decode"), name="thief", priorityClassName=spare)
    stage.refusal("thief")
    deaths = [stage.kill("scheduler", scheduler), stage.kill("operator", operator)]
    stage.create(
        workers("decode", replicas=2, minReplicas=2), name="chat", priorityClassName=online, preemption=AT_ONCE
    )
    stage.ready(2, inference="chat")
    assert all(death.at for death in deaths)
    assert stage.never("Pod", lambda pod: label(pod, "inference") == "thief" and node_of(pod))
    assert len(uids(stage.bound(inference="batch")) & uids(before)) == 1
    assert len({uid_of(pod) for pod in before} - uids(stage.pods(inference="batch"))) == 2
