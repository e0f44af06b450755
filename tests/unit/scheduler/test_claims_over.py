"""Claims that end before their victims are gone: what comes free goes to the next gang, never to successors."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.members import GATE, cache, drop, member, node, put
from covey.api import core
from covey.api.constants import ANNOTATION_CLAIMED_BY, ANNOTATION_DRAIN_UNTIL, LABEL_DRAINING
from covey.scheduler.reservations import KeptNodes, Limits
from scheduler_loop import Loop, labels
from unit.scheduler.test_preempting import WAITED, _owned, unit

NODES: Final = 6
#: Namespace and pods of each gang that takes room, in their order.
GANGS: Final = {"ns-a": 1, "ns-b": 2}


def in_namespace(each: Any, namespace: str) -> Any:
    return replace(each, metadata=replace(each.metadata, namespace=namespace, uid=f"{namespace}-{each.metadata.uid}"))


class World:
    """Six nodes full of surplus, two gangs that take three of them, and the writes of all others, one at a time."""

    def __init__(self) -> None:
        nodes = [node(f"n{number}", labels=labels()) for number in range(NODES)]
        places = tuple(each.metadata.name for each in nodes)
        batch = unit("batch", replicas=NODES, gpus=8, nodes=places, priority=1, holdSeconds=60)
        self.roots: dict[str, core.Group] = {}
        waiting: list[Any] = []
        for namespace, pods in GANGS.items():
            made = unit("chat", replicas=pods, minimum=pods, gpus=8, priority=10, status={"conditions": [WAITED]})
            waiting += [in_namespace(each, namespace) for each in made]
        self.cache = cache(*nodes, *batch, *waiting)
        self.roots = {
            each.namespace: found
            for each in self.cache.index.roots()
            if each.name == "chat" and (found := self.cache.index.root(each)) is not None
        }
        self.successors = 0
        KeptNodes(self.cache)
        self.loop = Loop(self.cache, limits=Limits(percent=100))

    @property
    def batch(self) -> list[core.Pod]:
        """The replicas that have their nodes."""
        found = [pod for pod in self.cache.index.pods() if pod.metadata.namespace == "ns" and pod.spec.node_name]
        return sorted(found, key=lambda pod: pod.metadata.name)

    def claim(self, namespace: str) -> core.Claim | None:
        """The claim of a gang, as it would be written."""
        return next(claim for root, claim in self.loop.claims().items() if root.namespace == namespace)

    def served(self, namespace: str) -> bool:
        """Whether a gang has all its places."""
        pods = [pod for pod in self.cache.index.pods() if pod.metadata.namespace == namespace]
        return all(pod.spec.node_name or pod.metadata.uid in self.cache.capacity.assumed for pod in pods)

    def named(self, namespace: str) -> set[str]:
        """UIDs of the pods that a gang's claim names."""
        claim = self.claim(namespace)
        return {uid for victim in (claim.victims if claim is not None else ()) for uid in victim.pods}

    async def happen(self, event: str, number: int) -> None:
        """One thing happens."""
        match event:
            case "turn":
                await self.turn()
            case "delete":
                self.delete(number)
            case "end":
                self.end(number)
            case "restart":
                self.write()
                self.bind()
                self.loop.holding._begun = False
                self.loop = Loop(self.cache, limits=Limits(percent=100))
                await self.turn()
            case _:
                getattr(self, event)()

    async def turn(self) -> None:
        """A pass of the scheduler process: nobody else gets a place before both gangs have theirs."""
        placed = await self.loop.turn()
        assert all(map(self.served, GANGS)) or not [name for name in placed if name.startswith("batch")]
        for namespace in GANGS:
            claim = self.claim(namespace)
            others = {pod.spec.node_name for pod in self.cache.index.pods() if pod.metadata.namespace in GANGS}
            others |= set(self.cache.capacity.assumed.values())
            assert claim is None or others.isdisjoint(claim.nodes), "a claim counts on a node that is another's"

    def write(self) -> None:
        """What is decided is written."""
        for namespace, root in self.roots.items():
            said = replace(root, status=replace(root.status, claim=self.claim(namespace)))
            if said != root:
                put(self.cache, said, root)
                self.roots[namespace] = said

    def operate(self) -> None:
        """Pods that a written claim names are marked, and those that none names any more are pardoned."""
        claims = [root.status.claim for root in self.roots.values() if root.status.claim is not None]
        named = {uid for claim in claims for victim in claim.victims for uid in victim.pods}
        for pod in self.batch:
            if (pod.metadata.uid in named) != is_marked(pod) and not pod.metadata.deletion_timestamp:
                put(self.cache, with_marks(pod, marked=not is_marked(pod)))

    def delete(self, number: int) -> None:
        """A marked pod has drained; its successor waits from now on."""
        found = [pod for pod in self.batch if is_marked(pod) and not pod.metadata.deletion_timestamp]
        if found:
            pod = found[number % len(found)]
            deleted = replace(pod.metadata, deletion_timestamp=core.rfc3339(time.time()))
            put(self.cache, replace(pod, metadata=deleted))
            self.create()

    def create(self) -> None:
        """Make a successor."""
        put(self.cache, _owned(member("decode", NODES + self.successors, root="batch", gpus=8, gates=(GATE,))))
        self.successors += 1

    def end(self, number: int) -> None:
        """A pod that is being deleted is gone."""
        found = [pod for pod in self.batch if pod.metadata.deletion_timestamp]
        if found:
            drop(self.cache, found[number % len(found)])

    def bind(self) -> None:
        """What was decided is bound."""
        for pod in list(self.cache.index.pods()):
            place = self.cache.capacity.assumed.get(pod.metadata.uid)
            if place is not None and pod.spec.node_name is None:
                put(self.cache, replace(pod, spec=replace(pod.spec, node_name=place, scheduling_gates=())))

    def look(self) -> None:
        """The time has come at which a claim is looked at again."""
        for root in self.loop.claims():
            self.loop.queue.requeue(root)


def is_marked(pod: core.Pod) -> bool:
    return pod.metadata.annotation(ANNOTATION_CLAIMED_BY) is not None


def with_marks(pod: core.Pod, *, marked: bool) -> core.Pod:
    notes = {ANNOTATION_CLAIMED_BY: "root", ANNOTATION_DRAIN_UNTIL: core.rfc3339(0.0)} if marked else {}
    own = {key: value for key, value in (pod.metadata.labels or {}).items() if key != LABEL_DRAINING}
    marks = {**own, LABEL_DRAINING: "true"} if marked else own
    return replace(pod, metadata=replace(pod.metadata, annotations=notes, labels=marks))


async def began() -> World:
    """Both gangs have made their claims, and the pods that these name are marked."""
    world = World()
    await world.turn()
    world.write()
    world.operate()
    assert sum(map(is_marked, world.batch)) == sum(GANGS.values())
    return world


@pytest.mark.parametrize("written", [False, True], ids=["before its end is written", "once it is written"])
async def test_what_goes_for_a_claim_that_is_over_makes_no_room_for_successors(*, written: bool) -> None:
    """The first takes a node that was freed for the second, whose other victims go: seen at high load."""
    world = await began()
    second = world.named("ns-b")
    for _ in range(3):
        world.delete(0)
    for pod in world.batch:
        if pod.metadata.uid in second:
            drop(world.cache, pod)
    await world.turn()
    assert (world.served("ns-a"), world.served("ns-b")) == (True, False)
    assert world.named("ns-b") <= second, "what goes already suffices"
    world.bind()
    if written:
        world.write()
    await world.turn()
    world.end(0)
    await world.turn()
    assert world.served("ns-b")


async def test_a_claim_that_loses_a_node_keeps_what_goes_for_it_already() -> None:
    """The first takes a node that was freed for the second: that one asks for one more, not for two others."""
    world = await began()
    gone, left = sorted(world.named("ns-b"))
    drop(world.cache, next(pod for pod in world.batch if pod.metadata.uid == gone))
    await world.turn()
    assert world.served("ns-a")
    assert left in world.named("ns-b")
    assert len(world.named("ns-b")) == 2


async def test_another_process_knows_by_the_marks_what_goes() -> None:
    """One of the first's claim drains still, one of the second's is gone: its successor gets no place there."""
    world = await began()
    gone, _ = sorted(world.named("ns-b"))
    world.create()
    drop(world.cache, next(pod for pod in world.batch if pod.metadata.uid == gone))
    await world.turn()
    drop(world.cache, next(pod for pod in world.batch if pod.metadata.uid in world.named("ns-b") and is_marked(pod)))
    await world.happen("restart", 0)
    assert (world.served("ns-a"), world.served("ns-b")) == (True, False)
    assert [pod for pod in world.batch if is_marked(pod)], "it is not pardoned yet"


async def test_another_process_takes_nothing_that_went_before_it_from_what_a_unit_has() -> None:
    """It is told of the second's claim first; the first gives up, one of its claim having gone, and another is lost."""
    world = await began()
    [gone] = world.named("ns-a")
    world.write()
    world.loop.holding._begun = False
    world.loop = Loop(world.cache, limits=Limits(percent=100))
    for root in sorted(world.cache.index.roots(), key=lambda root: root.namespace != "ns-b"):
        world.loop.admission.assess(root)
    lost = next(pod for pod in world.batch if not is_marked(pod))
    for pod in list(world.cache.index.pods()):
        if pod.metadata.namespace == "ns-a" or pod.metadata.uid in {gone, lost.metadata.uid}:
            drop(world.cache, pod)
    drop(world.cache, world.roots["ns-a"])
    drop(world.cache, node(lost.spec.node_name or "", labels=labels()))
    world.create()
    world.create()
    assert len(await world.loop.turn()) == 1, "it has that replica when room is kept"


async def test_one_loss_makes_room_for_one_replica_before_it_is_bound() -> None:
    """Two nodes are free, and kept for a gang that waits for a third one."""
    there = [node(f"n{number}", labels=labels()) for number in range(4)]
    batch = unit("batch", replicas=2, gpus=8, nodes=("n0", "n1"), priority=1)
    late = {"priority": 10, "status": {"conditions": [WAITED]}, "preemption": {"delaySeconds": 10**9}}
    loop = Loop(cache(*there, *batch, *unit("chat", replicas=3, minimum=3, gpus=8, **late)))
    assert not await loop.turn()
    drop(loop.cache, batch[-1])
    drop(loop.cache, there[1])
    for number in (2, 3):
        put(loop.cache, _owned(member("decode", number, root="batch", gpus=8, gates=(GATE,))))
    assert list(await loop.turn()) == ["batch-decode-2-0"]
    assert not await loop.turn()


_EVENTS: Final = ("turn", "turn", "write", "operate", "delete", "delete", "end", "end", "bind", "look", "restart")


@given(st.lists(st.tuples(st.sampled_from(_EVENTS), st.integers(0, 5)), max_size=30))
@example(
    [("delete", 0), ("end", 0), ("turn", 0), ("delete", 1), ("end", 0), ("turn", 0)]
)  # a node alone did not suffice
def test_whatever_comes_first_no_successor_gets_a_place_before_both_gangs(happened: list[tuple[str, int]]) -> None:
    asyncio.run(storm(happened))


async def storm(happened: list[tuple[str, int]]) -> None:
    world = await began()
    for event, number in happened:
        await world.happen(event, number)
    for _ in range(12):
        for event in ("write", "operate", *["delete"] * NODES, *["end"] * NODES, "bind", "look", "turn"):
            await world.happen(event, 0)
    assert all(map(world.served, GANGS))
