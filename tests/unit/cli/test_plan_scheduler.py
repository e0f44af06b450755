"""`covey plan` and the scheduler's loop over the same objects: one decision."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from builders.members import GATE, group, member, node, pod, put, queue
from covey.api import core
from covey.api.annotations import Avoided, dump_avoided
from covey.api.constants import ANNOTATION_AVOID
from covey.kube.clock import SYSTEM
from covey.manifests.documents import Document
from covey.manifests.sources import ManifestPath
from covey.planning.facts import ClusterFacts
from covey.planning.report import PlanReport
from covey.planning.run import plan_all
from covey.planning.trees import TreeDocuments, tree_workloads
from covey.scheduler.cache import Cache
from scheduler_loop import Loop, labels

#: A time that no test reaches.
SINCE = "2026-01-01T00:00:00Z"


def unit(name: str, *, size: int = 1, priority: int | None = None, **root: Any) -> list[core.Group | core.Pod]:
    """A unit of one role of pods of eight devices, all of which must come."""
    role = group(f"{name}-w", parent=name, minimum=size, desired=size, labels={"covey.dev/role": "w"})
    pods = [member("w", number, root=name, gates=(GATE,), gpus=8) for number in range(size)]
    if priority is not None:
        pods = [
            msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, priority=priority)) for each in pods
        ]
    return [group(name, composite=True, minimum=1, desired=1, **root), role, *pods]


def class_of(name: str, value: int) -> core.PriorityClass:
    return core.PriorityClass(core.Meta(name=name), value=value)


def claim(*nodes: str, **more: Any) -> dict[str, Any]:
    """The claim of a unit that waits, as its status tells it."""
    return {
        "claim": {"path": ["z"], "since": SINCE, "level": "zone", "resource": "nvidia.com/gpu", "nodes": nodes, **more}
    }


async def report_of(
    asked: Sequence[Sequence[Any]], there: Sequence[Any], queues: Sequence[core.Queue] | None = None
) -> PlanReport:
    """The plan of trees."""
    parts = TreeDocuments()
    for number, each in enumerate(each for objects in asked for each in objects):
        body = msgspec.to_builtins(each)
        if isinstance(each, core.Pod):
            body |= {"apiVersion": "v1", "kind": "Pod"}
        parts.add(Document(ManifestPath("in.json"), body), "ns", number)
    facts = ClusterFacts(
        nodes=tuple(each for each in there if isinstance(each, core.Node)),
        pods=tuple(each for each in [*there, *parts.pods.values()] if isinstance(each, core.Pod)),
        groups=tuple(each for each in there if isinstance(each, core.Group)),
        priority_classes=tuple(each for each in there if isinstance(each, core.PriorityClass)),
        queues=queues,
    )
    workloads = tree_workloads(parts, facts.pods, [])
    return (await asyncio.to_thread(plan_all, workloads, facts, time.perf_counter)).report


async def planned(
    asked: Sequence[Sequence[Any]], there: Sequence[Any], queues: Sequence[core.Queue] | None = None
) -> dict[str, str]:
    """The nodes that it gives their pods."""
    report = await report_of(asked, there, queues)
    roles = [role for workload in report.workloads for unit in workload.units for role in unit.roles]
    return {pod.name: pod.node for role in roles for instance in role.instances for pod in instance.pods}


async def scheduled(
    asked: Sequence[Sequence[Any]], there: Sequence[Any], queues: Sequence[core.Queue] = ()
) -> dict[str, str]:
    """The nodes that the scheduler gives the same pods."""
    made = Cache(None, clock=SYSTEM)  # type: ignore[arg-type] # nothing is watched
    known = {each.metadata.key for objects in asked for each in objects}
    for each in [*there, *queues, *(each for objects in asked for each in objects)]:
        if isinstance(each, core.PriorityClass):
            made.priority_classes.store[each.metadata.key] = each
        else:
            put(made, each)
    given = await Loop(made).turn()
    return {name: place for name, place in given.items() if ("ns", name) in known}


async def test_a_unit_that_borrows_gets_no_node_that_is_kept_for_another_as_by_the_scheduler() -> None:
    there = [
        node("n0", labels=labels()),
        node("n1", labels=labels()),
        pod("old", node="n0", gpus=8),
        *unit("waiting", size=2, queue="lender", status=claim("n1"), created="2026-01-02T00:00:00Z"),
    ]
    queues = [
        queue("lender", 16, cohort="all"),
        queue("borrower", 0, cohort="all", borrowMinimums=True),
    ]
    asked = [unit("asked", queue="borrower")]
    assert await scheduled(asked, there, queues) == {}
    assert await planned(asked, there, queues) == {}


async def test_a_root_has_no_higher_priority_than_its_pods_as_by_the_scheduler() -> None:
    there = [node("n0", labels=labels()), class_of("high", 1000), class_of("middle", 100)]
    asked = [
        unit("a", priority=0, priorityClassName="high"),
        unit("b", priority=100, priorityClassName="middle", created="2026-01-02T00:00:00Z"),
    ]
    assert await scheduled(asked, there) == {"b-w-0-0": "n0"}
    assert await planned(asked, there) == {"b-w-0-0": "n0"}


async def test_a_unit_is_spread_off_its_siblings_in_the_cluster_as_by_the_scheduler() -> None:
    rule = {"constraints": {"spread": {"level": "rack"}}}
    sibling = unit("s0", **rule)
    bound = [
        msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, node_name="n0", scheduling_gates=()))
        if isinstance(each, core.Pod)
        else each
        for each in sibling
    ]
    there = [
        *(node(name, labels=labels("r1")) for name in ("n0", "n1")),
        *(node(name, labels=labels("r2")) for name in ("n2", "n3")),
        *bound,
    ]
    (place,) = (await scheduled([unit("s1", **rule)], there)).values()
    assert place in {"n2", "n3"}
    assert await planned([unit("s1", **rule)], there) == {"s1-w-0-0": place}


@pytest.mark.parametrize("known", ["excluded", "avoided"])
async def test_a_unit_gets_no_node_that_is_left_out_for_it_as_by_the_scheduler(known: str) -> None:
    until = time.time() + 600
    failed = {"status": {"excludedNodes": [{"node": "n0", "reason": "failed", "until": core.rfc3339(until)}]}}
    there = [node("n0", labels=labels()), node("n1", labels=labels())]
    asked = unit("asked")
    stored = unit("asked", **failed) if known == "excluded" else _avoiding(unit("asked"), until)
    there_too = [each for each in stored if isinstance(each, core.Group)]
    assert await scheduled([stored], there) == {"asked-w-0-0": "n1"}
    assert await planned([asked], [*there, *there_too]) == {"asked-w-0-0": "n1"}


def _avoiding(objects: list[core.Group | core.Pod], until: float) -> list[core.Group | core.Pod]:
    avoided = {ANNOTATION_AVOID: dump_avoided([Avoided(until, "failed", "n0")]) or ""}
    root = objects[0]
    return [
        msgspec.structs.replace(root, metadata=msgspec.structs.replace(root.metadata, annotations=avoided)),
        *objects[1:],
    ]


async def test_nodes_that_others_give_up_for_a_unit_are_kept_from_a_higher_priority_as_by_the_scheduler() -> None:
    victim = {"kind": "Pod", "namespace": "ns", "name": "old", "unit": 0, "pods": ["uid-old"]}
    there = [
        node("n0", labels=labels()),
        node("n1", labels=labels()),
        class_of("high", 1000),
        pod("old", node="n0", gpus=8),
        *unit("waiting", size=2, status=claim("n0", "n1", purpose="Preemption", victims=[victim])),
    ]
    asked = [unit("asked", priority=1000, priorityClassName="high")]
    assert await scheduled(asked, there) == {}
    assert await planned(asked, there) == {}


async def test_a_unit_whose_priority_class_is_gone_keeps_its_nodes_by_its_pods_priority_as_by_the_scheduler() -> None:
    there = [
        node("n0", labels=labels()),
        node("n1", labels=labels()),
        class_of("low", 50),
        pod("old", node="n0", gpus=8),
        *unit("waiting", size=2, priority=100, priorityClassName="gone", status=claim("n1")),
    ]
    asked = [unit("asked", priority=50, priorityClassName="low")]
    assert await scheduled(asked, there) == {}
    assert await planned(asked, there) == {}


async def test_nodes_that_are_kept_for_a_unit_are_open_to_it_as_by_the_scheduler() -> None:
    there = [node("n0", labels=labels())]
    stored = unit("asked", status=claim("n0"))
    groups = [each for each in stored if isinstance(each, core.Group)]
    assert await scheduled([stored], there) == {"asked-w-0-0": "n0"}
    assert await planned([unit("asked")], [*there, *groups]) == {"asked-w-0-0": "n0"}


async def test_a_unit_that_waits_in_the_cluster_is_placed_before_one_behind_it_as_by_the_scheduler() -> None:
    there = [node("n0", labels=labels()), *unit("waiting")]
    asked = [unit("asked", created="2026-01-02T00:00:00Z")]
    assert await scheduled(asked, there) == {}
    assert await planned(asked, there) == {}
    said = "ns/waiting of the cluster wait, too, and get nodes in their place in the queue"
    assert said in (await report_of(asked, there)).warnings
