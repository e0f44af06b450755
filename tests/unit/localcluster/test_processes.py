"""Processes of local clusters: what a directory names is stopped, forks bring nothing with them, and no port is given twice."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from localcluster import cleanup, forks, ports
from localcluster.ports import HOST, free_port
from localcluster.programs import ROOT


def test_a_program_that_does_not_end_is_gone_when_the_directory_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cleanup, "STOP_SECONDS", 0.1)
    (tmp_path / "run").mkdir()
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    command = [sys.executable, "-c", deaf, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        (tmp_path / "run" / "deaf.pid").write_text(str(program.pid))
        cleanup.stop(tmp_path)
        state = Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[0]
        assert state == "Z"
        assert program.wait() == -signal.SIGKILL
    assert not tmp_path.exists()


def test_a_number_that_somebody_elses_process_has_got_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "etcd.pid").write_text("1")

    def kill(_pid: int, number: int) -> None:
        assert number == 0, "it must not be sent a signal"
        raise PermissionError

    monkeypatch.setattr(cleanup.os, "kill", kill)
    cleanup.stop(tmp_path)
    assert not tmp_path.exists()


def test_the_first_function_of_a_fork_brings_nothing_else_with_it() -> None:
    """Each fork imports its module: with ``localcluster`` that takes as much processor time as all else until it serves."""
    module = forks.run_covey.__module__
    code = f"import sys, {module}; print(sys.modules.keys() & {{'localcluster', 'covey', 'kubernetes', 'yaml'}})"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "dev")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


_ROOT = Path(__file__).resolve().parents[3]
#: Gives twenty ports, and keeps them until its input ends.
_GIVE = "import sys; from localcluster import free_port; print(*(free_port() for _ in range(20)), flush=True); sys.stdin.read()"


def test_two_processes_are_given_no_port_twice() -> None:
    command = [sys.executable, "-c", _GIVE]
    kept = [
        subprocess.Popen(command, cwd=_ROOT / "dev", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    given = [free_port() for _ in range(200)]
    for each in kept:
        assert each.stdout is not None
        given += [int(port) for port in each.stdout.readline().split()]
    # Those of a process that has ended may be given again.
    for each in kept:
        each.communicate()
    assert len(given) == len(set(given)) == 240


def test_a_port_that_is_taken_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    free, taken = free_port(), free_port()
    monkeypatch.setattr(ports, "_left", [free, taken])
    with socket.create_server((HOST, taken)):
        assert free_port() == free
