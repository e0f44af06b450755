"""Plans, case by case, in a world without an API server."""

from typing import Any

import pytest

from builders.inferences import inference, llama, role, template
from covey.api import constants as names
from covey.api.inference import DisaggregatedInference
from covey.compile import Slot
from covey.kube.resources import COMPOSITE_POD_GROUPS, POD_GROUPS, SERVICES, WORKLOADS
from covey.operator.model import podstate
from covey.operator.model.observed import current
from unit.operator.world import World


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


def replicas_of(world: World, role: str) -> set[int]:
    return {slot.replica for slot in world.observe().pods if slot.role == role}


def test_creates_everything_once() -> None:
    world = World(llama())
    actions = world.plan().actions
    assert [len(level) for level in actions.apply] == [1, 1, 1, 3, 1, 1]
    assert actions.store is not None
    # The minimum of one replica of each role comes first.
    assert [item.slot for item in actions.create] == [
        *(Slot(0, "prefill", 0, index) for index in range(2)),
        Slot(0, "decode", 0, 0),
        *(Slot(0, "prefill", 1, index) for index in range(2)),
        *(Slot(0, "decode", replica, 0) for replica in (1, 2)),
    ]
    assert all(item.predecessor is None for item in actions.create)
    assert not actions.notes, "one Event for each resource says no more than its pods do"


def test_scale_up_fills_the_lowest_free_number(world: World) -> None:
    world.change(names_in(world, "decode", 1)[0], status={"phase": "Pending", "conditions": ()})
    world.inference = llama(decode=2)
    world.settle()
    assert replicas_of(world, "decode") == {0, 2}
    world.inference = llama(decode=4)
    world.settle()
    assert replicas_of(world, "decode") == {0, 1, 2, 3}


def test_scale_down_takes_the_highest_when_all_are_equal(world: World) -> None:
    world.inference = llama(prefill=1, decode=1)
    actions = world.plan().actions
    assert sorted(item.pod.metadata.name for item in actions.delete_pods) == sorted(
        [*names_in(world, "prefill", 1), *names_in(world, "decode", 1), *names_in(world, "decode", 2)]
    )
    assert {note.reason for note in actions.notes} == {"ScaledDown"}
    world.settle()
    assert (POD_GROUPS.type, "llama-0-prefill-1") not in world.objects


@pytest.mark.parametrize("state", ["gated", "pinned", "bound"])
def test_scale_down_takes_first_what_serves_least(world: World, state: str) -> None:
    name = names_in(world, "decode", 0)[0]
    world.change(name, status={"phase": "Pending", "conditions": ()})
    if state != "bound":
        world.change(name, spec={"node_name": None})
    if state == "gated":
        gang = names_in(world, "prefill", 0)
        world.change(name, spec={"scheduling_gates": (msgspec_gate(),)})
        assert gang
    world.inference = llama(decode=2)
    world.settle()
    assert replicas_of(world, "decode") == {1, 2}


def test_a_pod_of_a_bound_replica_that_fails_takes_the_replica_with_it(world: World) -> None:
    failed, other = names_in(world, "prefill", 1)
    untouched = set(world.pods) - {failed, other}
    world.fail(failed)
    actions = world.plan().actions
    assert {item.pod.metadata.name for item in actions.delete_pods} == {failed, other}
    assert {item.slot for item in actions.create} == {Slot(0, "prefill", 1, 0), Slot(0, "prefill", 1, 1)}
    assert {item.told.past.restarts for item in actions.create} == {1}
    assert {note.reason for note in actions.notes} == {"ReplicaFailed", "ReplicaReplaced"}
    world.settle()
    assert untouched <= set(world.pods)
    assert not {failed, other} & set(world.pods)
    assert all(not podstate.is_admitted(world.pods[name]) for name in names_in(world, "prefill", 1))


def test_a_pod_of_a_bound_replica_that_vanished_takes_the_replica_with_it(world: World) -> None:
    lost, other = names_in(world, "prefill", 0)
    world.vanish(lost)
    world.forget()
    assert {item.pod.metadata.name for item in world.plan().actions.delete_pods} == {other}


def test_a_single_pod_is_replaced_alone(world: World) -> None:
    failed = names_in(world, "decode", 1)[0]
    untouched = set(world.pods) - {failed}
    world.fail(failed)
    world.settle()
    assert untouched <= set(world.pods)
    (successor,) = names_in(world, "decode", 1)
    assert successor != failed
    assert podstate.restarts(world.pods[successor]) == 1


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


def test_a_released_pod_is_replaced_alone(world: World) -> None:
    pinned, other = names_in(world, "prefill", 1)
    for name in (pinned, other):
        world.change(name, spec={"node_name": None}, status={"phase": "Pending", "conditions": ()})
    world.release(pinned)
    actions = world.plan().actions
    assert [item.pod.metadata.name for item in actions.delete_pods] == [pinned]
    assert {note.reason for note in actions.notes} == {"Released"}
    assert not actions.relabel, "no Service has found it yet"
    world.settle()
    assert other in world.pods
    (successor,) = set(names_in(world, "prefill", 1)) - {other}
    assert names.GATE_GANG in {gate.name for gate in world.pods[successor].spec.scheduling_gates or ()}
    assert podstate.restarts(world.pods[successor]) == 0


def test_a_terminating_pod_that_never_goes_does_not_hold_up_its_successor(world: World) -> None:
    stuck = names_in(world, "decode", 0)[0]
    world.delete(stuck)
    world.carry_out()
    pods = world.observe().pods[Slot(0, "decode", 0, 0)]
    assert len(pods) == 2
    assert not podstate.is_addressed(world.pods[stuck])
    assert current(pods) is not world.pods[stuck]
    assert not world.plan().actions


@pytest.mark.parametrize(
    "labels",
    [
        {names.LABEL_ADDRESS: None},
        {names.LABEL_POD_GROUP: "other"},
        {names.LABEL_ROLE: None},
        {names.LABEL_REPLICA: "1"},
        {names.LABEL_UNIT: "x"},
        {names.LABEL_INDEX: "1"},
    ],
)
def test_edited_labels_are_put_right(world: World, labels: dict[str, str | None]) -> None:
    name = names_in(world, "prefill", 0)[0]
    before = dict(world.pods[name].metadata.labels or {})
    world.label(name, labels)
    actions = world.plan().actions
    assert not actions.delete_pods
    assert not actions.create
    world.settle()
    assert world.pods[name].metadata.labels == before


@pytest.mark.parametrize(
    "labels", [{names.LABEL_REPLICA: "0"}, {names.LABEL_ROLE: None}, {names.LABEL_UNIT: "x"}, {names.LABEL_INDEX: "7"}]
)
@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_edited_labels_of_a_replica_with_a_high_number_are_put_right(
    world: World, role: str, labels: dict[str, str | None]
) -> None:
    for name in names_in(world, "prefill", 0) + names_in(world, "decode", 0):
        world.change(name, status={"phase": "Pending", "conditions": ()})
    world.inference = llama(prefill=1, decode=2)
    world.settle()
    highest = max(replicas_of(world, role))
    assert highest == (1 if role == "prefill" else 2)
    before = dict(world.pods)
    for name in names_in(world, role, highest):
        world.label(name, labels)
    actions = world.plan().actions
    assert not actions.delete_pods
    assert not actions.create
    world.settle()
    assert world.pods == before


def test_a_group_that_was_deleted_or_edited_is_applied_again(world: World) -> None:
    del world.objects[POD_GROUPS.type, "llama-0-prefill-0"]
    edited = world.objects[COMPOSITE_POD_GROUPS.type, "llama-0"]
    edited.spec["desiredGroupCount"] = 9
    actions = world.plan().actions
    applied = [body["metadata"]["name"] for level in actions.apply for body in level]
    assert applied == ["llama-0", "llama-0-prefill-0"]
    assert not actions.delete_pods
    assert not actions.create
    assert not world.settle().actions


@pytest.mark.parametrize("size", [1, 3])
def test_waiting_pods_take_a_change_of_a_rolled_field_at_once(size: int) -> None:
    world = World.settled(llama())
    old = set(world.pods)
    world.inference = inference(role("prefill", replicas=2, size=size), role("decode", replicas=3))
    world.settle()
    assert len(names_in(world, "prefill")) == 2 * size
    assert {name for name in old if "decode" in name} <= set(world.pods)
    assert not {name for name in old if "prefill" in name} & set(world.pods)
    assert len(world.revisions) == 2
    kinds = {kind for kind, name in world.objects if name == "llama-0-prefill"}
    assert kinds == {(POD_GROUPS if size == 1 else COMPOSITE_POD_GROUPS).type}


def test_going_back_to_an_earlier_revision_makes_it_the_newest() -> None:
    world = World.settled(llama())
    first = world.observe().in_force
    world.inference = llama(compat={"lws": False})
    world.settle()
    world.inference = llama()
    world.settle()
    last = world.observe().in_force
    assert first is not None
    assert last is not None
    assert (last.name, last.number) == (first.name, 3)


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


def test_suspended(world: World) -> None:
    world.inference = llama(suspend=True)
    assert {note.reason for note in world.plan().actions.notes} == {"Suspended"}
    world.settle()
    assert not world.pods
    assert not world.objects
    world.inference = llama()
    world.settle()
    assert len(world.pods) == 7


def test_services_stay_as_long_as_pods_terminate(world: World) -> None:
    world.inference = llama(suspend=True)
    for _ in range(2):
        world.carry_out()
    assert {name for kind, name in world.objects if kind == SERVICES.type} == {"llama-pods"}
    world.finish()
    world.settle()
    assert not world.objects


def test_a_suspended_resource_stores_no_revision_that_nobody_has_checked() -> None:
    world = World.settled(llama(suspend=True))
    assert not world.revisions


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


def test_the_loss_of_many_replicas_is_told_once(world: World) -> None:
    for name in list(world.pods):
        world.fail(name)
    notes = {note.message: note.warning for note in world.plan().actions.notes}
    assert notes == {
        "2 replicas of prefill: a pod of each was lost; they are recreated whole": True,
        "3 replicas of decode: 3 pods are replaced": False,
        "2 replicas of prefill failed on node-1: PodFailed": True,
        "3 replicas of decode failed on node-1: PodFailed": True,
    }


def test_surplus_units_go_whole(world: World) -> None:
    world.inference = llama(replicas=2)
    world.settle()
    assert {slot.unit for slot in world.observe().pods} == {0, 1}
    # Unit 1 waits, unit 0 serves: unit 1 goes, whatever its number.
    world.inference = llama(replicas=1)
    world.settle()
    assert {slot.unit for slot in world.observe().pods} == {0}
    assert (COMPOSITE_POD_GROUPS.type, "llama-1") not in world.objects


def test_the_unit_that_serves_stays_even_if_its_number_is_higher(world: World) -> None:
    world.inference = llama(replicas=2)
    world.settle()
    for slot, pods in world.observe().pods.items():
        for pod in pods:
            if slot.unit == 0:
                world.change(pod.metadata.name, status={"phase": "Running", "conditions": ()})
            else:
                world.bind(pod.metadata.name)
                world.ready(pod.metadata.name)
    world.inference = llama(replicas=1)
    world.settle()
    assert {slot.unit for slot in world.observe().pods} == {1}


def test_of_two_units_that_serve_the_one_with_more_surplus_stays() -> None:
    made = World.settled(inference(role("prefill"), role("decode", replicas=6), replicas=2))
    for slot, pods in made.observe().pods.items():
        if slot.unit == 1 or slot.role == "prefill" or slot.replica == 0:
            for pod in pods:
                made.bind(pod.metadata.name)
                made.ready(pod.metadata.name)
    made.inference = inference(role("prefill"), role("decode", replicas=6), replicas=1)
    made.settle()
    assert {slot.unit for slot in made.observe().pods} == {1}


def test_scale_to_zero_is_no_suspension_and_keeps_the_place_in_the_queue(world: World) -> None:
    workload = world.objects[WORKLOADS.type, "llama"]
    world.inference = llama(replicas=0)
    assert {note.reason for note in world.plan().actions.notes} == {"ScaledDown"}
    assert {item.why for item in world.plan().actions.delete_pods} == {"scaled down"}
    world.settle()
    assert not world.pods
    assert world.objects[WORKLOADS.type, "llama"].metadata.uid == workload.metadata.uid
    assert not [kind for kind, _ in world.objects if "Group" in kind]
    world.inference = llama()
    world.settle()
    assert len(world.pods) == 7
    assert world.objects[WORKLOADS.type, "llama"].metadata.uid == workload.metadata.uid


def msgspec_gate() -> Any:
    from covey.api import core  # noqa: PLC0415 - only here

    return core.SchedulingGate(names.GATE_GANG)
