"""What becomes of a decision when a pod turns out to be gone: told by the writer's answers, which are given here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from covey.api import core
from covey.kube.errors import Invalid, KubeError, NotFound, Unreachable
from covey.scheduler.commit import Committer, Placement
from covey.scheduler.writer import Pinned, PodWriter
from scheduler_builders import GATE, cache, node, pod, put


class Answers:
    """A client whose answers are prepared: to each patch, and to each read."""

    def __init__(self, patches: Sequence[KubeError | None], reads: Sequence[core.Pod | KubeError] = ()) -> None:
        self.patches = list(patches)
        self.reads = list(reads)
        self.sent: list[Sequence[Mapping[str, Any]]] = []

    async def json_patch(self, _resource: object, _name: str, _namespace: str, operations: Any, **_: Any) -> None:
        self.sent.append(operations)
        answer = self.patches.pop(0)
        if answer is not None:
            raise answer

    async def get(self, *_: object, **__: object) -> core.Pod:
        answer = self.reads.pop(0)
        if isinstance(answer, KubeError):
            raise answer
        return answer


def writer(client: Answers, in_flight: int = 64) -> PodWriter:
    async def at_once(_seconds: float) -> None:
        await asyncio.sleep(0)

    return PodWriter(client, in_flight=in_flight, sleep=at_once)  # type: ignore[arg-type] # the two calls it makes


GATED = pod("p", group="g", gates=("example.com/done", GATE))
FAILED = Invalid(422, "Invalid")


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
        ([FAILED, None], [pod("p", group="g", gates=(GATE,))], Pinned.DONE, 2),
        ([FAILED] * 3, [pod("p", group="g", gates=(GATE,))] * 3, Pinned.CONFLICT, 3),
        ([Unreachable(), None], [pod("p", group="g", gates=(GATE,))], Pinned.DONE, 2),
        ([Unreachable()], [pod("p", group="g", pin="n1")], Pinned.DONE, 1),
        ([Unreachable(), None], [Unreachable()], Pinned.DONE, 2),
        ([Unreachable()] * 8, [Unreachable()] * 8, Pinned.CONFLICT, 8),
    ],
)
async def test_a_failed_patch_is_looked_into(patches: Any, reads: Any, outcome: Pinned, sent: int) -> None:
    client = Answers(patches, reads)
    assert await writer(client).pin(GATED, "n1", {}) is outcome
    assert len(client.sent) == sent


async def test_a_patch_is_built_anew_from_what_was_read() -> None:
    client = Answers([FAILED, None], [pod("p", group="g", gates=(GATE,))])
    await writer(client).pin(GATED, "n1", {})
    paths = [[each["path"] for each in operations if "Gates" in each["path"]][-1] for operations in client.sent]
    assert paths == ["/spec/schedulingGates/1", "/spec/schedulingGates/0"]


async def test_a_release_is_sent_once_and_again_after_a_failure() -> None:
    client = Answers([Unreachable(), None])
    once = writer(client)
    pinned = pod("p", group="g", pin="n1")
    assert not await once.release(pinned, "Timeout")
    assert await once.release(pinned, "Timeout")
    assert not await once.release(pinned, "Timeout")
    assert not await once.release(pod("q", group="g", pin="n1", node="n1"), "Timeout")
    assert len(client.sent) == 2


async def decide(patches: Sequence[KubeError | None]) -> tuple[Any, dict[Pinned, int]]:
    pods = [pod(f"p{number}", group="g", gates=(GATE,)) for number in range(len(patches))]
    made = cache(node("n1"))
    for each in pods:
        put(made, each)
    committer = Committer(made, writer(Answers(patches), in_flight=1))
    placements = [Placement(each, "n1", {}) for each in pods]
    committer.assume(placements)
    assert made.capacity.room.free("n1")["nvidia.com/gpu"] == 8 - len(pods)
    return made, await committer.commit(placements)


async def test_a_decision_is_carried_out_whole() -> None:
    made, outcomes = await decide([None, None, None])
    assert outcomes == {Pinned.DONE: 3}
    assert made.capacity.room.free("n1")["nvidia.com/gpu"] == 5


async def test_a_vanished_pod_drops_what_was_not_sent_and_gives_its_room_back() -> None:
    made, outcomes = await decide([None, NotFound(404), None, None])
    assert outcomes == {Pinned.DONE: 1, Pinned.GONE: 1, Pinned.DROPPED: 2}
    assert made.capacity.room.free("n1")["nvidia.com/gpu"] == 7
    assert set(made.capacity.assumed) == {"uid-p0"}
