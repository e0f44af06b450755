"""What was created a moment ago counts as seen, until the watch shows it or has had time to."""

from typing import cast

import pytest

from builders.inferences import inference, role
from covey.api import core
from covey.compile import Owner, Slot
from covey.kube.client import Client
from covey.operator.observe.caches import Caches
from covey.operator.observe.expectations import PATIENCE
from covey.operator.observe.watched import Requeue
from unit.operator.world import World

OWNER = Owner("default", "llama", "owner-uid")
KEY = (OWNER.namespace, OWNER.name)
INFERENCE = inference(role("decode"))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Seen:
    """Caches of which nothing is listening to a server, and what they asked for."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.looks: list[tuple[tuple[str, str], float]] = []
        nobody = cast("Client", None)  # no reflector runs
        self.caches = Caches(
            nobody, Requeue(resource_after=lambda key, delay: self.looks.append((key, delay))), clock=self.clock
        )

    def slots(self, owner: Owner = OWNER) -> set[Slot]:
        return set(self.caches.observe(owner, 0.0).pods)

    def show(self, pod: core.Pod) -> None:
        """The watch tells of a pod."""
        store = self.caches.pods.reflectors[0].store
        assert isinstance(store, dict)
        store[pod.metadata.key] = pod
        self.caches._on_pod("ADDED", pod, None)


@pytest.fixture
def pod() -> core.Pod:
    return World.settled(INFERENCE).only(OWNER.uid)


def test_a_created_pod_is_not_created_again(pod: core.Pod) -> None:
    seen = Seen()
    assert not seen.slots()
    seen.caches.ledger.note_creation(KEY, pod)
    assert seen.slots() == {Slot(0, "decode", 0, 0)}
    assert not seen.slots(Owner("default", "llama", "a namesake"))


def test_it_is_believed_in_for_a_while_only(pod: core.Pod) -> None:
    seen = Seen()
    seen.caches.ledger.note_creation(KEY, pod)
    seen.clock.now += PATIENCE / 2
    assert seen.slots()
    # Somebody looks when its time is over, and then it is gone.
    assert seen.looks[-1] == (KEY, PATIENCE / 2)
    seen.clock.now += PATIENCE / 2
    assert not seen.slots()


def test_what_the_watch_says_counts(pod: core.Pod) -> None:
    seen = Seen()
    seen.caches.ledger.note_creation(KEY, pod)
    seen.caches._on_pod("ADDED", pod, None)
    seen.caches._on_pod("DELETED", pod, pod)
    assert not seen.slots()


def test_a_watch_that_is_faster_than_the_answer(pod: core.Pod) -> None:
    seen = Seen()
    seen.show(pod)
    seen.caches.ledger.note_creation(KEY, pod)
    del seen.caches.pods.reflectors[0].store[pod.metadata.key]
    seen.caches._on_pod("DELETED", pod, pod)
    assert not seen.slots()


def test_forgotten_with_its_resource(pod: core.Pod) -> None:
    seen = Seen()
    seen.caches.ledger.note_creation(KEY, pod)
    seen.caches.forget(KEY)
    assert not seen.slots()
