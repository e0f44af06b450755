"""Gangs that lack pods side by side: who says so, and who gives its pods back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from builders.members import GATE, group
from builders.steps import count_lines
from covey.admission.entry import Entry, QueueStage
from covey.admission.nodes import Key
from covey.admission.status import Decision
from covey.admission.tree import Unit
from covey.api import core
from covey.scheduler.blocked import BlockedGangs
from covey.scheduler.index import Index


def waiting(name: str, created: str, *, owner: str = "Job", pods: int = 1) -> tuple[Key, Entry]:
    """A gang that lacks pods."""
    references = (core.OwnerReference(kind=owner, name=name, uid=f"uid-{name}", controller=True),)
    index = Index()
    found = group(name, minimum=2)
    meta = msgspec.structs.replace(found.metadata, creation_timestamp=created, owner_references=references)
    index.set_group(msgspec.structs.replace(found, metadata=meta))
    for number in range(pods):
        labels = {"scheduling.covey.dev/pod-group": name}
        pod = core.Meta(
            name=f"{name}-{number}",
            namespace=meta.namespace,
            uid=f"{name}-{number}",
            labels=labels,
            owner_references=references,
        )
        index.set_pod(core.Pod(pod, core.PodSpec(scheduling_gates=(core.SchedulingGate(GATE),))))
    [root] = index.roots()
    unit = index.unit(root)
    assert isinstance(unit, Unit)
    return root, Entry(unit, QueueStage.PODS, Decision(reason="Waiting", message="1 of 2 replicas exist"))


OLD, YOUNG = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


class Gangs:
    """The gangs that lack pods, at any time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.given: list[str] = []
        self._gangs = BlockedGangs(lambda: self.now)
        handle: Any = SimpleNamespace(
            queue=SimpleNamespace(requeue=lambda _: None), commits=SimpleNamespace(give_up=self._give_up)
        )
        self._gangs.attach(handle)

    def _give_up(self, pods: Sequence[core.Pod], _reason: str) -> None:
        self.given += [pod.metadata.name for pod in pods]

    def message(self, item: tuple[Key, Entry], now: float) -> str:
        """What is said of a gang that is assessed."""
        self.now = now
        return self._gangs.assess(item[1], None).decision.message

    def deadlines(self, item: tuple[Key, Entry]) -> list[float]:
        """When it is to be assessed again."""
        return list(self._gangs.deadlines(item[1]))

    def forget(self, item: tuple[Key, Entry]) -> None:
        """A gang is gone."""
        self._gangs.forget(item[0])

    def take_pods(self, item: tuple[Key, Entry], now: float) -> list[str]:
        """The pods that a gang has given back after it was assessed."""
        self.now, self.given = now, []
        self._gangs.note_assessed(item[0])
        return self.given


def test_gangs_when_they_lack_pods_side_by_side_name_each_other_and_the_younger_gives_its_own_back() -> None:
    gangs = Gangs()
    old, young = waiting("old", OLD), waiting("young", YOUNG)
    assert gangs.message(old, 0) == gangs.message(young, 0) == "1 of 2 replicas exist"
    assert gangs.deadlines(young) == [30, 60]
    assert "young lacks pods as well" in gangs.message(old, 30) + gangs.message(young, 30) + gangs.message(old, 30)
    assert "old lacks pods as well" in gangs.message(young, 31)
    assert gangs.take_pods(young, 59) == gangs.take_pods(old, 61) == []
    assert gangs.take_pods(young, 61) == ["young-0"]
    # It has other pods by then, and lacks some once more: twice as long.
    gangs.message(young, 100)
    assert gangs.message(young, 131)
    assert gangs.take_pods(young, 219) == []
    assert gangs.take_pods(young, 221)


@pytest.mark.parametrize(
    "item",
    [
        waiting("young", YOUNG, owner="StatefulSet"),
        waiting("young", YOUNG, owner="DisaggregatedInference"),
        waiting("young", YOUNG, pods=0),
    ],
    ids=["a StatefulSet's, which are back at once", "Covey's own", "none"],
)
def test_pods_when_giving_them_back_helps_nobody_are_kept(item: tuple[Key, Entry]) -> None:
    gangs = Gangs()
    old = waiting("old", OLD)
    for now in (0, 31, 61):
        gangs.message(old, now)
        gangs.message(item, now)
    assert gangs.take_pods(item, 1000) == []


def test_gang_when_the_other_has_its_pods_names_nobody() -> None:
    gangs = Gangs()
    old, young = waiting("old", OLD), waiting("young", YOUNG)
    for now in (0, 31):
        gangs.message(old, now)
        gangs.message(young, now)
    gangs.message((old[0], replace(old[1], stage=QueueStage.MINIMUM)), 40)
    assert gangs.message(young, 41) == "1 of 2 replicas exist"
    assert gangs.take_pods(young, 1000) == []


def test_gangs_when_many_have_come_just_now_are_looked_at_in_one_pass() -> None:
    """The younger ones have lacked pods for a while, and none of the older ones has."""

    def lines(count: int) -> int:
        gangs = Gangs()
        younger = [waiting(f"young-{number}", YOUNG) for number in range(count)]
        older = [waiting(f"old-{number}", OLD) for number in range(count)]

        def look(items: Sequence[tuple[Key, Entry]], now: float) -> None:
            for item in items:
                gangs.message(item, now)
                gangs.take_pods(item, now)

        look(younger, 0.0)
        look(older, 29.0)
        return count_lines(lambda: look(younger, 31.0))

    few, many = lines(100), lines(400)
    assert many <= 6 * few, f"{few} lines for 100, {many} for 400"


def test_gang_when_others_have_come_gone_and_come_again_names_the_oldest_that_lasts() -> None:
    gangs = Gangs()
    old, young, gone = waiting("old", OLD), waiting("young", YOUNG), waiting("gone", "2025-01-01T00:00:00Z")
    for item in (gone, old, young):
        gangs.message(item, 0.0)
    assert "gone lacks pods" in gangs.message(young, 30.0)
    gangs.forget(gone)
    assert "old lacks pods" in gangs.message(young, 31.0)
    gangs.message(gone, 32.0)
    assert "old lacks pods" in gangs.message(young, 61.0)
    assert "gone lacks pods" in gangs.message(young, 62.0)
    assert "gone lacks pods" in gangs.message(old, 62.0)
    assert "old lacks pods" in gangs.message(gone, 62.0)
