"""What holds for all tests.

Hypothesis judges what is true, not how fast: its limit of 200 ms for an example is met by chance on a busy machine.

Several processes (``pytest --numprocesses``) share the tests file by file, so that what a module sets up is there once.
The tests on a control plane are two shares, each with a control plane of its own, and come first: the stories, and what is
below ``tests/cluster``. They wait now and then, and the files of the unit tests, which do not, fill that up. (Marks of
pytest-xdist's ``loadgroup`` do nothing with pytest 9.2.) Of ``tests/cluster/life`` every file is a share: whichever process
is free takes it, on its own control plane. The scenarios of ``tests/matrix`` are one share for each backend.
"""

from __future__ import annotations

import gc
import os
import random
import re
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, settings

from localcluster import programs

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

_CLUSTER: Final = "tests/cluster/"
_LIFE: Final = "tests/cluster/life/"
_MATRIX: Final = "tests/matrix/"
_STORIES: Final = "tests/stories/"
#: Tests whose first parameter is a backend and its version run on the one cluster of that backend.
_COLUMN: Final = re.compile(r"[^\[]*\[([A-Z][a-z]+ [0-9.]+)[-\]]")

# They are started as users start them in tests/install, tests/image and tests/soak.
programs.fork = True
#: Where COVEY_HYPOTHESIS is "random", properties draw many new examples, from a seed that is printed and can be given again
#: (--hypothesis-seed). Otherwise they draw the same few each time: whether a change lands is not decided by chance.
_RANDOM: Final = os.environ.get("COVEY_HYPOTHESIS") == "random"
_PROFILE: Final = settings(
    derandomize=not _RANDOM,
    database=None,
    deadline=None,
    max_examples=500 if _RANDOM else 60,
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much),
)
settings.register_profile("covey", _PROFILE)
# What plays a whole history for each example: @settings(settings.get_profile("storm")).
settings.register_profile("storm", _PROFILE, max_examples=_PROFILE.max_examples // 4)
settings.load_profile("covey")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """One seed for all processes."""
    if _RANDOM and config.getoption("hypothesis_seed") is None:
        config.option.hypothesis_seed = random.SystemRandom().randrange(2**32)


def pytest_report_header(config: pytest.Config) -> str | None:
    """How the examples of properties come about again."""
    return f"COVEY_HYPOTHESIS=random --hypothesis-seed={config.getoption('hypothesis_seed')}" if _RANDOM else None


def share(nodeid: str) -> str:
    """The tests with which a test is run in one process, one after the other."""
    path = nodeid.partition("::")[0]
    if path.startswith(_MATRIX) and (column := _COLUMN.match(nodeid)):
        return f"{_MATRIX}{column[1]}"
    if path.startswith(_LIFE):
        return path
    return next((folder for folder in (_STORIES, _CLUSTER) if path.startswith(folder)), path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """The shares with the most tests go first."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - only with several processes

    class Shares(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return share(nodeid)

    return Shares(config, log)


def pytest_collection_finish() -> None:
    """Keep collections of garbage from going through thousands of tests, which takes a tenth of the unit tests' time."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What runs in another process beside the tests on a control plane comes after them, and is not starved by them."""
    beside = "PYTEST_XDIST_WORKER" in os.environ and not item.nodeid.startswith((_CLUSTER, _MATRIX, _STORIES))
    if beside and os.getpriority(os.PRIO_PROCESS, 0) == 0:
        os.nice(5)
