"""A plugin of pytest: names the test that runs to probes, and records how long tests take and which fail."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

from corpus.probe import DIRECTORY, FAILED, SECONDS, read_current, set_current

_seconds: dict[str, float] = defaultdict(float)


def pytest_configure() -> None:
    """Look for no smaller example than the first that fails."""
    for name in ("storm", "covey"):
        phases = [phase for phase in Phase if phase not in {Phase.shrink, Phase.explain}]
        settings.register_profile(name, settings.get_profile(name), phases=phases)
        settings.load_profile(name)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Take what a module computes when it is imported for all its tests."""
    if isinstance(collector, pytest.Module):
        set_current(collector.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Name the test that runs."""
    set_current(item.nodeid.partition("[")[0])
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
    """Take what several tests share for all of the file."""
    test = read_current()
    if fixturedef.scope != "function":
        set_current(test.partition("::")[0])
    try:
        return (yield)
    finally:
        set_current(test)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count seconds, and note who failed."""
    _seconds[report.nodeid.partition("[")[0]] += report.duration
    _note_failure(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a file that could not be imported."""
    _note_failure(report)


def _note_failure(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(os.environ[DIRECTORY], FAILED).open("a") as file:
            file.write(f"{report.nodeid}\n")


def pytest_sessionfinish() -> None:
    """Write the seconds."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        Path(os.environ[DIRECTORY], SECONDS).write_text(json.dumps(_seconds))
