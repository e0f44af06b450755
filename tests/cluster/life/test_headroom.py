"""Head-room on a real control plane: what the answer says fits, fits; one more waits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from builders import files
from builders.manifests import Object
from cluster.conftest import AddNodes, Covey
from cluster.serving import Serving, workers
from localcluster import Cluster, eventually


@dataclass(frozen=True)
class Asked(Serving):
    """A namespace whose resources are asked."""

    def ask(self, text: str, name: str = "llm") -> None:
        """As a person does."""
        self.kubectl("annotate", "dinf", name, f"covey.dev/headroom={text}", "--overwrite")

    def told(self, name: str = "llm") -> Object:
        """What the status says of head-room."""
        return dict(self.get("DisaggregatedInference", name).get("status", {}).get("headroom") or {})

    def answer(self, text: str, name: str = "llm") -> dict[str, int]:
        """Ask, and wait for the numbers."""
        self.ask(text, name)
        return self.await_answer(text, name)

    def await_answer(self, text: str, name: str = "llm") -> dict[str, int]:
        """Wait for the numbers."""
        eventually(lambda: self.told(name).get("asked") == text, 120, f"an answer to {text}: {self.told(name)}")
        rows = self.get("DisaggregatedInference", name)["status"]["roles"]
        return {row["name"]: row["maxFeasible"] for row in rows if "maxFeasible" in row}

    def scale(self, role: str, replicas: int) -> None:
        """As an autoscaler does."""
        self.kubectl("scale", "rscale", f"llm-{role}", f"--replicas={replicas}")


@pytest.fixture
def asked(cluster: Cluster, covey: Covey, namespace: str) -> Asked:
    """A new namespace in which all of Covey runs."""
    assert covey
    return Asked(cluster, namespace)


def roles(**prefill: Any) -> list[Object]:
    return [workers("prefill", size=2, **{"scaling": {"mode": "External"}, **prefill}), workers("decode")]


def test_what_fits_is_bound_and_one_more_waits(asked: Asked, nodes: AddNodes) -> None:
    """Two racks of four nodes; the unit has one of them: three nodes are taken, so half a replica more is none."""
    nodes(blocks=1, racks=2, nodes=6)
    asked.create(*roles(), topology={"required": "rack"})
    asked.await_bound(3)
    assert asked.answer("one") == {"prefill": 2, "decode": 4}
    asked.scale("prefill", 2)
    asked.await_bound(5)
    assert asked.answer("two") == {"prefill": 2, "decode": 2}
    asked.scale("prefill", 3)
    eventually(lambda: len(asked.pods(role="prefill")) == 6, 60, "the replica that is too many has its pods")
    assert asked.answer("three") == {"prefill": 2, "decode": 2}
    assert len(asked.bound()) == 5


def test_nothing_more_fits(asked: Asked, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=3)
    asked.create(*roles())
    asked.await_bound(3)
    assert asked.answer("one") == {"prefill": 1, "decode": 1}


def test_several_units_and_several_resources_at_once(asked: Asked, nodes: AddNodes) -> None:
    """Two units of three nodes each in racks of five, and a second resource beside them, in a rack of its own."""
    nodes(blocks=1, racks=3, nodes=5)
    in_one_rack = {"topology": {"required": "rack"}}
    asked.create(*roles(), replicas=2, spread={"level": "rack", "mode": "Required"}, **in_one_rack)
    asked.await_bound(6)
    asked.create(*roles(), name="other", **in_one_rack)
    asked.await_bound(9)
    for name in ("llm", "other"):
        asked.ask("one", name)
    for name in ("llm", "other"):
        asked.ask("two", name)
    assert asked.await_answer("two", "llm") == {"prefill": 4, "decode": 6}
    assert asked.await_answer("two", "other") == {"prefill": 2, "decode": 3}
    asked.scale("prefill", 4)
    asked.await_bound(13)
    # Decode is not an autoscaler's: its number is for all units.
    assert asked.answer("three") == {"prefill": 4, "decode": 2}


def test_of_a_role_without_replicas_it_says_why_there_is_no_number(asked: Asked, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=2)
    asked.create(workers("prefill"), workers("spare", replicas=0, minReplicas=0))
    asked.await_bound(1)
    assert asked.answer("one") == {"prefill": 2}
    assert asked.told()["message"] == "spare: no replica of it exists, so nobody knows what one asks for"


@pytest.mark.parametrize("victim", ["operator", "scheduler"])
def test_the_process_ends_between_question_and_answer(
    cluster: Cluster, covey_to_kill: Covey, namespace: str, nodes: AddNodes, victim: str
) -> None:
    """Nobody answers while it is away; then the next process does, and what was answered stays."""
    asked = Asked(cluster, namespace)
    nodes(blocks=1, racks=1, nodes=5)
    asked.create(*roles())
    asked.await_bound(3)
    assert asked.answer("before") == {"prefill": 2, "decode": 3}
    process = getattr(covey_to_kill, victim)
    process.kill()
    try:
        asked.ask("meanwhile")
        other = covey_to_kill.scheduler if victim == "operator" else covey_to_kill.operator
        assert other.alive
        assert asked.told()["asked"] == "before"
    finally:
        process.start()
    assert asked.await_answer("meanwhile") == {"prefill": 2, "decode": 3}


def test_the_command_asks_and_waits(asked: Asked, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=6)
    asked.create(*roles())
    asked.await_bound(3)

    def run(*arguments: str, status: int = 0) -> str:
        where = ("-n", asked.namespace, "--kubeconfig", asked.cluster.kubeconfig)
        result = files.covey("headroom", "llm", *arguments, *where)
        assert result.exit_code == status, result.output
        return str(result.output)

    assert "nobody has asked for the head-room of llm yet" in run("--last", status=1)
    report = json.loads(run("-o", "json"))
    told = {row["name"]: (row["replicas"], row["admitted"], row["maxFeasible"]) for row in report["roles"]}
    assert told == {"prefill": (1, 1, 2), "decode": (1, 1, 4)}
    assert report["observedAt"]
    rows = [line.split() for line in run("--last").splitlines()]
    assert ["prefill", "1", "1", "2", "1"] in rows
    assert json.loads(run("--last", "-o", "json")) == report
