"""The last check before a gang goes, and what becomes of Bindings: with the API server's answers given."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from builders.members import GATE, RELEASE, cache, drop, group, member, node, pod, put, role_groups
from covey.admission.native import MemberPod
from covey.api import core
from covey.kube.clock import SYSTEM, Clock
from covey.kube.errors import Conflict, KubeError, NotFound, Unreachable
from covey.scheduler.binder import Binder
from covey.scheduler.bindings import ATTEMPTS, Bindings
from covey.scheduler.cache import Cache
from covey.scheduler.guard import BindArgs
from covey.scheduler.ordinary_pods import UNSEEN
from scheduler_loop import settle
from virtual_time import run

GROUPS = [
    group("root", composite=True, minimum=1, timeoutSeconds=60),
    *role_groups("decode", replicas=1, minimum=1, size=2),
]


class Api:
    """Answers to Bindings in order, then success; and the pod as it is read afterwards."""

    def __init__(self, *answers: KubeError, read: core.Pod | None = None) -> None:
        self.answers = list(answers)
        self.found = read
        self.bound: list[tuple[str, str, str]] = []
        self.released: dict[str, str] = {}
        self.marks: list[str] = []

    async def bind(self, _namespace: str, name: str, uid: str, place: str) -> None:
        if self.answers:
            raise self.answers.pop(0)
        self.bound.append((name, uid, place))

    async def read(self, _pod: core.Pod) -> core.Pod | None:
        return self.found

    async def wake(self, _pod: core.Pod, mark: str) -> bool:
        self.marks.append(mark)
        return True

    async def release(self, found: core.Pod, reason: str) -> bool:
        self.released[found.metadata.name] = reason
        return True


def binder(made: Cache, api: Api, slept: list[float] | None = None) -> Binder:
    async def at_once(seconds: float) -> None:
        if slept is not None:
            slept.append(seconds)
        await asyncio.sleep(0)

    both: Any = api
    return Binder(made, Bindings(both, both, sleep=at_once), clock=Clock(sleep=at_once))


def args(found: core.Pod, place: str) -> BindArgs:
    return BindArgs(found.metadata.name, "ns", place, found.metadata.uid)


PINNED = [member("decode", 0, index, size=2, pin=f"n{index}") for index in range(2)]


async def first_call(made: Cache, api: Api) -> tuple[Binder, asyncio.Task[str]]:
    """A binder that is asked to bind the first of the two, and holds the call."""
    asked = binder(made, api)
    held = asyncio.create_task(asked.bind(args(PINNED[0], "n0")))
    await settle()
    return asked, held


async def test_the_last_check_leaves_out_the_released() -> None:
    released = member("prefill", 0, root="other", pin="n1", gpus=4, annotations={RELEASE: "CapacityTaken"})
    made = cache(node("n0"), node("n1"), *GROUPS, *PINNED, released, pod("thief", node="n1", gpus=7))
    api = Api()
    asked = binder(made, api)
    answers = await asyncio.gather(*(asked.bind(args(each, f"n{number}")) for number, each in enumerate(PINNED)))
    assert answers == ["", ""]
    assert api.released == {}


async def test_nobody_goes_while_a_list_is_being_taken_in() -> None:
    made = cache(node("n0"), node("n1"), *GROUPS, *PINNED)
    api = Api()
    asked = binder(made, api)
    made.nodes.steady.clear()
    calls = [asyncio.create_task(asked.bind(args(each, f"n{number}"))) for number, each in enumerate(PINNED)]
    await settle()
    assert api.bound == []
    put(made, node("n1", unschedulable=True))
    made.nodes.steady.set()
    assert all("planned again" in answer for answer in await asyncio.gather(*calls))
    assert api.bound == []


STRANGER = pod("s", gpus=1)


@pytest.mark.parametrize(
    ("api", "word"),
    [
        (Api(Unreachable(), Unreachable(), read=STRANGER), ""),
        (Api(Conflict(409), read=pod("s", node="n0")), ""),
        (Api(Conflict(409), read=pod("s", node="n1")), "refused"),
        (Api(Conflict(409), read=STRANGER), "refused"),
        (Api(Conflict(409), read=None), "gone"),
        (Api(NotFound(404)), "gone"),
        (Api(*[Unreachable()] * ATTEMPTS, read=STRANGER), "did not take"),
    ],
)
async def test_a_binding_that_failed_is_looked_into(api: Api, word: str) -> None:
    made = cache(node("n0"), STRANGER)
    answer = await binder(made, api).bind(args(STRANGER, "n0"))
    assert (answer == "") if not word else (word in answer)
    left = made.capacity.room.free("n0")["nvidia.com/gpu"]
    assert left == (8 if word else 7)


async def test_a_call_for_our_own_pin_waits_for_the_watch_and_asks_nobody() -> None:
    gated = [member("decode", 0, index, size=2, gates=(GATE,)) for index in range(2)]
    made = cache(node("n0"), node("n1"), *GROUPS, *gated)
    for index, each in enumerate(gated):
        made.assume(each, f"n{index}")
    api = Api()
    found = binder(made, api)
    calls = [asyncio.create_task(found.bind(args(each, f"n{index}"))) for index, each in enumerate(gated)]
    await settle()
    assert not any(call.done() for call in calls)
    for each in PINNED:
        put(made, each)
        await settle()
    assert await asyncio.gather(*calls) == ["", ""]
    assert len(api.bound) == 2


@pytest.mark.parametrize("native", [False, True])
async def test_the_api_server_s_pod_is_read_as_the_cache_s(native: bool) -> None:  # noqa: FBT001 - a column
    """Else a member of a native group that the cache lags behind would be bound as an ordinary pod, without its gang."""
    asked: list[type[core.Pod]] = []

    class Asked(Api):
        async def read(self, found: core.Pod) -> core.Pod | None:
            asked.append(type(found))
            return None

    made = Cache(None, native=native, clock=SYSTEM)  # type: ignore[arg-type] # nothing is watched
    await binder(made, Asked()).bind(args(PINNED[0], "n0"))
    assert asked == [MemberPod if native else core.Pod]


async def test_a_call_runs_out_though_the_cache_never_sees_its_pod() -> None:
    root = group("root", composite=True, minimum=1, timeoutSeconds=1)
    made = cache(root, *GROUPS[1:])
    async with asyncio.timeout(60):
        answer = await binder(made, Api(read=PINNED[0])).bind(args(PINNED[0], "n0"))
    assert answer == "the gang was not complete after 1 s"


class Slow(Api):
    """Answers no Binding before it is told to."""

    def __init__(self, *answers: KubeError, read: core.Pod | None = None) -> None:
        super().__init__(*answers, read=read)
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def bind(self, namespace: str, name: str, uid: str, place: str) -> None:
        self.asked.set()
        await self.go.wait()
        await super().bind(namespace, name, uid, place)


@pytest.mark.parametrize(("answers", "left"), [((), 7), ((Conflict(409),), 8)])
async def test_a_strangers_binding_comes_to_its_end_though_the_caller_hangs_up(
    answers: tuple[KubeError, ...], left: int
) -> None:
    made = cache(node("n0"), STRANGER)
    api = Slow(*answers, read=STRANGER)
    call = asyncio.create_task(binder(made, api).bind(args(STRANGER, "n0")))
    async with asyncio.timeout(60):
        await api.asked.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    api.go.set()
    await settle()
    assert bool(api.bound) == (not answers)
    assert made.capacity.room.free("n0")["nvidia.com/gpu"] == left


async def test_a_call_for_a_pod_that_says_unschedulable_is_told_to_the_leader_and_so_is_its_end() -> None:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "volume"}

    def pinned(mark: str | None) -> core.Pod:
        annotations = {"scheduling.covey.dev/wake": mark} if mark else {}
        return member("decode", 0, 0, size=2, pin="n0", conditions=[said], annotations=annotations)

    made = cache(node("n0"), node("n1"), *GROUPS, pinned(None), PINNED[1])
    api = Api()
    _, held = await first_call(made, api)
    assert api.marks == [".arrived"]
    put(made, pinned("1.doubt"))  # the leader has not seen it yet
    await settle()
    assert api.marks == [".arrived", ".arrived"]
    put(made, pinned("2.arrived"))
    await settle()
    assert len(api.marks) == 2
    held.cancel()
    await settle()
    assert api.marks[2:] == [".left"]


async def test_nothing_is_told_of_the_calls_of_a_gang_that_goes() -> None:
    made = cache(node("n0"), node("n1"), *GROUPS, *PINNED)
    api = Api()
    asked = binder(made, api)
    await asyncio.gather(*(asked.bind(args(each, f"n{number}")) for number, each in enumerate(PINNED)))
    await settle()
    assert api.marks == []


@pytest.mark.parametrize(
    ("found", "place", "word"),
    [
        (pod("s", gpus=1, spec={"schedulerName": "default-scheduler"}), "n0", "it is for scheduler default-scheduler"),
        (pod("s", gpus=1, node="n1"), "n0", "it is bound to node n1"),
        (pod("s", gpus=1, deleted=True), "n0", "being deleted"),
        (pod("s", gpus=1, phase="Failed"), "n0", "has ended"),
        (pod("s", gpus=1, gates=("example.com/quota",)), "n0", "scheduling gate example.com/quota"),
        (STRANGER, "nowhere", "there is no node nowhere"),
        (STRANGER, "n2", "reserved for admitted gangs"),
    ],
)
async def test_what_kube_scheduler_would_not_ask_is_not_bound(found: core.Pod, place: str, word: str) -> None:
    api = Api()
    made = cache(node("n0"), node("n2", gpus=1), *GROUPS, member("decode", 0, 0, size=2, pin="n2"), found)
    assert word in await binder(made, api).bind(args(found, place))
    assert api.bound == []
    assert found.metadata.uid not in made.capacity.assumed


async def test_a_group_that_returns_makes_its_pins_good_again() -> None:
    made = cache(node("n0"), node("n1"), *GROUPS, *PINNED)
    drop(made, GROUPS[-1])
    asked = binder(made, Api())
    assert "does not exist" in await asked.bind(args(PINNED[0], "n0"))
    put(made, GROUPS[-1])
    assert await asyncio.gather(*(asked.bind(args(each, f"n{i}")) for i, each in enumerate(PINNED))) == ["", ""]


def test_a_stranger_that_the_watch_never_shows_holds_its_room_for_a_while_only() -> None:
    async def place() -> tuple[int, int]:
        made = cache(node("n0"))
        api: Any = Api(read=STRANGER)
        assert await Binder(made, Bindings(api, api), clock=SYSTEM).bind(args(STRANGER, "n0")) == ""
        held = made.capacity.room.free("n0")["nvidia.com/gpu"]
        await asyncio.sleep(2 * UNSEEN)
        return held, made.capacity.room.free("n0")["nvidia.com/gpu"]

    assert run(place()) == (7, 8)


async def test_who_could_not_be_asked_is_not_gone() -> None:
    class Silent(Api):
        async def read(self, _pod: core.Pod) -> core.Pod | None:
            raise Unreachable

    answer = await binder(cache(*GROUPS), Silent()).bind(args(PINNED[0], "n0"))
    assert "could not be asked" in answer
    answer = await binder(cache(*GROUPS), Api()).bind(args(PINNED[0], "n0"))
    assert answer.endswith("is gone")


@pytest.mark.parametrize("gone", GROUPS, ids=lambda each: each.metadata.name)
async def test_calls_for_a_group_that_is_gone_are_answered(gone: core.Group) -> None:
    made = cache(node("n0"), node("n1"), *GROUPS, *PINNED)
    asked, held = await first_call(made, Api())
    assert not held.done()
    drop(made, gone)
    async with asyncio.timeout(60):
        answer = await held
    assert "is gone" in answer or "does not exist" in answer
    assert len(asked.waiting) == 0


async def test_a_pod_that_goes_while_the_api_server_is_asked_is_gone() -> None:
    gated = member("decode", 0, 0, size=2, gates=(GATE,))
    made = cache(*GROUPS, gated)

    class Late(Api):
        async def read(self, _pod: core.Pod) -> core.Pod | None:
            drop(made, gated)
            return PINNED[0]

    async with asyncio.timeout(60):
        assert (await binder(made, Late()).bind(args(PINNED[0], "n0"))).endswith("is gone")
