"""What work costs, as a number that is the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_steps(work: Callable[[], object]) -> int:
    """The functions of Python that are entered while some work is done in this thread; a generator counts at each value.

    Only sums for unlike sizes of the same work are to be compared: they grow as its time does.
    """
    steps = 0

    def note(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal steps
        steps += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return steps


def count_lines(work: Callable[[], object]) -> int:
    """The lines of Python that are run while some work is done in this thread: also loops that call nothing count."""
    lines = 0

    def note(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines
