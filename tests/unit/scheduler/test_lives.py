"""Each gang is observed once in each stage, whoever leads, and with times that were never made up."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from builders.members import GATE, group, member, role_groups, unit
from covey.admission import podstate
from covey.admission.status import Decision, statuses
from covey.admission.tree import Unit
from covey.api import core
from covey.observability import metrics
from covey.scheduler.lives import Lives
from scrapes import Scrape

CREATED = "2026-01-01T00:00:00Z"
EPOCH = core.seconds(CREATED) or 0.0


class Clock:
    def __init__(self) -> None:
        self.now = EPOCH

    def __call__(self) -> float:
        return self.now


class Seen:
    """How often, and how many seconds in all, since the test began."""

    def __init__(self) -> None:
        self._before = self._all()

    def __call__(self) -> dict[str, tuple[float, float]]:
        return {
            stage: (round(count - self._before[stage][0]), round(total - self._before[stage][1], 3))
            for stage, (count, total) in self._all().items()
        }

    @staticmethod
    def _all() -> dict[str, tuple[float, float]]:
        scrape = Scrape.parse(metrics.render().decode())
        return {
            stage: (scrape(f"covey_gang_{stage}_seconds_count"), scrape(f"covey_gang_{stage}_seconds_sum"))
            for stage in ("created_to_admitted", "admitted_to_bound")
        }


NOTHING = {"created_to_admitted": (0, 0), "admitted_to_bound": (0, 0)}
GATED: dict[str, Any] = {"gates": (GATE,)}
PINNED: dict[str, Any] = {"pin": "n1"}


def bound(second: int = 9) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": f"2026-01-01T00:00:{second:02}Z"}
    return {"node": "n1", "conditions": [condition]}


def gang(*replicas: dict[str, Any], status: dict[str, Any] | None = None, minimum: int = 2, uid: str = "") -> Unit:
    root = group("root", composite=True, minimum=1, status=status)
    if uid:
        root = group("root", composite=True, minimum=1, status=status, owner={"uid": uid, "controller": True})
    pods = [member("decode", number, size=1, **state) for number, state in enumerate(replicas)]
    return unit(root, role_groups("decode", replicas=3, minimum=minimum, size=1), pods)


def written(lives: Lives, found: Unit, now: str = CREATED) -> dict[str, Any]:
    """What the status writer does with a root."""
    _, status = statuses(found, Decision(), lambda _node: (), now)[0]
    lives.before(found.root)
    lives.observe_status(found, status)
    return status


def admit(lives: Lives, found: Unit) -> None:
    """The pins of everything that is pinned in it have just been written."""
    lives.note_admission(found, [pod for pod in found.pods() if podstate.pinned_node(pod)])


def replans() -> Counter[str]:
    return Counter(Scrape.parse(metrics.render().decode()).by("cause", "covey_gang_replans_total"))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def seen() -> Seen:
    return Seen()


def test_a_life(clock: Clock, seen: Seen) -> None:
    lives = Lives(clock)
    written(lives, gang(GATED, GATED))
    assert seen() == NOTHING
    clock.now += 4.25
    admit(lives, gang(PINNED, PINNED))
    clock.now += 1.5
    lives.look(gang(bound(5), PINNED))
    clock.now += 0.25
    lives.look(gang(bound(5), bound(6)))
    clock.now += 30  # the status is written when it is quiet
    written(lives, gang(bound(5), bound(6)))
    assert seen() == {"created_to_admitted": (1, 4.25), "admitted_to_bound": (1, 1.75)}
    written(lives, gang(bound(5), bound(6), bound(50)))
    assert seen()["admitted_to_bound"] == (1, 1.75)


def test_a_write_that_is_refused_is_observed_with_the_next(clock: Clock, seen: Seen) -> None:
    lives = Lives(clock)
    found = gang(PINNED, PINNED)
    admit(lives, found)
    lives.before(found.root)  # and the write fails
    assert seen() == NOTHING
    written(lives, found)
    assert seen()["created_to_admitted"] == (1, 0)


def test_a_new_leader_observes_nothing_again(clock: Clock, seen: Seen) -> None:
    """The old leader has written the status, whatever else it came to."""
    status = written(Lives(clock), gang(bound(1), bound(2)))
    before = seen()
    for _ in range(3):
        written(Lives(clock), gang(bound(1), bound(2), status=status))
    assert seen() == before


def test_a_new_leader_observes_what_nobody_recorded(clock: Clock, seen: Seen) -> None:
    """Admitted and bound while nobody led: by the API's own times."""
    status = written(Lives(clock), gang(GATED, GATED))
    clock.now += 3600
    written(Lives(clock), gang(bound(7), bound(9), status=status))
    assert seen() == {"created_to_admitted": (1, 7), "admitted_to_bound": (1, 2)}


def test_a_new_leader_goes_on_with_a_gang_that_is_being_bound(clock: Clock, seen: Seen) -> None:
    status = written(Lives(clock), gang(PINNED, PINNED))
    before = seen()
    written(Lives(clock), gang(bound(7), bound(9), status=status))
    assert seen() == before | {"admitted_to_bound": (1, 2)}


def test_what_is_lost_and_comes_back_is_no_new_life(clock: Clock, seen: Seen) -> None:
    lives = Lives(clock)
    status = written(lives, gang(bound(1), bound(2)))
    before = seen()
    lost = written(lives, gang(bound(1), GATED, status=status), "2026-01-01T01:00:00Z")
    admit(lives, gang(bound(1), PINNED, status=lost))
    for leader in (lives, Lives(clock)):
        written(leader, gang(bound(1), bound(2), status=lost), "2026-01-01T02:00:00Z")
    assert seen() == before


def test_the_minimum_counts_not_the_surplus(clock: Clock, seen: Seen) -> None:
    written(Lives(clock), gang(bound(7), bound(9), bound(40), minimum=2))
    assert seen()["admitted_to_bound"] == (1, 2)


def test_clocks_that_differ_do_not_make_time_run_backwards(clock: Clock, seen: Seen) -> None:
    clock.now -= 20
    lives = Lives(clock)
    admit(lives, gang(PINNED, PINNED))
    written(lives, gang(PINNED, PINNED))
    assert seen()["created_to_admitted"] == (1, 0)


def test_a_namesake_has_a_life_of_its_own(clock: Clock, seen: Seen) -> None:
    lives = Lives(clock)
    first = gang(PINNED, PINNED)
    admit(lives, first)
    written(lives, first)
    lives.forget(first.key)
    clock.now += 60
    admit(lives, first)
    written(lives, first)
    assert seen()["created_to_admitted"] == (2, 60)


SUCCESSOR = PINNED | {"annotations": {"scheduling.covey.dev/room": "n1"}}


def test_a_minimum_that_is_admitted_again_is_a_replan_with_its_cause(clock: Clock) -> None:
    before = replans()
    lives = Lives(clock)
    admit(lives, gang(PINNED, PINNED))
    assert replans() == before
    admit(lives, gang(PINNED, PINNED))  # before any status was written
    assert replans() - before == {"PinsReleased": 1}
    lives.look(gang(bound(1), bound(2)))
    admit(lives, gang(bound(1), SUCCESSOR))
    assert replans() - before == {"PinsReleased": 1, "PodsLost": 1}
    admit(lives, gang(bound(1), PINNED))
    assert replans() - before == {"PinsReleased": 1, "PodsLost": 1, "Other": 1}


@pytest.mark.parametrize(
    ("first", "again", "cause"),
    [
        ((PINNED, PINNED), (PINNED, PINNED), "PinsReleased"),
        ((bound(1), bound(2)), (bound(1), SUCCESSOR), "PodsLost"),
        ((bound(1), bound(2)), (bound(1), PINNED), "Other"),
    ],
)
def test_a_new_leader_knows_a_replan_by_the_status(
    clock: Clock, first: tuple[Any, Any], again: tuple[Any, Any], cause: str
) -> None:
    status = written(Lives(clock), gang(*first))
    lost = written(Lives(clock), gang(first[0], GATED, status=status), "2026-01-01T01:00:00Z")
    before = replans()
    admit(Lives(clock), gang(*again, status=lost))
    assert replans() - before == {cause: 1}


def test_a_new_leader_replans_nothing_by_looking(clock: Clock) -> None:
    status, before = written(Lives(clock), gang(PINNED, PINNED)), replans()
    written(Lives(clock), gang(bound(1), bound(2), status=status))
    never = written(Lives(clock), gang(GATED, GATED))
    admit(Lives(clock), gang(PINNED, PINNED, status=never))
    assert replans() == before


def test_an_admission_is_told_once_whoever_leads_and_again_after_a_loss(clock: Clock) -> None:
    def tell(lives: Lives, found: Unit, now: str) -> tuple[bool, dict[str, Any]]:
        _, status = statuses(found, Decision(), lambda _node: (), now)[0]
        lives.before(found.root)
        return lives.observe_status(found, status), status

    lives = Lives(clock)
    assert tell(lives, gang(GATED, GATED), "2026-01-01T00:10:00Z")[0] is False
    told, status = tell(lives, gang(PINNED, PINNED), "2026-01-01T00:20:00Z")
    assert told
    for leader in (lives, Lives(clock)):
        assert tell(leader, gang(bound(1), bound(2), status=status), "2026-01-01T00:30:00Z")[0] is False
    told, lost = tell(lives, gang(bound(1), GATED, status=status), "2026-01-01T00:40:00Z")
    assert not told
    assert tell(Lives(clock), gang(bound(1), PINNED, status=lost), "2026-01-01T00:50:00Z")[0]
    assert tell(lives, gang(bound(1), PINNED, status=lost), "2026-01-01T00:50:00Z")[0]
