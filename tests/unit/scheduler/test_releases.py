from __future__ import annotations

import pytest

from covey.api import core
from covey.scheduler.binder import release_reason
from covey.scheduler.cache import Cache
from covey.scheduler.releases import Releases
from covey.scheduler.writer import PodWriter
from scheduler_builders import GATE, cache, group, member, node, pod, put, role_groups

GROUPS = [group("root", composite=True, minimum=1), *role_groups("decode", replicas=4, minimum=1, size=1)]


def victims(made: Cache, name: str = "n1") -> dict[str, str]:
    writer = PodWriter(None)  # type: ignore[arg-type] # nothing is written
    watch = Releases(made, writer, exclude=lambda *_: None, arrived=lambda _: False)
    return {found.metadata.name: cause for found, cause in watch.victims(name)}


async def test_nobody_goes_while_there_is_room() -> None:
    assert victims(cache(*GROUPS, node("n1"), member("decode", 0, pin="n1", gpus=8))) == {}


@pytest.mark.parametrize(
    ("spoilt", "cause"),
    [
        (None, "node not found"),
        (node("n1", unschedulable=True), "cordoned"),
        (node("n1", ready=False), "not ready"),
        (node("n1", taints=[{"key": "bad", "effect": "NoSchedule"}]), "taint bad:NoSchedule"),
    ],
)
async def test_all_pins_on_a_spoilt_node_go(spoilt: core.Node | None, cause: str) -> None:
    made = cache(*GROUPS, member("decode", 0, pin="n1"), member("decode", 1, pin="n1"))
    if spoilt is not None:
        put(made, spoilt)
    assert victims(made) == {"root-decode-0-0": cause, "root-decode-1-0": cause}
    assert release_reason(cause) == "NodeLost"


async def test_only_as_many_as_needed_go_the_least_important_first() -> None:
    made = cache(
        *GROUPS,
        node("n1"),
        member("decode", 0, pin="n1", gpus=4, created="2026-01-01T00:00:00Z"),
        member("decode", 1, pin="n1", gpus=4, created="2026-01-02T00:00:00Z"),
        pod("thief", node="n1", gpus=2),
    )
    assert victims(made) == {"root-decode-1-0": "insufficient nvidia.com/gpu"}
    assert release_reason("insufficient nvidia.com/gpu") == "CapacityTaken"
    put(made, member("decode", 0, pin="n1", gpus=4, spec={"priority": 1}))
    put(made, member("decode", 1, pin="n1", gpus=4, spec={"priority": 2}))
    assert list(victims(made)) == ["root-decode-0-0"]


async def test_bound_gated_and_decided_pods_are_left_alone() -> None:
    made = cache(*GROUPS, member("decode", 0, node="n1"), member("decode", 1, gates=(GATE,)))
    made.assume(made.pods.store["ns", "root-decode-1-0"], "n1")
    assert victims(made) == {}
