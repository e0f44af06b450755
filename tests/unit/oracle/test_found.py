"""Cases on which the planner was wrong once, cut down to what matters. Each must stay right."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from covey.api import core
from covey.placement.model import RolesTogether, Shape, Topology
from oracle.build import BLOCKS, RACKS, WHOLE, case, nodes, role
from oracle.case import Case
from oracle.judge import judge
from oracle.written import LEVELS, node, shape

FOUR_LEVELS: Final = {"topology.kubernetes.io/zone": "z", "example.com/block": "b", "example.com/rack": "r"}


def in_four_levels(case: Case) -> Case:
    floor = tuple(node(each.metadata.name, FOUR_LEVELS) for each in case.nodes)
    return replace(case, topology=Topology("floor", LEVELS), nodes=floor)


def with_port(address: str, gpus: int, *more: int) -> Shape:
    return replace(shape(gpus, *more), host_ports=((address, "TCP", 80),))


def labelled(name: str, gpus: int, **labels: str) -> core.Node:
    keys = {"block": BLOCKS, "rack": RACKS}
    return node(name, {keys[level]: value for level, value in labels.items()}, gpus=gpus)


def near(*roles: str, level: str) -> dict[str, tuple[RolesTogether, ...]]:
    return {"proximity": (RolesTogether(roles, level, required=True),)}


SET_FROM_OUTSIDE: Final = [
    role("worker", minimum=1, desired=2, wants=shape(1), together={1: "new"}),
    role("router", minimum=0, desired=1, together={0: "new"}),
]
HALVES: Final = role("a", size=2, minimum=2, required="rack", placed={(0, 0): "b0-r0-n0", (1, 0): "b0-r0-n1"})
PLACED_ELSEWHERE: Final = [
    role("a", minimum=0, desired=1),
    role("b", minimum=0, desired=1),
    role("c", placed={(0, 0): "b0-r0-n0"}, follow_unit=False),
]
MANY_OF_ONE_SHAPE: Final = [
    role(name, size=size, minimum=minimum)
    for name, size, minimum in zip("abcde", (6, 1, 4, 5, 1), (4, 7, 8, 2, 9), strict=True)
]
BARE: Final = labelled("bare", 1, rack="r1")

CASES: Final = {
    "a set with a role outside the gang, without room": case(nodes(), SET_FROM_OUTSIDE),
    "a set with a role outside the gang, with room": case(nodes(per_rack=2), SET_FROM_OUTSIDE),
    "a minimum of pods that ask for no device": in_four_levels(case(nodes(), [role("a", wants=shape())])),
    "surplus of pods that ask for no device": in_four_levels(
        case(nodes(), [role("a", wants=shape()), role("b", minimum=0, desired=1, wants=shape())])
    ),
    "a host port that only the wildcard address shares": case(
        nodes(),
        [
            role("a", wants=with_port("10.0.0.1", 5, 16, 16)),
            role("b", minimum=0, desired=1, wants=with_port("0.0.0.0", 0, 1, 16)),
        ],
    ),
    "a host port shared with the worker of another role": case(
        nodes(),
        [
            role("a", wants=with_port("0.0.0.0", 2)),
            role("b", size=2, leader=shape(1), wants=with_port("10.0.0.1", 0, 60)),
        ],
    ),
    "surplus by sets is leximin too": case(
        nodes(per_rack=4),
        [role("a", minimum=1, desired=3, together={2: "new"}), role("b", minimum=0, desired=2, together={1: "new"})],
    ),
    "a replica placed by half is not satisfied": case(
        nodes(), [role("a", size=2, required="block", placed={(0, 1): "b0-r0-n0"})]
    ),
    "half placed replicas that compete for the room of their domain": case(nodes(racks=2, per_rack=3), [HALVES]),
    "a node with two causes is out once": case(
        nodes(pods=0), [role("a", wants=replace(WHOLE, node_selector=(("pool", "gpu"),)))]
    ),
    "a level that no node carries is told with the minimum": case([node("n")], [role("a", minimum=2, required="rack")]),
    "a set brings a role from outside into the reasons": case(
        nodes(), [role(name, minimum=minimum, desired=1, together={0: "new"}) for name, minimum in (("a", 1), ("b", 0))]
    ),
    "many roles of one shape have a certificate for every domain": case(
        nodes(blocks=3, racks=2, per_rack=5), MANY_OF_ONE_SHAPE, required="block", preferred="rack"
    ),
    # The first node has a rack but no block; the rack is only wished for.
    "a preferred level does not lift the required one": case(
        [labelled("n0", 4, rack="r0"), *nodes()], [role("a", wants=shape(4), required="block", preferred="rack")]
    ),
    # The domain of a rule's placed member must not close the rest of the cluster.
    "a placed partner outside the unit bars only those that must be near it": case(
        [*nodes(), *nodes(blocks=2, per_rack=2)[2:]],
        PLACED_ELSEWHERE,
        required="block",
        **near("b", "c", level="block"),
    ),
    "a finer rule does not waive a coarser level": case(
        [labelled("bare", 8, rack="r1"), labelled("far", 0, block="b1", rack="r1")],
        [role("a", required="block"), role("b", minimum=0, desired=1)],
        **near("a", "b", level="rack"),
    ),
    # The replica's own level is finer, and the node has that one.
    "a node without the level of a proximity is none for its one replica": case(
        [BARE], [role("a", wants=shape(1), required="rack")], **near("a", level="block")
    ),
    "a node with the level of a proximity is one for its one replica": case(
        [BARE, labelled("inside", 1, block="b1", rack="r1")],
        [role("a", wants=shape(1), required="rack")],
        **near("a", level="block"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_planner_on_a_case_on_which_it_was_wrong_is_right(name: str) -> None:
    judgement = judge(CASES[name])
    assert not judgement.complaints + judgement.untold, judgement
