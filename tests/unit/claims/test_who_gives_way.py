"""Claims, queues and quota: who is believed, who may claim, and how a claim ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace as replace_claim
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from builders.members import (
    GATE,
    cache,
    drop,
    group,
    member,
    node,
    pod,
    put,
    queue,
    role_groups,
    root_key,
)
from builders.steps import count_steps
from covey.admission import ordinary
from covey.api import core
from covey.api.annotations import LEFT_ALONE, write_refused
from covey.api.constants import ANNOTATION_EVICTIONS_REFUSED
from covey.backends import Owned
from covey.model import podstate
from covey.scheduler.claims import ClaimBounds
from covey.scheduler.quotas import Quotas
from covey.scheduler.reservations import Limits
from scheduler_loop import Loop, labels
from unit.claims import realm as realms
from unit.claims.realm import Realm
from unit.claims.test_laws import CLASSES, resource
from unit.operator.test_claims_index import Roots
from unit.operator.test_giving_way import DECODE, PREFILL, act, claim, draining, pods_of, served, victim
from unit.operator.world import World
from unit.scheduler.test_preempting import LATELY, OURS, READY, WAITED, unit
from unit.scheduler.test_usage import Bench

MINUTE, HOUR = 60.0, 3600.0
WAITS: dict[str, Any] = {"status": {"conditions": [WAITED]}}


def noted(made: list[Any], notes: Mapping[str, str] = {}, **marks: str) -> list[Any]:
    """The same objects; their pods have these annotations and labels of ``covey.dev``."""

    def note(pod: core.Pod) -> core.Pod:
        meta = pod.metadata
        labelled = {**(meta.labels or {}), **{f"covey.dev/{key}": value for key, value in marks.items()}}
        return replace(pod, metadata=replace(meta, labels=labelled, annotations={**(meta.annotations or {}), **notes}))

    return [note(each) if isinstance(each, core.Pod) else each for each in made]


def victims(loop: Loop, name: str = "high", *, composite: bool = True) -> list[str]:
    """The names of those that a root's claim has give way."""
    found = loop.queue.decision(root_key(name, composite=composite)).claim
    return [each.name for each in found.victims] if found is not None else []


async def turn(loop: Loop, now: float = 0.0) -> dict[str, str]:
    """A pass in which every unit is looked at, at a time in seconds since the beginning."""
    loop.now = now
    for root in loop.cache.index.roots():
        loop.queue.requeue(root)
    return await loop.turn()


async def claimed(loop: Loop, name: str = "high", *, within: float = 0.0, step: float = MINUTE) -> list[str]:
    """The victims of a root's first claim within so many seconds."""
    now = 0.0
    while now <= within:
        await turn(loop, now)
        if found := victims(loop, name):
            return found
        now += step
    return []


def crowd(low: list[Any] | None = None, *others: Any, **high: Any) -> Loop:
    """A node of eight GPUs with a unit of two replicas of which one is surplus; a gang of higher priority wants four."""
    low = unit("low", replicas=2, nodes=("n1", "n1"), priority=1) if low is None else low
    wanted = unit("high", replicas=1, **{"priority": 10, **WAITS, **high})
    return Loop(cache(node("n1", labels=labels()), *others, *low, *wanted))


def borrowing(low: list[Any] | None = None) -> Loop:
    """The same where ``low`` has borrowed all of what the queue of the gang has by right."""
    low = unit("low", replicas=2, nodes=("n1", "n1"), queue="b") if low is None else low
    queues = (queue("a", 8, cohort="c"), queue("b", 0, cohort="c"))
    return crowd(low, *queues, priority=None, queue="a")


# Who is believed


@pytest.mark.parametrize(
    ("made", "notes", "marks"),
    [
        (crowd, {}, {"draining": "true"}),
        (crowd, {"covey.dev/started": "2099-01-01T00:00:00Z"}, {}),
        (borrowing, {}, {"draining": "true"}),
    ],
    ids=["label", "annotation", "label, by right"],
)
async def test_a_victim_when_its_owner_has_written_marks_on_its_pods_gives_way(
    made: Callable[..., Loop], notes: Mapping[str, str], marks: Mapping[str, str]
) -> None:
    terms: dict[str, Any] = {"priority": 1} if made is crowd else {"queue": "b"}
    low = noted(unit("low", replicas=2, nodes=("n1", "n1"), **terms), notes, **marks)
    assert await claimed(made(low), within=HOUR, step=600.0) == ["low"]


async def test_a_gang_when_an_ordinary_pod_says_that_it_drains_does_not_wait_for_it() -> None:
    web = noted([pod("web", gpus=8, node="n2", phase="Running")], {"covey.dev/draining-since": "x"})
    assert await claimed(crowd(None, node("n2", labels=labels()), *web)) == ["low"]


def test_a_victim_when_its_owner_writes_a_later_time_of_its_mark_goes_all_the_same() -> None:
    world = draining(30)
    world.claims = (claim(victim(world, 0, "decode", 2)),)
    (name,) = pods_of(world, 0, "decode", 2)
    act(world)
    meta = world.pods[name].metadata
    notes = {**(meta.annotations or {}), "covey.dev/draining-since": "2099-01-01T00:00:00Z"}
    world.pods[name] = replace(world.pods[name], metadata=replace(meta, annotations=notes))
    world.now += HOUR
    act(world)
    assert name not in world.pods


def test_a_victim_when_its_owner_has_it_drain_for_a_day_goes_after_the_longest_that_a_claim_waits() -> None:
    world = draining(86_400)
    world.claims = (replace_claim(claim(victim(world, 0, "decode", 2)), max_drain=600.0),)
    (name,) = pods_of(world, 0, "decode", 2)
    act(world)
    world.now += 599
    act(world)
    assert name in world.pods
    world.now += 2
    act(world)
    assert name not in world.pods


async def test_a_root_of_others_when_its_pods_have_no_class_preempts_nobody() -> None:
    """A ResourceQuota bounds the classes of pods, not those of groups."""
    theirs = core.OwnerReference(kind="Thing", name="t", uid="t", controller=True, api_version="v1")
    high = [
        replace(each, metadata=replace(each.metadata, owner_references=(theirs,)))
        for each in unit("high", replicas=1, priority=10, **WAITS)
    ]
    high = [replace(each, spec=replace(each.spec, priority=0)) if isinstance(each, core.Pod) else each for each in high]
    low = unit("low", replicas=2, nodes=("n1", "n1"), priority=1)
    assert await claimed(Loop(cache(node("n1", labels=labels()), *low, *high))) == []


# Who may not have a claim, or not yet


async def test_a_gang_when_its_queue_is_full_of_lower_priority_preempts_inside_it() -> None:
    low = unit("low", replicas=2, minimum=2, nodes=("n1", "n1"), priority=1, queue="a")
    assert await claimed(crowd(low, queue("a", 8), priority=1000, queue="a"), within=HOUR) == ["low"]


async def test_quota_that_comes_free_for_a_gang_of_its_queue_when_not_all_has_gone_is_not_taken_meanwhile() -> None:
    lows = [each for name in ("one", "two") for each in unit(name, replicas=1, nodes=("n1",), priority=1, queue="a")]
    small = unit("small", replicas=1, priority=1, queue="a", status={"conditions": [LATELY]})
    high = unit("high", replicas=2, minimum=2, priority=10, queue="a", **WAITS)
    nodes = [node("n1", labels=labels()), node("n2", labels=labels())]
    loop = Loop(cache(*nodes, queue("a", 8), *lows, *small, *high))
    assert sorted(await claimed(loop)) == ["one", "two"]
    drop(loop.cache, next(each for each in lows if isinstance(each, core.Pod)))
    assert await turn(loop, MINUTE) == {}


@pytest.mark.parametrize("why", ["class", "delay"])
async def test_a_gang_when_one_like_it_before_it_may_not_preempt_claims(why: str) -> None:
    """Of a class with ``preemptionPolicy: Never``, or with a delay that is not over."""
    late = {"status": {"conditions": [LATELY]}, "preemption": {"delaySeconds": 86400}}
    before = unit("before", replicas=1, priority=11, **(late if why == "delay" else WAITS))
    loop = crowd(None, *before)
    if why == "class":
        classes = loop.cache.priority_classes.store
        classes["", "priority-11"] = replace(classes["", "priority-11"], preemption_policy="Never")
    assert await claimed(loop) == ["low"]


def of_namespace(namespace: str, made: list[Any]) -> list[Any]:
    return [replace(each, metadata=replace(each.metadata, namespace=namespace)) for each in made]


def running(name: str, place: str, priority: int = 0, gpus: int = 8) -> core.Pod:
    """An ordinary pod of a ReplicaSet of its own."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"rs-{name}", "controller": True}
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    made = pod(name, gpus=gpus, node=place, phase="Running", conditions=[bound], spec={"priority": priority})
    return replace(
        made, metadata=replace(made.metadata, owner_references=(msgspec.convert(owner, core.OwnerReference),))
    )


async def test_a_right_when_gangs_of_higher_priority_of_other_queues_wait_for_ever_is_claimed() -> None:
    """They can never fit, and hold all the claims that there may be."""
    places = [f"n{number}" for number in range(8)]
    full = [running(f"busy-{place}", place, 100) for place in places]
    others = [
        each
        for number in range(8)
        for each in of_namespace(
            f"x{number}", unit(f"x{number}", replicas=1, gpus=1 + number, priority=100, queue="x", **WAITS)
        )
    ]
    theirs = unit("theirs", replicas=2, nodes=("m", "m"), queue="b")
    queues = (queue("a", 8, cohort="c"), queue("b", 0, cohort="c"), queue("x", 10**6))
    nodes = [node(place, labels=labels()) for place in (*places, "m")]
    loop = Loop(cache(*nodes, *queues, *full, *theirs, *others, *unit("mine", replicas=1, queue="a", **WAITS)))
    assert await claimed(loop, "mine", within=HOUR / 2) == ["theirs"]


class Protected:
    """Eight controllers whose budgets allow no eviction, and one whose pod may go; a claim a minute may be made."""

    def __init__(self, *objects: Any, **high: Any) -> None:
        places = [f"n{number}" for number in range(9)]
        pods = [running(f"web-{place}", place) for place in places[:8]] + [running("free", places[8], 1)]
        wanted = unit("high", replicas=1, gpus=8, priority=10, **WAITS, **high)
        limits = Limits(percent=100, namespace=4, claims=ClaimBounds(1, ordinary_pods=True))
        nodes = [node(place, labels=labels()) for place in places]
        self.loop = Loop(cache(*nodes, *objects, *pods, *wanted), limits=limits)
        self._refused: dict[str, float] = {}

    async def look(self, now: float) -> list[str]:
        """A pass, and the refusals of whoever it names, as the operator writes them; returns those."""
        await turn(self.loop, now)
        found = victims(self.loop)
        if found and found != ["free"]:
            wall = time.time() + now
            self._refused |= {f"uid-{name}": wall + LEFT_ALONE for name in found}
            root = self.loop.cache.index.root(root_key("high"))
            assert root is not None
            notes = {ANNOTATION_EVICTIONS_REFUSED: write_refused(self._refused)}
            put(self.loop.cache, replace(root, metadata=replace(root.metadata, annotations=notes)), root)
        return found


async def test_a_gang_when_more_pods_may_not_go_than_are_asked_while_one_is_left_alone_asks_the_next() -> None:
    protected = Protected()
    asked = {name for number in range(60) for name in await protected.look(number * 20.0)}
    assert "free" in asked


async def test_a_right_when_a_gang_of_another_queue_asks_in_vain_all_the_time_is_claimed() -> None:
    theirs = unit("theirs", replicas=2, nodes=("m", "m"), queue="b")
    queues = (queue("a", 8, cohort="c"), queue("b", 0, cohort="c"), queue("none", 10**6))
    protected = Protected(node("m", labels=labels("m")), *queues, *theirs, queue="none")
    for minute in range(12):
        if minute == 2:
            for each in unit("mine", replicas=1, queue="a", priority=0, **WAITS):
                put(protected.loop.cache, each)
        await protected.look(minute * MINUTE)
    assert victims(protected.loop, "mine") == ["theirs"]


async def test_a_unit_when_a_pod_without_devices_is_made_anew_all_the_time_gives_way() -> None:
    marks = {"covey.dev/inference": "low", "covey.dev/unit": "0"}
    terms = {"labels": marks, "priority": 1, "preemption": {"minRunSeconds": 1800}}
    low = [
        group("low", composite=True, minimum=2, desired=2, **terms),
        *role_groups("decode", replicas=2, minimum=2, size=1, root="low"),
        *role_groups("ping", replicas=1, minimum=1, size=1, root="low"),
        *(member("decode", n, root="low", gpus=4, node="n1", conditions=READY) for n in range(2)),
    ]
    low = [replace(each, metadata=replace(each.metadata, owner_references=(OURS,))) for each in low]
    loop = crowd(low, gpus=8)
    found = set[str]()
    ping: core.Pod | None = None
    for number in range(10):
        if ping is not None:
            drop(loop.cache, ping)
        now = number * 1500.0
        ready = [{**READY[0], "lastTransitionTime": core.rfc3339(time.time() + now)}]
        ping = member("ping", 0, root="low", gpus=0, node="n1", conditions=ready, name=f"ping-{number}")
        ping = replace(ping, metadata=replace(ping.metadata, owner_references=(OURS,)))
        put(loop.cache, ping)
        await turn(loop, now + 600.0)
        found.update(victims(loop))
    assert found == {"low"}


async def test_a_gang_when_a_replica_of_others_drains_for_a_day_takes_another() -> None:
    drains = unit("drains", replicas=2, nodes=("n1", "n2"), gpus=8, priority=1)
    *rest, last = drains
    going = noted([last], {"scheduling.covey.dev/drain-until": core.rfc3339(time.time() + 86_400)}, draining="true")
    low = unit("low", replicas=2, nodes=("n3", "n4"), gpus=8, priority=1)
    high = unit("high", replicas=1, gpus=8, priority=1000, **WAITS)
    loop = Loop(cache(*(node(f"n{n}", labels=labels()) for n in (1, 2, 3, 4)), *rest, *going, *low, *high))
    assert await claimed(loop, within=HOUR, step=600.0)


async def test_ordinary_pods_when_most_of_them_have_no_device_are_found_by_what_they_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ordinary, "MOST", 4)
    web = [running(f"web-{number}", "cpu", -1, gpus=0) for number in range(5)]
    high = unit("high", replicas=1, gpus=8, priority=1000, **WAITS)
    nodes = [node("cpu", gpus=0, labels=labels()), node("gpu", labels=labels())]
    limits = Limits(claims=ClaimBounds(ordinary_pods=True))
    loop = Loop(cache(*nodes, *web, running("notebook", "gpu"), *high), limits=limits)
    assert await claimed(loop) == ["notebook"]


async def test_quota_when_a_group_of_others_might_borrow_it_comes_back_to_whose_it_is() -> None:
    """Either it is not lent to who cannot give it back, or it is taken back."""
    leaf = {"scheduling.covey.dev/pod-group": "theirs"}
    theirs = [
        group("theirs", desired=2, queue="b"),
        *(pod(f"x{n}", group="theirs", gpus=4, gates=(GATE,), labels=leaf) for n in range(2)),
    ]
    loop = Loop(cache(node("n1", labels=labels()), queue("a", 8, cohort="c"), queue("b", 0, cohort="c"), *theirs))
    while placed := await turn(loop):
        for name in placed:
            put(loop.cache, pod(name, group="theirs", gpus=4, node="n1", labels=leaf, conditions=READY))
    for each in unit("mine", replicas=1, queue="a", **WAITS):
        put(loop.cache, each)
    assert await turn(loop) or victims(loop, "mine")


# The life of a claim


def told(loop: Loop, name: str = "high") -> list[str]:
    """The roles of the replicas of ``low`` that its operator is told to take down for a root's claim."""
    seen = Roots()
    found = loop.queue.decision(root_key(name)).claim
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": {"covey.dev/inference": name}}
    status = {"claim": msgspec.to_builtins(found)} if found is not None else {}
    seen.show("ADDED", msgspec.convert({"metadata": meta, "spec": {}, "status": status}, Owned))
    return [each.role for standing in seen.claims(("ns", "low")) for each in standing.victims]


async def test_a_claim_when_the_ordinary_pod_that_it_named_is_gone_takes_the_replica_down() -> None:
    web, other = running("web", "n1", gpus=4), running("other", "n2", 50, gpus=4)
    low = unit("low", replicas=2, nodes=("n1", "n2"), priority=1)
    high = unit("high", replicas=1, gpus=8, priority=10, **WAITS)
    nodes = [node("n1", labels=labels()), node("n2", labels=labels())]
    loop = Loop(cache(*nodes, web, other, *low, *high), limits=Limits(claims=ClaimBounds(ordinary_pods=True)))
    assert await claimed(loop) == ["low", "web"]
    drop(loop.cache, web)
    await turn(loop, 1.0)
    assert told(loop) == ["decode"]


def rounds(realm: Realm, seconds: float, step: float = MINUTE, *, only: World | None = None) -> None:
    """Everybody works, again and again, while time passes; of the resources ``only`` one where it is named."""
    for _ in range(int(seconds // step)):
        for root in realm.loop.cache.index.roots():
            realm.loop.queue.requeue(root)
        realm.schedule()
        for world in list(realm.worlds.values()):
            if only is None or world is only:
                realm.operate(world)
            world.finish()
            world.now += step
        realm.loop.now += step
        realm.tell()


def created(realm: Realm, *wish: Any) -> World:
    """A resource: class; replicas, minimum and GPUs of decode; size of prefill; units; seconds of draining."""
    number = len(realm.worlds)
    realm.create(resource(number, wish))  # type: ignore[arg-type] # as many as there are fields
    return realm.worlds[f"r{number}"]


def bound(world: World) -> int:
    return sum(map(podstate.is_bound, world.pods.values()))


def test_a_claim_when_its_victim_drains_for_longer_than_three_times_reserve_after_gets_its_place() -> None:
    realm = Realm(1, CLASSES)
    created(realm, "low", 2, 1, 4, 0, 1, 1200)
    rounds(realm, 6, 1.0)
    high = created(realm, "high", 1, 1, 4, 0, 1, 0)
    rounds(realm, 1500)
    assert bound(high) == 1


def test_a_claim_when_its_gang_cannot_be_planned_any_more_takes_nobody_down() -> None:
    """A pod of its minimum is gone, and cannot be made again."""
    realm = Realm(1, CLASSES)
    low = created(realm, "low", 2, 1, 4, 0, 1, 300)
    rounds(realm, 6, 1.0)
    high = created(realm, "high", 2, 2, 4, 0, 1, 0)
    rounds(realm, MINUTE, 20.0)
    del high.pods[min(high.pods)]
    realm.tell()
    rounds(realm, 1200, only=low)
    assert (bound(low), sum(map(podstate.is_draining, low.pods.values()))) == (2, 0)


def test_claims_when_their_victims_and_nodes_are_disjoint_stand_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal gangs of one namespace: all are assigned nodes after one time of draining, and not after one each."""
    monkeypatch.setattr(realms, "LIMITS", Limits(claims=ClaimBounds(max_min_run=0)))
    realm = Realm(4, CLASSES)
    created(realm, "low", 4, 1, 8, 0, 1, 300)
    rounds(realm, 6, 1.0)
    gangs = [created(realm, "high", 1, 1, 8, 0, 1, 0) for _ in range(3)]
    rounds(realm, 600)
    assert [bound(each) for each in gangs] == [1, 1, 1]


async def test_a_claim_when_its_victim_never_goes_is_followed_by_one_on_the_next_best() -> None:
    """Whoever should take the victim down is not there, or may not."""
    stuck = unit("stuck", replicas=1, gpus=8, nodes=("n1",), priority=1)
    low = unit("low", replicas=1, gpus=8, nodes=("n2",), priority=2)
    loop = crowd(low, node("n2", labels=labels()), *stuck, gpus=8)
    found = set[str]()
    for number in range(24):
        await turn(loop, number * 300.0)
        found.update(victims(loop))
    assert found == {"stuck", "low"}


@pytest.mark.parametrize("why", ["nominal", "cohort", "priority"])
async def test_a_claim_when_its_grounds_are_gone_ends(why: str) -> None:
    loop = crowd() if why == "priority" else borrowing()
    assert await claimed(loop) == ["low"]
    if why == "priority":
        loop.cache.priority_classes.store["", "priority-1"] = core.PriorityClass(
            core.Meta(name="priority-1"), value=100
        )
        root = loop.cache.index.root(root_key("low"))
        assert root is not None
        put(loop.cache, replace(root, spec=replace(root.spec, priority=100)), root)
    else:
        put(loop.cache, queue("b", 16, cohort="c"))
    if why == "cohort":
        put(loop.cache, queue("a", 8, cohort="other"))
    await turn(loop, MINUTE)
    assert victims(loop) == []


async def test_a_unit_when_a_claim_names_what_it_had_before_keeps_its_rank() -> None:
    """The claim is of a gang that cannot be planned; the pods that it named are long gone."""
    former = {"kind": "Unit", "namespace": "ns", "name": "low", "unit": 0, "pods": ["uid-long-gone"]}
    times = dict.fromkeys(("since", "lastProgressTime"), "2026-01-01T00:00:00Z")
    stale = {"path": [], **times, "purpose": "Preemption", "victims": [former], "nodes": []}
    status = {"conditions": [WAITED], "claim": stale}
    *high, _missing = unit("high", replicas=2, minimum=2, gpus=8, priority=10, status=status)
    last = unit("last", replicas=2, minimum=2, gpus=8, priority=0, **WAITS)
    nodes = [node("n1", labels=labels()), node("n2", labels=labels())]
    loop = Loop(cache(*nodes, running("web", "n2", 50), *high, *last), limits=Limits(percent=100, namespace=4))
    await turn(loop)
    for each in unit("low", replicas=1, gpus=8, priority=1, status={"conditions": [LATELY]}):
        put(loop.cache, each)
    assert await turn(loop, MINUTE) == {"low-decode-0-0": "n1"}


@pytest.mark.parametrize("drain", [0, 300])
def test_a_claimed_replica_when_it_is_the_last_one_that_serves_stays(drain: int) -> None:
    """Its mate, which was Ready when the claim was made, crash-loops on its node."""
    world = served({**PREFILL, "drainSeconds": drain}, {**DECODE, "replicas": 2, "drainSeconds": drain})
    world.claims = (claim(victim(world, 0, "decode", 1)),)
    (crashing,) = pods_of(world, 0, "decode", 0)
    status = world.pods[crashing].status
    conditions = tuple(
        replace(each, status="False") if "Ready" in each.type else each for each in status.conditions or ()
    )
    world.pods[crashing] = replace(world.pods[crashing], status=replace(status, conditions=conditions))
    for _ in range(3):
        act(world)
        world.now += drain + 1
    assert [name for name in pods_of(world, 0, "decode") if podstate.is_ready(world.pods[name])]


# What is told, and what it costs


async def test_the_status_of_a_queue_when_another_one_is_edited_stays() -> None:
    used = unit("u", replicas=2, nodes=("n1", "n1"), queue="b")
    bench = Bench(node("n1", labels=labels()), queue("a", 8, cohort="c"), queue("b", 8, cohort="c"), *used)
    before = {body["metadata"]["name"]: body["status"]["summary"]["used"] for body in await bench.write()}
    assert before["b"] == "8/8"
    put(bench.loop.cache, queue("a", 9, cohort="c"))
    bench.client.written.clear()
    await bench.writer.write()
    assert "b" not in [body["metadata"]["name"] for body in bench.client.written]


def cohort(count: int) -> Iterator[core.Queue]:
    for number in range(count):
        yield queue(f"q{number}", 8, cohort="c", namespaces={"selector": {"matchLabels": {"q": str(number)}}})


def test_the_statuses_of_all_queues_when_there_are_twice_as_many_cost_twice_as_much() -> None:
    def steps(count: int) -> int:
        bench = Bench(node("n1", labels=labels()), *cohort(count))
        asyncio.run(bench.write())
        return count_steps(lambda: asyncio.run(bench.writer.write()))

    assert steps(40) < 2.5 * steps(20)


def test_an_edit_of_a_queue_when_others_have_the_same_flavors_does_not_file_all_nodes_for_each() -> None:
    def steps(count: int) -> int:
        nodes = [node(f"n{number}", labels=labels()) for number in range(100)]
        quotas = Quotas(cache(*nodes, *cohort(count)), lambda _root: 0)
        return count_steps(quotas.refresh)

    assert steps(20) < 1.5 * steps(10)


def test_a_pod_that_is_gone_when_many_wait_for_quota_wakes_as_many_as_fit() -> None:
    def steps(waiting: int) -> int:
        nodes = [node(f"n{number}", labels=labels()) for number in range(4)]
        runs = unit("runs", replicas=2, minimum=2, nodes=("n0", "n0"), queue="a")
        wait = [
            each
            for number in range(waiting)
            for each in unit(f"w{number}", replicas=1, queue="a", status={"conditions": [LATELY]})
        ]
        loop = Loop(cache(*nodes, queue("a", 8, borrow=0), *runs, *wait))
        asyncio.run(loop.turn())
        drop(loop.cache, next(each for each in runs if isinstance(each, core.Pod)))
        return count_steps(lambda: asyncio.run(loop.turn()))

    assert steps(40) < 1.5 * steps(20)
