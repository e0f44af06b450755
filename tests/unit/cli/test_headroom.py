"""``covey headroom -f``: how many more would fit, from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builders.files import cluster, covey, inference, member, queue, role, write


@pytest.fixture
def ask(tmp_path: Path) -> Any:
    """Asks for the numbers of some resources on two racks of so many nodes."""

    def run(*documents: Any, nodes: tuple[int, int] = (4, 4), pods: Any = (), options: tuple[str, ...] = ()) -> Any:
        files = [
            "-f",
            write(tmp_path / "in.json", documents),
            "--nodes",
            write(tmp_path / "nodes.json", cluster(*nodes)),
        ]
        if pods:
            files += ["--pods", write(tmp_path / "pods.json", pods)]
        result = covey("headroom", *files, *options)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout) if "json" in options else result.stdout

    return run


JSON = ("-o", "json")


def numbers(report: Any) -> dict[str, tuple[int, int, int | None]]:
    return {row["name"]: (row["replicas"], row["admitted"], row["maxFeasible"]) for row in report["roles"]}


def test_what_runs_counts(ask: Any) -> None:
    gang = inference("llm", role("p", 1, 1), topology={"required": "rack"})
    pods = [member("llm", "p", 0, 0, "n0-1-0")]
    assert numbers(ask(gang, nodes=(4, 2), pods=pods, options=JSON)[0]) == {"p": (1, 1, 2)}


def test_no_more_than_quota_has_room_for(ask: Any) -> None:
    (report,) = ask(queue("all", 24), inference("llm", role("p", 2, 1)), options=JSON)
    assert numbers(report) == {"p": (2, 2, 3)}
    assert report["message"] == "p: the quota of its queue leaves nothing for more"


def test_the_table(ask: Any) -> None:
    lines = ask(inference("llm", role("p", 1, 1)), inference("other", role("q", 1, 1), role("d", 0, 0))).splitlines()
    assert lines[0] == "default/llm"
    assert lines[1].split() == ["ROLE", "REPLICAS", "ADMITTED", "MAX", "FEASIBLE", "MORE"]
    assert ["p", "1", "1", "7", "6"] in [line.split() for line in lines]
    assert ["d", "0", "0", "unknown"] in [line.split() for line in lines]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "NAME: is missing"),
        (("llm", "-f", "x.yaml"), "NAME: does not go with -f"),
        (("-f", "x.yaml"), "--nodes: is missing"),
        (("--nodes", "x.yaml"), "-f: is missing"),
        (("-f", "x.yaml", "--nodes", "x.yaml", "--context", "c"), "--context: names a cluster"),
    ],
)
def test_what_does_not_go_together(arguments: tuple[str, ...], said: str) -> None:
    result = covey("headroom", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
