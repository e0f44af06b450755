"""Fixtures of the stories: the ground, once a session, and a stage for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stage import Ground, Stage


@pytest.fixture(scope="session")
def ground() -> Iterator[Ground]:
    """A control plane with all gates on, and Covey in a loop of this process."""
    with Ground() as running:
        running.start()
        yield running
        # Who is refused tries again or goes on, so that no story need have failed for it.
        assert not running.cluster.account_denials()


@pytest.fixture
def stage(ground: Ground) -> Iterator[Stage]:
    """A namespace and what a story needs; at its end the laws are judged."""
    made = Stage(ground)
    yield made
    made.end()
