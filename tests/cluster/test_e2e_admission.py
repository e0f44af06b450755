"""From a resource to bound pods with everything running: all of the minimum or nothing, and where it lands."""

from __future__ import annotations

import re
import time

import pytest

from cluster.conftest import Covey
from cluster.serving import BLOCK, RACK, AddNodes, Serving, check_history, replicas, serving, workers
from cluster.workbench import is_gated, label, name_of, uid_of
from covey.api import core
from localcluster import eventually
from scheduler_trees import node_of, pin_of

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")


def pair(*, prefill: int = 1, decode: int = 1, size: int = 2) -> list[dict[str, object]]:
    """Two roles whose replicas need a rack each."""
    rack = {"required": "rack"}
    return [
        workers("prefill", replicas=prefill, size=size, topology=rack),
        workers("decode", replicas=decode, size=size, topology=rack),
    ]


def test_room_for_one_role_only(serving: Serving, nodes: AddNodes) -> None:
    nodes(racks=1, nodes=3)
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.create(*pair(), topology={"required": "block"})
        message = serving.await_condition("Admitted", "False", "Infeasible")
        # The message names role, level, resource and how much of it is missing.
        assert "prefill" in message or "decode" in message
        assert "block" in message
        assert "8 more nvidia.com/gpu" in message or "(8 nvidia.com/gpu) is missing" in message
        assert all(map(is_gated, serving.await_pods(4)))
        # And it is what people see, wherever they look.
        eventually(lambda: message in serving.kubectl("get", "dinf", "-o", "wide"))
        assert message in serving.kubectl("describe", "dinf", "llm")
        assert serving.await_event("Infeasible") == message
        assert serving.kubectl("get", "pods", "--no-headers").count("SchedulingGated") == 4
        assert check_history(recording.events, *pair()) == 0
        nodes(racks=2, nodes=2)
        serving.await_bound(4)
        serving.await_condition("Available", "True", "Available")
        recording.wait(lambda events: len({uid_of(pod) for _, pod in events if node_of(pod)}) == 4)
        assert check_history(recording.events, *pair()) == 4
    assert "True" in serving.kubectl("get", "dinf", "llm", "-o", "wide")


def test_minimums_of_all_come_before_surplus_of_any(serving: Serving, nodes: AddNodes, covey_to_kill: Covey) -> None:
    """Room for both minimums and one surplus replica; both ask for two."""
    nodes()
    serving.create(*pair(prefill=2), name="first", topology={"required": "block"})
    serving.create(*pair(prefill=2), name="second", topology={"required": "block"})
    for name in ("first", "second"):
        serving.await_condition("Admitted", "False", "Infeasible", name)
    with serving.cluster.record(serving.path("Pod")) as recording:
        # It must see all of the room at once: with the first nodes alone the first gang would rightly take its surplus.
        covey_to_kill.scheduler.stop()
        nodes(racks=5, nodes=2)
        covey_to_kill.scheduler.start()
        eventually(lambda: len(serving.bound()) == 10, 120, lambda: str(serving.states()))
        recording.wait(lambda events: len({uid_of(pod) for _, pod in events if node_of(pod)}) == 10)
        order = [(label(pod, "inference"), label(pod, "role")) for pod in admitted_in_order(recording.events)]
        assert check_history(recording.events, *pair(prefill=2)) == 10
    whole = sorted(key[:3] for key, members in replicas(serving.pods()).items() if all(node_of(pod) for pod in members))
    assert len(whole) == 5
    assert {(name, role) for name, _, role in whole} == {
        (name, role) for name in ("first", "second") for role in ("prefill", "decode")
    }
    # The two pods admitted last are the one surplus replica: by then each role of both had its minimum.
    assert len(set(order[:8])) == 4
    for name in ("first", "second"):
        serving.await_condition("Available", "True", "Available", name)
    # Whoever has no room for its surplus says so, and is not called anything worse.
    said = "the minimum is Ready; prefill 1/2: 1 replica beyond the minimum waits for room"
    eventually(lambda: list(serving.states().values()).count(said) == 1, describe=lambda: str(serving.states()))


def admitted_in_order(events: list[tuple[str, dict[str, object]]]) -> list[dict[str, object]]:
    """Each pod as it was when it had just been let go."""
    found: dict[str, dict[str, object]] = {}
    for _, pod in events:
        if pin_of(pod):
            found.setdefault(uid_of(pod), pod)
    return list(found.values())


def test_racks_of_one_name_in_two_blocks(serving: Serving, nodes: AddNodes) -> None:
    """Two nodes are free in rack 0 of either block: a replica of four has no rack, one of two has."""
    nodes(blocks=2, racks=1, nodes=2, local_racks=True)
    serving.create(workers("decode", size=4, topology={"required": "rack"}), topology={"required": "block"})
    serving.await_condition("Admitted", "False", "Infeasible")
    assert all(map(is_gated, serving.await_pods(4)))
    serving.change({"roles": [workers("decode", size=2, topology={"required": "rack"})]})
    pods = serving.await_bound(2)
    assert len(serving.domains(pods, BLOCK, RACK)) == 1


def test_nodes_without_a_rack_serve_roles_that_need_none(serving: Serving, nodes: AddNodes) -> None:
    block = {BLOCK: "block", "topology.kubernetes.io/zone": "zone"}
    bare = set(nodes(nodes=3, labels=block | {RACK: None}))
    racked = set(nodes(labels=block))
    roles = [workers("prefill", size=3), workers("decode", topology={"required": "rack"})]
    serving.create(*roles, topology={"required": "block"})
    pods = serving.await_bound(4)
    assert {node_of(pod) for pod in pods if label(pod, "role") == "decode"} == racked
    assert {node_of(pod) for pod in pods if label(pod, "role") == "prefill"} == bare


def test_freed_room_goes_to_the_one_that_it_suffices_for(serving: Serving, nodes: AddNodes) -> None:
    names = nodes(racks=2, nodes=2)
    fillers = [serving.take_room(name) for name in names]
    serving.create(*pair(), name="large", topology={"required": "block"})
    serving.create(workers("decode"), name="small")
    for name in ("large", "small"):
        serving.await_condition("Admitted", "False", "Infeasible", name)
    serving.free_room(fillers[0])
    (pod,) = serving.await_bound(1, inference="small")
    assert node_of(pod) == names[0]
    assert all(map(is_gated, serving.pods(inference="large")))
    serving.delete("DisaggregatedInference", "small")
    for filler in fillers[1:]:
        serving.free_room(filler)
    serving.await_bound(4, inference="large")


def test_units_are_admitted_one_by_one(serving: Serving, nodes: AddNodes) -> None:
    nodes(racks=2, nodes=2)
    serving.create(*pair(), replicas=2, topology={"required": "block"})
    message = serving.await_condition("Admitted", "False", "PartiallyAdmitted")
    # The unit whose pods are all there first is the first.
    found = re.match(r"1/2 units are admitted; unit ([01]): ", message)
    assert found
    assert serving.await_event("PartiallyAdmitted") == message
    eventually(lambda: {label(pod, "unit") for pod in serving.bound()} == {"0", "1"} - {found[1]})
    nodes(racks=2, nodes=2)
    serving.await_bound(8)
    assert serving.await_condition("Admitted", "True", "Admitted") == "all 2 units are admitted"


@pytest.mark.slow  # 256 pods
def test_a_gang_of_256_pods_comes_and_goes_whole(serving: Serving, nodes: AddNodes) -> None:
    nodes(racks=4, nodes=8)
    roles = [
        workers("prefill", gpus=1, replicas=16, minReplicas=16, size=8, topology={"required": "rack"}),
        workers("decode", gpus=1, replicas=8, minReplicas=8, size=16, topology={"required": "rack"}),
    ]
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.create(*roles, topology={"required": "block"})
        recording.wait(lambda events: len({uid_of(pod) for _, pod in events if node_of(pod)}) == 256, 240)
        assert check_history(recording.events, *roles) == 256
    for members in replicas(serving.await_bound(256)).values():
        assert len(serving.domains(members, BLOCK, RACK)) == 1
    serving.await_condition("Available", "True", "Available")
    serving.delete("DisaggregatedInference", "llm")
    serving.await_nothing_left()


def test_scale_up_and_down(serving: Serving, nodes: AddNodes) -> None:
    nodes(racks=3, nodes=2)
    serving.create(*pair(), topology={"required": "block"})
    first = {uid_of(pod) for pod in serving.await_bound(4)}
    # A surplus replica takes the third rack; one more has no room and waits, gated.
    serving.change({"roles": pair(prefill=3)})
    eventually(lambda: len(serving.bound()) == 6 and len(serving.pods()) == 8, 60, lambda: str(serving.states()))
    waiting = [pod for pod in serving.pods() if not node_of(pod)]
    assert all(is_gated(pod) and not pin_of(pod) for pod in waiting)
    # What waits goes first, then what was bound last; the minimum is not touched.
    serving.change({"roles": pair(prefill=2)})
    assert {name_of(pod) for pod in serving.await_bound(6)}.isdisjoint(map(name_of, waiting))
    serving.change({"roles": pair()})
    assert {uid_of(pod) for pod in serving.await_bound(4)} == first
    # A second unit needs two racks: there is one.
    serving.kubectl("scale", "dinf", "llm", "--replicas=2")
    serving.await_condition("Admitted", "False", "PartiallyAdmitted")
    serving.kubectl("scale", "dinf", "llm", "--replicas=1")
    assert {uid_of(pod) for pod in serving.await_bound(4)} == first
    serving.delete("DisaggregatedInference", "llm")
    serving.await_nothing_left()


def test_a_resource_without_units_keeps_no_place_in_the_queue(serving: Serving, nodes: AddNodes) -> None:
    """Age is since when a unit has wanted places: one that is asked for later comes later, however old its resource is."""
    [node] = nodes(racks=1, nodes=1)
    taken = serving.take_room(node)
    serving.create(workers("decode"), name="empty", replicas=0)
    since = eventually(lambda: serving.get("Workload", "empty")["metadata"]["creationTimestamp"], 60)
    # Times of objects are in whole seconds.
    await_later_second(since)
    serving.create(workers("decode"), name="waits")
    since = eventually(lambda: serving.get("CompositePodGroup", "waits-0")["metadata"]["creationTimestamp"], 60)
    await_later_second(since)
    serving.change({"replicas": 1}, name="empty")
    for name in ("waits", "empty"):
        serving.await_condition("Admitted", "False", "Infeasible", name=name)
    serving.free_room(taken)
    serving.await_bound(1, inference="waits")
    assert not serving.bound(inference="empty")


def await_later_second(since: str) -> None:
    """What is created from now on is younger."""
    eventually(lambda: time.time() >= (core.seconds(since) or 0.0) + 1.1, 60, "a later second")
