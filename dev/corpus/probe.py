"""Probes in edited functions: each notes the test that enters.

The test that runs stands in a file that all processes of a run map into memory, for a probe may be met in one that a test has started.
"""

from __future__ import annotations

import mmap
import os
from functools import cache
from pathlib import Path
from typing import Final

#: Names the directory of the files of one run in the environment.
DIRECTORY: Final = "CORPUS_RECORD"
#: Lines of a place, a tab, and a test without its parameters, or its file where that is all that is known.
ENTERED: Final = "entered"
#: Seconds by test, as JSON.
SECONDS: Final = "seconds.json"
#: Node IDs of tests and files that failed, one a line.
FAILED: Final = "failed"

_LENGTH: Final = 512
_known: set[tuple[str, bytes]] = set()


def enter(place: str) -> None:
    """Note that the test that runs has entered a function."""
    test = _current()[:]
    if (place, test) not in _known:
        _known.add((place, test))
        os.write(_log(), f"{place}\t{_decode(test)}\n".encode())


def set_current(test: str) -> None:
    """Name the test that runs, or the file of all those for which something is done."""
    _current()[:] = test.encode()[:_LENGTH].ljust(_LENGTH, b"\0")


def read_current() -> str:
    """Return what ``set_current`` named last."""
    return _decode(_current()[:])


def _decode(test: bytes) -> str:
    return test.rstrip(b"\0").decode()


@cache
def _current() -> mmap.mmap:
    path = Path(os.environ[DIRECTORY], f"current-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}")
    with path.open("ab") as file:
        file.truncate(_LENGTH)
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), _LENGTH)


@cache
def _log() -> int:
    return os.open(Path(os.environ[DIRECTORY], ENTERED), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
