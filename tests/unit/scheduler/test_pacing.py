"""Statuses of groups: what is said of refusals, and how fast."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from builders.members import GATE, START, group, member, pod, role_groups, root_key, unit
from covey.admission.native import MemberPod, StoredGroup
from covey.admission.nodes import Key
from covey.admission.status import Decision, statuses
from covey.api import core
from covey.kube.clock import SYSTEM
from covey.kube.resources import NATIVE_POD_GROUPS
from covey.scheduler.cache import Cache
from covey.scheduler.pacing import LASTING, Bucket, Lane, Pacer, lane
from covey.scheduler.statuses import Passing, StatusWriter, passing
from scheduler_loop import context_of


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


def roots(count: int) -> list[Key]:
    return [root_key(f"g{number}") for number in range(count)]


async def told(pacer: Pacer, clock: Clock, seconds: float) -> None:
    """Let the pacer work until so much time has passed by its turns, or nothing waits any more."""
    work = asyncio.create_task(pacer.run())
    end = clock.now + seconds
    for _ in range(10_000):
        await asyncio.sleep(0)
        if clock.now >= end:
            break
    work.cancel()


async def test_changed_verdicts_go_first_and_numbers_only_when_they_have_lasted() -> None:
    clock, seen = Clock(), list[tuple[str, Lane, float]]()

    async def write(root: Key, where: Lane) -> None:
        seen.append((root.name, where, clock.now))

    pacer = Pacer(write, Bucket(10.0, clock=clock, sleep=clock.sleep), clock=clock)
    pacer.add(root_key("numbers"), Lane.NUMBERS)
    clock.now += LASTING - 0.1
    pacer.add(root_key("young"), Lane.NUMBERS)
    pacer.add(root_key("changed"), Lane.NUMBERS)
    for root in [root_key("changed"), *roots(2)]:
        pacer.add(root, Lane.VERDICT)
    await told(pacer, clock, 5.0)
    assert [(name, where) for name, where, _ in seen] == [
        ("changed", Lane.VERDICT),
        ("g0", Lane.VERDICT),
        ("g1", Lane.VERDICT),
        ("numbers", Lane.NUMBERS),
    ]


async def test_one_whose_write_fails_comes_again_and_stops_nobody() -> None:
    clock, seen = Clock(), list[str]()

    async def write(root: Key, _where: Lane) -> None:
        seen.append(root.name)
        if seen.count("g0") < 2 and root.name == "g0":
            raise OSError

    pacer = Pacer(write, Bucket(10.0, clock=clock, sleep=clock.sleep), clock=clock)
    for root in roots(2):
        pacer.add(root, Lane.VERDICT)
    await told(pacer, clock, 2.0)
    assert seen == ["g0", "g1", "g0"]


REFUSED = Decision("Infeasible", "8 GPUs are missing")


def root_with(decision: Decision | None, *, admitted: bool = False) -> tuple[core.Group, Mapping[str, Any]]:
    """A root whose status says a decision (None: nothing yet), and the status of one that is refused now."""
    groups = role_groups("decode", replicas=1, minimum=1, size=1)
    pods = [member("decode", 0, **({"node": "n1"} if admitted else {"gates": (GATE,)}))]
    top = group("root", composite=True, minimum=1)
    if decision is not None:
        status = statuses(unit(top, groups, pods), decision, lambda _node: (), "2026-01-02T00:00:00Z")[0][1]
        top = group("root", composite=True, minimum=1, status=status)
    waiting = [member("decode", 0, gates=(GATE,))]
    return top, statuses(unit(top, groups, waiting), REFUSED, lambda _node: (), "2026-01-03T00:00:00Z")[0][1]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        pytest.param(root_with(None), Lane.VERDICT, id="nothing was said yet"),
        pytest.param(root_with(Decision("Waiting", "pods")), Lane.VERDICT, id="another reason"),
        pytest.param(root_with(Decision("Infeasible", "7 GPUs are missing")), Lane.NUMBERS, id="other numbers"),
        pytest.param(root_with(Decision(), admitted=True), None, id="it lost its places: at once"),
    ],
)
def test_how_urgent_a_refusal_is(before: tuple[core.Group, Mapping[str, Any]], expected: Lane | None) -> None:
    assert lane(*before) is expected


GATED: dict[str, Any] = {"gates": (GATE,)}


@pytest.mark.parametrize(
    ("replicas", "decision", "expected"),
    [
        pytest.param([], Decision(), None, id="no pods yet"),
        pytest.param([GATED], Decision(), Passing.WAITING, id="not looked at yet, or its pins are being written"),
        pytest.param([GATED], Decision("Waiting", "pods are missing"), Passing.WAITING, id="being created"),
        pytest.param([GATED], REFUSED, None, id="refused: news"),
        pytest.param([{"pin": "n1"}], Decision(), Passing.PLACING, id="about to be bound"),
        pytest.param([{"pin": "n1", "gates": (START,)}], Decision(), Passing.PLACING, id="held by the start gate"),
        pytest.param([{"node": "n1"}, GATED], Decision(), Passing.PLACING, id="surplus not looked at yet"),
        pytest.param([{"node": "n1"}], Decision(), Passing.PLACING, id="surplus not created yet"),
        pytest.param([{"node": "n1"}, GATED], REFUSED, None, id="surplus refused: news"),
        pytest.param([{"node": "n1"}, {"pin": "n2"}], Decision(), Passing.PLACING, id="surplus about to be bound"),
        pytest.param([{"node": "n1"}, {"node": "n2"}], Decision(), None, id="all bound"),
    ],
)
def test_what_is_expected_to_pass(replicas: list[dict[str, Any]], decision: Decision, expected: Passing | None) -> None:
    pods = [member("decode", number, 0, size=1, **state) for number, state in enumerate(replicas)]
    found = unit(group("root", composite=True, minimum=1), role_groups("decode", replicas=2, minimum=1, size=1), pods)
    assert passing(found, decision) is expected


async def test_a_native_group_whose_pods_have_gone_is_not_said_to_wait() -> None:
    """It stood in line for its turn while they went."""
    made = Cache(None, native=True, clock=SYSTEM)  # type: ignore[arg-type] # nothing is watched
    spec = {"schedulingPolicy": {"gang": {"minCount": 1}}}
    found = msgspec.convert({"metadata": {"name": "g", "namespace": "ns", "uid": "g"}, "spec": spec}, StoredGroup)
    made._on_native_group(NATIVE_POD_GROUPS, "ADDED", found, None)
    plain = pod("a", gates=(GATE,), spec={"schedulingGroup": {"podGroupName": "g"}})
    waiting = MemberPod(plain.metadata, plain.spec, plain.status)
    made._on_pod("ADDED", waiting, None)
    api: Any = None
    writer = StatusWriter(context_of(made, api), lambda _root: REFUSED)
    [root] = made.index.roots()
    await writer._write(root)
    assert not writer._pacer.idle
    made._on_pod("DELETED", waiting, None)
    await writer._write(root)
    assert writer._pacer.idle
