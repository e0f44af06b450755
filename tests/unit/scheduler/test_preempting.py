"""Claims of the scheduler process: made once a gang has waited, followed while victims go, and given up."""

from __future__ import annotations

import asyncio
import time
from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from builders.members import GATE, cache, drop, group, member, node, pod, put, queue, role_groups, root_key
from covey.api import core
from covey.api.constants import CLAIM_EXCLUSIVE, LABEL_CLIQUE, LABEL_UNIT, RESOURCE_CHANNEL
from covey.scheduler import claims
from covey.scheduler.claims import ClaimBounds
from covey.scheduler.reservations import Limits
from scheduler_loop import Loop, labels

WAITED = {"type": "Admitted", "status": "False", "reason": "Infeasible", "lastTransitionTime": "2020-01-01T00:00:00Z"}
LATELY = {**WAITED, "lastTransitionTime": core.rfc3339(time.time() + 3600)}
OURS = core.OwnerReference(
    kind="DisaggregatedInference",
    name="llama",
    uid="owner",
    controller=True,
    api_version="inference.covey.dev/v1alpha1",
)
BOUND = ({"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},)
READY = ({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},)


def unit(
    name: str, *, replicas: int, minimum: int = 1, gpus: int = 4, nodes: tuple[str, ...] = (), **root: Any
) -> list[Any]:
    """A unit of Covey's operator, of one role of single pods; those that have nodes are Ready there."""
    marks = {"covey.dev/inference": name, "covey.dev/unit": "0"}
    made: list[Any] = [
        group(name, composite=True, minimum=1, desired=1, labels=marks, **root),
        *role_groups("decode", replicas=replicas, minimum=minimum, size=1, root=name),
    ]
    for number in range(replicas):
        place = nodes[number] if number < len(nodes) else None
        state: dict[str, Any] = {"node": place, "conditions": READY} if place else {"gates": (GATE,)}
        made.append(member("decode", number, root=name, gpus=gpus, **state))
    return [_owned(each) for each in made]


def _owned(each: Any) -> Any:
    return replace(each, metadata=replace(each.metadata, owner_references=(OURS,)))


def refused(loop: Loop, name: str = "high") -> core.Claim | None:
    """A pass in which nobody gets a place, and the claim after it."""
    assert asyncio.run(loop.turn()) == {}
    return loop.claim(name)


def crowd(**high: Any) -> Loop:
    """One node, full with a surplus replica and a minimum of low priority; a gang of high priority has waited for long."""
    wishes: dict[str, Any] = {"priority": 10, "status": {"conditions": [WAITED]}, **high}
    low = unit("low", replicas=2, nodes=("n1", "n1"), priority=1)
    return Loop(cache(node("n1", labels=labels()), *low, *unit("high", replicas=1, **wishes)))


def exclusive(made: list[Any], name: str) -> list[Any]:
    """A unit, its pods with a channel and an interconnect that shares no clique."""
    named = ({"name": CLAIM_EXCLUSIVE, "resourceClaimTemplateName": "t"},)
    statuses = (core.PodClaimStatus(name=CLAIM_EXCLUSIVE),)
    return [
        replace(
            each,
            metadata=replace(each.metadata, labels={**(each.metadata.labels or {}), LABEL_UNIT: name}),
            spec=replace(each.spec, resource_claims=named, overhead={RESOURCE_CHANNEL: "1"}),
            status=replace(each.status, resource_claim_statuses=statuses),
        )
        if isinstance(each, core.Pod)
        else each
        for each in made
    ]


@pytest.mark.parametrize(("most", "kept"), [(2, 2), (1, 1)])
def test_a_claim_for_an_exclusive_interconnect_keeps_all_nodes_of_its_clique(
    most: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two nodes of the clique has room, but a successor on the other one would close it again.

    Where a claim cannot name so many it keeps those where the gang would lie.
    """
    monkeypatch.setattr(claims, "MOST_NODES", most)
    nodes = []
    for name in ("n1", "n2", "n3"):
        found = node(name, labels=labels() | ({LABEL_CLIQUE: "c0"} if name != "n3" else {}))
        allocatable = {**(found.status.allocatable or {}), RESOURCE_CHANNEL: "1"}
        nodes.append(replace(found, status=replace(found.status, allocatable=allocatable)))
    low = exclusive(unit("low", replicas=1, nodes=("n1",), priority=1), "low")
    high = exclusive(unit("high", replicas=1, priority=10, status={"conditions": [WAITED]}), "high")
    claim = refused(Loop(cache(*nodes, *low, *high)))
    assert claim is not None
    assert [(victim.kind, victim.name) for victim in claim.victims] == [("Unit", "low")]
    assert len({"n1", "n2"}.intersection(claim.nodes)) == len(claim.nodes) == kept
    assert claim.resource == "nvidia.com/gpu"


@pytest.mark.parametrize("name", [None, "no-such"])
def test_no_name_of_a_queue_keeps_a_unit_from_giving_way(name: str | None) -> None:
    loop = crowd()
    put(loop.cache, queue("team", 80))
    put(loop.cache, unit("low", replicas=2, priority=1, queue=name)[0])
    claim = refused(loop)
    assert claim is not None
    assert [victim.name for victim in claim.victims] == ["low"]


@pytest.mark.parametrize(
    ("controller", "takes"),
    [
        ("Job", False),
        ("Pod", True),  # the leader of a LeaderWorkerSet's group
        ("PodGang", True),
        (None, True),
    ],
)
def test_trees_of_other_controllers_take_room_and_jobs_do_not(controller: str | None, *, takes: bool) -> None:
    """None of them gives any: the operator would not take it down."""
    owner = core.OwnerReference(kind=controller or "", name="a", uid="a", controller=True, api_version="example.com/v1")
    owners = {"owner_references": (owner,) if controller else ()}

    def of_another(*made: Any) -> list[Any]:
        return [replace(each, metadata=replace(each.metadata, **owners)) for each in made]

    low = unit("low", replicas=2, nodes=("n1", "n1"), priority=1)
    theirs = unit("theirs", replicas=2, nodes=("n2", "n2"), priority=1)
    high = unit("high", replicas=1, priority=10, status={"conditions": [WAITED]})
    there = [node("n1", labels=labels()), node("n2", labels=labels())]
    claim = refused(Loop(cache(*there, *low, *of_another(*theirs, *high))))
    assert [each.name for each in (claim.victims if claim is not None else ())] == (["low"] if takes else [])
    only = refused(Loop(cache(there[1], *of_another(*theirs, *high))))
    assert only is None or not only.victims


@pytest.mark.parametrize("gpus", [7, 8])
def test_a_native_group_keeps_no_room_and_holds_up_nobody_in_the_line_for_it(gpus: int) -> None:
    """Its status has no place for a claim: whoever comes after it gets one, also one that asks for the same."""
    first, late = (
        unit(name, replicas=1, gpus=8, priority=priority, preemption={"delaySeconds": 10**9}, status=status)
        for name, priority, status in (("first", 9, {"conditions": [WAITED]}), ("late", 1, {"conditions": [WAITED]}))
    )
    root, *rest = unit("native", replicas=1, gpus=gpus, priority=5, status={"conditions": [WAITED]})
    native = core.NativeGroup(**{name: getattr(root, name) for name in root.__struct_fields__}, original="native")
    taken = pod("ordinary", gpus=8, node="n1", phase="Running")
    made = cache(node("n1", labels=labels()), taken, *first, native, *rest, *late)
    loop = Loop(made, limits=Limits(1, 1, percent=100))
    assert refused(loop, "first") is not None
    assert (loop.claim("native"), loop.claim("late")) == (None, None)
    for each in first:
        drop(loop.cache, each)
    assert refused(loop, "late") is not None
    assert loop.claim("native") is None


def test_a_class_that_never_preempts_makes_no_claim() -> None:
    loop = crowd()
    classes = loop.cache.priority_classes.store
    classes["", "priority-10"] = replace(classes["", "priority-10"], preemption_policy="Never")
    claim = refused(loop)
    assert claim is None or not claim.victims


def test_successors_find_no_place_on_nodes_of_others_once_the_claim_is_over() -> None:
    """What went for one gang is growth to another one that waits, although that one saw it run."""
    there = [node("n1", labels=labels()), node("n2", labels=labels()), node("n3", labels=labels(), gpus=4)]
    low = unit("low", replicas=3, nodes=("n3", "n1", "n1"), priority=1)
    others = [
        *unit("high", replicas=1, gpus=8, priority=10, status={"conditions": [WAITED]}),
        *unit("late", replicas=1, gpus=7, priority=1, status={"conditions": [WAITED]}),
    ]
    loop = Loop(
        cache(*there, pod("ordinary", gpus=4, node="n2", phase="Running"), *low, *others),
        limits=Limits(4, 4, percent=100),
    )
    claim, waits = refused(loop), loop.claim("late")
    assert claim is not None
    assert waits is not None
    assert (len(claim.victims), claim.nodes, waits.nodes) == (2, ("n1",), ("n2",))
    for number, victim in enumerate(claim.victims, start=7):
        drop(loop.cache, next(pod for pod in loop.cache.index.pods() if pod.metadata.uid in victim.pods))
        put(loop.cache, _owned(member("decode", number, root="low", gpus=4, gates=(GATE,))))
    assert asyncio.run(loop.turn()) == {"high-decode-0-0": "n1"}
    assert asyncio.run(loop.turn()) == {}


def test_claims_of_a_minute_are_bounded() -> None:
    low = [unit(f"low-{n}", replicas=2, nodes=(f"n{n}", f"n{n}"), priority=1) for n in range(3)]
    high = [
        [
            replace(each, metadata=replace(each.metadata, namespace=f"ns-{n}"))
            for each in unit(
                f"high-{n}", replicas=1, gpus=4 + n, minimum=1, priority=10 + n, status={"conditions": [WAITED]}
            )
        ]
        for n in range(3)
    ]
    loop = Loop(
        cache(*(node(f"n{n}", labels=labels()) for n in range(3)), *(each for made in low + high for each in made)),
        limits=Limits(claims=ClaimBounds(2)),
    )
    asyncio.run(loop.turn())
    made = [claim for n in range(3) if (claim := loop.claim(f"high-{n}")) is not None and claim.victims]
    assert len(made) == 2


async def test_victim_that_is_being_deleted_when_its_successor_is_not_there_yet_stays_named() -> None:
    """It is no replica of its unit any more, so the other one seemed to be needed for the minimum."""
    places = ("n0", "n1", "n2")
    low = unit("low", replicas=3, gpus=8, nodes=places, priority=1)
    high = unit("high", replicas=2, minimum=2, gpus=8, priority=10, status={"conditions": [WAITED]})
    loop = Loop(cache(*(node(place, labels=labels()) for place in places), *low, *high))
    await loop.turn()
    claim = loop.claim("high")
    assert claim is not None
    named = {uid for victim in claim.victims for uid in victim.pods}
    assert len(named) == 2
    pod = next(pod for pod in loop.cache.index.pods() if pod.metadata.uid in named)
    put(loop.cache, replace(pod, metadata=replace(pod.metadata, deletion_timestamp=core.rfc3339(time.time() + 30))))
    for root in loop.claims():
        loop.queue.requeue(root)
    await loop.turn()
    claim = loop.claim("high")
    assert claim is not None
    assert {uid for victim in claim.victims for uid in victim.pods} == named


def test_search_for_a_claim_when_the_minimum_had_its_nodes_meanwhile_is_soon_again() -> None:
    """How often it found nobody before says nothing about another time."""
    taken = pod("taken", node="n1", gpus=8)
    high = unit("high", replicas=1, priority=10, status={"conditions": [WAITED]})
    loop = Loop(
        cache(node("n1", labels=labels()), taken, *high, *unit("low", replicas=1, priority=1)), reserve_after=inf
    )
    (member_of_high,) = (each for each in high if isinstance(each, core.Pod))

    def rest() -> float:
        """Seconds for which a refused unit looks for no claim."""
        loop.queue.requeue(root_key("high"))
        assert refused(loop) is None
        seconds = loop.reservations.claims.wait(loop.queue[root_key("high")])
        assert seconds
        return seconds

    first = rest()
    loop.now += first + 1
    assert rest() > 1.5 * first
    drop(loop.cache, taken)
    loop.bind(asyncio.run(loop.turn()))
    loop.queue.requeue(root_key("high"))
    asyncio.run(loop.turn())
    put(loop.cache, taken)
    drop(loop.cache, loop.cache.pods.store["ns", member_of_high.metadata.name])
    put(loop.cache, member_of_high)
    assert rest() < 1.5 * first


def test_pods_of_a_large_cluster_when_some_may_give_way_are_looked_at_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A turn of the loop is too short for all of them."""
    inside: list[bool] = []
    find = claims.find_ordinary

    def find_and_note(*given: Any, **named: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            inside.append(False)
        else:
            inside.append(True)
        return find(*given, **named)

    monkeypatch.setattr(claims, "find_ordinary", find_and_note)
    crowded = [node("n1", labels=labels()), pod("web", node="n1", gpus=8, owner=None, conditions=BOUND)]
    high = unit("high", replicas=1, priority=10, status={"conditions": [WAITED]})
    loop = Loop(cache(*crowded, *high), limits=Limits(claims=ClaimBounds(ordinary_pods=True)))
    claim = refused(loop)
    assert claim is not None
    assert [victim.name for victim in claim.victims] == ["web"]
    assert inside == [False]


def test_claim_when_it_comes_no_nearer_is_given_up_with_an_event() -> None:
    loop = crowd()
    claim = refused(loop)
    assert claim is not None
    assert claim.victims
    loop.now += 3 * 300 + 1
    loop.queue.requeue(root_key("high"))
    given_up = refused(loop)
    assert given_up is not None
    assert given_up.retry_time
    [(name, reason, note)] = loop.events
    assert (name, reason) == ("high", "ClaimGivenUp")
    assert f"it came no nearer for long, and is looked for again from {given_up.retry_time} on" in note
    assert claim.message in note


def test_gang_when_kube_scheduler_refused_the_free_nodes_takes_nothing_from_others() -> None:
    """Where others run it would be refused as well; capacity is not what it lacks."""
    loop = crowd()
    put(loop.cache, node("free", labels=labels()))
    high = loop.cache.index.unit(root_key("high"))
    assert high is not None
    loop.queueing.exclude(high, "free", "1 node(s) had volume node affinity conflict")
    claim = refused(loop)
    assert claim is None or not claim.victims
