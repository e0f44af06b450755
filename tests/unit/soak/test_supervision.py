"""Processes of a soak that end by themselves: a crash of Covey's is told, an end in order is not."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from localcluster import Cluster
from soak.quiet import Quiet
from soak.supervision import KILLABLE, OPERATOR, Supervision, faults_in

CRASH = "{'event': 'a part of the process has failed', 'exception': 'RecursionError'}"


@dataclass
class Ended:
    """A process with a log, and whether it runs."""

    log: list[str] = field(default_factory=list)
    alive: bool = True
    ready: bool = True

    def log_text(self) -> str:
        return "\n".join(self.log)

    def start(self, *, wait: bool) -> None:
        self.alive = not wait


def supervision(name: str, *log: str) -> Supervision:
    processes: dict[str, Any] = {each: Ended() for each in KILLABLE}
    processes[name] = Ended(list(log), alive=False)
    cluster = cast(Cluster, SimpleNamespace(processes=processes))
    return Supervision(cluster, Quiet(), lambda _text: None)


@pytest.mark.parametrize(
    ("name", "log", "crashes"),
    [
        (OPERATOR, ("serving", CRASH, "stopped"), 1),
        (OPERATOR, ("lease lost",), 0),
        (OPERATOR, ("lease lost", CRASH), 0),
        (OPERATOR, ("error: nobody answers",), 0),
        ("kube-scheduler", (CRASH,), 0),
    ],
)
def test_only_an_error_of_its_own_is_a_crash(name: str, log: tuple[str, ...], crashes: int) -> None:
    found = supervision(name, *log)
    found.look_after()
    assert len(found.problems) == crashes
    assert found.ended == {name: 1}


def logged(kind: str, words: str = "some words") -> str:
    return json.dumps({"event": "work failed", "exception": [{"exc_type": kind, "exc_value": words, "frames": []}]})


@pytest.mark.parametrize(
    ("kind", "is_fault"),
    [
        ("TypeError", True),
        ("RecursionError", True),
        ("KeyError", True),
        ("ConnectionResetError", False),
        ("TimeoutError", False),
        ("ExceptionGroup", False),
        ("ServiceUnavailable", False),
    ],
)
def test_a_fault_of_the_program_in_its_log(kind: str, is_fault: bool) -> None:  # noqa: FBT001 - a column
    assert bool(faults_in(logged(kind))) == is_fault
