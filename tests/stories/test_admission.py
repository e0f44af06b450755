"""Whole minimums or nothing, minimums before surplus, required levels, and why not."""

from __future__ import annotations

import re

import pytest

from builders.manifests import Object, role, template, workers
from cluster.workbench import OWNED, label, name_of, uids
from scheduler_trees import Bench, Role, gates_of, node_of, pin_of
from stage import Stage
from stage.play import BLOCK, RACK, by_replica

TOPOLOGIES = "/apis/scheduling.covey.dev/v1alpha1/clustertopologies"


def test_gang_when_there_is_room_is_planned_pinned_and_bound(stage: Stage) -> None:
    stage.nodes(blocks=2, racks=2, nodes=4)
    stage.create(
        workers("prefill", replicas=2, size=2, topology={"required": "rack"}),
        workers("decode", size=3, topology={"required": "rack"}),
        topology={"required": "block"},
    )
    pods = stage.ready(7)
    assert len(stage.domains(pods, BLOCK)) == 1
    for replica in by_replica(pods).values():
        assert len(stage.domains(replica, RACK)) == 1
    for pod in pods:
        assert pin_of(pod) == node_of(pod)
        assert stage.domains([pod], BLOCK, RACK) == {
            (
                pod["metadata"]["annotations"]["topology.covey.dev/block"],
                pod["metadata"]["annotations"]["topology.covey.dev/rack"],
            )
        }
    for condition in ("Admitted", "Scheduled"):
        assert stage.condition(condition, "llm-0", of="CompositePodGroup")[:2] == ("True", condition)
    placement = stage.get("CompositePodGroup", "llm-0")["status"]["placement"]
    assert {item["level"] for item in placement} == {"zone", "block"}
    assert stage.domains(pods, BLOCK) == {(placement[-1]["path"][-1],)}


def test_gang_when_one_role_has_no_room_starts_nothing_and_names_the_shortage(stage: Stage) -> None:
    stage.nodes(nodes=3)
    stage.create(workers("prefill", size=2), workers("decode", size=3))
    assert "nvidia.com/gpu" in stage.refusal()
    assert not stage.bound()
    stage.nodes(nodes=5)
    stage.ready(5)


def test_routers_when_their_owner_forbade_it_never_share_a_node(stage: Stage) -> None:
    """kube-scheduler does not see it: a pin leaves one node to compare."""
    stage.nodes(nodes=3)
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    spread["labelSelector"] = {"matchLabels": {"app": "router"}}
    routers = template(topologySpreadConstraints=[spread])
    routers["metadata"] = {"labels": {"app": "router"}}
    stage.create(workers("decode", size=3), role("router", replicas=3, template=routers))
    pods = [pod for pod in stage.ready(6) if label(pod, "role") == "router"]
    assert len(set(map(node_of, pods))) == 3
    stage.delete("Pod", name_of(pods[0]))
    pods = [pod for pod in stage.ready(6) if label(pod, "role") == "router"]
    assert len(set(map(node_of, pods))) == 3


def test_surplus_when_only_another_domain_would_hold_all_of_its_unit_says_which(stage: Stage) -> None:
    names = stage.nodes(racks=2, nodes=3)
    others = [stage.occupy(name) for name in names[1:]]
    stage.create(workers("decode", replicas=3, minReplicas=1), topology={"required": "rack"})
    stage.settle()
    for other in others[2:]:
        stage.delete("Pod", other, grace=0)
    stage.advance(130)  # its refusal is looked at again after a minute
    stage.advance(60)  # words that have lasted for half a minute are written
    assert [node_of(pod) for pod in stage.bound(inference="llm")] == [names[0]]
    message = stage.condition("Ready")[2]
    assert "would hold all of the unit, which does not move by itself: covey plan --cluster --defrag --for" in message
    assert stage.condition("SurplusAdmitted", "llm-0", of="CompositePodGroup")[2] in message


def test_gang_when_room_is_freed_starts(stage: Stage) -> None:
    [node] = stage.nodes(nodes=1)
    other = stage.occupy(node)
    stage.create(workers("decode"))
    stage.refusal()
    stage.delete("Pod", other, grace=0)
    stage.ready(1, inference="llm")


def test_surplus_when_another_gang_waits_comes_after_both_minimums(stage: Stage) -> None:
    stage.nodes(nodes=5)
    roles = [workers(name, replicas=2, minReplicas=1) for name in ("prefill", "decode")]
    # The scheduler process must see both at once: alone, the first would rightly take its surplus.
    with stage.away("scheduler"):
        for name in ("first", "second"):
            stage.create(*roles, name=name)
        stage.settle()
    stage.settle()
    assert [label(pod, "replica") for pod in first_pinned(stage)] == ["0", "0", "0", "0", "1"]
    for name in ("first", "second"):
        assert {label(pod, "role") for pod in stage.bound(inference=name)} == {"prefill", "decode"}


def first_pinned(stage: Stage) -> list[Object]:
    """The pods in the order in which they got their places."""
    order: dict[str, Object] = {}
    for event in stage.history("Pod"):
        if event.change != "DELETED" and pin_of(event.object):
            order.setdefault(name_of(event.object), event.object)
    return list(order.values())


def test_surplus_waits_until_the_minimum_is_bound(stage: Stage) -> None:
    """That it does is one of the laws (``minimum first``); here is a surplus of both kinds for it to judge."""
    stage.nodes(nodes=6)
    stage.create(workers("prefill", replicas=3, minReplicas=1), workers("decode", replicas=2, minReplicas=2))
    stage.ready(5)
    pinned = [(label(pod, "role"), label(pod, "replica")) for pod in first_pinned(stage)]
    assert set(pinned[:3]) == {("prefill", "0"), ("decode", "0"), ("decode", "1")}


def test_surplus_when_room_is_for_a_part_of_a_replica_comes_by_whole_replicas(stage: Stage) -> None:
    stage.nodes(nodes=5)
    stage.create(workers("decode", replicas=3, minReplicas=1, size=2))
    stage.settle()
    assert [len(pods) for pods in by_replica(stage.bound()).values()] == [2, 2]
    stage.nodes(nodes=6)
    stage.ready(6)


def test_racks_of_equal_names_under_two_blocks_are_two_racks(stage: Stage) -> None:
    stage.nodes(blocks=2, racks=1, nodes=2, local_racks=True)
    stage.create(workers("decode", size=4, topology={"required": "rack"}), topology={"required": "block"})
    assert "rack" in stage.refusal()
    stage.change(roles=[workers("decode", size=2, topology={"required": "rack"})])
    assert len(stage.domains(stage.ready(2), BLOCK, RACK)) == 1


def test_nodes_without_a_rack_count_for_their_block_only(stage: Stage) -> None:
    stage.nodes(nodes=3, labels={RACK: None})
    stage.create(workers("decode", size=2, topology={"required": "rack"}), name="racked")
    stage.refusal("racked")
    stage.create(workers("decode", size=3), name="blocked", topology={"required": "block"})
    pods = stage.ready(3, inference="blocked")
    for pod in pods:
        assert "topology.covey.dev/rack" not in pod["metadata"]["annotations"]
        assert {(pod["metadata"]["annotations"]["topology.covey.dev/block"],)} == stage.domains([pod], BLOCK)


def test_gang_of_higher_priority_when_both_wait_goes_first(stage: Stage) -> None:
    [node] = stage.nodes(nodes=1)
    urgent = stage.priority_class("urgent", 1000)
    other = stage.occupy(node)
    stage.create(workers("decode"), name="low")
    stage.refusal("low")
    stage.create(workers("decode"), name="high", priorityClassName=urgent)
    stage.refusal("high")
    stage.delete("Pod", other, grace=0)
    stage.ready(1, inference="high")
    assert not stage.bound(inference="low")


def test_level_when_the_topology_has_none_of_that_name_is_invalid(stage: Stage) -> None:
    stage.nodes(nodes=1)
    stage.create(workers("decode"), topology={"required": "spine"})
    assert "spine" in stage.refusal(reason="InvalidTopology")


def test_topology_when_several_are_there_and_none_is_marked_is_refused(stage: Stage) -> None:
    stage.nodes(nodes=2)
    for name in ("a", "b"):
        body = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": name}}
        stage.cluster.api("POST", TOPOLOGIES, body | {"spec": {"levels": [{"name": "rack", "keys": [RACK]}]}})
        stage.after(lambda name=name: stage.cluster.delete(f"{TOPOLOGIES}/{name}"))
    stage.create(workers("decode"), name="which")
    assert "a" in stage.refusal("which", "InvalidTopology")
    stage.create(workers("decode"), name="that", topology={"name": "b"})
    stage.ready(1, inference="that")
    mark = {"metadata": {"annotations": {"scheduling.covey.dev/default": "true"}}}
    stage.cluster.api("PATCH", f"{TOPOLOGIES}/a", mark)
    stage.ready(1, inference="which")


def test_refusal_is_what_people_see_wherever_they_look(stage: Stage) -> None:
    stage.nodes(nodes=3)
    stage.create(*pair(), topology={"required": "block"})
    message = stage.refusal()
    # It names role, level, resource and how much of it is missing.
    assert "prefill" in message or "decode" in message
    assert "block" in message
    assert "8 more nvidia.com/gpu" in message or "(8 nvidia.com/gpu) is missing" in message
    short = stage.status()["summary"]["message"]
    assert message.startswith(short.removesuffix(" …"))
    assert short in stage.kubectl("get", "dinf", "-o", "wide")
    assert message in stage.kubectl("describe", "dinf", "llm")
    assert message in stage.event_notes("Infeasible")
    assert stage.kubectl("get", "pods", "--no-headers").count("SchedulingGated") == 4
    stage.nodes(racks=3, nodes=3)
    stage.ready(4)
    assert stage.condition("Available")[:2] == ("True", "Available")
    assert "True" in stage.kubectl("get", "dinf", "llm", "-o", "wide")


def pair(*, prefill: int = 1) -> list[Object]:
    """Two roles whose replicas of two need a rack each."""
    rack = {"required": "rack"}
    return [workers("prefill", replicas=prefill, size=2, topology=rack), workers("decode", size=2, topology=rack)]


def test_surplus_when_room_comes_for_both_minimums_and_one_more_replica_is_last(stage: Stage) -> None:
    stage.nodes()
    for name in ("first", "second"):
        stage.create(*pair(prefill=2), name=name, topology={"required": "block"})
        stage.refusal(name)
    # It must see all of the room at once: with the first nodes alone the first gang would rightly take its surplus.
    with stage.away("scheduler"):
        stage.nodes(racks=5, nodes=2)
    stage.settle()
    pods = stage.bound()
    assert len(pods) == 10
    assert all(len(members) == 2 for members in by_replica(pods).values())
    order = [(label(pod, "inference"), label(pod, "role")) for pod in first_pinned(stage)]
    assert len(set(order[:8])) == 4
    for name in ("first", "second"):
        assert stage.condition("Available", name)[:2] == ("True", "Available")
    # Whoever has no room for its surplus says so, and is not called anything worse.
    said = "the minimum is Ready; prefill 1/2: 1 replica beyond the minimum has no nodes: prefill: no "
    assert sum(told.startswith(said) for told in stage.told().values()) == 1


def test_roles_that_need_no_rack_leave_nodes_with_one_to_those_that_do(stage: Stage) -> None:
    block = {BLOCK: "block", "topology.kubernetes.io/zone": "zone"}
    bare = set(stage.nodes(nodes=3, labels=block | {RACK: None}))
    racked = set(stage.nodes(labels=block))
    roles = [workers("prefill", size=3), workers("decode", topology={"required": "rack"})]
    stage.create(*roles, topology={"required": "block"})
    pods = stage.ready(4)
    assert {node_of(pod) for pod in pods if label(pod, "role") == "decode"} == racked
    assert {node_of(pod) for pod in pods if label(pod, "role") == "prefill"} == bare


def test_room_when_it_is_freed_goes_to_the_gang_that_it_suffices_for(stage: Stage) -> None:
    names = stage.nodes(racks=2, nodes=2)
    others = [stage.occupy(name) for name in names]
    stage.create(*pair(), name="large", topology={"required": "block"})
    stage.create(workers("decode"), name="small")
    for name in ("large", "small"):
        stage.refusal(name)
    stage.delete("Pod", others[0], grace=0)
    [pod] = stage.ready(1, inference="small")
    assert node_of(pod) == names[0]
    stage.refusal("large")
    stage.delete("DisaggregatedInference", "small")
    for other in others[1:]:
        stage.delete("Pod", other, grace=0)
    stage.ready(4, inference="large")


def test_units_when_there_is_room_for_one_are_admitted_one_by_one(stage: Stage) -> None:
    stage.nodes(racks=2, nodes=2)
    stage.create(*pair(), replicas=2, topology={"required": "block"})
    stage.settle()
    status, reason, message = stage.condition("Admitted")
    assert (status, reason) == ("False", "PartiallyAdmitted")
    # The unit whose pods are all there first is the first.
    found = re.match(r"1/2 units are admitted; unit ([01]): ", message)
    assert found
    assert message in stage.event_notes("PartiallyAdmitted")
    assert {label(pod, "unit") for pod in stage.bound()} == {"0", "1"} - {found[1]}
    stage.nodes(racks=4, nodes=2)
    stage.ready(8)
    assert stage.condition("Admitted") == ("True", "Admitted", "all 2 units are admitted")


def test_replicas_and_units_when_they_go_leave_the_minimum_alone(stage: Stage) -> None:
    stage.nodes(racks=3, nodes=2)
    stage.create(*pair(), topology={"required": "block"})
    first = uids(stage.ready(4))
    # A surplus replica takes the third rack; one more has no room and waits, gated.
    stage.change(roles=pair(prefill=3))
    stage.settle()
    assert len(stage.bound()) == 6
    waiting = [pod for pod in stage.pods() if not node_of(pod)]
    assert len(waiting) == 2
    assert all(gates_of(pod) and not pin_of(pod) for pod in waiting)
    # What waits goes first, then what was bound last; the minimum is not touched.
    stage.change(roles=pair(prefill=2))
    assert not uids(stage.ready(6)) & uids(waiting)
    stage.change(roles=pair())
    assert uids(stage.ready(4)) == first
    # A second unit needs two racks: there is one.
    stage.kubectl("scale", "dinf", "llm", "--replicas=2")
    stage.settle()
    assert stage.condition("Admitted")[:2] == ("False", "PartiallyAdmitted")
    stage.kubectl("scale", "dinf", "llm", "--replicas=1")
    assert uids(stage.ready(4)) == first
    stage.delete("DisaggregatedInference", "llm")
    stage.settle()
    assert not [item for kind in OWNED for item in stage.owned(kind)]


def test_resource_without_units_keeps_no_place_in_the_queue(stage: Stage) -> None:
    """Age is since when a unit has wanted places: one that is asked for later comes later, however old its resource is."""
    [node] = stage.nodes()
    other = stage.occupy(node)
    stage.create(workers("decode"), name="empty", replicas=0)
    stage.settle()
    stage.outlive_second_of(stage.get("Workload", "empty"))
    stage.create(workers("decode"), name="waits")
    stage.refusal("waits")
    stage.outlive_second_of(stage.get("CompositePodGroup", "waits-0"))
    stage.change("empty", replicas=1)
    stage.refusal("empty")
    stage.delete("Pod", other, grace=0)
    stage.ready(1, inference="waits")
    assert not stage.bound(inference="empty")


@pytest.mark.slow  # 256 pods
def test_gang_of_256_pods_comes_and_goes_whole(stage: Stage) -> None:
    stage.nodes(racks=4, nodes=8)
    stage.create(
        workers("prefill", gpus=1, replicas=16, minReplicas=16, size=8, topology={"required": "rack"}),
        workers("decode", gpus=1, replicas=8, minReplicas=8, size=16, topology={"required": "rack"}),
        topology={"required": "block"},
    )
    for members in by_replica(stage.ready(256)).values():
        assert len(stage.domains(members, BLOCK, RACK)) == 1
    assert stage.condition("Available")[:2] == ("True", "Available")
    stage.delete("DisaggregatedInference", "llm")
    stage.settle()
    assert not [item for kind in OWNED for item in stage.owned(kind)]


def refusal_of(stage: Stage, root: str) -> tuple[str, str]:
    """Reason and message with which a root is not admitted, at rest."""
    stage.settle()
    status, reason, message = stage.condition("Admitted", root, of="CompositePodGroup")
    assert status == "False"
    return reason, message


def test_pods_that_others_gate_hold_their_gang_and_are_named(stage: Stage, bench: Bench) -> None:
    stage.nodes(nodes=3)
    gates = ("example.com/quota", "scheduling.covey.dev/gang")
    bench.unit("foreign", Role("prefill"), Role("decode", gates=gates))
    reason, message = refusal_of(stage, "foreign")
    assert reason == "Waiting"
    assert "example.com/quota" in message
    assert all(map(gates_of, stage.pods()))
    [pod] = stage.pods(role="decode")
    stage.patch("Pod", name_of(pod), [{"op": "remove", "path": "/spec/schedulingGates/0"}])
    stage.ready(2)


def test_gang_when_a_pod_is_missing_waits_whole(stage: Stage, bench: Bench) -> None:
    stage.nodes(nodes=3)
    tree = bench.unit("late", Role("decode", size=3), pods=False)
    tree.create(tree.manifests[:2])
    reason, message = refusal_of(stage, "late")
    assert reason == "Waiting"
    assert "2 of 3 pods" in message
    assert not stage.bound()
    tree.create(tree.manifests[2:])
    stage.ready(3)


def test_domain_is_chosen_with_the_surplus_in_view(stage: Stage) -> None:
    stage.nodes(blocks=1, racks=1, nodes=2, prefix="small-")
    stage.nodes(blocks=1, racks=1, nodes=4, prefix="large-")
    stage.create(workers("decode", replicas=4, minReplicas=1), topology={"required": "block"})
    assert len(stage.domains(stage.ready(4), BLOCK)) == 1


def test_units_when_spread_over_fewer_domains_than_units_leave_one_waiting(stage: Stage) -> None:
    stage.nodes(blocks=2, nodes=4)
    spread = {"level": "block", "mode": "Required", "maxPerDomain": 1}
    stage.create(workers("decode"), replicas=3, spread=spread, topology={"required": "block"})
    stage.settle()
    pods = stage.bound()
    assert len(pods) == 2
    assert len(stage.domains(pods, BLOCK)) == 2
    [left] = {"0", "1", "2"} - {label(pod, "unit") for pod in pods}
    assert refusal_of(stage, f"llm-{left}")[0] == "Infeasible"


def test_pods_when_they_use_what_a_node_must_declare_go_where_it_is_declared(stage: Stage) -> None:
    names = stage.nodes(nodes=3)
    feature = "RestartAllContainersOnContainerExits"
    made = workers("decode")
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [7]}}
    made["template"]["spec"]["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    stage.create(made)
    assert f"undeclared feature {feature}" in stage.refusal()
    path = f"/api/v1/nodes/{names[1]}/status"
    stage.cluster.api("PATCH", path, {"status": {"declaredFeatures": [feature]}})
    [pod] = stage.ready(1)
    assert node_of(pod) == names[1]
    assert len(uids(event.object for event in stage.history("Pod"))) == 1, "it was never refused"
