"""What holds for all tests.

Hypothesis judges what is true, not how fast: its limit of 200 ms for an example is met by chance on a busy machine.
"""

import os

import pytest
from hypothesis import settings

settings.register_profile("covey", deadline=None)
settings.load_profile("covey")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What runs in another process beside the tests on the control plane leaves the processors to them."""
    marker = item.get_closest_marker("xdist_group")
    beside = "PYTEST_XDIST_WORKER" in os.environ and (marker is None or not marker.args[0].startswith("cluster"))
    if beside and os.getpriority(os.PRIO_PROCESS, 0) == 0:
        os.nice(10)
