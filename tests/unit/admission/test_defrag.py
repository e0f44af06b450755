"""Moves that free a rack: units that move whole, and replicas that others make room for."""

from __future__ import annotations

from typing import Any

from builders.victims import hold, serving
from covey.admission.defrag import Consolidation, Mobile, MovePlan
from covey.admission.gangs import Surroundings, build_gang
from covey.admission.taken_room import counted_shape
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Verdict
from oracle.build import TOPOLOGY, nodes
from oracle.written import shape

RACK = {"topology": [{"level": "rack", "mode": "Required"}]}


def unit(name: str, minimum: int, *places: str, gpus: int = 8, **root: Any) -> Mobile:
    made = serving(name, {"w": (minimum, [[place] for place in places])}, gpus=gpus, **root)
    return Mobile(made, build_gang(made.unit, TOPOLOGY, counted_shape, Surroundings()))


def free(
    units: list[Mobile], *, racks: int = 2, per_rack: int = 3, strangers: dict[str, int] | None = None
) -> MovePlan:
    inventory = Inventory([TOPOLOGY])
    for each in nodes(racks=racks, per_rack=per_rack):
        inventory.set_node(each)
    for name, gpus in (strangers or {}).items():
        inventory.hold(f"stranger-{name}", name, shape(gpus))
    hold(inventory, *(each.candidate for each in units))
    return Consolidation(inventory, units).free(TOPOLOGY.name, "rack")


def test_a_unit_that_may_not_be_parted_moves_whole() -> None:
    together = unit("a", 2, "b0-r0-n0", "b0-r0-n1", schedulingConstraints=RACK)
    assert together.gang.required == "rack"
    answer = free([together], strangers={"b0-r1-n0": 8})
    assert [each.together for each in answer.moves] == [True, True]
    assert {target for each in answer.moves for target in each.target} == {"b0-r1-n1", "b0-r1-n2"}
    assert (answer.paths, answer.least) == ((("b0", "r0"),), True)


def test_another_replica_makes_room_first() -> None:
    """The large one fits nowhere until a small one has left its node for the rest of another."""
    large, small = unit("large", 1, "b0-r0-n0"), unit("small", 1, "b0-r1-n0", gpus=4)
    answer = free([large, small], per_rack=2, strangers={"b0-r1-n1": 4})
    assert [each.resource for each in answer.moves] == ["small", "large"]
    assert answer.moves[1].target == answer.moves[0].source == ("b0-r1-n0",)
    assert answer.paths == (("b0", "r0"),)


def test_a_unit_that_finds_no_rack_of_its_own_stays() -> None:
    together = unit("a", 2, "b0-r0-n0", "b0-r0-n1", schedulingConstraints=RACK)
    answer = free([together], racks=3, strangers={"b0-r1-n0": 8, "b0-r1-n1": 8, "b0-r2-n0": 8, "b0-r2-n1": 8})
    assert (answer.verdict, answer.moves) == (Verdict.UNKNOWN, ())
