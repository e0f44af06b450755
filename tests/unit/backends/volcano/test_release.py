"""Whom the operator lets go: minimums whole, surplus after them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.inferences import inference
from covey.api.inference import DisaggregatedInference
from covey.backends import Identity, Owned, ReleaseFacts, ReplicaProgress
from covey.backends.volcano import Volcano
from covey.compile import Slot, type_of
from unit.backends.volcano.objects import kthena, workers

BORN, COMPLETE, LET_GO, BOUND = range(4)
GANG = inference(
    workers("prefill", replicas=3, size=2, minReplicas=2), workers("decode", replicas=2, minReplicas=1), replicas=2
)


def stored(resource: DisaggregatedInference, status: Mapping[str, Any] | None = None) -> dict[Identity, Owned]:
    """The PodGroups as the API server has them."""
    found = (body for body in Volcano().compile(resource).objects() if body["kind"] == "PodGroup")
    return {
        (type_of(body), body["metadata"]["name"]): msgspec.convert({**body, "status": status or {}}, Owned)
        for body in found
    }


def replicas(resource: DisaggregatedInference, states: Mapping[tuple[str, int], int], unit: int) -> Any:
    """Each replica as far as ``states`` say; without a word it is only born."""
    made = []
    for role in resource.spec.roles:
        ranked = sorted(range(role.replicas), key=lambda n: (-max(states.get((role.name, n), 0) - COMPLETE, 0), n))
        for number in range(role.replicas):
            state = states.get((role.name, number), BORN)
            slots = tuple(Slot(unit, role.name, number, index) for index in range(role.size))
            minimum = number in ranked[: role.min_replicas]
            made.append(ReplicaProgress(slots, minimum, state >= COMPLETE, state >= LET_GO, state >= BOUND))
    return tuple(made)


def progress(
    resource: DisaggregatedInference,
    *units: Mapping[tuple[str, int], int],
    objects: Mapping[Identity, Owned] | None = None,
) -> ReleaseFacts:
    found = {unit: replicas(resource, states, unit) for unit, states in enumerate(units)}
    return ReleaseFacts(resource, found, stored(resource) if objects is None else objects)


def every(state: int, **others: int) -> dict[tuple[str, int], int]:
    known = {("prefill", 0), ("prefill", 1), ("prefill", 2), ("decode", 0), ("decode", 1)}
    return dict.fromkeys(known, state) | {
        (key.rpartition("_")[0], int(key.rpartition("_")[2])): value for key, value in others.items()
    }


def gone(slots: Sequence[Slot]) -> set[str]:
    return {f"{slot.unit} {slot.role} {slot.replica}" for slot in slots}


def test_a_minimum_goes_as_one() -> None:
    let_go = Volcano().release(progress(GANG, every(COMPLETE), every(BORN)))
    assert gone(let_go.slots) == {"0 prefill 0", "0 prefill 1", "0 decode 0"}
    assert len(let_go.slots) == 5
    assert let_go.waits[1].message == "waits until every pod of the minimum exists: prefill 0/2, decode 0/1"


def test_not_under_a_group_that_knows_a_lower_minimum() -> None:
    """Volcano would start the gang without what the new minimum adds."""
    before = inference(
        *(role.model_copy(update={"min_replicas": 1}).as_object() for role in GANG.spec.roles), replicas=2
    )
    let_go = Volcano().release(progress(GANG, every(COMPLETE), objects=stored(before)))
    assert let_go.slots == ()
    assert let_go.waits[0].message == "waits until its PodGroup has the new minimum"


def test_running_is_no_word_for_a_minimum() -> None:
    """Volcano 1.14.1 counts pods: three replicas of prefill are as many pods as two and a decode."""
    objects = stored(GANG, {"phase": "Running", "running": 6})
    states = every(BOUND, decode_0=LET_GO, decode_1=COMPLETE)
    let_go = Volcano().release(progress(GANG, states, objects=objects))
    assert let_go.slots == ()
    assert let_go.waits[0].message == (
        "Volcano calls the PodGroup Running, which counts its pods only; bound are prefill 2/2, decode 0/1"
    )


@st.composite
def situations(draw: st.DrawFn) -> ReleaseFacts:
    units = []
    for _ in range(2):
        states = {
            (role.name, number): draw(st.sampled_from([BORN, COMPLETE, LET_GO, BOUND]))
            for role in GANG.spec.roles
            for number in range(role.replicas)
        }
        units.append(states)
    objects = stored(GANG, {"phase": draw(st.sampled_from(["Pending", "Inqueue", "Running", "Unknown"]))})
    missing = draw(st.sets(st.sampled_from(sorted(objects))))
    return progress(GANG, *units, objects={key: owned for key, owned in objects.items() if key not in missing})


@given(situations())
def test_whatever_is_there_no_part_of_a_minimum_goes_and_no_surplus_before_it(seen: ReleaseFacts) -> None:
    let_go = set(Volcano().release(seen).slots)
    for unit, found in seen.units.items():
        minimum = [each for each in found if each.in_minimum]
        held = {slot for each in minimum if not each.is_let_go for slot in each.slots}
        surplus = {slot for each in found if not each.in_minimum for slot in each.slots}
        mine = {slot for slot in let_go if slot.unit == unit}
        if mine & held:
            assert held <= mine
            assert all(each.is_complete for each in minimum)
        if mine & surplus:
            assert all(each.is_bound for each in minimum)


@given(situations())
def test_it_comes_to_an_end(seen: ReleaseFacts) -> None:
    """With room for everything, everything is let go and bound in the end."""
    objects = stored(GANG)
    for _ in range(6):
        units: dict[int, Sequence[ReplicaProgress]] = {}
        let_go = set(Volcano().release(replace(seen, objects=objects)).slots)
        for unit, found in seen.units.items():
            units[unit] = tuple(
                replace(
                    each,
                    is_complete=True,
                    is_let_go=each.is_let_go or set(each.slots) <= let_go,
                    is_bound=each.is_let_go or set(each.slots) <= let_go,
                )
                for each in found
            )
        seen = replace(seen, units=units)
    assert all(each.is_bound for found in seen.units.values() for each in found)


@pytest.mark.parametrize("spec", [{"replicas": 0}, {"suspend": True}])
def test_nothing_to_let_go(spec: dict[str, Any]) -> None:
    assert Volcano().release(ReleaseFacts(kthena(**spec), {}, {})).slots == ()
