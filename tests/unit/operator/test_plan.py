"""Plans, case by case, in a world without an API server."""

import pytest

from builders.inferences import inference, llama, role, template
from covey.api.constants import LABEL_UNIT_LEADER
from covey.api.inference import DisaggregatedInference
from covey.compile import Slot
from covey.kube.resources import SERVICES
from covey.operator.model import podstate
from covey.operator.model.observed import current
from unit.operator.world import World


def standing(world: World) -> list[str]:
    return sorted(name for name, pod in world.pods.items() if pod.metadata.label(LABEL_UNIT_LEADER))


@pytest.fixture
def world() -> World:
    """Everything runs: two prefill replicas of two pods, three decode replicas of one."""
    return World.serving(llama())


def names_in(world: World, role: str, replica: int | None = None) -> list[str]:
    return [
        pod.metadata.name
        for slot, pods in sorted(world.observe().pods.items())
        for pod in pods
        if slot.role == role and replica in {None, slot.replica}
    ]


def test_names_do_not_recur(world: World) -> None:
    seen = set(names_in(world, "decode", 0))
    for _ in range(4):
        (name,) = names_in(world, "decode", 0)
        world.bind(name)
        world.delete(name)
        world.settle()
        (successor,) = names_in(world, "decode", 0)
        assert successor not in seen
        seen.add(successor)


def test_a_terminating_pod_that_never_goes_does_not_hold_up_its_successor(world: World) -> None:
    stuck = names_in(world, "decode", 0)[0]
    world.delete(stuck)
    world.carry_out()
    pods = world.observe().pods[Slot(0, "decode", 0, 0)]
    assert len(pods) == 2
    assert not podstate.is_addressed(world.pods[stuck])
    assert current(pods) is not world.pods[stuck]
    assert not world.plan().actions


def test_old_revisions_go_unless_pods_are_of_them() -> None:
    def at(number: int) -> DisaggregatedInference:
        changed = template(nodeSelector={"number": str(number)})
        return inference(role("prefill", size=2), role("decode", template=changed))

    world = World.settled(at(0))
    (stuck,) = names_in(world, "decode")
    world.bind(stuck)
    # It terminates for ever, and what it was made from is kept.
    world.delete(stuck)
    kept = {stored.name for stored in world.revisions}
    for number in range(1, 15):
        world.inference = at(number)
        for _ in range(3):
            world.carry_out()
    assert {stored.number for stored in world.revisions} == {1, *range(5, 16)}
    assert kept <= {stored.name for stored in world.revisions}
    for _ in range(6):
        world.settle()
        world.serve()
    world.settle()
    assert {stored.number for stored in world.revisions} == set(range(5, 16))


def test_services_stay_as_long_as_pods_terminate(world: World) -> None:
    world.inference = llama(suspend=True)
    for _ in range(2):
        world.carry_out()
    assert {name for kind, name in world.objects if kind == SERVICES.type} == {"llama-pods"}
    world.finish()
    world.settle()
    assert not world.objects


def test_growth_where_pods_were_given_up_is_no_replacement(world: World) -> None:
    """They still terminate, or have gone: nobody has lost them."""
    world.retired = {pod.metadata.uid for pod in world.pods.values()}
    for name in list(world.pods):
        world.delete(name)
    for _ in range(2):
        planned = world.plan().actions
        assert {(item.told.past.restarts, item.replaces) for item in planned.create} == {(0, False)}
        assert {note.reason for note in planned.notes} <= {"ScaledUp"}
        assert not any(note.warning for note in planned.notes)
        world.finish()


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
