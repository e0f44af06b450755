"""Cases on which the planner was wrong once, cut down to what matters. Each must stay right."""

from __future__ import annotations

from dataclasses import replace

from covey.placement.model import Topology
from oracle.build import RACKS, WHOLE, case, nodes, role
from oracle.case import Case
from oracle.judge import judge
from oracle.written import LEVELS, node, shape


def right(found: Case) -> None:
    judgement = judge(found)
    assert not judgement.complaints + judgement.untold, judgement


def test_a_set_with_a_role_outside_the_gang_is_placed_whole_or_not_at_all() -> None:
    roles = [
        role("worker", minimum=1, desired=2, wants=shape(1), together={1: "new"}),
        role("router", minimum=0, desired=1, together={0: "new"}),
    ]
    right(case(nodes(), roles))
    right(case(nodes(per_rack=2), roles))


def in_four_levels(found: Case) -> Case:
    labels = {"topology.kubernetes.io/zone": "z", "example.com/block": "b", "example.com/rack": "r"}
    floor = tuple(node(one.metadata.name, labels) for one in found.nodes)
    return replace(found, topology=Topology("floor", LEVELS), nodes=floor)


def test_a_minimum_of_pods_that_ask_for_no_device() -> None:
    right(in_four_levels(case(nodes(), [role("a", wants=shape())])))


def test_surplus_of_pods_that_ask_for_no_device() -> None:
    right(in_four_levels(case(nodes(), [role("a", wants=shape()), role("b", minimum=0, desired=1, wants=shape())])))


def test_a_host_port_that_only_the_wildcard_address_shares() -> None:
    one = replace(shape(5, 16, 16), host_ports=(("10.0.0.1", "TCP", 80),))
    other = replace(shape(0, 1, 16), host_ports=(("0.0.0.0", "TCP", 80),))
    right(case(nodes(), [role("a", wants=one), role("b", minimum=0, desired=1, wants=other)]))


def test_a_host_port_shared_with_the_worker_of_another_role() -> None:
    wild = replace(shape(2), host_ports=(("0.0.0.0", "TCP", 80),))
    at_address = replace(shape(0, 60), host_ports=(("10.0.0.1", "TCP", 80),))
    right(case(nodes(), [role("a", wants=wild), role("b", size=2, leader=shape(1), wants=at_address)]))


def test_surplus_by_sets_is_leximin_too() -> None:
    roles = [role("a", minimum=1, desired=3, together={2: "new"}), role("b", minimum=0, desired=2, together={1: "new"})]
    right(case(nodes(per_rack=4), roles))


def test_a_replica_placed_by_half_is_not_satisfied() -> None:
    right(case(nodes(), [role("a", size=2, required="block", placed={(0, 1): "b0-r0-n0"})]))


def test_half_placed_replicas_that_compete_for_the_room_of_their_domain() -> None:
    halves = role("a", size=2, minimum=2, required="rack", placed={(0, 0): "b0-r0-n0", (1, 0): "b0-r0-n1"})
    right(case(nodes(racks=2, per_rack=3), [halves]))


def test_a_node_with_two_causes_is_out_once() -> None:
    picky = replace(WHOLE, node_selector=(("pool", "gpu"),))
    right(case(nodes(pods=0), [role("a", wants=picky)]))


def test_a_level_that_no_node_carries_is_told_with_the_minimum() -> None:
    right(case([node("n")], [role("a", minimum=2, required="rack")]))


def test_a_set_brings_a_role_from_outside_into_the_reasons() -> None:
    roles = [role("a", minimum=1, desired=1, together={0: "new"}), role("b", minimum=0, desired=1, together={0: "new"})]
    right(case(nodes(), roles))


def test_many_roles_of_one_shape_have_a_certificate_for_every_domain() -> None:
    roles = [
        role(name, size=size, minimum=minimum)
        for name, size, minimum in zip("abcde", (6, 1, 4, 5, 1), (4, 7, 8, 2, 9), strict=True)
    ]
    right(case(nodes(blocks=3, racks=2, per_rack=5), roles, required="block", preferred="rack"))


def test_a_preferred_level_does_not_lift_the_required_one() -> None:
    """The first node has a rack but no block; the rack is only wished for."""
    floor = [node("n0", {RACKS: "r0"}, gpus=4), *nodes()]
    right(case(floor, [role("a", wants=shape(4), required="block", preferred="rack")]))
