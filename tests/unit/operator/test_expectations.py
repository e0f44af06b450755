"""Expectations: what is remembered of pods that have gone, and of those that were created a moment ago."""

from typing import cast

import msgspec
import pytest

from builders.inferences import inference, role
from covey.api import core
from covey.compile import Owner, Slot
from covey.compile.revision import Revision
from covey.kube.client import Client
from covey.kube.clock import SYSTEM, Clock
from covey.operator.model.observed import Observed
from covey.operator.observe.caches import Caches
from covey.operator.observe.expectations import PATIENCE
from covey.operator.observe.watched import Requeue
from covey.operator.replicas.scale import running_revisions
from unit.operator.world import World

KEY = ("default", "llama")
INFERENCE = inference(role("decode"))
SLOT = Slot(0, "decode", 0, 0)


class Seen:
    """Caches that are shown events by hand."""

    def __init__(self) -> None:
        nobody = cast("Client", None)  # no reflector runs
        self.caches = Caches(nobody, Requeue(), clock=SYSTEM)

    def resource(self, kind: str, uid: str) -> None:
        metadata = {"name": KEY[1], "namespace": KEY[0], "uid": uid, "resourceVersion": uid}
        self.caches.inferences.take({"type": kind, "object": {"metadata": metadata}})

    def pod(self, kind: str, pod: core.Pod) -> None:
        self.caches.pods.reflectors[0]._take(kind, pod)  # type: ignore[arg-type] # one of the kinds

    def look(self, uid: str) -> Observed:
        return self.caches.observe(Owner(*KEY, uid), 0.0)


@pytest.fixture
def seen() -> Seen:
    made = Seen()
    made.resource("ADDED", "owner-uid")
    return made


@pytest.fixture
def pod() -> core.Pod:
    """A bound pod of the resource."""
    world = World.settled(INFERENCE)
    world.bind_all()
    return world.only("owner-uid")


def test_a_pod_that_is_gone_is_remembered(seen: Seen, pod: core.Pod) -> None:
    seen.pod("ADDED", pod)
    seen.pod("DELETED", pod)
    grave = seen.look("owner-uid").graves[SLOT]
    assert (grave.uid, grave.bound, grave.confirmed, grave.retired) == (pod.metadata.uid, True, False, False)


def test_who_begins_to_lead_has_lost_none_of_those_that_another_took_away(seen: Seen, pod: core.Pod) -> None:
    seen.pod("ADDED", pod)
    seen.pod("DELETED", pod)
    wanted = Revision.of(INFERENCE.spec)
    assert running_revisions(seen.look("owner-uid"), wanted), "a replica that was lost is made again as it was"
    seen.caches.ledger.forget_graves()
    assert not running_revisions(seen.look("owner-uid"), wanted)


@pytest.mark.parametrize("order", ["resource first", "pod first"])
def test_the_dead_of_a_namesake_are_nobody_s(seen: Seen, pod: core.Pod, order: str) -> None:
    seen.pod("ADDED", pod)
    if order == "pod first":
        seen.pod("DELETED", pod)
    seen.resource("DELETED", "owner-uid")
    seen.resource("ADDED", "another")
    if order == "resource first":
        seen.pod("DELETED", pod)
    assert not seen.look("another").graves


def test_a_pod_of_a_place_that_was_given_up_is_not_lost(seen: Seen, pod: core.Pod) -> None:
    seen.pod("ADDED", pod)
    seen.caches.ledger.retire(KEY, seen.look("owner-uid"), ())
    meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z", resource_version="9")
    seen.pod("MODIFIED", msgspec.structs.replace(pod, metadata=meta))
    # The place is wanted again before the pod has gone.
    seen.caches.ledger.retire(KEY, seen.look("owner-uid"), [SLOT])
    assert seen.look("owner-uid").retired == {pod.metadata.uid}
    seen.pod("DELETED", pod)
    assert seen.look("owner-uid").graves[SLOT].retired


def test_a_pod_that_may_stay_after_all_can_be_lost_again(seen: Seen, pod: core.Pod) -> None:
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


class Shown:
    """Caches of which nothing is listening to a server, and what they asked for."""

    def __init__(self) -> None:
        self.time = Time()
        self.looks: list[tuple[tuple[str, str], float]] = []
        nobody = cast("Client", None)  # no reflector runs
        self.caches = Caches(
            nobody, Requeue(resource_after=lambda key, delay: self.looks.append((key, delay))), clock=Clock(self.time)
        )

    def slots(self, owner: Owner = OWNER) -> set[Slot]:
        return set(self.caches.observe(owner, 0.0).pods)

    def show(self, fresh: core.Pod) -> None:
        """The watch tells of a pod."""
        store = self.caches.pods.reflectors[0].store
        assert isinstance(store, dict)
        store[fresh.metadata.key] = fresh
        self.caches._on_pod("ADDED", fresh, None)


@pytest.fixture
def fresh() -> core.Pod:
    return World.settled(INFERENCE).only(OWNER.uid)


def test_a_created_pod_is_not_created_again(fresh: core.Pod) -> None:
    seen = Shown()
    assert not seen.slots()
    seen.caches.ledger.note_creation(KEY, fresh)
    assert seen.slots() == {Slot(0, "decode", 0, 0)}
    assert not seen.slots(Owner("default", "llama", "a namesake"))


def test_it_is_believed_in_for_a_while_only(fresh: core.Pod) -> None:
    seen = Shown()
    seen.caches.ledger.note_creation(KEY, fresh)
    seen.time.now += PATIENCE / 2
    assert seen.slots()
    # Somebody looks when its time is over, and then it is gone.
    assert seen.looks[-1] == (KEY, PATIENCE / 2)
    seen.time.now += PATIENCE / 2
    assert not seen.slots()


def test_what_the_watch_says_counts(fresh: core.Pod) -> None:
    seen = Shown()
    seen.caches.ledger.note_creation(KEY, fresh)
    seen.caches._on_pod("ADDED", fresh, None)
    seen.caches._on_pod("DELETED", fresh, fresh)
    assert not seen.slots()


def test_a_watch_that_is_faster_than_the_answer(fresh: core.Pod) -> None:
    seen = Shown()
    seen.show(fresh)
    seen.caches.ledger.note_creation(KEY, fresh)
    del seen.caches.pods.reflectors[0].store[fresh.metadata.key]
    seen.caches._on_pod("DELETED", fresh, fresh)
    assert not seen.slots()


def test_forgotten_with_its_resource(fresh: core.Pod) -> None:
    seen = Shown()
    seen.caches.ledger.note_creation(KEY, fresh)
    seen.caches.forget(KEY)
    assert not seen.slots()
