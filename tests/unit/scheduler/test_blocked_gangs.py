"""Gangs that lack pods side by side: who says so, and who gives its pods back."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from builders.members import GATE, group
from covey.admission.queue import Entry, Want
from covey.admission.status import Decision
from covey.admission.tree import Key, Unit
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
    return root, Entry(unit, Want.PODS, Decision(reason="Waiting", message="1 of 2 replicas exist"))


OLD, YOUNG = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def message(gangs: BlockedGangs, item: tuple[Key, Entry], now: float) -> str:
    return gangs.note(*item, now).decision.message


def test_gangs_when_they_lack_pods_side_by_side_name_each_other_and_the_younger_gives_its_own_back() -> None:
    marked: list[Key] = []
    gangs = BlockedGangs(marked.append)
    old, young = waiting("old", OLD), waiting("young", YOUNG)
    assert message(gangs, old, 0) == message(gangs, young, 0) == "1 of 2 replicas exist"
    assert gangs.left(young[0], 0) == 30
    assert "young lacks pods as well" in message(gangs, old, 30) + message(gangs, young, 30) + message(gangs, old, 30)
    assert "old lacks pods as well" in message(gangs, young, 31)
    assert gangs.take_pods(young[0], 59) == gangs.take_pods(old[0], 61) == []
    assert [pod.metadata.name for pod in gangs.take_pods(young[0], 61)] == ["young-0"]
    # It has other pods by then, and lacks some once more: twice as long.
    message(gangs, young, 100)
    assert message(gangs, young, 131)
    assert gangs.take_pods(young[0], 219) == []
    assert gangs.take_pods(young[0], 221)


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
    gangs = BlockedGangs(lambda _: None)
    old = waiting("old", OLD)
    for now in (0, 31, 61):
        message(gangs, old, now)
        message(gangs, item, now)
    assert gangs.take_pods(item[0], 1000) == []


def test_gang_when_the_other_has_its_pods_names_nobody() -> None:
    gangs = BlockedGangs(lambda _: None)
    old, young = waiting("old", OLD), waiting("young", YOUNG)
    for now in (0, 31):
        message(gangs, old, now)
        message(gangs, young, now)
    gangs.note(old[0], replace(old[1], want=Want.MINIMUM), 40)
    assert message(gangs, young, 41) == "1 of 2 replicas exist"
    assert gangs.take_pods(young[0], 1000) == []
