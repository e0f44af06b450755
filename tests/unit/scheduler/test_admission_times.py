"""Each gang is observed once in each stage, whoever leads, and with times that were never made up."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from builders.members import GATE, group, member, role_groups, unit
from covey.admission.status import Decision, statuses
from covey.admission.tree import Unit
from covey.api import core
from covey.model import podstate
from covey.observability import metrics
from covey.scheduler.admission_times import AdmissionTimes
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


def written(lives: AdmissionTimes, found: Unit, now: str = CREATED) -> dict[str, Any]:
    """What the status writer does with a root."""
    _, status = statuses(found, Decision(), lambda _node: (), now)[0]
    lives.before(found.root)
    lives.observe_status(found, status)
    return status


def admit(lives: AdmissionTimes, found: Unit) -> None:
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


def test_a_new_leader_observes_what_nobody_recorded(clock: Clock, seen: Seen) -> None:
    """Admitted and bound while nobody led: by the API's own times."""
    status = written(AdmissionTimes(clock), gang(GATED, GATED))
    clock.now += 3600
    written(AdmissionTimes(clock), gang(bound(7), bound(9), status=status))
    assert seen() == {"created_to_admitted": (1, 7), "admitted_to_bound": (1, 2)}


def test_what_is_lost_and_comes_back_is_no_new_life(clock: Clock, seen: Seen) -> None:
    lives = AdmissionTimes(clock)
    status = written(lives, gang(bound(1), bound(2)))
    before = seen()
    lost = written(lives, gang(bound(1), GATED, status=status), "2026-01-01T01:00:00Z")
    admit(lives, gang(bound(1), PINNED, status=lost))
    for leader in (lives, AdmissionTimes(clock)):
        written(leader, gang(bound(1), bound(2), status=lost), "2026-01-01T02:00:00Z")
    assert seen() == before


SUCCESSOR = PINNED | {"annotations": {"scheduling.covey.dev/room": "n1"}}


def test_a_minimum_that_is_admitted_again_is_a_replan_with_its_cause(clock: Clock) -> None:
    before = replans()
    lives = AdmissionTimes(clock)
    admit(lives, gang(PINNED, PINNED))
    assert replans() == before
    admit(lives, gang(PINNED, PINNED))  # before any status was written
    assert replans() - before == {"PinsReleased": 1}
    lives.look(gang(bound(1), bound(2)))
    admit(lives, gang(bound(1), SUCCESSOR))
    assert replans() - before == {"PinsReleased": 1, "PodsLost": 1}
    admit(lives, gang(bound(1), PINNED))
    assert replans() - before == {"PinsReleased": 1, "PodsLost": 1, "Other": 1}
