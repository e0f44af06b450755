"""kube-scheduler 1.38 before API server 1.37, a skew that nobody supports: Covey's own backend ends as on 1.37."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localcluster import Cluster
from localcluster.binaries import WHOLE_1_38
from matrix.bench import opened
from matrix.columns import EXTENDER, EXTENDER_1_38, Column
from matrix.rows import Scenario
from matrix.scenarios import SCENARIOS
from matrix.test_matrix import play

pytestmark = pytest.mark.skipif(WHOLE_1_38, reason="the table has a column for all of it")
_CELLS = [pytest.param(each, id=each.play.__name__) for each in SCENARIOS if EXTENDER in each.only]


@pytest.fixture(scope="module")
def column() -> Column:
    return EXTENDER_1_38


@pytest.fixture(scope="module")
def cluster(column: Column) -> Iterator[Cluster]:
    with column.running() as running:
        yield running


@pytest.mark.parametrize("scenario", _CELLS)
def test_it_ends_as_on_137(scenario: Scenario, column: Column, cluster: Cluster) -> None:
    with opened(cluster, column) as bench:
        found = play(scenario, bench)
    expected = scenario.expected(EXTENDER)
    assert expected.covers(found), f"on 1.37: {expected}; found: {found}"
