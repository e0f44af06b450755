"""One cluster for each backend, and the table of how everything ended on them.

Tests hand in their cell as a property of their report, which also comes from other processes; the first process
writes the table when all tests have run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localcluster import Cluster
from matrix.columns import COLUMNS, Column
from matrix.outcome import Cell, Outcome, committed, render, replaced
from matrix.scenarios import SCENARIOS

_ROOT = Path(__file__).resolve().parent.parent.parent
_TABLE = _ROOT / "build" / "matrix.md"
_DOCUMENT = _ROOT / "docs" / "reference" / "backends.md"
_CELLS = pytest.StashKey[dict[Cell, Outcome]]()
_NAME = "cell"


@pytest.fixture(scope="session")
def column(request: pytest.FixtureRequest) -> Column:
    """The backend that is tried; tests are parametrised with it."""
    return COLUMNS[request.param]


@pytest.fixture(scope="session")
def cluster(column: Column) -> Iterator[Cluster]:
    """The cluster of a backend, shared by its scenarios."""
    with column.running() as running:
        yield running


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--write`` brings the document up to date."""
    parser.addoption("--write", action="store_true", help=f"write the table into {_DOCUMENT.relative_to(_ROOT)}")


def pytest_configure(config: pytest.Config) -> None:
    """The table starts empty."""
    config.stash[_CELLS] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show the end of the processes' logs with a test that failed."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(cluster, Cluster):
        for name, process in cluster.processes.items():
            if name.startswith(("covey-", "kube-scheduler", "vc-")):
                report.sections.append((f"end of {process.log}", "\n".join(process.log_text().splitlines()[-40:])))
    return report


class _Collector:
    """Takes the cells from the reports, wherever the tests ran."""

    def __init__(self, config: pytest.Config) -> None:
        self._cells = config.stash[_CELLS]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == _NAME and report.when == "call" and isinstance(value, list):
                title, column, kind, text = value
                self._cells[title, column] = Outcome(kind, text)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Only the first process collects."""
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(_Collector(session.config))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the table, and fail when the committed one is another."""
    cells = session.config.stash[_CELLS]
    if hasattr(session.config, "workerinput") or not cells:
        return
    table = _render(cells)
    _TABLE.parent.mkdir(exist_ok=True)
    _TABLE.write_text(table)
    if not _is_complete(cells):
        return
    document = _DOCUMENT.read_text()
    if session.config.getoption("--write"):
        _DOCUMENT.write_text(replaced(document, table))
    elif committed(document) != table:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table, and whether the committed one is another."""
    cells = config.stash[_CELLS]
    if not cells:
        return
    terminalreporter.section(f"scenario x backend ({_TABLE.relative_to(_ROOT)})")
    table = _render(cells)
    terminalreporter.write(table)
    if not _is_complete(cells):
        terminalreporter.write_line("not everything was played, so the table is not compared with the committed one")
    elif committed(_DOCUMENT.read_text()) != table:
        where = _DOCUMENT.relative_to(_ROOT)
        terminalreporter.write_line(f"the table in {where} differs: run `make test-matrix ARGS=--write`", red=True)


def _render(cells: dict[Cell, Outcome]) -> str:
    return render([each.title for each in SCENARIOS], [each.title for each in COLUMNS], cells)


def _is_complete(cells: dict[Cell, Outcome]) -> bool:
    wanted = {(scenario.title, column.title) for scenario in SCENARIOS for column in scenario.only}
    return wanted <= cells.keys()
