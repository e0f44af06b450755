"""The topology of a unit is on its root before its first pin, and is kept through changes of labels and restarts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from builders.members import GATE, cache, group, member, node, put, role_groups, root_key
from covey.admission.tree import Unit
from covey.api import core
from covey.kube.errors import ApiError
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Plan, Refusal
from covey.scheduler import cycle
from covey.scheduler.cache import Cache
from covey.scheduler.topologies import Topologies
from scheduler_loop import Loop

RACK = "cloud.provider.com/topology-rack"
CLIQUE = "nvidia.com/gpu.clique"
#: Nodes that are in a clique and in no rack.
JOINED = ("new-0", "new-1", "new-2")
IN_RACK = {"topology": [{"level": "rack", "mode": "Required"}]}


def nodes(**racks: str) -> list[core.Node]:
    """Nodes of one clique and their racks; an empty name is a node without one."""
    return [node(name, labels=labels(name) | ({RACK: rack} if rack else {})) for name, rack in racks.items()]


def labels(name: str) -> dict[str, str]:
    """Those of a node that is in no rack."""
    return {"kubernetes.io/hostname": name, CLIQUE: "c.1"}


def tree(*pods: core.Pod, status: Mapping[str, Any] | None = None) -> list[core.Group | core.Pod]:
    """A gang of one that wants two, in one rack."""
    root = group("root", composite=True, minimum=1, desired=1, constraints=IN_RACK, status=status)
    return [root, *role_groups("decode", replicas=2, minimum=1, size=1), *pods]


def gated(number: int) -> core.Pod:
    return member("decode", number, gates=(GATE,), gpus=8)


def placed(number: int, name: str, rack: str) -> core.Pod:
    told = {"topology.covey.dev/rack": rack, "topology.covey.dev/host": name}
    return member("decode", number, node=name, gpus=8, annotations=told)


def unit_of(made: Cache) -> Unit:
    unit = made.index.unit(root_key("root"))
    assert unit is not None
    return unit


async def test_a_decision_whose_topology_cannot_be_written_then_pins_nothing_and_gives_its_room_back() -> None:
    loop = Loop(cache(*nodes(a="r1", b="r1"), *tree(gated(0), gated(1))))

    async def denied(*_: Any, **__: Any) -> None:
        raise ApiError(403, "Forbidden", "no")

    loop.client.merge_patch = denied  # type: ignore[method-assign]
    assert await loop.turn() == {}
    assert not loop.cache.capacity.assumed
    assert loop.queue.decision(root_key("root")).reason == "PinDenied"


@pytest.mark.parametrize("status", [{"topology": "kueue"}, None], ids=["named", "former release"])
async def test_a_lost_pod_when_most_nodes_have_another_preset_then_comes_back_in_its_rack(
    status: Mapping[str, Any] | None,
) -> None:
    """Nodes that have joined are free, and in no rack; the process has started since."""
    made = cache(
        *nodes(a="r1", b="r1", **dict.fromkeys(JOINED, "")), *tree(placed(0, "a", "r1"), gated(1), status=status)
    )
    loop = Loop(made)
    assert await loop.turn() == {"root-decode-1-0": "b"}
    assert loop.client.topologies == ({} if status else {"root": "kueue"})


def test_a_preset_in_use_when_a_node_joins_then_is_kept_for_new_units_and_its_end_is_told() -> None:
    status = {"topology": "kueue", "admitted": 1}
    [root, *rest] = tree(placed(0, "a", "r1"), status=status)
    made = cache(*nodes(a="r1"), root, *rest)
    topologies, told = Topologies(made), []
    topologies.begin(lambda *change: told.append(change), lambda *_: None)
    for name in JOINED:
        put(made, node(name, labels=labels(name)))
    assert (topologies.default().name, told) == ("kueue", [])
    put(made, node("a", labels=labels("a")))
    assert (topologies.default().name, told) == ("nvidia-clique", [("a", "kueue", "nvidia-clique")])
    assert topologies.choose(unit_of(made)).name == "kueue"


def test_a_node_when_it_has_the_hostname_of_another_is_told_once() -> None:
    made = cache(*nodes(a="r1", b="r1"))
    topologies, told = Topologies(made), []
    topologies.begin(lambda *_: None, lambda *twins: told.append(twins))
    for labels_of_clone in ({**labels("a")}, {**labels("a"), "more": "x"}):
        put(made, node("clone", labels={**labels_of_clone, "kubernetes.io/hostname": "a"}))
    assert told == [("clone", "a", "a")]
    put(made, node("clone", labels={"kubernetes.io/hostname": "clone"}))
    put(made, node("clone", labels={"kubernetes.io/hostname": "b"}))
    assert told[1:] == [("clone", "b", "b")]
    topologies.begin(lambda *_: None, lambda *twins: told.append(twins))
    assert told[2:] == [("clone", "b", "b")]


async def test_plan_when_others_that_lack_surplus_were_placed_before_it_is_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rack r1 has room for one unit: the older one comes while the younger one is planned, and both would take it."""

    def unit(name: str) -> list[core.Group | core.Pod]:
        groups = role_groups("decode", replicas=2, minimum=1, size=1, root=name)
        pods = [member("decode", number, root=name, gates=(GATE,), gpus=4) for number in range(2)]
        return [group(name, composite=True, minimum=1, desired=1, constraints=IN_RACK), *groups, *pods]

    made = cache(*nodes(a="r1", b="r2", c="r2"), *unit("younger"))
    plan = cycle.plan_minimum

    def plan_while_another_comes(gang: Gang, inventory: Inventory) -> Plan | Refusal:
        answer = plan(gang, inventory)
        if made.index.root(root_key("older")) is None:
            for item in unit("older"):
                put(made, item)
        return answer

    monkeypatch.setattr(cycle, "plan_minimum", plan_while_another_comes)
    pinned = await Loop(made).turn()
    assert {name.partition("-")[0]: place == "a" for name, place in pinned.items()} == {"older": True, "younger": False}
