"""Expectations: what is remembered of pods that have gone, and of those that were created a moment ago."""

from __future__ import annotations

from typing import Any

import pytest

from builders.inferences import inference, role
from covey.api import constants as names
from covey.api import core
from covey.compile import Owner, Slot
from covey.compile.revision import Revision
from covey.operator.model.observed import Observed
from covey.operator.observe.expectations import PATIENCE
from covey.operator.plan import Plan
from covey.operator.replicas.scale import running_revisions
from unit.operator.answering import refuse
from unit.operator.seen import Seen
from unit.operator.test_evacuating import act, cordon
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


def test_who_begins_to_lead_has_lost_none_of_those_that_another_took_away(seen: Watching, pod: core.Pod) -> None:
    seen.pod("ADDED", pod)
    seen.pod("DELETED", pod)
    wanted = Revision.of(INFERENCE.spec)
    assert running_revisions(seen.look("owner-uid"), wanted), "a replica that was lost is made again as it was"
    seen.caches.ledger.forget_graves()
    assert not running_revisions(seen.look("owner-uid"), wanted)


@pytest.mark.parametrize("order", ["resource first", "pod first"])
def test_the_dead_of_a_namesake_are_nobody_s(seen: Watching, pod: core.Pod, order: str) -> None:
    seen.pod("ADDED", pod)
    if order == "pod first":
        seen.pod("DELETED", pod)
    seen.resource("DELETED", "owner-uid")
    seen.resource("ADDED", "another")
    if order == "resource first":
        seen.pod("DELETED", pod)
    assert not seen.look("another").graves


def test_a_pod_that_may_stay_after_all_can_be_lost_again(seen: Watching, pod: core.Pod) -> None:
    seen.pod("ADDED", pod)
    seen.caches.ledger.retire(KEY, seen.look("owner-uid"), ())
    seen.caches.ledger.retire(KEY, seen.look("owner-uid"), [SLOT])
    seen.pod("DELETED", pod)
    assert not seen.look("owner-uid").graves[SLOT].retired


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
    seen.caches.ledger.note_creation(KEY, fresh)
    time.now += PATIENCE / 2
    assert seen.look(OWNER.uid).pods
    # Somebody looks when its time is over, and then it is gone.
    assert seen.looks[-1] == (KEY, PATIENCE / 2)
    time.now += PATIENCE / 2
    assert not seen.look(OWNER.uid).pods


def look(world: World) -> Plan:
    """A pass; the pods that it deletes are shown on by the watch."""
    planned = world.plan()
    world.condemned |= {item.pod.metadata.uid for item in planned.actions.delete_pods}
    return planned


def units_of(planned: Plan) -> set[str | None]:
    return {item.pod.metadata.label(names.LABEL_UNIT) for item in planned.actions.delete_pods}


def moving(decode: dict[str, Any], prefill: dict[str, Any]) -> World:
    """A unit that is being moved as a whole, whose successor has its minimum Ready."""
    world = World(inference(role("prefill")))
    world.inference = inference(role("decode", **decode), role("prefill", **prefill), topology={"required": "block"})
    world.settle()
    world.serve(apart=True)
    world.tell()
    cordon(world, "decode-0")
    act(world)
    refuse(world)
    world.now += 60
    act(world, 1)
    minimum = {"decode": decode["minReplicas"], "prefill": prefill["minReplicas"]}
    for name, pod in list(world.pods.items()):
        number = int(pod.metadata.label(names.LABEL_REPLICA) or 0)
        if pod.metadata.label(names.LABEL_UNIT) == "1" and number < minimum[pod.metadata.label(names.LABEL_ROLE) or ""]:
            world.bind(name, f"other-{name}")
            world.ready(name)
    if prefill["replicas"] > minimum["prefill"]:
        # There is no room for more of it.
        refuse(world, unit=1)
    return world


@pytest.mark.parametrize("prefill", [1, 2], ids=["at its minimum", "with surplus"])
def test_a_unit_that_was_moved_is_not_deleted_together_with_its_successor(prefill: int) -> None:
    world = moving({"replicas": 1, "minReplicas": 1}, {"replicas": prefill, "minReplicas": 1})
    assert units_of(look(world)) == {"0"}
    assert not look(world).actions.delete_pods
    assert not look(world).actions.delete_pods


def test_the_last_unit_stays_though_it_is_not_ready_for_a_moment() -> None:
    world = World.serving(inference(role("prefill"), role("decode"), replicas=2))
    world.tell()
    world.inference = inference(role("prefill"), role("decode"), replicas=1)
    assert units_of(look(world)) == {"1"}
    unready = next(name for name in world.pods if name.startswith("llama-0-prefill"))
    world.change(unready, status={"conditions": (core.Condition("Ready", "False"),)})
    assert not look(world).actions.delete_pods
