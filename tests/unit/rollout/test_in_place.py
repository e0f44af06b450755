"""Replicas that are updated in place: step by step."""

from __future__ import annotations

from covey.rollout import RolloutBudget
from covey.rollout.gates import Gate
from covey.rollout.progress import Settings, tell
from unit.rollout.acting import Role, Unit

NO_SURGE = RolloutBudget(surge=0, unavailable=1)


def in_place(wanted: int, minimum: int = 1, budget: RolloutBudget | None = None) -> Role:
    return Role.serving(wanted, minimum, budget, in_place=True)


def numbers(unit: Unit, name: str = "decode") -> dict[int, str]:
    return {n: each.revision.hash for n, each in sorted(unit.roles[name].replicas.items())}


def test_a_rollout_goes_on_while_something_is_exchanged() -> None:
    unit = Unit({"decode": in_place(1)})
    unit.begin("b")
    unit.thrive()
    first = unit.state
    last = tell({0: (first, unit.step())}, "b", None, Settings(), 0.0)
    state = unit.state
    progress = tell({0: (state, unit.step())}, "b", last, Settings(), 1.0)
    assert progress is not None
    assert progress.hold is not None
    assert progress.hold.gate is Gate.READINESS
    assert tell({0: (state, unit.step())}, "b", progress, Settings(deadline=10.0), 11.0) is None


def test_first_new_ones_come_together_where_another_role_is_replaced() -> None:
    """One that is updated in place at once would be alone until the other finds room."""
    unit = Unit({"prefill": Role.serving(2), "decode": in_place(3, budget=NO_SURGE)})
    planned = unit.begin("b")
    assert planned.together == {("prefill", 2), ("decode", 3)}
    unit.thrive()
    for _ in range(12):
        unit.step()
        unit.thrive()
    assert unit.is_rolled
    # The first one of decode took the place of one, the others are there still.
    assert len(numbers(unit).keys() & {0, 1, 2}) == 2


def test_a_correction_is_exchanged_in_the_pods_that_cannot_start() -> None:
    unit = Unit({"decode": in_place(3, budget=NO_SURGE)})
    unit.begin("b")
    unit.begin("c")
    assert numbers(unit) == {0: "a", 1: "a", 2: "c"}
    assert unit.roles["decode"].ready == 2
