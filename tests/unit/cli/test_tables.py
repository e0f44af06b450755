"""Tables: names as kubectl prints them, rows without heads, and terminals too narrow for them."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from builders.files import EXAMPLES, covey, inference, node, role, write
from covey.cli.render.live import print_branches
from covey.cli.render.tables import columns, show
from covey.watching.branch import Branch, State

OFFLINE = ("--nodes", EXAMPLES / "offline/nodes.json", "--pods", EXAMPLES / "offline/pods.json")
LONG = "a-node-with-a-name-that-no-narrow-terminal-has-room-for.region-1.compute.internal"
BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"


def test_plan_prints_names_as_kubectl_does() -> None:
    result = covey("plan", "-f", EXAMPLES, *OFFLINE, "-o", "name")
    kind = "disaggregatedinference.inference.covey.dev"
    assert result.stdout.split() == [f"{kind}/llama", f"{kind}/hello", f"{kind}/qwen", f"{kind}/too-big"]
    assert result.exit_code == 3


@pytest.mark.parametrize("group", ["scheduling.covey.dev/v1alpha1", "scheduling.k8s.io/v1alpha2"])
def test_a_ready_tree_is_named_by_its_root(tmp_path: Path, group: str) -> None:
    body = {
        "apiVersion": group,
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "x"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}, "desiredCount": 1},
    }
    if "k8s.io" in group:
        del body["spec"]["desiredCount"]  # type: ignore[attr-defined]
    result = covey("plan", "-f", write(tmp_path / "in.json", [body]), *OFFLINE, "-o", "name")
    assert result.stdout == f"podgroup.{group.partition('/')[0]}/g\n", result.stderr


def test_compile_prints_names_as_kubectl_does() -> None:
    names = covey("compile", "-f", EXAMPLES / "router.yaml", "-o", "name").stdout.split()
    objects = list(yaml.safe_load_all(covey("compile", "-f", EXAMPLES / "router.yaml").stdout))
    assert len(names) == len(objects)
    assert {"workload.scheduling.covey.dev/qwen", "podgroup.scheduling.covey.dev/qwen-0-prefill"} <= set(names)
    assert any(name.startswith("pod/") for name in names)


@pytest.mark.parametrize(("form", "head"), [("table", "WORKLOAD"), ("wide", "WORKLOAD")])
def test_plan_without_headers_is_rows_alone(form: str, head: str) -> None:
    whole = covey("plan", "-f", EXAMPLES, *OFFLINE, "-o", form)
    rows = covey("plan", "-f", EXAMPLES, *OFFLINE, "-o", form, "--no-headers")
    assert head in whole.stdout
    assert "no rack has room" in whole.stdout
    assert rows.exit_code == 3
    assert [line.split()[0].partition("/")[0] for line in rows.stdout.splitlines()] == ["default"] * len(
        rows.stdout.splitlines()
    )
    assert "no rack has room" in rows.stderr
    assert [line.split() for line in rows.stdout.splitlines()] == [
        line.split() for line in whole.stdout.splitlines() if line.startswith("default/")
    ]


def test_top_without_headers_is_rows_alone() -> None:
    rows = covey("top", *OFFLINE, "--level", "block", "--no-headers").stdout.splitlines()
    assert [line.split()[0] for line in rows] == ["cluster", "block", "block"]


def test_no_headers_changes_nothing_where_there_are_none() -> None:
    arguments = ("plan", "-f", EXAMPLES / "router.yaml", *OFFLINE, "-o", "name")
    assert covey(*arguments, "--no-headers").stdout == covey(*arguments).stdout


def test_status_as_a_table() -> None:
    branches = [
        Branch("inference", "default/llama", State.READY, ready=2, total=2),
        Branch(
            "inference",
            "prod/qwen",
            State.WAITING,
            total=1,
            children=(Branch("unit", "0", State.WAITING, "Infeasible: no rack has room"),),
        ),
    ]

    def drawn(*, heads: bool) -> list[list[str]]:
        out = io.StringIO()
        print_branches(branches, Console(file=out, width=120), heads=heads)
        return [line.split(maxsplit=4) for line in out.getvalue().splitlines()]

    rows = [["default", "llama", "2/2", "ready"], ["prod", "qwen", "0/1", "waiting", "Infeasible: no rack has room"]]
    assert drawn(heads=True) == [["NAMESPACE", "NAME", "READY", "STATE", "REASON"], *rows]
    assert drawn(heads=False) == rows


@pytest.fixture
def long_names(tmp_path: Path) -> list[object]:
    """A plan of which every name is longer than a narrow terminal."""
    nodes = [node(f"{n}-{LONG}", 8, {BLOCK: f"block-{LONG}", RACK: f"rack-{n % 2}-{LONG}"}) for n in range(4)]
    gang = inference("llm-with-a-name-of-no-small-length", role("prefill", 4, 4), namespace="a-namespace-for-models")
    return ["-f", write(tmp_path / "in.json", [gang]), "--nodes", write(tmp_path / "n.json", nodes)]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
@pytest.mark.parametrize("form", ["table", "wide", "tree"])
def test_no_terminal_is_so_narrow_that_a_name_is_cut(long_names: list[object], form: str, width: int) -> None:
    env = {"COLUMNS": str(width)}
    told = covey("plan", *long_names, "-o", form, env=env).stdout
    answer = json.loads(covey("plan", *long_names, "-o", "json").stdout)
    # A tree wraps within its branches: what is drawn between the pieces of a name is no part of it.
    plain = re.sub(r"[\s│├└─]", "", told)
    assert "…" not in told
    for name in names_of(answer, form):
        assert name in plain, name


def names_of(answer: Any, form: str) -> set[str]:
    (found,) = answer["workloads"]
    (unit,) = found["units"]
    instances = unit["roles"][0]["instances"]
    names = {f"{found['namespace']}/{found['name']}", "prefill"}
    names |= {each["domain"] for part in instances for each in part["placement"] if each["level"] == "rack"}
    if form != "table":
        names |= {pod["node"] for part in instances for pod in part["pods"]}
    if form == "wide":
        names |= {pod["name"] for part in instances for pod in part["pods"]}
    return names


@pytest.mark.parametrize("width", [40, 60])
def test_a_table_that_is_too_wide_overflows_row_by_row(long_names: list[object], width: int) -> None:
    told = covey("plan", *long_names, "-o", "wide", "--no-headers", env={"COLUMNS": str(width)}).stdout
    assert len(told.splitlines()) == 4
    assert all(line == line.rstrip() for line in told.splitlines())


def test_placement_wraps_while_there_is_room_for_the_rest() -> None:
    out = io.StringIO()
    table = columns("ROLE", "PLACEMENT")
    table.add_row("prefill", ", ".join(f"rack-{n}" for n in range(12)))
    show(table, Console(file=out, width=40))
    lines = out.getvalue().splitlines()
    assert len(lines) > 2
    assert max(map(len, lines)) <= 40


def test_top_leaves_its_bars_out_and_says_so() -> None:
    narrow = covey("top", *OFFLINE, "--level", "block", env={"COLUMNS": "60"}).stdout
    assert "█" not in narrow
    (needed,) = re.findall(r"without bars: they need a terminal of (\d+) columns", narrow)
    assert "█" in covey("top", *OFFLINE, "--level", "block", env={"COLUMNS": needed}).stdout
    less = str(int(needed) - 1)
    assert "without bars" in covey("top", *OFFLINE, "--level", "block", env={"COLUMNS": less}).stdout
    for word in ("cluster", "block block-0", "block block-1", "STRANDED"):
        assert word in narrow
