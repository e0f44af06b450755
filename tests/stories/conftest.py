"""Fixtures of the stories: the ground, once a session, and a stage for each."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from stage import Ground, Stage
from stage.kubelet import install_router
from stage.play import Trees


@pytest.fixture(scope="session")
def ground() -> Iterator[Ground]:
    """A control plane with all gates on, and Covey in a loop of this process."""
    with Ground() as running:
        yield running
        # Who is refused tries again or goes on, so that no story need have failed for it.
        assert not running.cluster.account_denials()


@pytest.fixture(scope="session")
def router(ground: Ground) -> None:
    """Pods that ask a router (``asks``) are Ready when it says so."""
    install_router(ground)


@pytest.fixture
def stage(ground: Ground, caplog: pytest.LogCaptureFixture) -> Iterator[Stage]:
    """A namespace and what a story needs; at its end the laws are judged."""
    caplog.set_level(logging.INFO)
    made = Stage(ground)
    yield made
    made.end()


@pytest.fixture
def bench(stage: Stage) -> Trees:
    """Groups and pods made by hand, as another controller would."""
    return Trees(stage)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop Covey before tests that are no stories: it shares the process with them, and its metrics."""
    ground = getattr(item, "funcargs", {}).get("ground")
    if isinstance(ground, Ground) and nextitem is not None and "ground" not in getattr(nextitem, "fixturenames", ()):
        ground.stop()
