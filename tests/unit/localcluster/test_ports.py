"""Ports that no two processes are given at a time."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from localcluster import ports
from localcluster.ports import HOST, free_port

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
