"""Nodes that come one by one: what the scheduler process is told of a request, and how long the request goes on."""

from __future__ import annotations

from typing import Any

import pytest

from covey.api import constants as names
from covey.api import core
from covey.api.annotations import NodesAsked, read_asked
from covey.kube.resources import COMPOSITE_POD_GROUPS, POD_TEMPLATES
from covey.operator.model.capacity import CAPACITY_BUFFERS
from unit.operator.test_capacity import BUFFERS, COMING, FOUND, NOT_FOUND, REQUESTS, Asking, gang, gpus, refused
from unit.operator.test_elastic_asks import asking, rack, topology

FITS = core.Condition("Provisioning", "True", "FitsExistingCapacity")
EXPIRED = core.Condition("BookingExpired", "True", "CapacityReservationTimeExpired")


def told(world: Asking, unit: int = 0) -> NodesAsked | None:
    """The note on a root, as the scheduler process reads it."""
    root = world.objects[COMPOSITE_POD_GROUPS.type, f"llama-{unit}"]
    return read_asked(root.metadata.annotation(names.ANNOTATION_CAPACITY_ASKED))


def act(world: Asking) -> None:
    """Let the operator act: what it notes comes first, for that alone makes no pass."""
    world.note()
    world.settle()
    world.note()


def keep(world: Asking, ago: float = 0.0, nodes: tuple[str, ...] = ("n0",)) -> None:
    """The scheduler process keeps nodes, the last of which came a while ago."""
    last = core.rfc3339(world.now - ago)
    claim = core.Claim((), last, nodes=nodes, last_progress_time=last, purpose="Capacity", message="1 has come")
    world.judge_unit("False", names.REASON_INFEASIBLE, claim=claim)


def answered(*conditions: core.Condition, roles: Any = (), **of: Any) -> Asking:
    world = refused(*roles, **of)
    kind = {"kind": CAPACITY_BUFFERS} if of.get("capacity") is BUFFERS else {}
    world.say(*conditions, **kind)
    act(world)
    return world


def test_the_scheduler_process_is_told_once_nodes_are_on_their_way() -> None:
    selecting = gang("decode", 2, template=gpus(8, nodeSelector={"gpu": "b200"}))
    world = refused(selecting)
    assert told(world) is None, "nobody has said that any come"
    (begun,) = (core.seconds(each.metadata.creation_timestamp) for each in world.of().values())
    world.say(COMING)
    act(world)
    assert told(world) == NodesAsked(begun or 0.0, 900.0, {"gpu": "b200"})


def test_all_parts_of_a_unit_are_open_or_none_is_told_of() -> None:
    """What fits already for one part does not keep the nodes of the other from being kept; a refusal does."""
    world = refused(gang("prefill", 2), gang("decode", 2, 4))
    first, second = sorted(world.of())
    world.say(COMING, name=first)
    world.say(FOUND, name=second)
    act(world)
    assert told(world) is not None
    world.say(NOT_FOUND, name=second)
    act(world)
    assert told(world) is None


def test_a_domain_asked_for_by_name_is_told_of_at_once() -> None:
    """Nothing else has its labels, so nobody has to say that nodes are on their way."""
    world = asking(gang("prefill", 2), gang("decode", 2, 4), elastic=topology("r7", "r8"))
    act(world)
    found = told(world)
    assert found is not None
    assert found.labels == rack("r7")
    (first, *_) = sorted(world.of())
    world.say(NOT_FOUND, name=first)
    for _ in range(3):
        act(world)
    found = told(world)
    assert found is not None
    assert found.labels == rack("r8")


@pytest.mark.parametrize(
    ("conditions", "capacity"), [((COMING,), REQUESTS), ((COMING, EXPIRED), REQUESTS), ((FITS,), BUFFERS)]
)
def test_each_node_that_is_kept_begins_the_wait_anew(conditions: tuple[core.Condition, ...], capacity: Any) -> None:
    world = refused(capacity=capacity)
    kind = CAPACITY_BUFFERS if capacity is BUFFERS else capacity.kind
    world.say(*conditions, kind=kind)
    keep(world)
    act(world)
    world.now += 800
    keep(world, ago=100.0)
    act(world)
    assert told(world) is not None
    world.now += 700
    act(world)
    assert told(world) is not None
    assert world.asked()[0] == "True"
    assert "1 has come" in world.asked()[2]
    assert 90.0 < (world.plan().again or 0.0) <= 101.0
    world.now += 110
    act(world)
    assert not world.of(kind)
    assert len(world.of(POD_TEMPLATES)) == 1
    assert told(world) is None
    assert world.asked()[0] == "False"


@pytest.mark.parametrize("ago", [-5000.0, 900.0])
def test_a_claim_of_another_time_changes_nothing(ago: float) -> None:
    world = answered(COMING)
    world.now += 901
    keep(world, ago=ago)
    act(world)
    assert not world.of()
    assert told(world) is None
