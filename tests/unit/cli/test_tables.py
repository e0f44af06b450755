"""Tables: names as kubectl prints them, rows without heads, and terminals too narrow for them."""

import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from builders.files import EXAMPLES, covey, inference, node, role, write
from covey.cli.control_characters import guarded_terminals
from covey.cli.render.live import print_branches
from covey.watching.status_tree import StatusTree, TreeState

OFFLINE = ("--nodes", EXAMPLES / "offline/nodes.json", "--pods", EXAMPLES / "offline/pods.json")
LONG = "a-node-with-a-name-that-no-narrow-terminal-has-room-for.region-1.compute.internal"
BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"


@pytest.mark.parametrize(("form", "head"), [("table", "WORKLOAD"), ("wide", "WORKLOAD")])
def test_plan_without_headers_is_rows_alone(form: str, head: str) -> None:
    whole = covey("plan", "-f", EXAMPLES, *OFFLINE, "-o", form)
    rows = covey("plan", "-f", EXAMPLES, *OFFLINE, "-o", form, "--no-headers")
    assert head in whole.stdout
    assert "no rack has capacity" in whole.stdout
    assert rows.exit_code == 3
    assert [line.split()[0].partition("/")[0] for line in rows.stdout.splitlines()] == ["default"] * len(
        rows.stdout.splitlines()
    )
    assert "no rack has capacity" in rows.stderr
    assert [line.split() for line in rows.stdout.splitlines()] == [
        line.split() for line in whole.stdout.splitlines() if line.startswith("default/")
    ]


def test_status_as_a_table() -> None:
    branches = [
        StatusTree("inference", "default/llama", TreeState.READY, ready=2, total=2),
        StatusTree(
            "inference",
            "prod/qwen",
            TreeState.WAITING,
            total=1,
            children=(StatusTree("unit", "0", TreeState.WAITING, "Infeasible: no rack has capacity"),),
        ),
    ]

    def drawn(*, heads: bool) -> list[list[str]]:
        out = io.StringIO()
        print_branches(branches, Console(file=out, width=120), heads=heads)
        return [line.split(maxsplit=4) for line in out.getvalue().splitlines()]

    rows = [
        ["default", "llama", "2/2", "ready"],
        ["prod", "qwen", "0/1", "waiting", "Infeasible: no rack has capacity"],
    ]
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


ROOT = Path(__file__).parents[3]
#: Moves the cursor up, clears the line, sets the window's title, rings, and takes the line's beginning.
ATTACK = "fine\x1b[1A\x1b[2K\x1b]0;owned\x07\rADMITTED\x9b2J"


def shown(command: list[str]) -> bytes:
    """What a terminal is sent, standard error included."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "operator"), "TERM": "xterm-256color", "COLUMNS": "200"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env=environment) as running:
        os.close(theirs)
        found = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            found += part
            if not part:
                break
        running.wait(60)
    os.close(ours)
    return found


def test_what_a_stranger_wrote_is_shown_and_not_obeyed() -> None:
    code = f"""
import click
from covey.cli.console import open_console
from covey.cli.control_characters import guarded_terminals

with guarded_terminals():
    click.echo({ATTACK!r})
    click.echo({ATTACK!r}, err=True)
    open_console(no_color=False).print({ATTACK!r})
"""
    found = shown([sys.executable, "-c", code])
    assert found.decode().count("fine\N{REPLACEMENT CHARACTER}[1A") == 3
    for forbidden in (b"\x1b", b"\x07", b"\xc2\x9b", b"\rA"):
        assert forbidden not in found


def test_colours_of_the_program_itself_come_through(tmp_path: Path) -> None:
    manifest = yaml.safe_load((ROOT / "examples/disaggregated.yaml").read_text())
    file = tmp_path / "llama.yaml"
    file.write_text(yaml.safe_dump(manifest))
    nodes = ROOT / "examples/offline/nodes.json"
    found = shown([sys.executable, "-m", "covey", "plan", "-f", str(file), "--nodes", str(nodes), "-o", "picture"])
    assert b"\x1b[" in found
    assert "\N{REPLACEMENT CHARACTER}" not in found.decode()


def test_a_pipe_is_given_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    with guarded_terminals():
        sys.stdout.write(ATTACK)
    assert capsys.readouterr().out == ATTACK


def test_top_leaves_its_bars_out_and_says_so() -> None:
    narrow = covey("top", *OFFLINE, "--level", "block", env={"COLUMNS": "60"}).stdout
    assert "█" not in narrow
    (needed,) = re.findall(r"without bars: they need a terminal of (\d+) columns", narrow)
    assert "█" in covey("top", *OFFLINE, "--level", "block", env={"COLUMNS": needed}).stdout
    less = str(int(needed) - 1)
    assert "without bars" in covey("top", *OFFLINE, "--level", "block", env={"COLUMNS": less}).stdout
    for word in ("cluster", "block block-0", "block block-1", "STRANDED"):
        assert word in narrow
