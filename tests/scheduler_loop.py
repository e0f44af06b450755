"""Admission over a cache that was told of objects, with the patches taken for sent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Self

from msgspec.structs import replace

from builders.members import GATE, group, member, put, role_groups
from covey.admission.nodes import Key
from covey.api import core
from covey.kube.clock import SYSTEM, Clock
from covey.kube.events import ObjectRef
from covey.kube.turns import Rank, Turns
from covey.scheduler.admission_times import AdmissionTimes
from covey.scheduler.cache import Cache
from covey.scheduler.context import Context
from covey.scheduler.cycle import Scheduler
from covey.scheduler.holding import Holding
from covey.scheduler.plugins import make_plugins
from covey.scheduler.quotas import Quotas
from covey.scheduler.reservations import Limits, Reservations
from covey.scheduler.surroundings import Queueing
from covey.scheduler.topologies import Topologies
from covey.scheduler.whatif.requests import WhatIfRequests
from covey.scheduler.writer import Pinned, PinResult

#: When a loop begins, in seconds since the epoch: 2026-01-01, when all objects of the builders were created.
WALL = 1_767_225_600.0


class Writer:
    """Takes every patch for sent, and notes it."""

    def __init__(self) -> None:
        self.turns = Turns(64)
        self.pinned: dict[str, str] = {}
        self.released: list[str] = []
        self.ranks: dict[str, Rank] = {}
        #: A pod whose pin the API server denies, and how often a pin was asked for.
        self.denied = ""
        self.asked = 0

    async def pin(
        self,
        found: core.Pod,
        place: str,
        _domains: Mapping[str, str],
        _dropped: object = None,
        *,
        rank: Rank,
        dry_run: bool,
    ) -> PinResult:
        self.asked += 1
        self.ranks[found.metadata.name] = rank
        if found.metadata.name == self.denied:
            return PinResult(Pinned.DENIED, "policy says no")
        if not dry_run:
            self.pinned[found.metadata.name] = place
        return PinResult(Pinned.DONE)

    async def release(self, found: core.Pod, _reason: str) -> bool:
        self.released.append(found.metadata.name)
        return True


class Client:
    """Takes every topology of a root for written, and notes it."""

    def __init__(self) -> None:
        self.topologies: dict[str, str] = {}

    async def merge_patch(
        self, _kind: object, name: str, _namespace: str, body: Mapping[str, Any], **_options: object
    ) -> None:
        self.topologies[name] = body["status"]["topology"]


async def settle() -> None:
    """Let everything run that waits for nothing."""
    for _ in range(20):
        await asyncio.sleep(0)


def context_of(made: Cache, api: Any, clock: Clock = SYSTEM) -> Context:
    """A process's context in which ``api`` stands for all that writes."""
    return Context(made, api, api, api, clock, AdmissionTimes(clock.wall))


class Answering:
    """Writes the answers to questions, as long as a block goes on."""

    def __init__(self, questions: WhatIfRequests[Any]) -> None:
        self._questions = questions

    async def __aenter__(self) -> Self:
        settled = asyncio.Event()
        settled.set()
        self._running = asyncio.get_running_loop().create_task(self._questions.run(settled.wait))
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._running.cancel()


class Loop:
    """Admission over a cache."""

    def __init__(
        self,
        made: Cache,
        decided: Callable[[Key], None] = lambda _root: None,
        *,
        reserve_after: float = 300.0,
        limits: Limits | None = None,
    ) -> None:
        self.cache = made
        self._wrong: list[AssertionError] = []
        self.writer = Writer()
        writer: Any = self.writer
        self.queueing = Queueing(made, Topologies(made), reserve_after=reserve_after, clock=SYSTEM)
        self.events: list[tuple[str, str, str]] = []
        recorder: Any = self
        self.now = 0.0
        self.holding = Holding(made, Clock(lambda: self.now, lambda: WALL + self.now))
        self.reservations = Reservations(
            made,
            reserve_after=reserve_after,
            limits=limits,
            holding=self.holding,
            clock=Clock(wall=lambda: time.time() + self.now),
        )
        self.client = Client()
        api: Any = self.client
        clock = Clock(lambda: self.now)
        context = Context(made, api, writer, recorder, clock, AdmissionTimes(clock.wall))
        self.quotas = Quotas(made, self.queueing.priority)
        parts = make_plugins(context, self.queueing, self.quotas, self.reservations, self.holding)
        # Those that answer questions are registered by who asks some.
        self.admission = Scheduler(
            context, self.queueing, [each for each in parts if not isinstance(each, WhatIfRequests)]
        )
        self.queue = self.admission.queue
        self.admission.queue.on_decision(decided)
        self.holding.begin()
        self.admission.begin()

    def event(self, about: ObjectRef, _kind: str, reason: str, note: str, _action: str) -> None:
        """Note an Event: of which object, its reason and its note."""
        self.events.append((about.name, reason, note))

    def place(self, name: str) -> str:
        """Where a pod was decided to go."""
        return self.cache.capacity.assumed[f"uid-{name}"]

    def judge_claims(self, judge: Callable[[Key, core.Claim, Any], None]) -> None:
        """Judge each claim before anybody is touched, and its gang; what is wrong with it ends the pass.

        The process goes on where a plan fails: an assertion in the midst of it would be logged, and nothing else.
        """
        claims: Any = self.reservations.claims
        find = claims.find

        async def find_and_judge(entry: Any, asked: Any, *rest: Any) -> core.Claim | None:
            found: core.Claim | None = await find(entry, asked, *rest)
            if found is not None:
                try:
                    judge(entry.unit.key, found, asked)
                except AssertionError as error:
                    self._wrong.append(error)
            return found

        claims.find = find_and_judge

    def bind(self, given: Mapping[str, str]) -> None:
        """Tell the cache that pods are bound where a pass gave them places."""
        for name, place in given.items():
            pod = self.cache.pods.store["ns", name]
            since = core.rfc3339(time.time() + self.now)
            bound = core.Condition(type="PodScheduled", status="True", last_transition_time=since)
            status = replace(pod.status, conditions=(*(pod.status.conditions or ()), bound))
            put(self.cache, replace(pod, spec=replace(pod.spec, node_name=place, scheduling_gates=()), status=status))

    def claim(self, name: str) -> core.Claim | None:
        """The claim of the first root of a name, as it would be written."""
        return next((claim for root, claim in self.claims().items() if root.name == name), None)

    def claims(self) -> dict[Key, core.Claim | None]:
        """The claim of each root, as it would be written."""
        return {root: self.admission.queue.decision(root).claim for root in self.cache.index.roots()}

    async def turn(self) -> dict[str, str]:
        """One pass; returns the pods that it gave places, and where."""
        self.writer.pinned.clear()
        await self.admission.run_pass()
        for error in self._wrong:
            raise error
        for task in list(self.admission.commits.tasks):
            await task
        return dict(self.writer.pinned)


def labels(rack: str = "r1") -> dict[str, str]:
    """Where a node lies."""
    prefix = "cloud.provider.com/topology-"
    return {"topology.kubernetes.io/zone": "z", f"{prefix}block": "b1", f"{prefix}rack": rack}


def tree(name: str, *, replicas: int = 1, minimum: int = 1, gpus: int = 8, **root: Any) -> list[core.Group | core.Pod]:
    """A unit of one role of single-pod replicas."""
    groups = [
        group(name, composite=True, minimum=1, desired=1, **root),
        *role_groups("decode", replicas=replicas, minimum=minimum, size=1, root=name),
    ]
    return [*groups, *(member("decode", number, root=name, gates=(GATE,), gpus=gpus) for number in range(replicas))]
