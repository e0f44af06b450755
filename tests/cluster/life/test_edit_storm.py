"""Edits, reversals, scales and deaths at any moment, with everything running: the budget holds at every event.

The same as ``unit/operator/test_edit_storm.py``, where there are many more of them, on the real control plane. Who comes
to harm by the storm itself is no fault of a rollout, nor is a decision that was made before anybody could know of it:
such a loss is forgiven for as long as a pass takes.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from kubernetes.client.exceptions import NotFoundException

from builders.manifests import Object
from cluster.kubelet import Kubelet, runs_its_images
from cluster.serving import AddNodes, Event, Serving, serves, serving, workers
from cluster.workbench import label, name_of, uid_of
from localcluster import Recording, eventually

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")

SIZES: Final = {"prefill": 2, "decode": 1}
#: How a role is updated, and how many of its replicas may be missing.
UPDATES: Final[tuple[tuple[Object, int], ...]] = (
    ({}, 0),
    ({"inPlace": "IfPossible"}, 0),
    ({"inPlace": "IfPossible", "maxSurge": 0, "maxUnavailable": 1}, 1),
    ({"maxSurge": 2, "maxUnavailable": "50%"}, 1),
)
#: Seconds after which the operator knows what has happened, on a machine with much else to do.
_LAG: Final = 10.0


@dataclass
class Storm:
    """What was asked for last, and what has become of it."""

    serving: Serving
    choice: random.Random
    updates: Mapping[str, tuple[Object, int]]
    #: Replicas wanted of each role, by when that was asked for.
    wanted: dict[str, deque[tuple[float, int]]] = field(default_factory=dict)
    images: dict[str, tuple[int, int]] = field(default_factory=dict)
    paused: bool = False
    #: UIDs of pods that the storm took, and when each replica of a role was lost by that.
    killed: set[str] = field(default_factory=set)
    losses: dict[str, list[float]] = field(default_factory=dict)

    def spec(self) -> Object:
        roles = []
        for name, size in SIZES.items():
            image, odd = self.images[name]
            made = workers(name, replicas=self.wanted[name][-1][1], size=size, update=self.updates[name][0])
            container = made["template"]["spec"]["containers"][0]
            container["image"] = f"registry.test/engine:{image}"
            container["env"] = [{"name": "ODD", "value": str(odd)}]
            roles.append(made)
        return {"roles": roles, "rollout": {"paused": self.paused}}

    def ask(self, name: str, count: int) -> None:
        self.wanted.setdefault(name, deque(maxlen=20)).append((time.monotonic(), count))

    def happen(self) -> str:
        """One thing; what it was."""
        role, choice = self.choice.choice(list(SIZES)), self.choice
        what = choice.choice(["image", "image", "images", "environment", "back", "scale", "kill", "kill", "pause"])
        former, self.paused = dict(self.images), False
        match what:
            case "image":
                self.images[role] = (choice.randrange(3), self.images[role][1])
            case "images":
                both = choice.randrange(3)
                self.images = {name: (both, odd) for name, (_, odd) in self.images.items()}
            case "environment":
                self.images[role] = (self.images[role][0], choice.randrange(2))
            case "back":
                self.images = dict.fromkeys(SIZES, (0, 0))
            case "scale":
                self.ask(role, choice.randint(1, 3))
            case "kill":
                return f"kill {self.kill()}"
            case _:
                self.paused = True
        self.serving.change(self.spec())
        changed = {name: each for name, each in self.images.items() if each != former[name]}
        return f"{what} {changed or ''} {role}={self.wanted[role][-1][1]} paused={self.paused}"

    def kill(self) -> str:
        pods = sorted(self.serving.pods(), key=name_of)
        if not pods:
            return "nobody"
        pod = self.choice.choice(pods)
        self.killed.add(uid_of(pod))
        losses = self.losses.setdefault(label(pod, "role"), [])
        losses.append(time.monotonic())
        try:
            self.serving.cluster.api("DELETE", f"{self.serving.path('Pod', name_of(pod))}?gracePeriodSeconds=0")
        except NotFoundException:  # the operator was faster: no loss that the storm answers for
            self.killed.discard(uid_of(pod))
            losses.pop()
        return name_of(pod)

    def floor(self, role: str, at: float) -> int:
        """Serving replicas that had to stay, whatever the operator could know at a time."""
        asked = self.wanted[role]
        known = [count for when, count in asked if at - when <= _LAG]
        known += [count for when, count in asked if at - when > _LAG][-1:]
        missing = self.updates[role][1]
        least = min(max(1, count - missing) if count > 1 or not missing else 0 for count in known)
        return least - sum(0 <= at - when <= _LAG for when in self.losses.get(role, ()))

    def check(self, events: list[Event], times: list[float]) -> Counter[str]:
        """Whenever somebody else than the storm has taken something that served, enough served after that."""
        pods: dict[str, Object] = {}
        found: Counter[str] = Counter()
        before: Counter[str] = Counter()
        for (kind, pod), at in zip(events, times, strict=True):
            pods.pop(uid_of(pod), None)
            if kind != "DELETED":
                pods[uid_of(pod)] = pod
            after = _serving(pods)
            for role in SIZES:
                if after[role] < before[role] and uid_of(pod) not in self.killed:
                    found[f"given up of {role}"] += 1
                    least = self.floor(role, at)
                    assert after[role] >= min(before[role], least), (
                        f"{name_of(pod)} {kind} left {after[role]} of {role} serving, {least} had to stay"
                    )
            before = after
        return found


def _serving(pods: Mapping[str, Object]) -> Counter[str]:
    ready: Counter[tuple[str, str, str]] = Counter()
    for pod in pods.values():
        if serves(pod) and runs_its_images(pod):
            ready[label(pod, "role"), label(pod, "replica"), label(pod, "revision")] += 1
    return Counter(role for (role, _, _), count in ready.items() if count >= SIZES[role])


@pytest.fixture
def kubelet(serving: Serving) -> Iterator[Kubelet]:
    with Kubelet(serving) as playing:
        yield playing


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [int(os.environ.get("COVEY_STORM_SEED", "20261122")), 7])
def test_enough_serves_at_every_event_and_it_ends(
    serving: Serving, nodes: AddNodes, kubelet: Kubelet, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kubelet
    choice = random.Random(seed)
    nodes(blocks=1, racks=2, nodes=choice.choice([6, 8]))
    updates = {name: choice.choice(UPDATES) for name in SIZES}
    storm = Storm(serving, choice, updates)
    for name in SIZES:
        storm.ask(name, 2)
        storm.images[name] = (0, 0)
    say(capsys, f"seed {seed}: {updates}")
    serving.create(*storm.spec()["roles"])
    serving.await_bound(6)
    eventually(lambda: all(map(serves, serving.pods())), 60, "all pods are Ready")
    with serving.cluster.record(serving.path("Pod")) as recording:
        for turn in range(30):
            say(capsys, f"{turn}: {storm.happen()}")
            time.sleep(choice.choice([0.0, 0.3, 1.0, 3.0, 5.0]))
        storm.paused = False
        serving.change(storm.spec())
        await_end(storm, recording)
    found = storm.check(recording.events, recording.times)
    say(capsys, f"{len(recording.events)} events: {dict(found)}")
    assert found, "something was given up"


def await_end(storm: Storm, recording: Recording) -> None:
    """Left alone, it comes to what was asked for last."""
    serving, wanted = storm.serving, {name: each[-1][1] for name, each in storm.wanted.items()}

    def ended() -> bool:
        recording.check()
        pods = serving.pods()
        told = Counter((label(pod, "role"), pod["spec"]["containers"][0]["image"].rpartition(":")[2]) for pod in pods)
        asked = {(name, str(storm.images[name][0])): wanted[name] * size for name, size in SIZES.items()}
        assert told == asked, f"{told}; {serving.states()}"
        assert all(map(serves, pods))
        assert all(map(runs_its_images, pods))
        assert serving.condition("Progressing")["reason"] == "Complete"
        return True

    eventually(ended, 240, "everything is as it was asked for last")


def say(capsys: pytest.CaptureFixture[str], what: Any) -> None:
    """Every choice is told: with the seed, a storm that fails can be had again."""
    with capsys.disabled():
        print(f"[storm] {what}")
