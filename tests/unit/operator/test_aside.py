"""Where a pass does its pure work: a large resource keeps nobody waiting."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from builders.inferences import inference, role
from covey.operator.model.observed import Observed
from covey.operator.reconcile import _LARGE, _aside
from unit.operator.world import World


@cache
def observed(pods: int) -> Observed:
    world = World(inference(role("prefill", replicas=pods)))
    world.carry_out()
    return world.observe()


@pytest.mark.parametrize(
    ("pods", "more", "here"),
    [(_LARGE - 1, {}, True), (_LARGE, {}, False), (_LARGE, {"room": object()}, True)],
    ids=["small", "large", "large, and it may ask for room"],
)
async def test_only_a_large_resource_that_asks_nobody_is_planned_in_a_thread(
    pods: int,
    more: dict[str, Any],
    here: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    assert (await _aside(replace(observed(pods), **more), threading.get_ident) == threading.get_ident()) == here


async def test_what_fails_in_a_thread_fails_the_pass() -> None:
    def fail() -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        await _aside(observed(_LARGE), fail)
