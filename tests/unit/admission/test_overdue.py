from __future__ import annotations

from typing import Any

import pytest

from builders.members import GATE, group, member, role_groups, unit
from covey.admission import pin_deadlines
from covey.admission.tree import Unit
from covey.api import core

SINCE = "2026-01-01T00:01:00Z"
START = core.seconds(SINCE) or 0.0


def tree(*states: dict[str, Any], admitted: str = "True") -> Unit:
    condition = {"type": "Admitted", "status": admitted, "lastTransitionTime": SINCE}
    root = group("root", composite=True, minimum=1, status={"conditions": [condition]}, timeoutSeconds=100)
    pods = [member("decode", number, **state) for number, state in enumerate(states)]
    return unit(root, role_groups("decode", replicas=len(states), minimum=1, size=1), pods)


def whens(
    found: Unit, pinned_at: dict[str, float] | None = None, admitted: float | None = None, torn: float | None = None
) -> list[tuple[str, float]]:
    return [(due.reason, due.when) for due in pin_deadlines.due(found, pinned_at or {}, admitted, torn)]


def test_a_restart_keeps_the_minimums_clock_and_gives_surplus_its_time_again() -> None:
    assert pin_deadlines.found_pinned(tree({"pin": "n1"}), 7.0, START + 50) == {"uid-root-decode-0-0": 7.0 - 50}
    assert pin_deadlines.found_pinned(tree({"node": "n1"}, {"pin": "n2"}), 7.0, START) == {"uid-root-decode-1-0": 7.0}


@pytest.mark.parametrize(("stepped", "age"), [(10_000_000, 85), (-10_000_000, 0), (99, 85), (60, 60)])
def test_whatever_the_clock_says_pins_that_are_found_have_a_while_left(stepped: float, age: float) -> None:
    found = tree({"pin": "n1"})
    assert pin_deadlines.found_admitted(found, 7.0, START + stepped) == 7.0 - age
    assert pin_deadlines.found_pinned(found, 7.0, START + stepped) == {"uid-root-decode-0-0": 7.0 - age}


def test_pins_beside_missing_pods_are_torn() -> None:
    root = group("root", composite=True, minimum=1)
    groups = role_groups("decode", replicas=1, minimum=1, size=2)
    half = unit(root, groups, [member("decode", 0, 0, size=2, pin="n1")])
    assert pin_deadlines.torn(half)
    assert whens(half, {"uid-root-decode-0-0": 0.0}, torn=50.0) == [
        ("Timeout", 300.0),
        ("Conflict", 50.0 + pin_deadlines.GRACE),
    ]
    whole = [member("decode", 0, 0, size=2, pin="n1"), member("decode", 0, 1, size=2, gates=(GATE,))]
    assert not pin_deadlines.torn(unit(root, groups, whole))
    assert not pin_deadlines.torn(unit(root, groups, whole[1:]))
