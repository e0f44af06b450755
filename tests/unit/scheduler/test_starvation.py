"""A gang of a whole rack against an endless stream of single-GPU pods and of small gangs."""

from __future__ import annotations

import random
from collections import deque
from functools import partial

import msgspec
import pytest

from builders.members import GATE, cache, drop, group, member, node, pod, put, role_groups, root_key
from covey.admission.status import statuses
from covey.api import core
from covey.scheduler.guard import ENCODER, FilterArgs, Guard
from covey.scheduler.reservations import KeptNodes
from scheduler_loop import Loop, labels, tree

RACKS, NODES, GPUS = 3, 4, 8
WISH = {"topology": [{"level": "rack", "mode": "Required"}]}
SINCE = {"type": "Admitted", "status": "False", "reason": "Infeasible", "lastTransitionTime": "2020-01-01T00:00:00Z"}
WAITS = {"conditions": [SINCE]}


class Stream:
    """A cluster that is never empty: whatever ends is followed by something new at once."""

    def __init__(self, reserve_after: float) -> None:
        self.random = random.Random(4)
        names = [(f"r{rack}", f"n{rack}-{number}") for rack in range(RACKS) for number in range(NODES)]
        self.names = [name for _, name in names]
        self.cache = cache(*(node(name, labels=labels(rack)) for rack, name in names))
        self.loop = Loop(self.cache, reserve_after=reserve_after)
        KeptNodes(self.cache)
        self.guard = Guard(self.cache)
        self.running: deque[list[core.Pod | core.Group]] = deque()
        self.made = 0
        for _ in range(RACKS * NODES * GPUS):
            self.stranger()
        self.big = tree("big", replicas=NODES, minimum=NODES, schedulingConstraints=WISH)
        self.big[0] = group("big", composite=True, minimum=1, desired=1, schedulingConstraints=WISH, status=WAITS)
        for each in self.big:
            put(self.cache, each)

    def stranger(self, priority: int = 0, gpus: int = 1) -> str | None:
        """One more ordinary pod, on the first node that has room and that the guard leaves it; where it went."""
        self.made += 1
        made = pod(f"stranger-{self.made}", gpus=gpus, spec={"priority": priority})
        asked = self.random.sample(self.names, len(self.names))
        left = self.guard.filter(FilterArgs(made, msgspec.Raw(ENCODER.encode(asked)))).node_names
        names = msgspec.json.decode(left, type=list[str]) if isinstance(left, msgspec.Raw) else left
        place = next((name for name in names if self.cache.capacity.refusal(made, name) is None), None)
        if place is not None:
            bound = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, node_name=place))
            put(self.cache, bound)
            self.running.append([bound])
        return place

    def small(self) -> None:
        """One more gang of a single GPU."""
        self.made += 1
        name = f"small{self.made}"
        objects = [
            group(name, composite=True, minimum=1, desired=1),
            *role_groups("decode", replicas=1, minimum=1, size=1, root=name),
            member("decode", 0, root=name, gates=(GATE,), gpus=1),
        ]
        for each in objects:
            put(self.cache, each)
        self.running.append(objects)

    async def turn(self) -> set[str]:
        """Some end, as many come; returns the gangs that got their places."""
        self.random.shuffle(self.running)
        for _ in range(4):
            for each in reversed(self.running.popleft()):
                drop(self.cache, self.cache.pods.store[each.metadata.key] if isinstance(each, core.Pod) else each)
        for number in range(6):
            if number % 3:
                self.stranger()
            else:
                self.small()
        got = await self.loop.turn()
        self.loop.bind(got)
        self.say()
        return {name.split("-")[0] for name in got}

    def say(self) -> None:
        """The large gang's status, as it would be written."""
        unit = self.cache.index.unit(root_key("big"))
        assert unit is not None
        decision = self.loop.queue.decision(root_key("big"))
        path_of = partial(self.cache.path, decision.topology)  # type: ignore[arg-type] # it has been looked at
        status = statuses(unit, decision, path_of, "2026-01-01T00:00:00Z")[0][1]
        stated = msgspec.structs.replace(unit.root, status=msgspec.convert(status, core.GroupStatus))
        put(self.cache, stated, unit.root)

    @property
    def claim(self) -> core.Claim | None:
        """What is kept for the large gang."""
        unit = self.cache.index.unit(root_key("big"))
        assert unit is not None
        return unit.root.status.claim


async def turns(stream: Stream, most: int) -> int | None:
    for number in range(most):
        if "big" in await stream.turn():
            return number
    return None


@pytest.mark.parametrize(("reserve_after", "gets_it"), [(300.0, True), (1e12, False)])
async def test_a_gang_of_a_rack_gets_its_rack_because_one_is_kept_for_it(
    reserve_after: float, *, gets_it: bool
) -> None:
    stream = Stream(reserve_after)
    assert (await turns(stream, 400) is not None) is gets_it
    assert len(stream.running) > RACKS * NODES * GPUS // 2  # the others went on meanwhile


async def test_who_is_kept_off_and_who_is_not() -> None:
    stream = Stream(300.0)
    while stream.claim is None:
        await stream.turn()
    assert stream.claim.resource == "nvidia.com/gpu"
    rack = stream.claim.path[-1]
    kept = {name for name in stream.names if f"r{name[1]}" == rack}
    assert set(stream.cache.capacity.kept) == kept
    for name in list(stream.cache.capacity.kept):
        for found in [each for each in stream.cache.pods.store.values() if each.spec.node_name == name][:2]:
            drop(stream.cache, found)
    assert {stream.stranger() for _ in range(20)}.isdisjoint(kept)
    assert {stream.stranger(gpus=0) for _ in range(60)} & kept
    assert {stream.stranger(priority=5) for _ in range(20)} & kept


async def test_who_is_kept_off_is_not_told_for_whom() -> None:
    stream = Stream(300.0)
    while stream.claim is None:
        await stream.turn()
    whys = {keep.why for kept in stream.cache.capacity.kept.values() for keep in kept}
    assert whys == {"nvidia.com/gpu is kept for a gang that has waited for long"}
