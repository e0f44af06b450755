"""What becomes of a decision when a pod turns out to be gone: told by the writer's answers, which are given here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from builders.members import GATE, cache, node, pod, put
from covey.api import core
from covey.kube.clock import Clock
from covey.kube.errors import Conflict, Forbidden, Invalid, KubeError, NotFound, Unreachable
from covey.scheduler.commit import Committed, Committer, Placement
from covey.scheduler.writer import Pinned, PodWriter
from scheduler_loop import settle


class Answers:
    """A client whose answers are prepared: to each patch, and to each read."""

    def __init__(self, patches: Sequence[KubeError | None], reads: Sequence[core.Pod | KubeError] = ()) -> None:
        self.patches = list(patches)
        self.reads = list(reads)
        self.sent: list[Mapping[str, Any]] = []
        self.dry: list[bool] = []

    async def merge_patch(
        self, _resource: object, _name: str, _namespace: str, body: Any, *, dry_run: bool = False, **_: Any
    ) -> None:
        self.sent.append(body)
        self.dry.append(dry_run)
        answer = self.patches.pop(0)
        if answer is not None:
            raise answer

    async def get(self, *_: object, **__: object) -> core.Pod:
        answer = self.reads.pop(0)
        if isinstance(answer, KubeError):
            raise answer
        return answer


class Unchanged(Answers):
    """A client for which no pod changes."""

    async def get(self, _resource: object, name: str, *_: object, **__: object) -> core.Pod:
        return next(each for each in self.reads if isinstance(each, core.Pod) and each.metadata.name == name)


class Late(Unchanged):
    """A client that answers late for the second pod."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.may_answer = asyncio.Event()

    async def merge_patch(
        self, _resource: object, _name: str, _namespace: str, body: Any, *, dry_run: bool = False, **_: Any
    ) -> None:
        if _name == "p1":
            await self.may_answer.wait()
        await super().merge_patch(_resource, _name, _namespace, body, dry_run=dry_run)


def writer(client: Answers, in_flight: int = 64) -> PodWriter:
    async def at_once(_seconds: float) -> None:
        await asyncio.sleep(0)

    return PodWriter(client, in_flight=in_flight, clock=Clock(sleep=at_once))  # type: ignore[arg-type] # the two calls it makes


GATED = pod("p", group="g", gates=("example.com/done", GATE))
FAILED = Invalid(422, "Invalid")


def changed(version: int) -> core.Pod:
    """The gated pod after somebody has changed it."""
    found = pod("p", group="g", gates=(GATE,))
    return msgspec.structs.replace(
        found, metadata=msgspec.structs.replace(found.metadata, resource_version=str(version))
    )


@pytest.mark.parametrize(
    ("patches", "reads", "outcome", "sent"),
    [
        ([None], [], Pinned.DONE, 1),
        ([NotFound(404)], [], Pinned.GONE, 1),
        ([FAILED], [NotFound(404)], Pinned.GONE, 1),
        ([FAILED], [pod("p", group="g", uid="successor", gates=(GATE,))], Pinned.GONE, 1),
        ([FAILED], [pod("p", group="g", pin="n1")], Pinned.DONE, 1),
        ([FAILED], [pod("p", group="g", pin="n2")], Pinned.CONFLICT, 1),
        ([FAILED], [pod("p", group="g")], Pinned.CONFLICT, 1),
        ([FAILED], [pod("p", group="g", gates=(GATE,), deleted=True)], Pinned.CONFLICT, 1),
        ([FAILED, None], [changed(1)], Pinned.DONE, 2),
        ([*[Conflict(409)] * 7, None], [changed(each) for each in range(1, 8)], Pinned.DONE, 8),
        # Changed or not, what is denied again and again is not sent for ever; unchanged, it is denied for good.
        ([FAILED] * 3, [changed(1), changed(2), changed(3)], Pinned.DENIED, 3),
        ([FAILED], [pod("p", group="g", gates=(GATE,))], Pinned.DENIED, 1),
        ([Forbidden(403)], [pod("p", group="g", gates=(GATE,))], Pinned.DENIED, 1),
        ([Unreachable(), None], [pod("p", group="g", gates=(GATE,))], Pinned.DONE, 2),
        ([Unreachable()], [pod("p", group="g", pin="n1")], Pinned.DONE, 1),
        ([Unreachable(), None], [Unreachable()], Pinned.DONE, 2),
        ([Unreachable()] * 8, [Unreachable()] * 8, Pinned.DENIED, 8),
    ],
)
async def test_a_failed_patch_is_looked_into(patches: Any, reads: Any, outcome: Pinned, sent: int) -> None:
    client = Answers(patches, reads)
    assert (await writer(client).pin(GATED, "n1", {})).outcome is outcome
    assert len(client.sent) == sent


async def test_a_patch_is_built_anew_from_what_was_read() -> None:
    client = Answers([Conflict(409), None], [changed(9)])
    await writer(client).pin(GATED, "n1", {})
    assert [body["metadata"]["resourceVersion"] for body in client.sent] == [GATED.metadata.resource_version, "9"]
    assert [len(body["spec"]["schedulingGates"]) for body in client.sent] == [1, 0]


async def decide(
    patches: Sequence[KubeError | None], *, rehearse: bool = False, in_flight: int = 1
) -> tuple[Any, Committed, Answers]:
    pods = [pod(f"p{number}", group="g", gates=(GATE,)) for number in range(len(patches))]
    made = cache(node("n1"))
    for each in pods:
        put(made, each)
    client = Unchanged(patches, pods)
    committer = Committer(made, writer(client, in_flight=in_flight))
    placements = [Placement(each, "n1", {}) for each in pods]
    committer.assume(placements)
    assert made.capacity.room.free("n1")["nvidia.com/gpu"] == 8 - len(pods)
    return made, await committer.commit(placements, rehearse=rehearse), client


async def test_a_vanished_pod_drops_what_was_not_sent_and_gives_its_room_back() -> None:
    made, committed, _ = await decide([None, NotFound(404), None, None])
    assert committed.outcomes == {Pinned.DONE: 1, Pinned.GONE: 1, Pinned.DROPPED: 2}
    assert made.capacity.room.free("n1")["nvidia.com/gpu"] == 7
    assert set(made.capacity.assumed) == {"uid-p0"}


async def test_room_of_a_pod_that_is_gone_is_free_once_its_mates_have_come() -> None:
    """Its unit is planned anew then, before others: until then nobody may take that room."""
    pods = [pod(f"p{number}", group="g", gates=(GATE,)) for number in range(2)]
    made = cache(node("n1"), *pods)
    client = Late([NotFound(404), None], pods)
    committer = Committer(made, writer(client))
    placements = [Placement(each, "n1", {}) for each in pods]
    committer.assume(placements)
    committing = asyncio.create_task(committer.commit(placements))
    await settle()
    assert made.capacity.room.free("n1")["nvidia.com/gpu"] == 6
    client.may_answer.set()
    assert (await committing).outcomes == {Pinned.GONE: 1, Pinned.DONE: 1}
    assert made.capacity.room.free("n1")["nvidia.com/gpu"] == 7


DENIED = Forbidden(403, "Forbidden", "policy says no")


async def test_a_rehearsal_lets_nobody_go_unless_all_may() -> None:
    made, committed, client = await decide([None, None, DENIED, None], rehearse=True)
    assert committed.outcomes == {Pinned.DENIED: 1, Pinned.DROPPED: 3}
    assert "pod p2" in committed.denied
    assert all(client.dry)
    assert made.capacity.room.free("n1")["nvidia.com/gpu"] == 8


async def test_a_release_is_sent_once_and_again_after_a_failure() -> None:
    client = Answers([Unreachable(), None])
    once = writer(client)
    pinned = pod("p", group="g", pin="n1")
    assert not await once.release(pinned, "Timeout")
    assert await once.release(pinned, "Timeout")
    assert not await once.release(pinned, "Timeout")
    assert not await once.release(pod("q", group="g", pin="n1", node="n1"), "Timeout")
    assert len(client.sent) == 2
