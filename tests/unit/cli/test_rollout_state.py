"""What ``covey rollout`` reads from a resource and its revisions."""

from __future__ import annotations

from typing import Any

import pytest

from builders.inferences import inference, role, template
from covey.cli.errors import CommandError
from covey.cli.rollout_state import former, history_of, read_state, roles_of
from covey.operator.model.objects import ControllerRevision
from unit.operator.world import World


def body_of(made: World) -> dict[str, Any]:
    return {"metadata": {"name": "llama", "generation": 1}, "spec": made.stored().spec}


def records(made: World) -> list[ControllerRevision]:
    """ControllerRevisions as the API server gives them."""
    found = []
    for stored in made.revisions:
        assert stored.record is not None
        assert stored.record.accepted is not None
        found.append(ControllerRevision(made.stored().metadata, stored.number, stored.record.accepted.as_data()))  # type: ignore[arg-type] # any metadata will do
    return [*found, ControllerRevision(made.stored().metadata, 9, {"of": "a later release"})]  # type: ignore[arg-type] # the same


@pytest.fixture
def made() -> World:
    world = World(inference(role("prefill", size=2), role("decode")))
    world.settle()
    world.inference = inference(
        role("prefill", size=3), role("decode", replicas=2, template=template(nodeSelector={"a": "b"}))
    )
    world.settle()
    return world


def test_undo_brings_back_templates_and_sizes_and_leaves_the_scale(made: World) -> None:
    body = body_of(made)
    chosen = former(body, history_of(records(made)), None)
    assert chosen.number == 1
    spec = roles_of(body, chosen.revision)
    assert [(each["size"], each["replicas"]) for each in spec["roles"]] == [(2, 1), (1, 2)]
    assert "nodeSelector" not in spec["roles"][1]["template"]["spec"]
    assert former(body, history_of(records(made)), 2).number == 2
    with pytest.raises(CommandError, match="there is no revision 7"):
        former(body, history_of(records(made)), 7)


@pytest.mark.parametrize(
    ("status", "reason", "ends"),
    [
        ("True", "Complete", (True, False)),
        ("True", "RollingOut", (False, False)),
        ("Unknown", "RolloutPaused", (False, False)),
        ("False", "ProgressDeadlineExceeded", (False, True)),
    ],
)
def test_the_condition_says_how_it_goes(status: str, reason: str, ends: tuple[bool, bool]) -> None:
    said = {"type": "Progressing", "status": status, "reason": reason, "message": "words"}
    body = {"metadata": {"generation": 3}, "status": {"observedGeneration": 3, "conditions": [said]}}
    state = read_state(body)
    assert (state.text, (state.is_complete, state.has_failed)) == ("words", ends)
    body["metadata"]["generation"] = 4
    assert read_state(body).text == "the operator has not seen this spec yet"


def test_what_a_partition_holds_is_said_and_is_an_end(made: World) -> None:
    target = {"replicas": 2, "template": template(nodeSelector={"c": "d"}), "update": {"partition": 1}}
    for spec in (None, *[inference(role("prefill", size=3), role("decode", **target))] * 4):
        made.inference = spec or made.inference
        made.settle()
        for name in list(made.pods):
            made.bind(name)
            made.ready(name)
        made.tell()
    state = read_state({"metadata": {"generation": made.inference.metadata.generation}, "status": made.status})
    assert state.text.startswith(
        "partitioned roll out complete: 1 of 2 replicas of decode (partition 1) are of revision "
    )
    assert (state.is_complete, state.has_failed) == (True, False)
