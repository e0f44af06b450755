"""kube-scheduler says no to every place of a gang, for something that is not modelled."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from builders.members import GATE, cache, drop, group, member, node, put, role_groups, root_key
from covey.admission.status import statuses
from covey.api import core
from covey.api.constants import ANNOTATION_SUCCESSION, REASON_UNSCHEDULABLE
from covey.api.structs import model_of_struct
from covey.api.succession import Predecessors, SuccessionQuestion, Successor, dump_question
from covey.scheduler.cache import Cache
from covey.scheduler.queue import INITIAL_BACKOFF, MAX_BACKOFF, MAX_BACKOFF_UNTRIED
from covey.scheduler.surroundings import FIRST_EXCLUSION, WRITTEN
from scheduler_loop import WALL, Loop

PODS = 8
ROOT = root_key("g")
SAID = "0/1500 nodes are available: cannot allocate all claims"
#: Seconds from a pin until kube-scheduler's refusal has made a new pod of it.
CYCLE = 7.0


class Refused:
    """A gang whose every place is refused, and made anew."""

    def __init__(self, nodes: int = 40, spec: dict[str, Any] | None = None) -> None:
        self.spec = spec or {}
        self.loop = Loop(cache(*(node(f"n{each}") for each in range(nodes))))
        self.queueing: Any = self.loop.queueing
        self.queueing._monotonic = lambda: self.loop.now
        self.queueing._clock = lambda: WALL + self.loop.now
        self.generation = 0
        self.attempts: list[float] = []
        #: The node of each attempt: it has room for all.
        self.tried: list[str] = []
        put(self.cache, group("g", composite=True, minimum=1, desired=1))
        for each in role_groups("decode", replicas=PODS, minimum=PODS, size=1, root="g"):
            put(self.cache, each)
        self.create()

    @property
    def cache(self) -> Cache:
        return self.loop.cache

    def create(self) -> None:
        self.generation += 1
        self.pods = [
            member("decode", each, root="g", name=f"p{each}-{self.generation}", gates=(GATE,), spec=self.spec)
            for each in range(PODS)
        ]
        for each in self.pods:
            put(self.cache, each)

    async def turn(self) -> bool:
        """Plan; refuse what is pinned, a pod after the other, and make it anew. Whether anything was."""
        self.loop.queue.requeue(ROOT)
        placed = await self.loop.turn()
        if not placed:
            return False
        self.attempts.append(self.loop.now)
        [used] = set(placed.values())
        self.tried.append(used)
        for each in self.pods:
            name = each.metadata.name
            put(self.cache, member("decode", int(name[1]), root="g", name=name, pin=placed[name], spec=self.spec))
        for each in self.pods:
            unit = self.cache.index.unit(ROOT)
            assert unit is not None
            untried = self.queueing.exclude(unit, placed[each.metadata.name], SAID)
            self.loop.admission.reject(ROOT, SAID, untried=untried)
            self.loop.now += 0.5
        self.loop.now += CYCLE - 0.5 * PODS
        for each in self.pods:
            drop(self.cache, each)
        self.create()
        return True

    async def live(self, until: float) -> None:
        while self.loop.now < until:
            if not await self.turn():
                self.loop.now += 1.0


async def test_attempts_when_all_nodes_were_tried_wait_twice_as_long_each_and_say_why() -> None:
    world = Refused()
    await world.live(7200.0)
    fresh = 40
    assert len(set(world.tried[:fresh])) == fresh
    waits = [later - earlier for earlier, later in zip(world.attempts, world.attempts[1:], strict=False)]
    assert max(waits[: fresh - 1]) <= CYCLE + MAX_BACKOFF_UNTRIED
    for number, wait in enumerate(waits[fresh:]):
        assert wait >= min(INITIAL_BACKOFF * 2**number, MAX_BACKOFF)
        assert wait <= max(CYCLE + 1, min(INITIAL_BACKOFF * 2**number, MAX_BACKOFF) + 2, FIRST_EXCLUSION)
    assert len(world.attempts) < fresh + 25
    world.loop.queue.requeue(ROOT)
    await world.loop.turn()
    decision = world.loop.queue.decision(ROOT)
    assert decision.reason == REASON_UNSCHEDULABLE
    assert SAID in decision.message


@pytest.mark.parametrize("count", [WRITTEN - 1, WRITTEN + 50])
async def test_the_status_lists_the_worst_nodes_and_can_be_written(count: int) -> None:
    world = Refused(nodes=4)
    unit = world.cache.index.unit(ROOT)
    assert unit is not None
    for each in range(count):
        world.queueing.exclude(unit, f"out-{each:04d}", SAID)
        world.loop.now += 0.01
    world.loop.now += 61.0
    for each in range(count):
        world.queueing.exclude(unit, f"out-{each:04d}", SAID)
    kept, _, around = world.queueing.around(unit)
    assert len(around.excluded) == count, "the planner heeds all of them"
    written = statuses(unit, kept, lambda _node: (), core.rfc3339(WALL))[0][1]
    assert len(written["excludedNodes"]) == min(count, WRITTEN)
    model_of_struct(core.GroupStatus).model_validate(written)


async def ask_for_successor(nodes: int, *refused: str) -> core.SuccessorStatus:
    """The answer to a role of three with a successor that waits, once kube-scheduler has refused it these nodes."""
    question = SuccessionQuestion(
        ((Successor("decode", 3, "uid-g-decode-3-0"),),), {"decode": Predecessors(serving=(2, 1, 0), most=2)}
    )
    root = group("g", composite=True, minimum=1, desired=1)
    asking = msgspec.structs.replace(root.metadata, annotations={ANNOTATION_SUCCESSION: dump_question(question)})
    old = [member("decode", number, root="g", node=f"n{number}", gpus=8) for number in range(3)]
    loop = Loop(
        cache(
            *(node(f"n{number}") for number in range(nodes)),
            msgspec.structs.replace(root, metadata=asking),
            *role_groups("decode", replicas=3, minimum=1, size=1, root="g"),
            *old,
            member("decode", 3, root="g", gates=(GATE,), gpus=8),
        )
    )
    unit = loop.cache.index.unit(ROOT)
    assert unit is not None
    for name in refused:
        loop.queueing.exclude(unit, name, SAID)
    assert await loop.turn() == {}
    succession = loop.queue.decision(ROOT).succession
    assert succession is not None
    (answer,) = succession.successors
    return answer


async def test_successor_when_kube_scheduler_refused_the_free_nodes_gets_no_old_ones_and_its_words() -> None:
    answer = await ask_for_successor(5, "n3", "n4")
    assert answer.victims == ()
    assert answer.reason == REASON_UNSCHEDULABLE
    assert SAID in answer.message


async def test_successor_when_no_free_node_would_hold_it_gets_the_node_of_an_old_one() -> None:
    """What kube-scheduler refused of nodes that are full is not what it lacks."""
    answer = await ask_for_successor(3, "n0")
    assert [victim.replica for victim in answer.victims] == [2]
    assert answer.reason == ""
