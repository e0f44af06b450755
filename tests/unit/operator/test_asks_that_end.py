"""How requests for nodes end, whoever looks, and when the same is asked for again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.inferences import role
from covey.api import constants as names
from covey.api import core
from covey.kube.resources import POD_TEMPLATES
from covey.operator.capacity.answers import CapacityAnswer, RequestEnd, read_ended
from covey.operator.model.capacity import CAPACITY_BUFFERS, PROVISIONING_REQUESTS
from unit.operator.test_capacity import (
    BUFFERS,
    COMING,
    NEW,
    NOT_FOUND,
    REQUESTS,
    Asking,
    gang,
    gpus,
    refused,
)
from unit.operator.test_elastic_asks import asking, rack, selectors, topology
from unit.operator.test_nodes_that_come import EXPIRED, FITS, act, answered, keep, told

HOUR = 3600.0
_KEYS = st.sampled_from(["reason", "again", "backoffSeconds", "request"])


def annotate(world: Asking, name: str, annotation: str, text: str) -> None:
    """What somebody has written on the PodTemplate of a request."""
    key = (POD_TEMPLATES.type, name)
    made = world.objects[key]
    metadata = msgspec.structs.replace(
        made.metadata, annotations={**(made.metadata.annotations or {}), annotation: text}
    )
    world.objects[key] = msgspec.structs.replace(made, metadata=metadata)


def refuse(world: Asking) -> None:
    """The unit is refused for room, and nothing is kept for it or given up for it any more."""
    world.judge_unit("False", names.REASON_INFEASIBLE, claim=None)


def await_asked(world: Asking) -> float:
    """Look whenever the operator would, until a request stands; returns how long that took."""
    begun = world.now
    while not world.of():
        again = world.plan().again
        assert again is not None, "nobody looks again"
        world.now += again
        act(world)
    return world.now - begun


# One clock


@pytest.mark.parametrize("wait", [900.0, 3600.0])
def test_a_request_when_its_booking_expires_before_wait_seconds_goes_on(wait: float) -> None:
    """cluster-autoscaler ends each booking ten minutes after ``Provisioned``; machines may take longer."""
    world = answered(COMING, capacity=replace(REQUESTS, wait=wait))
    world.now += 601
    world.say(COMING, EXPIRED)
    act(world)
    assert (world.asked()[:2], told(world) is not None) == (("True", "Coming"), True)


def test_a_request_when_the_autoscaler_failed_to_check_goes_on() -> None:
    """It tries again by itself: no rack is struck off for it."""
    world = asking(gang("decode", 2), elastic=topology("r7", "r8"))
    act(world)
    before = world.of().keys()
    world.say(core.Condition("Provisioned", "False", "FailedToCheckCapacity"))
    act(world)
    assert (world.of().keys(), world.marks(), world.asked()[:2]) == (before, {}, ("True", "Asked"))


@pytest.mark.parametrize("reason", [names.REASON_WAITING, names.REASON_UNKNOWN, names.REASON_BELOW_MINIMUM])
@pytest.mark.parametrize("capacity", [BUFFERS, REQUESTS], ids=["buffer", "request"])
def test_a_request_when_its_unit_is_decided_of_no_more_ends_by_its_own_clock(capacity: Any, reason: str) -> None:
    """A pod of the minimum is lost and cannot come back; Karpenter would keep the nodes for ever."""
    is_buffer = capacity is BUFFERS
    world: Asking = answered(NEW if is_buffer else COMING, capacity=capacity)
    world.judge_unit("False", reason)
    for _ in range(10):
        world.now += 86400
        act(world)
    assert not world.of(CAPACITY_BUFFERS if is_buffer else PROVISIONING_REQUESTS)
    assert world.asked()[:2] == ("False", "NothingCame")
    assert told(world) is None


# Asked again


def test_a_unit_when_no_node_ever_comes_asks_again_after_waits_that_double_to_four_hours() -> None:
    world = answered(COMING)
    waits: list[float] = []
    for _ in range(7):
        world.now += 901
        act(world)
        assert not world.of()
        waits.append(await_asked(world))
        world.say(COMING)
        act(world)
        assert told(world) is not None
    doubled = [900.0, 1800.0, HOUR, 2 * HOUR, 4 * HOUR, 4 * HOUR, 4 * HOUR]
    assert all(wait <= took <= 1.25 * wait + 1 for wait, took in zip(doubled, waits, strict=True)), waits


def test_what_ended_in_one_moment_when_it_is_due_is_not_asked_for_in_one_moment() -> None:
    world = refused(*(gang(f"decode{number}", 1, 1 + number) for number in range(4)))
    world.say(COMING)
    world.now += 901
    act(world)
    times = [mark["again"] for mark in world.marks().values()]
    assert len(set(times)) == 4
    world.forget()
    world.now += 1
    act(world)
    assert [mark["again"] for mark in world.marks().values()] == times, "whoever looks finds the same"


def test_parts_of_a_unit_when_one_of_them_has_ended_are_asked_for_again_together() -> None:
    """The nodes of one alone would stand empty."""
    world = refused(gang("prefill", 2), gang("decode", 1, 4))
    first, second = sorted(world.of())
    world.say(COMING, name=first)
    world.now += 300
    world.say(COMING, name=second)
    world.now += 700
    act(world)
    assert list(world.of()) == [second]
    world.now += 300
    act(world)
    assert not world.of()
    await_asked(world)
    assert set(world.of()) == {first, second}
    assert max(core.seconds(mark["again"]) or 0.0 for mark in world.marks().values()) <= world.now


@pytest.mark.parametrize(("condition", "capacity"), [(COMING, REQUESTS), (NEW, BUFFERS), (FITS, BUFFERS)])
def test_a_unit_when_nodes_came_and_did_not_help_never_asks_for_the_same_pods_again(
    condition: core.Condition, capacity: Any
) -> None:
    """The claim to them may be gone when the request ends: whoever looks then knows of it all the same."""
    kind = capacity.kind
    world = refused(capacity=capacity)
    world.say(condition, kind=kind)
    keep(world)
    act(world)
    refuse(world)
    world.forget()
    for _ in range(30):
        world.now += 2 * HOUR
        act(world)
        assert not world.of(kind)
    ((name, mark),) = world.marks().items()
    assert mark["again"] is None
    assert f"to ask again, delete PodTemplate {name}" in world.asked()[2]


@pytest.mark.parametrize("text", ["NothingCame", "Disagreed", "of a later release"])
def test_the_mark_of_a_former_release_when_it_is_seen_first_counts_as_an_end_at_that_moment(text: str) -> None:
    world = answered(COMING)
    (name,) = world.of()
    annotate(world, name, names.ANNOTATION_ASK_ENDED, text)
    act(world)
    assert not world.of(), "its request had ended"
    assert 900 <= await_asked(world) <= 1.25 * 900 + 1


@given(st.text() | st.recursive(st.none() | st.text(), lambda inner: st.dictionaries(_KEYS, inner)).map(json.dumps))
def test_a_mark_when_anybody_has_written_it_is_read_as_one_without_times(text: str) -> None:
    assert read_ended(text) in {RequestEnd(answer) for answer in CapacityAnswer}


@given(
    st.builds(
        RequestEnd, st.sampled_from(CapacityAnswer), st.text(), st.floats(1, 1e6), st.none() | st.integers(0, 2**32)
    )
)
def test_a_mark_when_it_is_read_is_what_was_written(ended: RequestEnd) -> None:
    assert read_ended(ended.dump()) == ended


@pytest.mark.parametrize("text", ["{", "[]", "2026-13-45T00:00:00Z"])
def test_the_notes_of_a_request_when_anybody_has_written_them_end_no_pass(text: str) -> None:
    world = answered(COMING)
    (name,) = world.of()
    for annotation in (names.ANNOTATION_ASK_ENDED, names.ANNOTATION_ASK_CAME, names.ANNOTATION_ASK_UNWANTED):
        annotate(world, name, annotation, text)
    act(world)
    assert world.asked()[:2] == ("False", "NothingCame")


# Domains by name


def test_a_domain_when_it_is_due_once_more_is_asked_for_again_and_the_request_without_a_name_gives_way() -> None:
    world = asking(gang("decode", 4), elastic=topology("r7"))
    world.say(NOT_FOUND)
    act(world)
    assert selectors(world) == [{}]
    world.say(NOT_FOUND)
    world.now += 1.25 * 900 + 1
    act(world)
    assert selectors(world) == [rack("r7")]
    world.say(NOT_FOUND)
    act(world)
    assert selectors(world) == [{}], "the autoscaler tries that one again by itself"


def test_a_domain_when_it_is_due_while_another_request_is_open_is_not_asked_for() -> None:
    world = asking(
        gang("decode", 4),
        elastic=topology("r7", "r8"),
    )
    world.say(NOT_FOUND)
    act(world)
    assert selectors(world) == [rack("r8")]
    for _ in range(10):
        world.now += 1000
        act(world)
        assert selectors(world) == [rack("r8")]


def test_a_domain_whose_nodes_did_not_help_when_others_are_asked_for_again_is_not() -> None:
    """Its mark stays, whichever domain is asked for."""
    world = asking(gang("decode", 4), elastic=topology("r7", "r8"))
    world.say(NOT_FOUND)
    act(world)
    (second,) = world.of()
    world.say(COMING)
    keep(world)
    act(world)
    refuse(world)
    asked: set[str] = set()
    for _ in range(16):
        world.now += HOUR
        act(world)
        world.say(NOT_FOUND)
        act(world)
        asked |= set(world.of())
    assert world.marks()[second]["again"] is None
    assert second not in asked
    assert len(asked) >= 1


# Nothing is withdrawn by one look


@pytest.mark.parametrize(
    "reason", [names.REASON_OVER_QUOTA, names.REASON_UNSCHEDULABLE, names.REASON_DENIED, names.REASON_FAILED, "claim"]
)
def test_a_request_when_its_unit_waits_for_something_else_for_a_moment_goes_on(reason: str) -> None:
    world = answered(COMING)
    before = {found.metadata.uid for found in world.of().values()}
    if reason == "claim":
        world.want_something_else(reason)
    else:
        world.judge_unit("False", reason, ago=0)
    act(world)
    assert {found.metadata.uid for found in world.of().values()} == before
    assert told(world) is not None


def test_a_request_when_nodes_are_on_their_way_and_its_unit_waits_for_quota_stays_until_its_clock_has_run_out() -> None:
    world = answered(COMING)
    world.want_something_else("quota")
    for _ in range(8):
        act(world)
        assert len(world.of()) == 1
        assert world.asked()[:2] == ("True", "Coming")
        world.now += 110
    world.now += 30
    act(world)
    assert not world.of()
    assert [mark["reason"] for mark in world.marks().values()] == ["NothingCame"]


def test_how_a_request_ended_when_its_unit_waits_for_quota_is_not_forgotten() -> None:
    world = answered(COMING)
    keep(world)
    act(world)
    world.now += 1000
    refuse(world)
    act(world)
    world.want_something_else("quota")
    for _ in range(3):
        world.now += 600
        act(world)
    refuse(world)
    act(world)
    assert not world.of()
    assert [mark["again"] for mark in world.marks().values()] == [None]


def test_surplus_when_another_unit_loses_its_place_for_a_moment_is_not_withdrawn() -> None:
    made = role("decode", replicas=2, minReplicas=1, template=gpus(8))
    world = refused(made, capacity=None, replicas=2)
    for unit in range(2):
        world.bind(min(name for name, pod in world.pods.items() if pod.metadata.label(names.LABEL_UNIT) == str(unit)))
        world.judge_unit("True", names.REASON_ADMITTED, unit)
    world.autoscaler = REQUESTS
    act(world)
    before = set(world.of())
    assert len(before) == 2
    world.judge_unit("False", names.REASON_BELOW_MINIMUM, unit=1)
    act(world)
    assert set(world.of()) == before
    world.now += 31
    act(world)
    assert len(world.of()) == 1, "that of the unit of which nobody has decided stays"
