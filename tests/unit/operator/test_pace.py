"""When a status is written, and when it waits."""

import pytest

from covey.operator.model.phase import Phase
from covey.operator.model.problem import Problem
from covey.operator.status.pace import COUNTS, CROWD, PATIENCE, SETTLE, Pace, is_news, is_passing
from covey.operator.status.units import UnitSummary


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pace(clock: Clock) -> Pace:
    return Pace(clock)


def unit(phase: Phase, reason: str = "", number: int = 0) -> UnitSummary:
    return UnitSummary(number, phase, reason, "")


WAITS = unit(Phase.PENDING, "Waiting")
PINNED = unit(Phase.ADMITTED, "NotBound")
REFUSED = unit(Phase.PENDING, "Infeasible")
BOUND = unit(Phase.SCHEDULED, "NotReady")
SERVES = unit(Phase.READY, "Ready")


@pytest.mark.parametrize(
    ("units", "passing"),
    [
        ([WAITS], True),
        ([PINNED], True),
        ([BOUND, WAITS], True),
        ([BOUND], True),
        ([SERVES], False),
        ([SERVES, BOUND], True),
        ([REFUSED], False),
        ([WAITS, REFUSED], False),
        ([], False),
    ],
)
def test_what_passes_by_itself(units: list[UnitSummary], passing: bool) -> None:  # noqa: FBT001 - a column
    assert is_passing(units, None) is passing
    assert not is_passing(units, Problem("Refused", "no"))


def test_a_unit_that_has_served_is_lost_and_not_on_its_way() -> None:
    assert not is_passing([PINNED], None, {0})
    assert not is_passing([BOUND], None, {0})
    assert is_passing([PINNED], None, {1})


def test_what_passes_is_written_when_it_lasts(pace: Pace, clock: Clock) -> None:
    assert pace.delay("a", passing=True, news=True) == SETTLE
    clock.now += SETTLE / 2
    assert pace.delay("a", passing=True, news=True) == SETTLE / 2
    assert pace.delay("a", passing=False, news=True) == 0.0, "it was bound meanwhile"
    assert pace.delay("a", passing=True, news=True) == SETTLE, "and is on its way again"
    clock.now += SETTLE
    assert pace.delay("a", passing=True, news=True) == 0.0


def test_it_may_take_longer_while_many_are_on_their_way(pace: Pace) -> None:
    for number in range(CROWD * 4):
        pace.delay(str(number), passing=True, news=True)
    assert pace.delay("0", passing=True, news=True) == 4 * SETTLE
    for number in range(CROWD * 100):
        pace.delay(str(number), passing=True, news=True)
    assert pace.delay("0", passing=True, news=True) == PATIENCE * SETTLE
    for number in range(CROWD * 100):
        pace.note_current(str(number))
    assert pace.delay("one", passing=True, news=True) == SETTLE


def test_counts_alone_are_written_once_a_second(pace: Pace, clock: Clock) -> None:
    assert pace.delay("a", passing=False, news=False) == 0.0
    pace.note_write("a")
    clock.now += 0.25
    assert pace.delay("a", passing=False, news=False) == COUNTS - 0.25
    assert pace.delay("a", passing=False, news=True) == 0.0
    assert pace.delay("other", passing=False, news=False) == 0.0


def test_news() -> None:
    def status(value: str = "False", message: str = "", generation: int = 1) -> dict[str, object]:
        condition = {"type": "Admitted", "status": value, "reason": "R", "message": message}
        return {"observedGeneration": generation, "conditions": [condition]}

    assert not is_news(status(message="1 of 4"), status(message="2 of 4"))
    assert is_news(status(), status("True"))
    assert is_news(status(), status(generation=2))
    assert is_news({}, status())
