"""Control characters in what others wrote do not reach a terminal."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from covey.cli.console import guarded_terminals

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
from covey.cli.console import guarded_terminals

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
