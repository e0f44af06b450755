"""Twenty-five thousand pods come, are refused, placed, bound, released, and go: in the end nothing of them is left.

Nobody lists here what is remembered where: every container of every part is looked into, so that a new one is found too.
What a part has before the first pod (listeners) it may keep, and the planner what it has learned from one gang.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec
import pytest

from builders.members import GATE, cache, drop, group, member, node, pod, put, role_groups, root_key
from covey.api import core
from covey.kube.clock import SYSTEM, Clock
from covey.kube.errors import Forbidden, NotFound
from covey.scheduler.admission_times import AdmissionTimes
from covey.scheduler.binder import Binder
from covey.scheduler.bindings import Bindings
from covey.scheduler.cache import Cache, Listener
from covey.scheduler.context import Context
from covey.scheduler.cycle import Scheduler
from covey.scheduler.guard import ENCODER, BindArgs, FilterArgs, Guard
from covey.scheduler.holding import Holding
from covey.scheduler.plugins import make_plugins
from covey.scheduler.quotas import Quotas
from covey.scheduler.releases import Releases
from covey.scheduler.reservations import Reservations
from covey.scheduler.statuses import StatusWriter
from covey.scheduler.surroundings import Queueing
from covey.scheduler.topologies import Topologies
from covey.scheduler.wake import Waker
from covey.scheduler.writer import PodWriter
from virtual_time import run

PODS = 25_000
UNITS = 100
NODES = [f"n{number}" for number in range(8)]
#: What depends on the topologies there are, and on nothing that comes and goes.
PLANNER = (".memo", ".topologies", ".trees", "topologies._")
NAMES = msgspec.Raw(ENCODER.encode(NODES))


class Api:
    """An API server on which every eleventh patch is denied and every write to a pod that is gone fails."""

    def __init__(self, made: Cache) -> None:
        self._cache = made
        self._count = itertools.count(1)

    async def merge_patch(self, _resource: object, name: str, namespace: str, *_: object, **__: object) -> core.Pod:
        if next(self._count) % 11 == 0:
            raise Forbidden(403, "Forbidden", "no")
        return await self.get(None, name, namespace)

    async def get(self, _resource: object, name: str, namespace: str, **_: object) -> core.Pod:
        found = self._cache.pods.store.get((namespace, name))
        if found is None:
            raise NotFound(404)
        return found

    async def bind(self, namespace: str, name: str, _uid: str, _node: str) -> None:
        await self.get(None, name, namespace)

    async def apply(self, *_: object, **__: object) -> dict[str, Any]:
        return {}


class Parts:
    """Everything that a scheduler process remembers anything in, wired as in ``main``."""

    def __init__(self) -> None:
        clock = asyncio.get_running_loop().time
        self.cache = made = cache()
        api: Any = Api(made)
        self.writer = PodWriter(api, clock=SYSTEM)
        made.subscribe(Listener(gone=self.writer.forget))
        self.topologies = Topologies(made)
        self.binder = Binder(made, Bindings(api, self.writer), topology=self.topologies.choose, clock=Clock(clock))
        self.waker = Waker(made, self.writer)
        self.guard = Guard(made, self.waker.note_refusal)
        self.queueing = Queueing(made, self.topologies, clock=Clock(clock), reserve_after=30.0)
        recorder: Any = type("Silent", (), {"event": lambda *_: None})()
        context = Context(made, api, self.writer, recorder, Clock(clock), AdmissionTimes(SYSTEM.wall))
        self.admission_times = context.admission_times
        reservations, holding = Reservations(made, reserve_after=30.0, clock=SYSTEM), Holding(made, Clock(clock))
        self.admission = Scheduler(
            context,
            self.queueing,
            make_plugins(context, self.queueing, Quotas(made, self.queueing.priority), reservations, holding),
        )
        self.statuses = StatusWriter(context, self.admission.queue.decision)
        self.admission.queue.on_decision(self.statuses.note_change)
        self.releases = Releases(context, exclude=self.queueing.exclude, arrived=lambda _uid: False)

    def contents(self) -> dict[str, int]:
        """Where something is kept, and how much."""
        return {path: len(kept) for path, kept in walk(self, "process", set()) if kept}


def walk(thing: object, path: str, seen: set[int]) -> Iterator[tuple[str, Collection[Any]]]:
    """Every container that is reached through the attributes of Covey's own objects."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    names = {*getattr(thing, "__dict__", ()), *(name for cls in type(thing).__mro__ for name in slots(cls))}
    for name in sorted(names):
        value, where = getattr(thing, name, None), f"{path}.{name}"
        if isinstance(value, Mapping | set | list | deque):
            yield where, value
            for each in list(value.values() if isinstance(value, Mapping) else value)[:1000]:
                yield from walk_own(each, f"{where}[]", seen)
        elif isinstance(value, asyncio.Queue):
            yield where, range(value.qsize())
        else:
            yield from walk_own(value, where, seen)


def walk_own(thing: object, path: str, seen: set[int]) -> Iterator[tuple[str, Collection[Any]]]:
    if type(thing).__module__.startswith("covey.") and not isinstance(thing, msgspec.Struct):
        yield from walk(thing, path, seen)


def slots(cls: type) -> tuple[str, ...]:
    found = cls.__dict__.get("__slots__", ())
    return (found,) if isinstance(found, str) else tuple(found)


def renamed(base: core.Pod, name: str, **spec: Any) -> core.Pod:
    """A pod like another, of another name and UID; decoding so many would take longer than the rest."""
    metadata = msgspec.structs.replace(base.metadata, name=name, uid=f"uid-{name}")
    return msgspec.structs.replace(base, metadata=metadata, spec=msgspec.structs.replace(base.spec, **spec))


async def strangers(parts: Parts, many: range) -> None:
    """Ordinary pods: asked about, refused, bound, gone, and asked about once more when they are gone already."""
    base = pod("stranger", gpus=1)
    for number in many:
        waiting = renamed(base, f"stranger-{number}")
        put(parts.cache, waiting)
        parts.guard.filter(FilterArgs(waiting, NAMES))
        if number % 10 == 0:
            await parts.binder.bind(args(waiting, NODES[number % 8]))
        bound = renamed(base, f"stranger-{number}", node_name=NODES[number % 8])
        put(parts.cache, bound)
        drop(parts.cache, bound)
        if number % 3 == 0:
            parts.guard.filter(FilterArgs(waiting, NAMES))
            await parts.binder.bind(args(waiting, NODES[0]))
            await parts.writer.release(waiting, "Timeout")


def args(found: core.Pod, place: str) -> BindArgs:
    return BindArgs(found.metadata.name, "ns", place, found.metadata.uid)


async def gang(parts: Parts, number: int) -> None:
    """A gang that may fit or not, whose priority class nobody knows; placed, held, bound or not, and deleted."""
    name = f"gang-{number}"
    size = 9 if number % 7 == 0 else 2
    wish = {"topology": [{"level": "host", "mode": "Preferred"}]}
    root = group(
        name, composite=True, minimum=1, desired=1, timeoutSeconds=20, priorityClassName=name, constraints=wish
    )
    groups = [root, *role_groups("decode", replicas=1, minimum=1, size=size, root=name)]
    pods = [member("decode", 0, index, size=size, root=name, gates=(GATE,), gpus=8) for index in range(size)]
    for each in (*groups, *pods):
        put(parts.cache, each)
    await asyncio.sleep(0.1)
    calls: list[asyncio.Task[str]] = []
    failed = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "volume"}
    for index, each in enumerate(pods):
        place = parts.cache.capacity.assumed.get(each.metadata.uid)
        if place is None:
            continue
        said = [failed] if number % 5 == 0 else []
        put(parts.cache, member("decode", 0, index, size=size, root=name, pin=place, gpus=8, conditions=said))
        # Of some the call of one pod alone comes, and is held.
        if number % 3 and not (number % 9 == 4 and index):
            calls.append(asyncio.create_task(parts.binder.bind(args(each, place))))
    unit = parts.cache.index.unit(root_key(name))
    if unit is not None and number % 4 == 0:
        parts.queueing.exclude(unit, NODES[number % 8], "it does not like us")
    await asyncio.sleep(0.0 if number % 2 else 30.0)
    for each in (*pods, *reversed(groups)):
        drop(parts.cache, parts.cache.pods.store[each.metadata.key] if isinstance(each, core.Pod) else each)
    await asyncio.gather(*calls)


async def churn() -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    parts = Parts()
    tasks = [asyncio.create_task(each.run()) for each in (parts.admission, parts.releases, parts.statuses, parts.waker)]
    await asyncio.sleep(1.0)
    at_first = parts.contents()
    put(parts.cache, node("first"))
    await gang(parts, PODS)
    drop(parts.cache, node("first"))
    await asyncio.sleep(4 * 3600.0)
    at_first |= {path: kept for path, kept in parts.contents().items() if any(part in path for part in PLANNER)}
    for name in NODES:
        put(parts.cache, node(name))
    step = PODS // UNITS
    busiest: dict[str, int] = {}
    for number in range(UNITS):
        working = asyncio.create_task(gang(parts, number))
        await asyncio.sleep(0.2)
        await strangers(parts, range(number * step, (number + 1) * step))
        busiest |= parts.contents()
        await working
    for name in NODES:
        drop(parts.cache, node(name))
    await asyncio.sleep(4 * 3600.0)
    left = parts.contents()
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    return at_first, busiest, left


@pytest.mark.slow  # 25,000 pods
def test_nothing_is_left_of_pods_that_have_come_and_gone() -> None:
    at_first, busiest, left = run(churn())
    assert {path: kept for path, kept in left.items() if kept > at_first.get(path, 0)} == {}
    # It was all in use.
    used = {path.rpartition(".")[2] for path in busiest}
    assert used >= {"_shapes", "_classes", "_timed", "_failures", "_pinned_at", "_written"}
    assert used >= {"_gangs", "_unknown", "_units", "_waiting", "_calls"}
