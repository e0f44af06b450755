"""The question for head-room: carried to the scheduler process until it is answered, and once."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from builders.inferences import inference, role
from covey.api import constants as names
from covey.api import core
from covey.api.headroom import Question, dump_question, read
from covey.backends import Owned
from covey.kube.resources import COMPOSITE_POD_GROUPS
from unit.operator.test_status import decide, serve
from unit.operator.world import World


def root_of(world: World, unit: int = 0) -> Owned:
    return world.objects[COMPOSITE_POD_GROUPS.type, f"llama-{unit}"]


def asks(world: World, text: str | None) -> None:
    """What somebody has written on the resource."""
    annotations = {} if text is None else {names.ANNOTATION_HEADROOM: text}
    metadata = world.inference.metadata.model_copy(update={"annotations": annotations})
    world.inference = world.inference.model_copy(update={"metadata": metadata})


def carried(world: World, unit: int = 0) -> Any:
    """What the scheduler process is asked by now."""
    world.note()
    return json.loads(root_of(world, unit).metadata.annotation(names.ANNOTATION_QUESTION) or "null")


def answers(world: World, asked: str, *roles: core.RoleHeadroom, unit: int = 0) -> None:
    """What the scheduler process says."""
    found = root_of(world, unit)
    told = core.Headroom(asked, "2026-01-01T00:00:00Z", roles)
    status = msgspec.structs.replace(found.status, headroom=told)
    world.objects[COMPOSITE_POD_GROUPS.type, f"llama-{unit}"] = msgspec.structs.replace(found, status=status)


def told(world: World) -> tuple[Any, dict[str, Any]]:
    """What the status says: of the question, and of each role."""
    status = world.tell()
    return status.get("headroom"), {row["name"]: row.get("maxFeasible") for row in status["roles"]}


def serving(**spec: Any) -> World:
    """A resource of one role that an autoscaler sets, and one that none does."""
    world = World.settled(inference(role("prefill", replicas=2, scaling={"mode": "External"}), role("decode"), **spec))
    decide(world)
    serve(world)
    world.tell()
    return world


@pytest.fixture
def world() -> World:
    return serving()


def test_nobody_asks(world: World) -> None:
    assert carried(world) is None
    assert told(world) == (None, {"prefill": None, "decode": None})


def test_a_question_and_its_answer(world: World) -> None:
    asks(world, "one")
    assert carried(world) == {"asked": "one", "roles": {"decode": "each", "prefill": "sum"}}
    assert told(world) == (None, {"prefill": None, "decode": None})
    answers(world, "one", core.RoleHeadroom("prefill", 5), core.RoleHeadroom("decode", None, message="nobody knows"))
    expected = {"asked": "one", "observedAt": "2026-01-01T00:00:00Z", "message": "decode: nobody knows"}
    assert told(world) == (expected, {"prefill": 5, "decode": None})


def test_the_last_answer_stays_until_the_next_one(world: World) -> None:
    asks(world, "one")
    answers(world, "one", core.RoleHeadroom("prefill", 5))
    told(world)
    asks(world, "two")
    assert carried(world)["asked"] == "two"
    question, most = told(world)
    assert (question["asked"], most["prefill"]) == ("one", 5)
    answers(world, "two", core.RoleHeadroom("prefill", 3, at_least=True))
    question, most = told(world)
    assert (question["asked"], question["message"], most["prefill"]) == (
        "two",
        "prefill: there may be room for more",
        3,
    )


def test_an_answer_outlives_the_group_that_had_it(world: World) -> None:
    asks(world, "one")
    answers(world, "one", core.RoleHeadroom("prefill", 5))
    told(world)
    answers(world, "something else")
    assert not world.plan().actions.annotate
    assert told(world)[1] == {"prefill": 5, "decode": None}


def test_it_is_asked_once(world: World) -> None:
    asks(world, "one")
    world.note()
    assert not world.plan().actions.annotate
    answers(world, "one", core.RoleHeadroom("prefill", 5))
    told(world)
    assert not world.plan().actions.annotate


def test_a_question_is_taken_back(world: World) -> None:
    asks(world, "one")
    answers(world, "one", core.RoleHeadroom("prefill", 5))
    told(world)
    asks(world, None)
    assert told(world) == (None, {"prefill": None, "decode": None})


def test_the_first_unit_that_is_there_is_asked() -> None:
    world = serving(replicas=2)
    del world.objects[COMPOSITE_POD_GROUPS.type, "llama-0"]
    asks(world, "one")
    assert [each.name for each in world.plan().actions.annotate] == ["llama-1"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"suspend": True}, "the resource is suspended, and has no places"),
        ({"replicas": 0}, "there are no units"),
        (
            {"backend": "Kubernetes"},
            "only Covey's own scheduler knows how many would fit, and the backend is Kubernetes",
        ),
    ],
)
def test_nobody_can_answer(spec: dict[str, Any], message: str) -> None:
    world = World(inference(role("prefill"), role("decode"), **spec))
    asks(world, "one")
    world.settle()
    question, most = told(world)
    assert (question["asked"], question["message"]) == ("one", message)
    assert most == {"prefill": None, "decode": None}


def every(world: World, seconds: str, text: str | None = None) -> None:
    """It is to be asked anew after so many seconds."""
    asks(world, text)
    kept = world.inference.metadata.annotations or {}
    annotations = {**kept, names.ANNOTATION_HEADROOM_SECONDS: seconds}
    metadata = world.inference.metadata.model_copy(update={"annotations": annotations})
    world.inference = world.inference.model_copy(update={"metadata": metadata})


def test_it_is_asked_anew_by_the_clock(world: World) -> None:
    world.now = 1_800_000_020.0
    every(world, "60")
    assert carried(world)["asked"] == "2027-01-15T08:00:00Z"
    assert world.plan().headroom.again == 40.0
    answers(world, "2027-01-15T08:00:00Z", core.RoleHeadroom("prefill", 5))
    assert told(world)[1]["prefill"] == 5
    world.now += 39.0
    assert not world.plan().actions.annotate
    world.now += 1.0
    assert carried(world)["asked"] == "2027-01-15T08:01:00Z"
    assert told(world)[1]["prefill"] == 5


def test_in_between_somebody_asks(world: World) -> None:
    every(world, "3600", "one")
    assert carried(world)["asked"] == "one 2027-01-15T08:00:00Z"
    answers(world, "one 2027-01-15T08:00:00Z", core.RoleHeadroom("prefill", 5))
    told(world)
    every(world, "3600", "two")
    assert carried(world)["asked"] == "two 2027-01-15T08:00:00Z"


@pytest.mark.parametrize("text", ["", "0", "-5", "1m", "½", "99999999999999999999"])
def test_what_is_no_number_of_seconds_asks_nothing(world: World, text: str) -> None:
    every(world, text)
    assert carried(world) is None
    assert world.plan().headroom.again is None


def test_it_is_not_asked_anew_all_the_time(world: World) -> None:
    every(world, "1")
    world.note()
    world.now += 5.0
    assert not world.plan().actions.annotate


def test_a_question_is_read_as_it_was_written() -> None:
    question = Question("one", {"prefill": True, "decode": False})
    assert read(dump_question(question)) == question
    for text in (None, "", "{", "[]", "{}", '{"asked": ""}', '{"asked": "one"}', '{"asked": 1, "roles": {}}'):
        assert read(text) is None


def test_what_a_stranger_wrote_is_no_question() -> None:
    """Whoever may change groups may write it; an answer has a row for each role, sixteen at most."""
    assert read("[" * 100_000) is None
    assert read(dump_question(Question("one", {f"role-{number}": True for number in range(16)})))
    assert read(dump_question(Question("one", {f"role-{number}": True for number in range(17)}))) is None
