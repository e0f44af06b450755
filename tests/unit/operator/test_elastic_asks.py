"""Nodes asked for by the name of a domain that may not exist yet."""

from __future__ import annotations

from typing import Any

import pytest

from builders.inferences import role
from covey.api import constants as names
from covey.api import core
from covey.kube.resources import POD_TEMPLATES
from unit.operator.test_capacity import FAILED, NOT_FOUND, RACKS, REQUESTS, Asking, gang, gpus, refused


def topology(*racks: str, nodes: int = 4, **fields: Any) -> core.ClusterTopology:
    kind = core.ElasticDomains(
        "rack", racks, nodes, {"nvidia.com/gpu": "8", "cpu": "64", "pods": "110"}, within={"block": "b1"}, **fields
    )
    return core.ClusterTopology(RACKS.metadata, core.ClusterTopologySpec(RACKS.spec.levels, (kind,)))


def asking(*roles: Any, elastic: core.ClusterTopology, **spec: Any) -> Asking:
    """A refused unit that asks, with domains that may come."""
    world = refused(*roles, capacity=None, **{"topology": {"required": "rack"}, **spec})
    world.topologies = (elastic,)
    world.autoscaler = REQUESTS
    world.settle()
    return world


def selectors(world: Asking) -> list[dict[str, str]]:
    return [world.template_of(name)["spec"].get("nodeSelector", {}) for name in sorted(world.of())]


def rack(name: str) -> dict[str, str]:
    return {"cloud/block": "b1", "cloud/rack": name}


@pytest.mark.parametrize(
    ("roles", "fields", "spec"),
    [
        ([gang("decode", 5)], {}, {}),
        ([gang("decode", 4)], {"taints": (core.Taint("gpu", "NoSchedule"),)}, {}),
        ([gang("decode", 4, template=gpus(8, nodeSelector={"gpu": "b300"}))], {"labels": {"gpu": "b200"}}, {}),
    ],
    ids=["too small", "tainted", "other nodes"],
)
def test_a_domain_that_would_not_help_is_not_named(roles: Any, fields: Any, spec: Any) -> None:
    world = asking(*roles, elastic=topology("r7", **fields), **spec)
    (name,) = world.of()
    assert "podAffinity" in world.template_of(name)["spec"]["affinity"]
    assert "cloud/rack" not in world.template_of(name)["spec"].get("nodeSelector", {})


def test_of_domains_that_are_alike_the_one_that_pods_select_is_named() -> None:
    made = gpus(8, nodeSelector={"cloud/rack": "r8"})
    world = asking(gang("decode", 4, template=made), elastic=topology("r7", "r8", "r9"))
    assert selectors(world) == [rack("r8")]
    world.say(NOT_FOUND)
    world.note()
    world.settle()
    assert selectors(world) == [{"cloud/rack": "r8"}], "whichever rack would do is none but that one"


@pytest.mark.parametrize("told", [NOT_FOUND, FAILED])
def test_what_was_refused_is_followed_by_the_next_domain_and_at_last_by_any(told: core.Condition) -> None:
    """Nothing stands beside the next choice, and nothing is asked for twice, whoever starts anew."""
    world = asking(gang("prefill", 2), gang("decode", 2, 4), elastic=topology("r7", "r8"))
    for expected in ("r8", None):
        (first, *_) = sorted(world.of())
        world.say(told, name=first)
        before = set(world.of())
        planned, marks = world.plan(), world.marks()
        assert not planned.actions.ask
        world.settle()
        assert [mark["reason"] for name, mark in world.marks().items() if name not in marks] == [world_end(told)]
        assert before.isdisjoint(world.of())
        assert selectors(world) == [rack(expected) if expected else {}] * 2
        world.forget()
        world.settle()
        assert len(world.of()) == 2
        assert "refused: rack r7" in world.asked()[2]
        assert world.asked()[:2] == ("True", "Asked")
    # Who has put right what was wrong asks for the first one again; the others are withdrawn.
    for name in world.of(POD_TEMPLATES):
        if world.template_of(name)["spec"].get("nodeSelector") == rack("r7"):
            del world.objects[POD_TEMPLATES.type, name]
    world.settle()
    assert selectors(world) == [rack("r7")] * 2


def test_what_may_lie_anywhere_is_no_reason_to_go_on() -> None:
    """A router beside the rack: it is not counted into it, and the autoscaler itself tries again for it."""
    router = role("router", replicas=1, minReplicas=1, template=gpus(1), topology={"followUnit": False})
    world = asking(gang("decode", 4), router, elastic=topology("r7", "r8"))
    assert sorted(map(len, selectors(world))) == [0, 2]
    (alone,) = (name for name in world.of() if not world.template_of(name)["spec"].get("nodeSelector"))
    world.say(NOT_FOUND, name=alone)
    world.note()
    world.settle()
    assert list(world.of()) == [alone]
    assert world.asked()[:2] == ("True", "NoCapacity")
    world.say(name=alone)
    world.settle()
    assert rack("r7") in selectors(world)
    (named,) = (name for name in world.of() if name != alone)
    world.say(NOT_FOUND, name=named)
    world.note()
    world.settle()
    assert sorted(map(len, selectors(world))) == [0, 2]
    assert rack("r8") in selectors(world)


def world_end(told: core.Condition) -> str:
    return names.REASON_NO_CAPACITY if told is NOT_FOUND else names.REASON_CAPACITY_FAILED
