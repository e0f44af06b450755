"""Questions for head-room in the scheduler process: last in line, each answered once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from builders.members import GATE, Seen, group, member, node, put, role_groups
from builders.members import cache as made_of
from covey.admission.nodes import Key
from covey.api import core
from covey.api.constants import ANNOTATION_QUESTION
from covey.api.headroom import Question, dump_question
from covey.kube.clock import SYSTEM, Clock
from covey.scheduler.quotas import Quotas
from covey.scheduler.reservations import Reservations
from covey.scheduler.surroundings import Queueing
from covey.scheduler.topologies import Topologies
from covey.scheduler.whatif.headroom import HeadroomQuestions
from scheduler_loop import Answering, Loop, context_of


@dataclass
class Client:
    """Notes what is written; fails as often as it is told to."""

    written: list[dict[str, Any]] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    async def apply(self, _resource: object, body: dict[str, Any], **_options: object) -> None:
        if self.failures:
            raise self.failures.pop()
        self.written.append(body)

    def answers(self) -> list[tuple[str, str, dict[str, int | None]]]:
        """Root, question, and the number of each role."""
        return [
            (body["metadata"]["name"], told["asked"], {row["name"]: row.get("replicas") for row in told["roles"]})
            for body in self.written
            for told in [body["status"]["headroom"]]
        ]


class Hand:
    """Monotonic seconds that stand still."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def asking(found: core.Group, asked: str | None, roles: dict[str, bool] | None = None) -> core.Group:
    """The root when the operator has put a question on it."""
    text = dump_question(Question(asked, roles or {"decode": True})) if asked else None
    annotations = {ANNOTATION_QUESTION: text} if text else {}
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, annotations=annotations))


def unit(name: str = "root", *places: str | None, **root: Any) -> list[core.Group | core.Pod]:
    """A unit of one role of single pods of eight devices: bound to these nodes, or waiting."""
    pods = [
        member("decode", number, root=name, node=place, gates=() if place else (GATE,), gpus=8)
        for number, place in enumerate(places)
    ]
    groups = role_groups("decode", replicas=len(places), minimum=1, size=1, root=name)
    return [group(name, composite=True, minimum=1, desired=1, **root), *groups, *pods]


class Bench(Answering):
    """Admission and head-room over one cache."""

    def __init__(self, *objects: Seen) -> None:
        self.cache = made_of(*objects)
        self.client = Client()
        self.clock = Hand()
        self.loop = Loop(self.cache)
        client: Any = self.client
        queueing = Queueing(self.cache, Topologies(self.cache), reserve_after=300.0, clock=SYSTEM)
        reservations = Reservations(self.cache, reserve_after=300.0, clock=SYSTEM)
        context = context_of(self.cache, client, Clock(self.clock, lambda: 1_767_225_600.0))
        self.headroom = HeadroomQuestions(context, queueing, Quotas(self.cache, queueing.priority), reservations)
        self.loop.admission.register(self.headroom)
        super().__init__(self.headroom)

    async def turn(self) -> dict[str, str]:
        """One pass of admission, long after the last one; what it wrote has come."""
        self.clock.now += 1000.0
        pinned = await self.loop.turn()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return pinned

    def ask(self, asked: str | None, name: str = "root", roles: dict[str, bool] | None = None) -> None:
        """The operator puts a question, or takes it away."""
        before = self.cache.index.root(Key("CompositePodGroup", "ns", name))
        assert before is not None
        put(self.cache, asking(before, asked, roles), before)

    def shows(self, asked: str, name: str = "root") -> None:
        """The watch shows an answer."""
        before = self.cache.index.root(Key("CompositePodGroup", "ns", name))
        assert before is not None
        status = msgspec.structs.replace(before.status, headroom=core.GroupHeadroom(asked))
        put(self.cache, msgspec.structs.replace(before, status=status), before)


def nodes(count: int) -> list[core.Node]:
    return [node(f"n{number}") for number in range(count)]


async def test_whoever_waits_for_a_place_is_first() -> None:
    """A waiting unit of the resource gets its place, and then one more would fit beside both."""
    async with Bench(*nodes(3), *unit("root", "n0"), *unit("other", None)) as bench:
        bench.ask("one")
        assert set(await bench.turn()) == {"other-decode-0-0"}
        assert bench.client.answers() == [("root", "one", {"decode": 3})]


@pytest.mark.parametrize(
    ("volume", "claim", "most"),
    [
        ({"ephemeral": {"volumeClaimTemplate": {}}}, "root-decode-0-0-scratch", 3),
        ({"persistentVolumeClaim": {"claimName": "weights"}}, "weights", 1),
    ],
)
async def test_a_further_pod_has_ephemeral_volumes_of_its_own(volume: dict[str, Any], claim: str, most: int) -> None:
    """The disk of its model is on one node; a claim that all pods name confines every one of them."""
    found = unit("root", "n0")
    found[-1] = member("decode", 0, node="n0", gpus=8, spec={"volumes": [{"name": "scratch", **volume}]})
    host = {"kubernetes.io/hostname": "n0"}
    async with Bench(node("n0", labels=host), *nodes(3)[1:], *found) as bench:
        there = core.Requirement("kubernetes.io/hostname", "In", ("n0",))
        bench.cache.volumes.set_volume("pv", core.NodeSelector((core.NodeSelectorTerm((there,)),)))
        bench.cache.volumes.set_claim(("ns", claim), "pv")
        bench.ask("one")
        await bench.turn()
        assert bench.client.answers() == [("root", "one", {"decode": most})]
