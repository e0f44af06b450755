"""The soak, for less than a minute: enough to know that it runs, and that it finds nothing at once."""

from __future__ import annotations

import pytest

from localcluster import Cluster
from soak.main import Soak


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_short_soak() -> None:
    with Cluster() as cluster:
        result = Soak(cluster, seed=10).run(45.0)
    print(result.told())
    assert not result.problems
    assert result.steps >= 10
    assert result.binds >= 20
