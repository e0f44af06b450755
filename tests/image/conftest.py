"""The image, made once for all tests that look at it; nothing here needs a container engine or a package index."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import imaged
from imaging import Image


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of them run in one process of pytest-xdist, with the one image."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.xdist_group("image"))


@pytest.fixture(scope="session")
def image() -> Iterator[Image]:
    """What the Dockerfile makes."""
    with imaged.built() as made:
        yield made
