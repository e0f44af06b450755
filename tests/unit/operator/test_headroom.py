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
from unit.operator.test_status import decide
from unit.operator.world import World


def root_of(world: World, unit: int = 0) -> Owned:
    return world.objects[COMPOSITE_POD_GROUPS.type, f"llama-{unit}"]


def annotate(world: World, **annotations: str) -> None:
    """What somebody has written on the resource."""
    keys = {"asked": names.ANNOTATION_HEADROOM, "seconds": names.ANNOTATION_HEADROOM_SECONDS}
    written = {keys[name]: text for name, text in annotations.items()}
    metadata = world.inference.metadata.model_copy(update={"annotations": written})
    world.inference = world.inference.model_copy(update={"metadata": metadata})


def carried(world: World, unit: int = 0) -> Any:
    """What the scheduler process is asked by now."""
    world.note()
    return json.loads(root_of(world, unit).metadata.annotation(names.ANNOTATION_QUESTION) or "null")


def answers(world: World, asked: str, *roles: core.RoleHeadroom, unit: int = 0) -> None:
    """What the scheduler process says."""
    found = root_of(world, unit)
    told = core.GroupHeadroom(asked, "2026-01-01T00:00:00Z", roles)
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
    world.serve()
    world.tell()
    return world


@pytest.fixture
def world() -> World:
    return serving()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"suspend": True}, "the resource is suspended, and has no nodes"),
        ({"replicas": 0}, "there are no units"),
        (
            {"backend": "Kubernetes"},
            "only Covey's own scheduler knows how many would fit, and the backend is Kubernetes",
        ),
    ],
)
def test_nobody_can_answer(spec: dict[str, Any], message: str) -> None:
    world = World(inference(role("prefill"), role("decode"), **spec))
    annotate(world, asked="one")
    world.settle()
    question, most = told(world)
    assert (question["asked"], question["message"]) == ("one", message)
    assert most == {"prefill": None, "decode": None}


def test_it_is_asked_anew_by_the_clock(world: World) -> None:
    world.now = 1_800_000_020.0
    annotate(world, seconds="60")
    assert carried(world)["asked"] == "2027-01-15T08:00:00Z"
    assert world.plan().again == 40.0
    answers(world, "2027-01-15T08:00:00Z", core.RoleHeadroom("prefill", 5))
    assert told(world)[1]["prefill"] == 5
    world.now += 39.0
    assert not world.plan().actions.annotate
    world.now += 1.0
    assert carried(world)["asked"] == "2027-01-15T08:01:00Z"
    assert told(world)[1]["prefill"] == 5


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
