"""`covey plan --defrag`: the moves that would free a domain or start a gang."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builders.files import Object, cluster, covey, inference, member, plan, pod, role, write


def files(tmp_path: Path, documents: list[Object], nodes: list[Object], pods: list[Object]) -> list[object]:
    """The options of a plan."""
    found: list[object] = []
    for option, content in {"-f": documents, "--nodes": nodes, "--pods": pods}.items():
        found += [option, write(tmp_path / f"{option.strip('-')}.json", content)]
    return found


@pytest.fixture
def scattered(tmp_path: Path) -> list[object]:
    """Two racks of two nodes with a replica in each; another gang wants a whole rack."""
    big = inference("big", role("w", 2, 2), topology={"required": "rack"})
    pods = [member("chat", "w", 0, 0, "n0-0-0"), member("chat", "w", 1, 0, "n0-1-0")]
    return files(tmp_path, [inference("chat", role("w", 2, 1)), big], cluster(2, 2), pods)


def test_one_move_frees_a_rack(tmp_path: Path) -> None:
    pods = [member("chat", "w", 0, 0, "n0-0-0"), member("chat", "w", 1, 0, "n0-1-0")]
    arguments = files(tmp_path, [inference("chat", role("w", 2, 1))], cluster(2, 2), pods)
    answer = plan(*arguments, "--defrag", "--free", "1 rack")["consolidation"]
    (move,) = answer["moves"]
    assert (move["name"], move["surplus"], answer["verdict"], answer["least"]) == ("chat", True, "Admitted", True)
    assert answer["domains"] == [[None, "b0", "r0"]]
    assert (move["source"], move["target"]) == (["n0-0-0"], ["n0-1-1"])


def test_one_more_than_are_free(tmp_path: Path) -> None:
    """Of three racks one is free: another one is free after a move, and then no more."""
    pods = [member("chat", "w", 0, 0, "n0-0-0"), member("chat", "w", 1, 0, "n0-1-0")]
    arguments = files(tmp_path, [inference("chat", role("w", 2, 1))], cluster(2, 2, 2), pods)
    assert plan(*arguments, "--defrag", "--free", "1 rack")["consolidation"]["moves"] == []
    answer = plan(*arguments, "--defrag", "--free", "+1 rack")["consolidation"]
    assert (len(answer["moves"]), answer["verdict"], answer["least"]) == (1, "Admitted", True)
    assert answer["domains"] in ([[None, "b0", "r0"]], [[None, "b0", "r1"]]), "not the one that is free anyway"
    assert answer["message"].startswith("1 more rack is free: ")
    assert answer["moves"] == plan(*arguments, "--defrag", "--free", "2 rack")["consolidation"]["moves"]
    verdicts = [plan(*arguments, "--defrag", "--free", f"+{n} rack")["consolidation"]["verdict"] for n in (2, 3)]
    assert verdicts == ["Unknown", "Infeasible"], "there are only two others"


def test_one_move_starts_a_gang(scattered: list[object]) -> None:
    result = covey("plan", *scattered, "--defrag", "--for", "default/big")
    assert result.exit_code == 0, result.output
    assert "Move 1: w/" in result.output
    assert "default/big unit 0 has its capacity after 1 move, proven least" in result.output
    answer = plan(*scattered, "--defrag", "--for", "default/big")["consolidation"]
    assert len(answer["nodes"]) == 2
    assert not set(answer["nodes"]) & set(answer["moves"][0]["target"])


@pytest.fixture
def stuck(tmp_path: Path) -> list[object]:
    """A unit of four in a rack of two nodes, one of which is another's; a rack of four is free."""
    llm = inference("llm", role("w", 4, 1), topology={"required": "rack"})
    pods = [member("llm", "w", 0, 0, "n0-0-0"), pod("other", "n0-0-1")]
    return files(tmp_path, [llm], cluster(2, 4), pods)


def test_a_unit_when_its_surplus_is_stuck_moves_to_the_domain_that_holds_all_of_it(stuck: list[object]) -> None:
    answer = plan(*stuck, "--defrag", "--for", "default/llm")["consolidation"]
    (move,) = answer["moves"]
    assert (move["role"], move["replica"], move["source"]) == ("w", 0, ["n0-0-0"])
    assert move["target"][0].startswith("n0-1-")
    assert (
        answer["message"]
        == "default/llm unit 0 has capacity for all of its replicas: -/b0/r1 after 1 move, not proven least"
    )


def test_a_unit_when_no_domain_holds_all_of_it_has_no_moves(tmp_path: Path) -> None:
    llm = inference("llm", role("w", 4, 1), topology={"required": "rack"})
    pods = [member("llm", "w", 0, 0, "n0-0-0"), pod("other", "n0-0-1")]
    answer = plan(*files(tmp_path, [llm], cluster(2, 3), pods), "--defrag", "--for", "default/llm")["consolidation"]
    assert (answer["verdict"], answer["moves"]) == ("Unknown", [])


def test_replica_never_moves_when_its_pod_has_claims(tmp_path: Path) -> None:
    pods = [member("chat", "w", 0, 0, "n0-0-0"), member("chat", "w", 1, 0, "n0-1-0")]
    for holder in pods:
        holder["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "gpu"}]
    arguments = files(tmp_path, [inference("chat", role("w", 2, 1))], cluster(2, 2), pods)
    assert plan(*arguments, "--defrag", "--free", "1 rack")["consolidation"]["moves"] == []


def test_an_ordinary_pod_never_moves(tmp_path: Path) -> None:
    arguments = files(
        tmp_path, [inference("chat", role("w", 1, 1))], cluster(1, 1), [pod("a", "n0-0-0"), pod("b", "n0-1-0")]
    )
    result = covey("plan", *arguments, "--defrag", "--free", "1 rack")
    assert result.exit_code == 3, result.output
    assert "1 rack is free: no moves do: proven" in result.output


@pytest.mark.parametrize(
    "options",
    [
        ["--free", "1 rack"],
        ["--defrag", "--free", "rack"],
        ["--defrag", "--free", "+ rack"],
        ["--defrag", "--free", "+0 rack"],
        ["--defrag", "--for", "a/b"],
    ],
)
def test_a_question_that_is_none(scattered: list[object], options: list[Any]) -> None:
    assert covey("plan", *scattered, *options).exit_code == 2
