"""Expectations: what is remembered of pods that have gone, and of those that were created a moment ago."""

from __future__ import annotations

import pytest

from builders.inferences import inference, role
from covey.api import constants as names
from covey.api import core
from covey.compile import Owner, Slot
from covey.operator.model.observed import Observed
from covey.operator.observe.expectations import PATIENCE
from unit.operator.answering import refuse
from unit.operator.seen import Seen
from unit.operator.test_evacuating import cordon
from unit.operator.world import World

KEY = ("default", "llama")
INFERENCE = inference(role("decode"))
SLOT = Slot(0, "decode", 0, 0)


class Watching(Seen):
    """Caches that are shown a resource and its pods."""

    def resource(self, kind: str, uid: str) -> None:
        self.tell(self.caches.inferences, KEY[1], kind, namespace=KEY[0], uid=uid)

    def pod(self, kind: str, pod: core.Pod) -> None:
        self.watch(self.caches.pods, pod, kind)

    def look(self, uid: str) -> Observed:
        return self.caches.observe(Owner(*KEY, uid), 0.0)


@pytest.fixture
def seen() -> Watching:
    made = Watching()
    made.resource("ADDED", "owner-uid")
    return made


@pytest.fixture
def pod() -> core.Pod:
    """A bound pod of the resource."""
    world = World.settled(INFERENCE)
    world.bind_all()
    return world.only("owner-uid")


@pytest.mark.parametrize("order", ["resource first", "pod first"])
def test_the_dead_of_a_namesake_are_nobody_s(seen: Watching, pod: core.Pod, order: str) -> None:
    seen.pod("ADDED", pod)
    if order == "pod first":
        seen.pod("DELETED", pod)
    seen.resource("DELETED", "owner-uid")
    seen.resource("ADDED", "another")
    if order == "resource first":
        seen.pod("DELETED", pod)
    assert not seen.look("another").tombstones


def test_a_pod_that_may_stay_after_all_can_be_lost_again(seen: Watching, pod: core.Pod) -> None:
    seen.pod("ADDED", pod)
    seen.caches.pod_expectations.retire(KEY, seen.look("owner-uid"), ())
    seen.caches.pod_expectations.retire(KEY, seen.look("owner-uid"), [SLOT])
    seen.pod("DELETED", pod)
    assert not seen.look("owner-uid").tombstones[SLOT].retired


OWNER = Owner("default", "llama", "owner-uid")


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def fresh() -> core.Pod:
    return World.settled(INFERENCE).only(OWNER.uid)


def test_it_is_believed_in_for_a_while_only(fresh: core.Pod) -> None:
    time = Time()
    seen = Watching(time)
    seen.caches.pod_expectations.note_creation(KEY, fresh)
    time.now += PATIENCE / 2
    assert seen.look(OWNER.uid).pods
    # Somebody looks when its time is over, and then it is gone.
    assert seen.looks[-1] == (KEY, PATIENCE / 2)
    time.now += PATIENCE / 2
    assert not seen.look(OWNER.uid).pods


def test_a_unit_that_was_moved_is_not_deleted_together_with_its_successor() -> None:
    """The watch shows the pods of the former one on, though their deletion was asked for."""
    world = World.settled(inference(role("decode"), role("prefill"), topology={"required": "block"}))
    world.serve(apart=True)
    world.tell()
    cordon(world, "decode-0")
    world.act(3)
    refuse(world)
    world.now += 60
    world.act()
    for name in [name for name, pod in world.pods.items() if pod.metadata.label(names.LABEL_UNIT) == "1"]:
        world.bind(name, f"other-{name}")
        world.ready(name)
    deleted = world.plan().actions.delete_pods
    assert {item.pod.metadata.label(names.LABEL_UNIT) for item in deleted} == {"0"}
    world.pending_deletions |= {item.pod.metadata.uid for item in deleted}
    assert not world.plan().actions.delete_pods
