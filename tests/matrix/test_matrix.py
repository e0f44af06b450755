"""Every scenario on every backend, each with the outcome that is declared beside it."""

from __future__ import annotations

import time

import pytest

from localcluster import Cluster
from matrix.bench import Bench, opened
from matrix.columns import COLUMNS, Column
from matrix.outcome import OK, DiffersError, Outcome, RefusedError, differs, refused
from matrix.rows import Scenario
from matrix.scenarios import SCENARIOS

_CELLS = [
    pytest.param(number, scenario, id=f"{column.title}-{scenario.play.__name__}")
    for number, column in enumerate(COLUMNS)
    if column.is_there
    for scenario in SCENARIOS
    if column in scenario.only
]


@pytest.mark.parametrize(("column", "scenario"), _CELLS, indirect=["column"], scope="session")
def test_it_ends_as_declared(
    scenario: Scenario, column: Column, cluster: Cluster, record_property: pytest.RecordProperty
) -> None:
    with opened(cluster, column) as bench:
        found = play(scenario, bench)
        expected = scenario.expected(column)
        shown = expected if expected.covers(found) else found
        record_property("cell", [scenario.title, column.title, shown.kind, shown.text])
        assert expected.covers(found), f"declared: {expected}; found: {found}"


def play(scenario: Scenario, bench: Bench) -> Outcome:
    """How a scenario ends, after which nothing may have been partial at any moment."""
    try:
        scenario.play(bench)
    except RefusedError as refusal:
        time.sleep(1)  # in which it would go on creating
        left = bench.left()
        return differs(f"it is refused, and yet there is {left}") if left else refused(str(refusal))
    except DiffersError as difference:
        return differs(str(difference))
    return differs("a gang was bound in part") if bench.check_history() else OK
