"""Many gangs wait and room comes bit by bit: who is planned, how often, and who gets it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from builders.members import cache, drop, node, pod
from covey.api import core
from covey.observability.families import REGISTRY
from scheduler_loop import Loop, labels, tree

RACK = {"topology": [{"level": "rack", "mode": "Required"}]}


def aged(name: str, number: int, **more: Any) -> list[core.Group | core.Pod]:
    """A unit of a whole rack of four nodes; the higher the number, the younger it is."""
    objects = tree(name, replicas=4, minimum=4, schedulingConstraints=RACK, **more)
    root = objects[0]
    assert isinstance(root, core.Group)
    created = f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"
    meta = core.Meta(
        name=root.metadata.name,
        namespace="ns",
        uid=root.metadata.uid,
        creation_timestamp=created,
        owner_references=root.metadata.owner_references,
    )
    changed = core.Group(metadata=meta, kind=root.kind, api_version=root.api_version, spec=root.spec)
    return [changed, *objects[1:]]


def racks(count: int) -> list[core.Node | core.Pod]:
    """Racks of four nodes, all taken by ordinary pods."""
    names = [(f"r{rack}", f"n{rack}-{number}") for rack in range(count) for number in range(4)]
    taken = [pod(f"taken-{name}", node=name, gpus=8) for _, name in names]
    return [*(node(name, labels=labels(rack)) for rack, name in names), *taken]


async def test_a_refusal_is_unchecked_from_a_change_until_it_is_asked_again() -> None:
    def unchecked() -> float | None:
        return REGISTRY.get_sample_value("covey_refusals_unchecked_age_seconds")

    loop = Loop(cache(*racks(1), *(each for number in range(5) for each in aged(f"g{number}", number))))
    await loop.turn()
    asked = asyncio.get_running_loop().time()
    loop.admission.refresh(asked + 1000.0)
    assert unchecked() == 0  # nothing has changed: it holds, however old it is
    drop(loop.cache, loop.cache.pods.store["ns", "taken-n0-0"])
    await loop.turn()
    loop.admission.refresh(asked + 1000.0)
    assert unchecked() == pytest.approx(1000.0, abs=5.0)
    # It stands in line now, and would do so for ever if nobody planned.
    loop.admission.refresh(asked + 2000.0)
    assert unchecked() == pytest.approx(2000.0, abs=5.0)
    await loop.turn()
    loop.admission.refresh(asked + 1.0)
    assert unchecked() == 0
