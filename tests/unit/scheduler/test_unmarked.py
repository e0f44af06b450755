"""Members without the mark by which an attached kube-scheduler asks for their bindings."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from builders.members import RELEASE, cache, group, member, node, pod, put, role_groups
from covey.api import core
from covey.kube.clock import Clock
from covey.scheduler.cache import Cache
from covey.scheduler.guard import Guard
from covey.scheduler.unmarked_pods import PATIENCE, Unmarked, seconds_left
from unit.scheduler.test_guard import ask, names
from unit.scheduler.test_releases import Writes

MARK = "scheduling.covey.dev/member"
INFERENCE = {
    "apiVersion": "inference.covey.dev/v1alpha1",
    "kind": "DisaggregatedInference",
    "name": "owner",
    "uid": "owner",
    "controller": True,
}
MADE = core.seconds("2026-01-01T00:00:00Z") or 0.0
GROUPS = [
    group("root", composite=True, minimum=1, owner=INFERENCE),
    *role_groups("decode", replicas=2, minimum=1, size=1),
]


def marked(**spec: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", "resources": {"limits": {MARK: "0"}}}], **spec}


def waiting(**more: Any) -> core.Pod:
    return member("decode", 0, **{"gates": ("scheduling.covey.dev/gang",), "owner": INFERENCE} | more)


@pytest.mark.parametrize(
    ("found", "seconds"),
    [
        (waiting(), PATIENCE - 10),
        (waiting(pin="n1", gates=()), 0.0),
        (waiting(spec=marked()), None),
        (waiting(node="n1", gates=()), None),
        (waiting(deleted=True), None),
        (waiting(annotations={RELEASE: "Unmarked"}), None),
        (waiting(owner={**INFERENCE, "apiVersion": "apps/v1"}), None),  # nobody would mark its successor
        (waiting(owner={**INFERENCE, "apiVersion": "apps/v1"}, pin="n1", gates=()), 0.0),
        (pod("ordinary"), None),
    ],
)
def test_unbound_members_without_it_are_created_again(found: core.Pod, seconds: float | None) -> None:
    assert seconds_left(found, MADE + 10) == seconds


def test_the_guard_lets_none_of_them_get_as_far_as_its_binding() -> None:
    old, new = member("decode", 0, pin="n1"), member("decode", 1, pin="n2", spec=marked())
    made = cache(*GROUPS, old, new)
    assert names(ask(made, old)) == ["n1"]
    guard = Guard(made, marked=True)
    assert names(ask(made, old, guard=guard)) == []
    assert names(ask(made, new, guard=guard)) == ["n2"]


async def test_they_are_released_once_everything_has_been_looked_at() -> None:
    made = cache(node("n1"), *GROUPS, waiting())
    writes = Writes()
    found, settled = watch(made, writes), asyncio.Event()
    task = asyncio.create_task(found.run(settled.wait))
    try:
        await asyncio.sleep(0)
        assert writes.said == []
        settled.set()
        await writes.wait("release", waiting().metadata.name)
        put(made, other := member("decode", 1, pin="n1"))
        await writes.wait("release", other.metadata.name)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert {reason for _, _, reason in writes.said} == {"Unmarked"}


def watch(made: Cache, writes: Writes) -> Unmarked:
    both: Any = writes
    return Unmarked(made, both, clock=Clock(wall=lambda: MADE + PATIENCE))
