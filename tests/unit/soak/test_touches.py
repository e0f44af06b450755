"""A pod to which something was done may be taken, until nothing of it was done after all."""

from collections import Counter
from threading import Lock
from types import SimpleNamespace
from typing import Any

from soak.stage import Stage


def test_an_eviction_that_is_refused_does_not_undo_what_was_done_before() -> None:
    pod: Any = SimpleNamespace(uid="u", replica=None)
    touched: set[str] = set()
    stage: Any = SimpleNamespace(
        _touches=Counter(),
        watching=SimpleNamespace(lock=Lock()),
        checker=SimpleNamespace(world=SimpleNamespace(touched=touched)),
    )
    Stage.touch(stage, pod)  # a container is restarted
    Stage.touch(stage, pod)  # its node is drained
    Stage.spare(stage, pod)  # which a budget forbids
    assert touched == {"u"}
    Stage.spare(stage, pod)
    assert touched == set()
