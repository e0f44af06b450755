"""Evictions of members: whose they are, which replicas leave for them, and what is answered."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from builders.inferences import inference, role
from covey.api import constants as names
from covey.api.core import rfc3339
from covey.kube.client import Client
from covey.kube.clock import SYSTEM
from covey.kube.errors import api_error
from covey.operator.execute.evictions import is_refusal
from covey.operator.model.eviction import HEARTBEAT, Eviction, EvictionAnswer, ResponderStatus
from covey.operator.observe.evicted import Evicted
from covey.operator.observe.watched import Watched
from covey.operator.rolling.leaving import find_leaving
from covey.operator.rolling.respond import find_answers
from unit.operator.answering import refuse
from unit.operator.seen import Seen
from unit.operator.world import World

ACTIVE = {"name": names.EVICTION_RESPONDER, "state": "Active"}


def eviction(world: World, name: str, **status: Any) -> Eviction:
    """An Eviction of a pod, in which it is the operator's turn unless the status says otherwise."""
    target = {"pod": {"name": name, "uid": world.pods[name].metadata.uid}}
    status = {
        "requesters": [{"name": "example.com/drain", "intent": "Eviction"}],
        "targetResponders": [ACTIVE],
        "responders": [{"name": names.EVICTION_RESPONDER, "startTime": rfc3339(world.now)}],
        **status,
    }
    return msgspec.convert(
        {"metadata": {"name": f"pod-1-{name}"}, "spec": {"target": target}, "status": status}, Eviction
    )


def ask(world: World, name: str, **status: Any) -> None:
    """Somebody wants a pod gone."""
    found = eviction(world, name, **status)
    assert found.target is not None
    world.evictions[found.target.uid] = found


def serving(**decode: Any) -> World:
    """Each replica serves on a node of its own."""
    fields = {"replicas": 2, "minReplicas": 2, **decode}
    world = World(inference(role("decode", **fields), role("prefill", size=2)))
    world.settle()
    world.serve(apart=True)
    world.tell()
    return world


def answers(world: World) -> dict[str, EvictionAnswer]:
    """What is answered, by name of the pod."""
    found, _ = find_answers(world.inference.spec, world.observe(), world.plan().intent)
    by_uid = {pod.metadata.uid: name for name, pod in world.pods.items()}
    return {by_uid[uid]: answer for uid, answer in found.items()}


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        ({}, True),
        ({"targetResponders": [{**ACTIVE, "state": "Inactive"}]}, False),
        ({"targetResponders": [{**ACTIVE, "state": "Completed"}]}, True),
        ({"targetResponders": [{**ACTIVE, "state": "Interrupted"}]}, True),
        ({"targetResponders": [{**ACTIVE, "state": "Canceled"}]}, False),
        ({"targetResponders": [{"name": "example.com/other", "state": "Active"}]}, False),
        ({"targetResponders": []}, False),
        ({"requesters": [{"name": "example.com/drain", "intent": "Withdrawn"}]}, False),
        ({"requesters": []}, False),
        ({"conditions": [{"type": "Failed", "status": "True"}]}, False),
        ({"conditions": [{"type": "Failed", "status": "False"}]}, True),
    ],
)
def test_replica_when_the_eviction_of_a_member_is_asked_for_leaves(status: dict[str, Any], wanted: bool) -> None:  # noqa: FBT001 - a column
    world = serving()
    name = world.names_of("prefill")[0]
    ask(world, name, **status)
    leaving = find_leaving(world.inference.spec, world.observe())
    assert list(leaving.places) == [(0, "prefill", 0)] * wanted
    assert not leaving.patient
    assert [each.node for each in leaving.avoided] == [world.pods[name].spec.node_name] * wanted


def test_evictions_of_several_members_when_asked_for_are_one_move() -> None:
    world = serving()
    for name in world.names_of("prefill"):
        ask(world, name)
    before = len(world.pods)
    world.act(2)
    assert len(world.pods) == before + 2
    assert {answer.message for answer in answers(world).values()} == {
        "replica 0 of prefill in unit 0 is moved as a whole: a successor first, where there is capacity for one"
    }


def test_answer_when_the_replica_cannot_leave_completes_after_the_patience_of_the_resource() -> None:
    world = serving()
    name = world.names_of("decode")[0]
    ask(world, name)
    world.act(3)
    refuse(world)
    found, due = find_answers(world.inference.spec, world.observe(), world.plan().intent)
    assert due is not None
    [answer] = found.values()
    assert not answer.completes
    assert answer.message.startswith("replica 0 of decode in unit 0 cannot leave: there is no capacity for a successor")
    world.now += due
    refuse(world)
    assert answers(world)[name] == EvictionAnswer(answer.message, completes=True)
    started = {"name": names.EVICTION_RESPONDER, "startTime": rfc3339(world.now), "completionTime": rfc3339(world.now)}
    ask(world, name, responders=[started])
    assert not answers(world), "nothing more is said"
    assert (0, "decode", 0) in find_leaving(world.inference.spec, world.observe()).places, "it goes as soon as it can"


def test_answer_while_a_replica_drains_has_the_time_at_which_it_goes() -> None:
    world = serving(drainSeconds=300)
    name = world.names_of("decode")[0]
    ask(world, name)
    for _ in range(3):
        world.act(2)
        world.serve(apart=True)
    answer = answers(world)[name]
    assert answer.message == "its replica gets no more requests, and goes when it has none left"
    assert answer.until == pytest.approx(world.now + 300, abs=1)
    assert not answer.completes


def test_answer_for_a_pod_without_a_node_completes() -> None:
    world = World.settled(inference(role("decode")))
    [name] = world.names_of("decode")
    ask(world, name)
    assert answers(world)[name] == EvictionAnswer("the pod has no node, so there is nothing to move", completes=True)


def test_answer_where_nothing_is_kept_up_completes() -> None:
    world = serving()
    ask(world, world.names_of("decode")[0])
    found, _ = find_answers(world.inference.spec, world.observe(), None)
    assert [answer.completes for answer in found.values()] == [True]


@pytest.mark.parametrize(
    ("said", "answer", "left"),
    [
        ({}, EvictionAnswer("moves"), 0.0),
        ({"heartbeat_time": rfc3339(1000.0), "message": "waits"}, EvictionAnswer("moves"), 20.0),
        ({"heartbeat_time": rfc3339(1000.0), "message": "moves"}, EvictionAnswer("moves"), HEARTBEAT),
        ({"heartbeat_time": rfc3339(1000.0), "message": "waits"}, EvictionAnswer("done", completes=True), 0.0),
    ],
    ids=["nothing was said", "something else was", "the same was", "it is done"],
)
def test_heartbeat_is_due(said: dict[str, Any], answer: EvictionAnswer, left: float) -> None:
    assert answer.seconds_left(ResponderStatus(names.EVICTION_RESPONDER, **said), 1000.0) == left


def test_answer_when_an_eviction_is_asked_for_anew_is_not_the_former_one() -> None:
    world = serving()
    name = world.names_of("decode")[0]
    uid = world.pods[name].metadata.uid
    looks: list[tuple[str, str]] = []
    responses: list[tuple[str, str]] = []
    evicted = Evicted(cast("Client", None), (), looks.append, responses.append, clock=SYSTEM)
    found = eviction(world, name)
    Seen().watch(cast("Watched[Eviction]", evicted), found)
    assert looks == [(found.metadata.namespace, name)]
    known = evicted.of(world.pods.values())
    assert list(known) == [uid]
    evicted.answer(known, {uid: EvictionAnswer("cannot leave", completes=True)})
    assert evicted.find_answer(uid) == EvictionAnswer("cannot leave", completes=True)
    assert responses == [found.metadata.key] * 2
    # Nothing more is to be said once it has completed, or was withdrawn.
    evicted.answer(known, {})
    assert evicted.find_answer(uid) is None
    evicted.note_end(world.pods[name])
    assert responses == [found.metadata.key] * 3


THROTTLED = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "please try again later"}
BUDGET = {"reason": "DisruptionBudget", "message": "The disruption budget web needs 1 healthy pods and has 1 currently"}


@pytest.mark.parametrize(
    ("code", "details", "retry_after", "refuses"),
    [
        (429, {"causes": [BUDGET]}, None, True),
        (429, {"causes": [BUDGET], "retryAfterSeconds": 10}, 10.0, True),
        (429, {}, None, True),  # of a webhook
        (429, {}, 1.0, False),
        (429, {"retryAfterSeconds": 1}, None, False),
        (403, {}, None, True),
        (500, {}, None, True),
        (503, {}, 1.0, False),
        (504, {}, None, False),
    ],
)
def test_error_of_an_eviction_when_the_server_sheds_load_is_no_refusal(
    code: int,
    details: dict[str, Any],
    retry_after: float | None,
    refuses: bool,  # noqa: FBT001 - a column
) -> None:
    body = msgspec.json.encode({**THROTTLED, "code": code, "details": details})
    assert is_refusal(api_error(code, body, retry_after)) is refuses
