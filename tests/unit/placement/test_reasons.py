"""Refusals: every one says which role, where, how many, what is short, and what would help."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders.requests import GPU, make_gang, make_inventory, make_node, make_role, make_shape, place
from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import shape_of
from covey.placement.model import Exclusion, Gang, Proximity, Reason, Refusal, Spread, Verdict
from covey.placement.planner import plan_minimum
from covey.placement.refusal.shortage import RESERVED
from oracle.bounds import Bound
from oracle.certificate import Certificate, check_certificate, plan_with_certificate


def refuse(gang: Gang, inventory: Inventory) -> Refusal:
    return prove(gang, inventory)[0]


def prove(gang: Gang, inventory: Inventory) -> tuple[Refusal, Certificate]:
    answer, certificate = plan_with_certificate(gang, inventory)
    assert isinstance(answer, Refusal)
    assert answer.verdict is Verdict.INFEASIBLE
    assert check_certificate(gang, inventory, answer, certificate) is not False
    return answer, certificate


def only(refusal: Refusal) -> Reason:
    (reason,) = refusal.reasons
    return reason


def test_no_domain_holds_one_replica() -> None:
    inventory = make_inventory({"b1/r1": [8] * 6, "b2/r1": [8] * 3})
    reason = only(refuse(make_gang(make_role("prefill", 1, size=8, required="rack"), required="block"), inventory))
    assert (reason.role, reason.scope, reason.level, reason.best_domain) == (
        "prefill",
        "replica",
        "rack",
        ("z", "b1", "r1"),
    )
    assert (reason.required, reason.satisfied) == (1, 0)
    assert (reason.resource, reason.requested, reason.short) == (GPU, "8", "16")
    assert reason.message == (
        f"prefill: no rack has room for a replica of 8 pods with 8 {GPU} each; the best, z/b1/r1, has room for 6; "
        f"2 more pods' worth (16 {GPU}) are missing there"
    )


def test_too_few_replicas_in_the_best_domain() -> None:
    inventory = make_inventory({"b1/r1": [8, 4], "b2/r1": [8]})
    refusal = refuse(make_gang(make_role("decode", 2), required="block"), inventory)
    reason = only(refusal)
    assert (reason.scope, reason.level, reason.best_domain) == ("unit", "block", ("z", "b1"))
    assert (reason.required, reason.satisfied, reason.resource, reason.requested, reason.short) == (2, 1, GPU, "8", "4")
    assert refusal.message == f"decode: room for 1 of 2 replicas in block z/b1, the best; 4 more {GPU} there would do"


def test_roles_that_fit_alone_but_not_together() -> None:
    inventory = make_inventory({"b1/r1": [8, 8, 8]})
    refusal = refuse(make_gang(make_role("prefill", 2), make_role("decode", 2), required="block"), inventory)
    assert [(r.role, r.scope, r.required, r.satisfied, r.short) for r in refusal.reasons] == [
        ("prefill", "unit", 2, 1, "8"),
        ("decode", "unit", 2, 1, "8"),
    ]
    assert refusal.reasons[0].message.startswith(
        "prefill and decode each fit alone but not together in block z/b1: beside decode there is room for 1 of 2"
    )


def test_without_a_level_the_cluster_is_meant() -> None:
    reason = only(refuse(make_gang(make_role("w", 3)), make_inventory({"r1": [8]})))
    assert (reason.level, reason.best_domain, reason.satisfied, reason.short) == (None, (), 1, "16")
    assert "in the cluster" in reason.message


def test_cpu_is_written_in_milli_units() -> None:
    shape = make_shape(0, extra={"cpu": 65_500})
    reason = only(refuse(make_gang(make_role("w", 1, shape=shape)), make_inventory({"r1": [8]})))
    assert (reason.resource, reason.requested, reason.short) == ("cpu", "65500m", "1500m")


def test_nodes_that_are_out_are_counted_by_cause() -> None:
    inventory = make_inventory({"b1/r1": [8, 8]})
    where = {"zone": "z", "block": "b1", "rack": "r1"}
    taint = core.Taint(key="nvidia.com/gpu", effect="NoSchedule")
    for name in ("t1", "t2"):
        inventory.set_node(make_node(name, labels=where, taints=[taint]))
    inventory.set_node(make_node("c", labels=where, cordoned=True))
    inventory.set_node(make_node("d", labels=where, ready=False))
    inventory.set_node(make_node("bare", labels={"zone": "z", "block": "b1"}))
    inventory.set_node(make_node("full", labels=where, pods=0))
    gang = make_gang(make_role("w", 4, required="rack"), required="block", excluded_nodes={"b1-r1-n0": "volume"})
    reason = only(refuse(gang, inventory))
    assert reason.excluded == (
        Exclusion("taint nvidia.com/gpu:NoSchedule", 2),
        Exclusion("cordoned", 1),
        Exclusion("excluded", 1),
        Exclusion("no level rack", 1),
        Exclusion("not ready", 1),
        Exclusion("pods limit", 1),
    )
    assert reason.message.endswith("7 nodes are out: 2 taint nvidia.com/gpu:NoSchedule, 1 cordoned and 1 excluded")


def test_reserved_nodes_are_no_room_and_are_said() -> None:
    inventory = make_inventory({"b1/r1": [8, 8], "b2/r1": [8]})
    answer = plan_minimum(
        make_gang(make_role("w", 2), required="block", excluded_nodes={"b1-r1-n0": RESERVED, "b1-r1-n1": RESERVED}),
        inventory,
    )
    assert isinstance(answer, Refusal)
    assert Exclusion(RESERVED, 2) in answer.reasons[0].excluded
    assert answer.reasons[0].best_domain == ("z", "b2")


def test_a_level_that_no_node_carries_is_named() -> None:
    inventory = Inventory(make_inventory({}).topologies.values())
    inventory.set_node(make_node("n", labels={"zone": "z"}))
    assert refuse(make_gang(make_role("w", 1), required="rack"), inventory).message == (
        "the unit requires the level rack, which no node carries"
    )
    reason = only(refuse(make_gang(make_role("w", 1, required="block")), inventory))
    assert (reason.role, reason.level) == ("w", "block")
    assert reason.message == "role w requires the level block, which no node carries"


def test_an_unknown_level_or_topology_is_named_with_those_there_are() -> None:
    inventory = make_inventory({"r1": [8]})
    assert refuse(make_gang(make_role("w", 1, required="pod")), inventory).message == (
        "role w asks for the level 'pod'; the topology 'dc' has: zone, block, rack, host"
    )
    rule = Proximity(("w",), "row")
    assert (
        "proximity asks for the level 'row'"
        in refuse(make_gang(make_role("w", 1), proximity=(rule,)), inventory).message
    )
    spread = Spread("row")
    assert "spread asks for the level 'row'" in refuse(make_gang(make_role("w", 1), spread=spread), inventory).message
    assert (
        refuse(make_gang(make_role("w", 1), topology="x"), inventory).message
        == "there is no topology 'x'; there are: dc"
    )


def test_pods_that_do_not_exist_yet_are_a_refusal() -> None:
    inventory = make_inventory({"r1": [8] * 9})
    gang = make_gang(replace(make_role("w", 2), missing="3 of 4 pods exist"))
    assert refuse(gang, inventory).message == "w: 3 of 4 pods exist"
    short = make_gang(replace(make_role("w", 2), minimum=3, desired=3))
    assert refuse(short, inventory).message == "w: 2 of 3 replicas exist"


def test_placed_replicas_count_as_satisfied() -> None:
    inventory = make_inventory({"b1/r1": [8, 8]})
    inventory.hold("w-0-0", "b1-r1-n0", make_shape())
    reason = only(refuse(place(make_gang(make_role("w", 3), required="block"), {"w-0-0": "b1-r1-n0"}), inventory))
    assert (reason.required, reason.satisfied) == (3, 2)


def test_the_certificate_bounds_every_candidate() -> None:
    inventory = make_inventory({"b1/r1": [8, 8], "b2/r1": [8]})
    gang = make_gang(make_role("a", 2), make_role("b", 1), required="block")
    refusal, certificate = prove(gang, inventory)
    assert certificate == (
        Bound(("z", "b1"), ("a", "b"), ((1, 1), (2, 0))),
        Bound(("z", "b2"), ("a", "b"), ((0, 1), (1, 0))),
    )
    assert check_certificate(gang, inventory, refusal, certificate) is True
    forged = (certificate[0], Bound(("z", "b2"), ("a", "b"), ((0, 0),)))
    assert check_certificate(gang, inventory, refusal, forged) is False
    assert check_certificate(gang, inventory, refusal, certificate[:1]) is False
    inventory.set_node(make_node("more", labels={"zone": "z", "block": "b1"}))
    assert check_certificate(gang, inventory, refusal, certificate) is False


PORT = (("0.0.0.0", "TCP", 8080),)


@pytest.mark.parametrize("rules", [{}, {"required": "rack"}, {"required": "rack", "size": 2}])
def test_a_host_port_that_is_taken_is_told_and_not_the_gpus(rules: dict[str, Any]) -> None:
    """The node with room has the port taken; the other is full."""
    inventory = make_inventory({"r1": [8, 0]})
    inventory.hold("x", "b-r1-n0", make_shape(0, host_ports=PORT))
    refusal = refuse(make_gang(make_role("w", 1, shape=make_shape(4, host_ports=PORT), **rules)), inventory)
    assert "a host port that is asked for is taken on every node there with room" in refusal.message
    assert "gpu" not in refusal.message
    (reason,) = refusal.reasons
    assert reason.resource is None
    assert [(each.cause, each.nodes) for each in reason.excluded] == [("host port", 1)]


def test_a_host_port_that_its_own_pods_share_is_told() -> None:
    gang = make_gang(make_role("w", 4, shape=make_shape(1, host_ports=PORT)))
    refusal = refuse(gang, make_inventory({"r1": [8, 8]}))
    assert refusal.message == (
        "w: room for 2 of 4 replicas in the cluster, all of it; "
        "for 2 pods a host port that is asked for is taken on every node there with room"
    )


@pytest.mark.parametrize("key", ["kubernetes.io/hostname", "rack"])
def test_anti_affinity_is_told_and_not_the_gpus(key: str) -> None:
    """A stranger wants none of ours on its node, or in its rack."""
    meta = core.Meta(name="p", namespace="ns", labels={"app": "w"})
    selector = core.LabelSelector(match_labels={"app": "w"})
    term = core.PodAffinityTerm(topology_key=key, label_selector=selector)
    affinity = core.Affinity(pod_anti_affinity=core.PodAffinity(required=(term,)))
    stranger = core.Pod(metadata=core.Meta(name="s", namespace="ns"), spec=core.PodSpec(affinity=affinity))
    inventory = make_inventory({"r1": [8], "r2": [0]})
    inventory.hold("s", "b-r1-n0", shape_of(stranger), stranger.metadata)
    role = make_role("w", 1, shape=make_shape(4))
    pod = replace(role.replicas[0].pods[0], meta=meta)
    gang = make_gang(replace(role, replicas=(replace(role.replicas[0], pods=(pod,)),)))
    refusal = refuse(gang, inventory)
    assert refusal.message == (
        "w: room for 0 of 1 replicas in the cluster, all of it; "
        "pod anti-affinity keeps 1 pod off every node there with room; 1 node is out: 1 pod anti-affinity"
    )


def test_where_gpus_are_short_too_they_are_told() -> None:
    inventory = make_inventory({"r1": [2, 0]})
    inventory.hold("x", "b-r1-n0", make_shape(0, host_ports=PORT))
    refusal = refuse(make_gang(make_role("w", 1, shape=make_shape(4, host_ports=PORT))), inventory)
    assert refusal.reasons[0].resource == "nvidia.com/gpu"
