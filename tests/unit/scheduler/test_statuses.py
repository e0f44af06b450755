from __future__ import annotations

from typing import Any

import pytest

from covey.scheduler.status import Decision
from covey.scheduler.statuses import Passing, passing
from scheduler_builders import GATE, START, group, member, role_groups, unit

GATED: dict[str, Any] = {"gates": (GATE,)}
REFUSED = Decision("Infeasible", "8 GPUs are missing")


@pytest.mark.parametrize(
    ("replicas", "decision", "expected"),
    [
        pytest.param([], Decision(), None, id="no pods yet"),
        pytest.param([GATED], Decision(), Passing.WAITING, id="not looked at yet, or its pins are being written"),
        pytest.param([GATED], Decision("Waiting", "pods are missing"), Passing.WAITING, id="being created"),
        pytest.param([GATED], REFUSED, None, id="refused: news"),
        pytest.param([{"pin": "n1"}], Decision(), Passing.PINNED, id="about to be bound"),
        pytest.param([{"pin": "n1", "gates": (START,)}], Decision(), Passing.PINNED, id="held by the start gate"),
        pytest.param([{"node": "n1"}, GATED], Decision(), None, id="the minimum is bound: news"),
        pytest.param([{"node": "n1"}, {"pin": "n2"}], Decision(), Passing.PINNED, id="surplus about to be bound"),
        pytest.param([{"node": "n1"}, {"node": "n2"}], Decision(), None, id="all bound"),
    ],
)
def test_what_is_expected_to_pass(replicas: list[dict[str, Any]], decision: Decision, expected: Passing | None) -> None:
    pods = [member("decode", number, 0, size=1, **state) for number, state in enumerate(replicas)]
    found = unit(group("root", composite=True, minimum=1), role_groups("decode", replicas=2, minimum=1, size=1), pods)
    assert passing(found, decision) is expected
