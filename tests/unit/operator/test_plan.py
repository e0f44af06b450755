"""Plans, case by case, in a world without an API server."""

import msgspec
import pytest

from builders.inferences import inference, llama, role, template
from covey.api.core import rfc3339
from covey.api.inference import DisaggregatedInference
from covey.kube.resources import SERVICES
from unit.operator.world import World


@pytest.fixture
def world() -> World:
    """Everything runs: two prefill replicas of two pods, three decode replicas of one."""
    return World.serving(llama())


def test_old_revisions_go_unless_pods_are_of_them() -> None:
    def at(number: int) -> DisaggregatedInference:
        changed = template(nodeSelector={"number": str(number)})
        return inference(role("prefill", size=2), role("decode", template=changed))

    world = World.settled(at(0))
    (stuck,) = world.names_of("decode")
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


def test_group_that_is_being_deleted_when_it_does_not_go_is_told_after_a_minute() -> None:
    """A finalizer of somebody's holds it; the unit said for ever that its replicas do not exist, and not why."""
    world = World.settled(llama(1, 1))
    key = next(key for key in world.objects if key[1].endswith("-decode"))
    metadata = msgspec.structs.replace(world.objects[key].metadata, deletion_timestamp=rfc3339(world.now))
    world.objects[key] = msgspec.structs.replace(world.objects[key], metadata=metadata)
    world.settle()
    assert not world.names_of("decode")
    assert world.conditions()["Degraded"]["status"] == "False"
    again = world.plan().again
    assert again is not None
    world.now += again
    told = world.conditions()["Degraded"]
    assert (told["status"], told["reason"]) == ("True", "GroupNotGone")
    assert f"PodGroup {key[1]} is being deleted and does not go" in told["message"]
