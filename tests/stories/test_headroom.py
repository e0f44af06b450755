"""Head-room: what the answer says fits, fits; one more waits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from builders.manifests import Object, workers
from stage import Stage
from stage.play import run_covey


def ask(stage: Stage, text: str, name: str = "llm") -> None:
    """Ask as a person does."""
    stage.kubectl("annotate", "dinf", name, f"covey.dev/headroom={text}", "--overwrite")


def answer(stage: Stage, text: str, name: str = "llm") -> dict[str, int]:
    """The numbers at rest, which are an answer to this."""
    stage.settle()
    status = stage.status(name)
    assert status["headroom"]["asked"] == text
    return {row["name"]: row["maxFeasible"] for row in status["roles"] if "maxFeasible" in row}


def scale(stage: Stage, role: str, replicas: int) -> None:
    """Scale as an autoscaler does."""
    stage.kubectl("scale", "rscale", f"llm-{role}", f"--replicas={replicas}")


def roles() -> list[Object]:
    return [workers("prefill", size=2, scaling={"mode": "External"}), workers("decode")]


def test_what_fits_by_the_answer_is_bound_and_one_more_waits(stage: Stage) -> None:
    """Two racks of six nodes; the unit has one of them: three nodes are taken, so half a replica more is none."""
    stage.nodes(racks=2, nodes=6)
    stage.create(*roles(), topology={"required": "rack"})
    stage.ready(3)
    ask(stage, "one")
    assert answer(stage, "one") == {"prefill": 2, "decode": 4}
    scale(stage, "prefill", 2)
    stage.ready(5)
    ask(stage, "two")
    assert answer(stage, "two") == {"prefill": 2, "decode": 2}
    scale(stage, "prefill", 3)
    ask(stage, "three")
    assert answer(stage, "three") == {"prefill": 2, "decode": 2}
    assert len(stage.pods(role="prefill")) == 6
    assert len(stage.bound()) == 5


def test_answer_when_nothing_more_fits_is_what_there_is(stage: Stage) -> None:
    stage.nodes(nodes=3)
    stage.create(*roles())
    stage.ready(3)
    ask(stage, "one")
    assert answer(stage, "one") == {"prefill": 1, "decode": 1}


def test_answers_of_several_units_and_several_resources_at_once_are_each_ones_own(stage: Stage) -> None:
    """Two units of three nodes each in racks of five, and a second resource beside them, in a rack of its own."""
    stage.nodes(racks=3, nodes=5)
    in_one_rack: dict[str, Any] = {"topology": {"required": "rack"}}
    stage.create(*roles(), replicas=2, spread={"level": "rack", "mode": "Required"}, **in_one_rack)
    stage.ready(6)
    stage.create(*roles(), name="other", **in_one_rack)
    stage.ready(9)
    for text in ("one", "two"):
        for name in ("llm", "other"):
            ask(stage, text, name)
    assert answer(stage, "two") == {"prefill": 4, "decode": 6}
    assert answer(stage, "two", "other") == {"prefill": 2, "decode": 3}
    scale(stage, "prefill", 4)
    stage.ready(13)
    # Decode is not an autoscaler's: its number is for all units.
    ask(stage, "three")
    assert answer(stage, "three") == {"prefill": 4, "decode": 2}


def test_answer_for_a_role_without_replicas_says_why_there_is_no_number(stage: Stage) -> None:
    stage.nodes(nodes=2)
    stage.create(workers("prefill"), workers("spare", replicas=0, minReplicas=0))
    stage.ready(1)
    ask(stage, "one")
    assert answer(stage, "one") == {"prefill": 2}
    assert stage.status()["headroom"]["message"] == "spare: no replica of it exists, so nobody knows what one asks for"


@pytest.mark.parametrize("process", ["operator", "scheduler"])
def test_question_while_a_process_is_away_is_answered_when_it_is_back(stage: Stage, process: str) -> None:
    """Nobody answers meanwhile, and what was answered before stays."""
    stage.nodes(nodes=5)
    stage.create(*roles())
    stage.ready(3)
    ask(stage, "before")
    assert answer(stage, "before") == {"prefill": 2, "decode": 3}
    with stage.away(process):
        ask(stage, "meanwhile")
        assert answer(stage, "before") == {"prefill": 2, "decode": 3}
    assert answer(stage, "meanwhile") == {"prefill": 2, "decode": 3}


def test_command_asks_and_waits(stage: Stage) -> None:
    stage.nodes(nodes=6)
    stage.create(*roles())
    stage.ready(3)

    def run(*arguments: str, status: int = 0) -> str:
        exit_code, output = run_covey(stage, "headroom", "llm", *arguments, "-n", stage.namespace)
        assert exit_code == status, output
        return output

    assert "nobody has asked for the head-room of llm yet" in run("--last", status=1)
    report = json.loads(run("-o", "json"))
    rows = {row["name"]: (row["replicas"], row["admitted"], row["maxFeasible"]) for row in report["roles"]}
    assert rows == {"prefill": (1, 1, 2), "decode": (1, 1, 4)}
    assert report["observedAt"]
    assert ["prefill", "1", "1", "2", "1"] in [line.split() for line in run("--last").splitlines()]
    assert json.loads(run("--last", "-o", "json")) == report
