"""Sums of what features find, and the index of a snapshot."""

import dataclasses
from typing import Any

import pytest

from builders.inferences import inference, role
from covey.api import constants as names
from covey.operator.model.actions import Actions, DeletePod, Note, Outcome, Remark, Ungate, soonest, sum_outcomes
from covey.operator.model.observed import current
from unit.operator.world import World

NOTE = Note("Created", "creating 1 replica of decode", "Create")


@pytest.fixture
def world() -> World:
    return World.settled(inference(role("prefill", size=2), role("decode", replicas=3)))


def test_nothing_comes_to_nothing() -> None:
    assert sum_outcomes(()) == Outcome()
    assert not sum_outcomes([Outcome(), Outcome()]).actions


def test_every_field_of_the_actions_is_summed() -> None:
    for each in dataclasses.fields(Actions):
        one, other = (("one",), ("other",)) if each.default == () else ({"name": "one"}, None)
        if each.name in {"delete_pods", "ungate"}:
            continue
        parts: list[dict[str, Any]] = [{each.name: one}, {each.name: other}]
        total = sum_outcomes(Outcome(Actions(**part)) for part in parts)
        assert getattr(total.actions, each.name) == (("one", "other") if each.default == () else one)


def test_remarks_keep_their_order_and_the_soonest_time_counts() -> None:
    first, second = Remark("Degraded", "A", "a"), Remark("Degraded", "B", "b")
    total = sum_outcomes(
        [Outcome(remarks=(first,), again=9.0), Outcome(Actions(notes=(NOTE,))), Outcome(Actions(), (second,), 3.0)]
    )
    assert total.remarks == (first, second)
    assert total.again == 3.0
    assert total.actions.notes == (NOTE,)
    assert soonest([None, None]) is None


def test_a_pod_goes_once_for_the_first_reason_and_is_not_let_go(world: World) -> None:
    one, other, *_ = world.pods.values()
    total = sum_outcomes(
        [
            Outcome(Actions(delete_pods=(DeletePod(one, "first"),), ungate=(Ungate(other, names.GATE_START),))),
            Outcome(Actions(delete_pods=(DeletePod(one, "second"),), ungate=(Ungate(one, names.GATE_START),))),
        ]
    )
    assert total.actions.delete_pods == (DeletePod(one, "first"),)
    assert total.actions.ungate == (Ungate(other, names.GATE_START),)


def test_the_index_says_who_fills_each_place(world: World) -> None:
    first, second, *_ = world.pods
    world.bind(first)
    world.delete(first)
    world.release(second)
    seen = world.observe()
    assert {slot: current(pods) for slot, pods in seen.pods.items()} == {
        slot: seen.current.get(slot) for slot in seen.pods
    }
    assert len(seen.current) == len(world.pods) - 2
    for slot, pods in seen.pods.items():
        place = seen.place(slot)
        assert place is seen.place(slot)
        assert [place.now] == list(pods) if place.now is not None else place.others == pods
