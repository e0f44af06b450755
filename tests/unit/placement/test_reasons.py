"""Refusals: every one says which role, where, how many, what is short, and what would help."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders.requests import make_gang, make_inventory, make_node, make_role, make_shape
from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import shape_of
from covey.placement.model import Exclusion, Gang, Reason, Refusal, RolesTogether, Spread, Verdict
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


def test_an_unknown_level_or_topology_is_named_with_those_there_are() -> None:
    inventory = make_inventory({"r1": [8]})
    assert refuse(make_gang(make_role("w", 1, required="pod")), inventory).message == (
        "role w asks for the level 'pod'; the topology 'dc' has: zone, block, rack, host"
    )
    rule = RolesTogether(("w",), "row")
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


PORT = (("0.0.0.0", "TCP", 8080),)


@pytest.mark.parametrize("rules", [{}, {"required": "rack"}, {"required": "rack", "size": 2}])
def test_a_host_port_that_is_taken_is_told_and_not_the_gpus(rules: dict[str, Any]) -> None:
    """The node with room has the port taken; the other is full."""
    inventory = make_inventory({"r1": [8, 0]})
    inventory.hold("x", "b-r1-n0", make_shape(0, host_ports=PORT))
    refusal = refuse(make_gang(make_role("w", 1, shape=make_shape(4, host_ports=PORT), **rules)), inventory)
    assert "a host port that is asked for is taken on every node there with capacity" in refusal.message
    assert "gpu" not in refusal.message
    (reason,) = refusal.reasons
    assert reason.resource is None
    assert [(each.cause, each.nodes) for each in reason.excluded] == [("host port", 1)]


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
        "w: capacity for 0 of 1 replicas in the cluster, all of it; "
        "pod anti-affinity keeps 1 pod off every node there with capacity; 1 node is out: 1 pod anti-affinity"
    )
