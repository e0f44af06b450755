"""The image, made once for all tests that look at it; nothing here needs a container engine or a package index."""

from collections.abc import Iterator

import pytest

import imaged
from imaging import Image


@pytest.fixture(scope="session")
def image() -> Iterator[Image]:
    """What the Dockerfile makes."""
    with imaged.built() as made:
        yield made
