"""Fixtures of the operator's tests: the operator alone, without a scheduler process."""

from collections.abc import Iterator

import pytest

from cluster.workbench import Workbench
from localcluster import Cluster, Process


@pytest.fixture(scope="module")
def operator(cluster: Cluster) -> Iterator[Process]:
    """The operator, alone, under its own access rules; it runs again after a test that has killed it."""
    try:
        yield cluster.start_covey("operator")
    finally:
        cluster.stop_all()


@pytest.fixture
def bench(cluster: Cluster, operator: Process, namespace: str) -> Workbench:
    """A new namespace."""
    if not operator.alive:
        operator.start()
    return Workbench(cluster, namespace)


__all__ = ["bench", "operator"]
