"""No pin brings a queue above what it may have, whatever is lost, deleted and made again meanwhile (C1)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.members import GATE, cache, drop, group, member, node, put, queue, role_groups
from covey.api import core
from covey.api.constants import INFERENCE_API
from covey.model import podstate
from scheduler_loop import Loop, labels

GPU, NOMINAL, BORROW = "nvidia.com/gpu", 6, 4
#: Queue, pods of a replica, replicas, and those of the minimum.
Asked = tuple[str, int, int, int]
asked = st.tuples(st.sampled_from("ab"), st.integers(1, 2), st.integers(1, 6), st.integers(1, 2))
KINDS = ["create", "lose", "lose", "replace", "drain", "end", "group", "restore", "delete", "nominal"]
event = st.tuples(st.sampled_from(KINDS), st.integers(0, 40), asked)


async def test_quota_stays_with_a_replica_while_room_is_held_for_its_lost_pod() -> None:
    """Others do not take it meanwhile, so that a minimum that gets its pod back brings no queue above its limit."""
    tenants = await _begin(("a", 2, 2, 2), ("a", 1, 8, 2), holdSeconds=30)
    assert tenants.use("a") == NOMINAL + BORROW
    tenants.lose(next(pod for pod in tenants.pods() if pod.metadata.name == "u0-decode-1-0"))
    for _ in range(3):
        await tenants.turn()
        assert tenants.use("a") == NOMINAL + BORROW - 1
    tenants.happen("replace", 0, ("a", 2, 2, 2))
    await tenants.turn()
    assert tenants.use("a") == NOMINAL + BORROW


#: What is borrowed is given back by those alone whose owner is Covey's.
OURS = core.OwnerReference(
    kind="DisaggregatedInference", name="llm", uid="owner", controller=True, api_version=INFERENCE_API
)


def owned(made: Any) -> Any:
    return replace(made, metadata=replace(made.metadata, owner_references=(OURS,)))


@dataclass
class Tenants:
    """Two queues that lend to each other on nodes that have room for all, and pods of one device."""

    limits: dict[str, int] = field(default_factory=lambda: {"a": NOMINAL + BORROW, "b": NOMINAL + BORROW})
    groups: dict[str, core.Group] = field(default_factory=dict)
    #: By the name of a pod: its place, as the arguments of ``member``.
    lost: dict[str, tuple[int, int, int, str]] = field(default_factory=dict)
    away: dict[str, core.Group] = field(default_factory=dict)
    units: dict[str, Asked] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.numbers = itertools.count()
        nodes = [node(f"n{number}", labels=labels()) for number in range(8)]
        queues = [queue(name, NOMINAL, borrow=BORROW, cohort="c") for name in "ab"]
        self.loop = Loop(cache(*nodes, *queues))

    def pods(self) -> list[core.Pod]:
        return sorted(self.loop.cache.index.pods(), key=lambda each: each.metadata.name)

    def place(self, pod: core.Pod) -> str | None:
        """Where a pod lies that neither has ended nor is being deleted."""
        known = self.loop.cache.capacity.assumed.get(pod.metadata.uid)
        return (pod.spec.node_name or known) if podstate.counts(pod) else None

    def use(self, name: str) -> int:
        return sum(self.units[_unit(each)][0] == name and self.place(each) is not None for each in self.pods())

    async def turn(self) -> None:
        before = {each.metadata.name: each for each in self.pods() if self.place(each) is not None}
        given = await self.loop.turn()
        self.loop.bind(given)
        for name in given:
            unit = name.split("-")[0]
            asked_by, size, _, least = self.units[unit]
            replicas = [other.rsplit("-", 1)[0] for other in before if other.startswith(f"{unit}-")]
            replicas = [each for each in replicas if size == 1 or each in self.groups]
            whole = sum(replicas.count(each) == size for each in set(replicas))
            if name.rsplit("-", 1)[0] in replicas and whole < least:
                continue  # the exception: of a minimum that keeps a part of a replica, what was lost comes back
            assert self.use(asked_by) <= self.limits[asked_by], f"{name}: {self.use(asked_by)} of {self.limits}"
            assert sum(map(self.use, "ab")) <= sum(self.limits.values()) - 2 * BORROW, name

    def happen(self, kind: str, number: int, wish: Asked) -> None:
        there, groups = self.pods(), sorted(self.groups)
        pod = there[number % len(there)] if there else None
        match kind:
            case "create" if len(self.units) < 6:
                self.create(wish)
            case "lose" if pod is not None:
                self.lose(pod)
            case "replace" if self.lost:
                name = sorted(self.lost)[number % len(self.lost)]
                replica, index, size, unit = self.lost.pop(name)
                state: Any = {"uid": f"uid-{next(self.numbers)}", "gates": (GATE,), "gpus": 1}
                put(self.loop.cache, owned(member("decode", replica, index, size=size, root=unit, **state)))
            case "drain" if pod is not None:
                self._annotate(pod, "scheduling.covey.dev/drain-until")
            case "end" if pod is not None:
                stamp = "2026-01-01T00:00:00Z"
                put(self.loop.cache, replace(pod, metadata=replace(pod.metadata, deletion_timestamp=stamp)))
            case "group" if groups:
                self.away[groups[number % len(groups)]] = found = self.groups.pop(groups[number % len(groups)])
                drop(self.loop.cache, found)
            case "restore" if self.away:
                self.restore(sorted(self.away)[number % len(self.away)])
            case "delete" if self.units:
                unit = sorted(self.units)[number % len(self.units)]
                for name in [each for each in groups if each.split("-")[0] == unit]:
                    drop(self.loop.cache, self.groups.pop(name))
            case "nominal":
                name, nominal = wish[0], number % (NOMINAL + 1)
                self.limits[name] = nominal + BORROW
                put(self.loop.cache, queue(name, nominal, borrow=BORROW, cohort="c"))

    def create(self, wish: Asked, **spec: Any) -> None:
        name, size, replicas, least = wish
        unit = f"u{len(self.units)}"
        self.units[unit] = (name, size, replicas, min(least, replicas))
        made = [
            group(
                unit,
                composite=True,
                minimum=1,
                desired=1,
                queue=name,
                labels={"covey.dev/inference": unit},
                **spec,
            ),
            *role_groups("decode", replicas=replicas, minimum=min(least, replicas), size=size, root=unit),
        ]
        for each in map(owned, made):
            self.groups[each.metadata.name] = each
            put(self.loop.cache, each)
        for replica, index in itertools.product(range(replicas), range(size)):
            put(self.loop.cache, owned(member("decode", replica, index, size=size, root=unit, gates=(GATE,), gpus=1)))

    def lose(self, pod: core.Pod) -> None:
        drop(self.loop.cache, pod)
        unit, _, replica, index = pod.metadata.name.split("-")
        self.lost[pod.metadata.name] = (int(replica), int(index), self.units[unit][1], unit)

    def restore(self, name: str) -> None:
        self.groups[name] = self.away.pop(name)
        put(self.loop.cache, self.groups[name])

    def _annotate(self, pod: core.Pod, key: str) -> None:
        notes = {**(pod.metadata.annotations or {}), key: "2026-01-01T00:00:00Z"}
        put(self.loop.cache, replace(pod, metadata=replace(pod.metadata, annotations=notes)))


def _unit(pod: core.Pod) -> str:
    return pod.metadata.name.split("-")[0]


@given(st.tuples(asked, asked), st.lists(event, max_size=20))
async def test_no_pin_brings_a_queue_above_its_limit(first: tuple[Asked, Asked], happened: list[Any]) -> None:
    tenants = Tenants()
    for wish in first:
        tenants.create(wish)
        await tenants.turn()
    for kind, number, wish in happened:
        tenants.happen(kind, number, wish)
        await tenants.turn()
        await tenants.turn()


async def _begin(*wishes: Asked, **spec: Any) -> Tenants:
    tenants = Tenants()
    for wish in wishes:
        tenants.create(wish, **spec)
        for _ in range(8):
            await tenants.turn()
    return tenants


@pytest.mark.parametrize(("first", "other", "over"), [(("a", 2, 4, 1), 4, 0), (("a", 2, 2, 2), 8, 1)])
async def test_a_replica_that_lost_a_pod_gets_it_back_where_there_is_quota(first: Asked, other: int, over: int) -> None:
    """The quota that came free meanwhile has gone to others. Of a minimum it comes back all the same."""
    tenants = await _begin(first, ("a", 1, other, first[3]))
    tenants.lose(next(pod for pod in tenants.pods() if pod.metadata.name == f"u0-decode-{first[2] - 1}-0"))
    await tenants.turn()
    assert tenants.use("a") == NOMINAL + BORROW
    tenants.happen("replace", 0, first)
    await tenants.turn()
    assert tenants.use("a") == NOMINAL + BORROW + over
