"""The search for moves: a process of its own, whatever becomes of it, and the series of its last answer."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import textwrap
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop
from prometheus_client import CollectorRegistry, generate_latest

from covey.kube.clock import SYSTEM
from covey.observability.families import REGISTRY
from covey.scheduler.consolidation import Searcher, search_command
from covey.scheduler.settings import Settings
from scrapes import Scrape

Loop = Callable[[Coroutine[Any, Any, Any]], Any]
MOVES: Final = "covey_consolidation_moves"
VERDICT: Final = "covey_consolidation_verdict"
ANSWERED: Final = "covey_consolidation_answer_timestamp_seconds"
SEARCHES: Final = "covey_consolidation_searches_total"


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Loop:
    """Runs something on the event loop of the process, and on Python's own."""
    found: Loop = request.param
    return found


def program(text: str, *arguments: object) -> list[str]:
    return [sys.executable, "-S", "-c", textwrap.dedent(text), *map(str, arguments)]


def answer(verdict: str = "Admitted", moves: int = 1, status: int = 0) -> list[str]:
    """Print an answer as `covey plan` does."""
    found = {"verdict": verdict, "moves": [{"name": "chat"}] * moves, "message": "so", "least": True}
    text = json.dumps({"topology": {"name": "net", "levels": []}, "consolidation": found, "warnings": ["old"]})
    return program("import sys; print(sys.argv[1]); sys.exit(int(sys.argv[2]))", text, status)


def searcher(command: list[str], patience: float = 240.0, now: float = 1000.0) -> Searcher:
    return Searcher("rack", command, pause=1.0, patience=patience, clock=replace(SYSTEM, wall=lambda: now))


def scrape(searcher: Searcher) -> Scrape:
    registry = CollectorRegistry()
    registry.register(searcher)
    return Scrape.parse(generate_latest(registry).decode())


def searches() -> dict[str, float]:
    return Scrape.parse(generate_latest(REGISTRY).decode()).by("result", SEARCHES)


def look(loop: Loop, asked: Searcher) -> str:
    """Search once; what was counted."""
    before = searches()
    loop(asked.look())
    ((result, count),) = [each for each in searches().items() if each[1] != before.get(each[0], 0)]
    assert count == before.get(result, 0) + 1
    return result


def said(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """The last line of the log."""
    record = caplog.records[-1]
    assert isinstance(record.msg, dict)
    return {**record.msg, "level": record.levelname}


def is_gone(pid: int) -> bool:
    """Whether a child has ended, and has been waited for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def hanging(tmp_path: Path) -> tuple[list[str], Path]:
    """A program that says its number to a pipe, then ends only when it is killed."""
    pipe = tmp_path / "pid"
    os.mkfifo(pipe)
    text = """
        import os, signal, sys
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with open(sys.argv[1], "w") as pipe:
            pipe.write(str(os.getpid()))
        while True:
            signal.pause()
    """
    return program(text, pipe), pipe


def test_an_answer_becomes_series(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    asked = searcher(answer(moves=2))
    assert not scrape(asked).samples, "nothing is known before"
    assert look(loop, asked) == "answered"
    log = said(caplog)
    assert (log["level"], log["found"], log["warnings"]) == ("INFO", "so", ("old",))
    seen = scrape(asked)
    labels = {"topology": "net", "level": "rack"}
    assert seen(MOVES, **labels) == 2
    assert seen.by("verdict", VERDICT, **labels) == {"Admitted": 1}
    assert seen(ANSWERED, **labels) == 1000


@pytest.mark.parametrize(("verdict", "status"), [("Infeasible", 3), ("Unknown", 4)])
def test_no_number_is_shown_where_no_moves_are_known(loop: Loop, verdict: str, status: int) -> None:
    asked = searcher(answer(verdict, 0, status))
    assert look(loop, asked) == "answered"
    seen = scrape(asked)
    assert seen.by("verdict", VERDICT) == {verdict: 1}
    assert not [name for name, _ in seen.samples if name == MOVES]
    assert seen(ANSWERED) == 1000


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (program("import sys; sys.exit('not allowed: nodes')"), "exit status 1: not allowed: nodes"),
        (answer(status=2), "exit status 2"),
        (program("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), "exit status -9"),
        (program("print('no JSON')"), "JSON is malformed"),
        (program("print('{}')"), "missing required field"),
        (program("print('x' * 10_000_000)"), "JSON is malformed"),
        (program(""), "truncated"),
        (answer("Perhaps"), "Invalid enum value 'Perhaps'"),
        (["/nowhere/covey"], "No such file"),
    ],
    ids=["fails", "is-refused", "is-killed", "garbage", "another-shape", "10-MB", "nothing", "verdict", "no-program"],
)
def test_a_search_without_an_answer_is_counted_and_the_last_answer_stays(
    loop: Loop, caplog: pytest.LogCaptureFixture, command: list[str], words: str
) -> None:
    given = answer()
    asked = searcher(given)
    look(loop, asked)
    before = scrape(asked)
    given[:] = command
    assert look(loop, asked) == "failed"
    log = said(caplog)
    assert log["level"] == "WARNING"
    assert words in log["error"]
    assert len(log["error"]) < 1000
    assert scrape(asked) == before


def test_who_complains_at_length_still_answers(loop: Loop) -> None:
    (python, *flags, text), (document, status) = answer()[:-2], answer()[-2:]
    command = [python, *flags, f"import sys; sys.stderr.write('x' * 10_000_000); {text}", document, status]
    assert look(loop, searcher(command)) == "answered"


def test_a_search_that_takes_too_long_is_killed(loop: Loop, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    command, pipe = hanging(tmp_path)
    heard, pid = os.open(pipe, os.O_RDWR | os.O_NONBLOCK), 0
    # One that is killed before it has said its number says nothing of one that has begun.
    for patience in (1.0, 10.0, 100.0):
        assert look(loop, searcher(command, patience)) == "timeout"
        assert said(caplog)["event"] == "a search for moves was given up"
        with suppress(BlockingIOError):
            pid = int(os.read(heard, 20))
            break
    os.close(heard)
    assert pid
    assert is_gone(pid)


def test_a_search_ends_with_whoever_waits_for_it(loop: Loop, tmp_path: Path) -> None:
    """Shutdown, or a lost lease: the child is killed and waited for before the task is over."""
    command, pipe = hanging(tmp_path)
    before = searches()

    async def lead() -> int:
        task = asyncio.create_task(searcher(command).run(_at_once))
        pid = int(await asyncio.to_thread(pipe.read_text))
        assert not is_gone(pid)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return pid

    assert is_gone(loop(lead()))
    assert searches() == before, "nobody has failed"


def test_it_yields_to_others_and_has_nothing_to_read(loop: Loop) -> None:
    """It answers only once it is nicer than this process, and if its input is at an end."""
    (python, *flags, text), more = answer()[:-2], answer()[-2:]
    wait = f"""
import os, sys, time
while os.nice(0) < {min(os.nice(0) + 10, 19)}:
    time.sleep(0.01)
assert not sys.stdin.read()
{text}
"""
    assert look(loop, searcher([python, *flags, wait, *more])) == "answered"


def test_one_at_a_time_and_none_before_all_is_decided(loop: Loop) -> None:
    pauses: list[float] = []

    async def lead() -> None:
        settled, twice = asyncio.Event(), asyncio.Event()

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 2:
                twice.set()
                await asyncio.Event().wait()

        asked = Searcher("rack", answer(), pause=7.0, clock=replace(SYSTEM, sleep=sleep))
        task = asyncio.create_task(asked.run(settled.wait))
        await asyncio.sleep(0)
        assert not pauses
        settled.set()
        await twice.wait()
        assert Scrape.parse(generate_latest(REGISTRY).decode())(MOVES) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    before = searches().get("answered", 0)
    loop(lead())
    assert pauses == [7.0, 7.0]
    assert searches()["answered"] == before + 2
    assert MOVES not in generate_latest(REGISTRY).decode(), "who does not lead shows none"


@pytest.mark.slow  # a whole program, of the lowest priority: beside others it takes minutes
def test_the_command_is_coveys_own(loop: Loop, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It begins, understands its options, and asks the cluster that the process does."""
    file = tmp_path / "kubeconfig"
    content = {
        "clusters": [{"name": "here", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here"}}],
    }
    file.write_text(json.dumps(content))
    command = search_command(Settings(kubeconfig=str(file), context="here", consolidation_level="rack"))
    assert look(loop, searcher(command)) == "failed"
    assert said(caplog)["error"].startswith("exit status 1: error: the API server does not answer")
    plain = search_command(Settings(consolidation_level="rack"))
    assert not [each for each in plain if "kubeconfig" in each or "context" in each], "in a pod it is the pod's own"


async def _at_once() -> None:
    pass
