"""Pods whose groups are of a form that is not read: told once, by whoever leads, and counted."""

from __future__ import annotations

from typing import Any

from builders.members import GATE, cache, drop, pod, put
from covey.api import core
from covey.kube.clock import SYSTEM
from covey.observability.metrics import REGISTRY
from covey.scheduler.admission_times import AdmissionTimes
from covey.scheduler.context import Context
from covey.scheduler.unread_groups import UnreadGroups

REFERENCE = {"workloadRef": {"name": "train", "podGroup": "workers"}}


class Recorder:
    """Notes the Events."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def event(self, about: Any, _type: str, reason: str, note: str, _action: str) -> None:
        assert "names workers of Workload train" in note
        self.told.append((about.name, reason))


def count() -> float | None:
    return REGISTRY.get_sample_value("covey_pods_of_unread_groups")


def waiting(name: str, **more: Any) -> core.Pod:
    return pod(name, gates=(GATE,), spec=REFERENCE, **more)


def test_each_is_told_once_by_whoever_leads_and_counted_until_it_is_gone() -> None:
    made, recorder, leads = cache(waiting("early"), pod("ordinary")), Recorder(), [False]
    api: Any = recorder
    unread = UnreadGroups(Context(made, api, api, api, SYSTEM, AdmissionTimes(SYSTEM.wall), lambda: leads[0]))
    put(made, waiting("a"))
    put(made, waiting("gone"))
    before = count()
    drop(made, waiting("gone"))
    put(made, pod("b", gates=(GATE,)))
    assert (recorder.told, count()) == ([], before), "whoever only stands by says nothing"
    leads[0] = True
    unread.begin()
    put(made, waiting("a", labels={"some": "change"}))
    late = waiting("late")
    put(made, late)
    assert recorder.told == [("a", "Unsupported"), ("late", "Unsupported")]
    assert count() == 2
    drop(made, late)
    put(made, pod("a", spec=REFERENCE))
    assert count() == 0
    assert len(recorder.told) == 2
