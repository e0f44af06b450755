"""Replicas that are updated in place: step by step."""

from __future__ import annotations

from dataclasses import replace

from covey.rollout import Budget
from covey.rollout.progress import Gate, Settings, tell
from unit.rollout.acting import Role, Unit

NO_SURGE = Budget(surge=0, unavailable=1)


def in_place(wanted: int, minimum: int = 1, budget: Budget | None = None) -> Role:
    return Role.serving(wanted, minimum, budget, in_place=True)


def numbers(unit: Unit, name: str = "decode") -> dict[int, str]:
    return {n: each.revision.hash for n, each in sorted(unit.roles[name].replicas.items())}


def test_the_last_one_is_waited_for_before_the_surge_goes_and_given_up_where_it_does_not_come() -> None:
    unit = Unit({"decode": in_place(1)})
    unit.begin("b")
    unit.thrive()
    unit.step()
    assert numbers(unit) == {0: "b", 1: "b"}
    for _ in range(3):
        unit.step()
        assert numbers(unit) == {0: "b", 1: "b"}, "the surge stays until then"
    step = unit.state
    progress = tell({0: (step, unit.step())}, "b", None, Settings(), 0.0)
    assert progress is None, "nothing of another revision is left, and nothing was remembered"
    # Too late: it is taken for one that does not serve.
    role = unit.roles["decode"]
    role.replicas[0] = replace(role.replicas[0], updating=False)
    unit.step()
    unit.gone()
    assert numbers(unit) == {1: "b"}


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


def test_without_room_for_the_surge_one_is_exchanged_in_its_stead() -> None:
    unit = Unit({"decode": in_place(3)})
    unit.begin("b")
    unit.clear()
    unit.step()
    unit.gone()
    assert numbers(unit) == {0: "a", 1: "a", 2: "b"}
    assert unit.roles["decode"].ready == 2
