"""Exchanges in the scheduler process: a claim first, then the answer; freed room is for those that come."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from builders.members import GATE, Seen, drop, group, member, node, put, queue, role_groups, root_key
from builders.members import cache as made_of
from covey.admission.nodes import Key
from covey.api import core
from covey.api.constants import ANNOTATION_EXCHANGE
from covey.api.exchange import ExchangeQuestion, dump_question
from covey.kube.clock import Clock
from covey.scheduler.whatif.exchange import Exchanges
from scheduler_loop import Answering, Loop, context_of

ROOT, OTHER = root_key("root"), root_key("other")
WALL = 1_767_225_600.0


class Client:
    """Notes what is written."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    async def apply(self, _resource: object, body: dict[str, Any], **_options: object) -> None:
        self.written.append(body["status"]["exchange"])


def unit(name: str = "root", prefill: tuple[str | None, ...] = (), decode: tuple[str | None, ...] = ()) -> list[Seen]:
    """A unit of single pods of eight devices: on these nodes, or waiting."""
    places = {"prefill": prefill, "decode": decode}
    labels = {"covey.dev/inference": name, "covey.dev/unit": "0"}
    found: list[Seen] = [group(name, composite=True, minimum=2, desired=2, labels=labels)]
    for role, names in places.items():
        found += role_groups(role, replicas=4, minimum=1, size=1, root=name)
        found += [waiting(role, number, name, place) for number, place in enumerate(names)]
    return found


def waiting(role: str, number: int, root: str = "root", place: str | None = None) -> core.Pod:
    return member(role, number, root=root, node=place, gates=() if place else (GATE,), gpus=8)


class Bench(Answering):
    """Admission and exchanges over one cache."""

    def __init__(self, *objects: Seen) -> None:
        self.cache = made_of(*objects)
        self.client = Client()
        self.loop = Loop(self.cache)
        self.now = 0.0
        client: Any = self.client
        context = context_of(self.cache, client, Clock(lambda: self.now, lambda: WALL + self.now))
        self.exchanges = Exchanges(context, self.loop.queueing, self.loop.quotas, self.loop.reservations)
        self.loop.admission.register(self.exchanges)
        super().__init__(self.exchanges)

    async def turn(self) -> dict[str, str]:
        self.now += 100.0
        found = await self.loop.turn()
        found |= await self.loop.turn()
        for _ in range(3):
            await asyncio.sleep(0)
        return found

    def ask(self, asked: str | None, root: Key = ROOT, **roles: int) -> None:
        """The operator puts a question, or takes it away."""
        before = self.cache.index.root(root)
        assert before is not None
        notes = {ANNOTATION_EXCHANGE: dump_question(ExchangeQuestion(asked, roles, 3600))} if asked else {}
        metadata = msgspec.structs.replace(before.metadata, annotations=notes)
        put(self.cache, msgspec.structs.replace(before, metadata=metadata), before)

    def shows_claim(self) -> None:
        """The watch shows what was written of the decision."""
        before = self.cache.index.root(ROOT)
        assert before is not None
        status = msgspec.structs.replace(before.status, claim=self.claim)
        put(self.cache, msgspec.structs.replace(before, status=status), before)

    @property
    def claim(self) -> core.Claim | None:
        return self.loop.queue.decision(ROOT).claim


def full() -> list[Seen]:
    """Three nodes, full with one unit; beside it one of equal priority that waits for more."""
    return [
        *(node(f"n{number}") for number in range(5)),
        *unit("root", ("n0", "n1"), ("n2",)),
        *unit("other", ("n3",), ("n4", None)),
    ]


async def test_freed_room_is_for_those_that_come() -> None:
    async with Bench(*full()) as bench:
        await bench.turn()
        bench.ask("one", prefill=1, decode=2)
        await bench.turn()
        bench.shows_claim()
        drop(bench.cache, waiting("prefill", 1, "root", "n1"))
        assert await bench.turn() == {}, "another unit waits for it"
        put(bench.cache, waiting("decode", 1))
        assert list((await bench.turn()).values()) == ["n1"]


async def test_a_claim_ends_with_its_question_and_with_its_time() -> None:
    async with Bench(*full()) as bench:
        await bench.turn()
        bench.ask("one", prefill=1, decode=2)
        await bench.turn()
        bench.shows_claim()
        bench.ask("two", prefill=1, decode=3)
        await bench.turn()
        assert bench.claim is not None, "what was begun goes on"
        bench.now += 3600.0
        bench.loop.queue.requeue(ROOT)
        await bench.turn()
        assert bench.claim is None
        bench.ask("three", prefill=1, decode=2)
        await bench.turn()
        assert bench.claim is not None
        bench.ask(None)
        await bench.turn()
        assert bench.claim is None


@pytest.mark.parametrize(("nominal", "said"), [(40, [True, False]), (48, [True, True])])
@pytest.mark.parametrize("restarts", [False, True])
async def test_what_was_promised_to_another_unit_is_charged(nominal: int, said: list[bool], *, restarts: bool) -> None:
    """Two units of two replicas each want one more; the other unit's yes is charged until its question has gone."""
    nodes = [node(f"n{number}") for number in range(6)]
    units = [*unit("root", ("n0",), ("n1",)), *unit("other", ("n2",), ("n3",)), queue("all", nominal)]
    async with Bench(*nodes, *units) as bench:
        await bench.turn()
        bench.ask("one", prefill=1, decode=2)
        await bench.turn()
        bench.shows_claim()
        await bench.turn()
        if restarts:
            before = bench.cache.index.root(ROOT)
            assert before is not None
            told = msgspec.convert(bench.client.written[0], core.GroupExchange)
            put(
                bench.cache,
                msgspec.structs.replace(before, status=msgspec.structs.replace(before.status, exchange=told)),
                before,
            )
            bench.exchanges._claims.clear()
        bench.ask("two", OTHER, prefill=1, decode=2)
        await bench.turn()
        assert [each["feasible"] for each in bench.client.written] == [True] + [False] * (not said[1])
        assert (bench.loop.queue.decision(OTHER).claim is not None) == said[1]
        if not said[1]:
            assert "40 of 40 nvidia.com/gpu of queue all are in use; 8 short" in bench.client.written[1]["message"]
        bench.ask(None)
        bench.ask("three", OTHER, prefill=1, decode=2)
        await bench.turn()
        assert bench.loop.queue.decision(OTHER).claim is not None
