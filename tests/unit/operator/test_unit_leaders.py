"""The one pod of each unit that stands for it."""

from __future__ import annotations

from builders.inferences import inference, role
from covey.api.constants import LABEL_UNIT_LEADER
from unit.operator.world import World


def standing(world: World) -> list[str]:
    return sorted(name for name, pod in world.pods.items() if pod.metadata.label(LABEL_UNIT_LEADER))


def test_a_unit_is_born_with_its_leader() -> None:
    world = World(inference(role("router", minReplicas=0), role("prefill", replicas=2), role("decode"), replicas=2))
    for _ in range(3):
        planned = world.plan()
        assert not any(LABEL_UNIT_LEADER in item.labels for item in planned.actions.relabel)
        for step in world.steps(planned.actions):
            step()
            world.check()
    first, second = standing(world)
    assert (first[:17], second[:17]) == ("llama-0-prefill-0", "llama-1-prefill-0")


def test_a_leader_that_is_lost_is_followed_by_a_pod_that_serves() -> None:
    world = World.settled(inference(role("prefill", replicas=2)))
    (leader,) = standing(world)
    world.serve()
    world.delete(leader)
    world.settle()
    (other,) = standing(world)
    assert other != leader
    assert "prefill-1-0" in other, "the one that serves stands for the unit until the lowest does again"
