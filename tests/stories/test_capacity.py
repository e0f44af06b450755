"""Nodes from an autoscaler: asked for once, used when they come, and no longer than needed.

The autoscaler is a stand-in that answers as the real ones do (``cluster.autoscaler``); it looks when the story says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from kubernetes.client import ApiException
from prometheus_client import generate_latest

from builders.manifests import Object, workers
from cluster.autoscaler import CAPACITY_BUFFER, GROUP, PROVISIONING_REQUEST, Autoscaler, NodeGroup
from cluster.workbench import name_of, uid_of
from covey.observability.families import REGISTRY
from covey.operator.model.capacity import Provider
from localcluster.programs import ROOT
from scrapes import Scrape
from stage import Ground, Stage
from stage.play import BLOCK, INFERENCE, RACK

RIGHTS: Final = tuple(
    ROOT / "manifests" / "components" / name / "rights.yaml" for name in ("provisioning-requests", "capacity-buffers")
)
CONDITION: Final = "CapacityAsked"
TOPOLOGIES: Final = "/apis/scheduling.covey.dev/v1alpha1/clustertopologies"


@pytest.fixture(scope="module", autouse=True)
def rights(ground: Ground) -> Iterator[None]:
    """The operator may ask."""
    ground.cluster.install_rbac(*RIGHTS)
    yield
    for path in RIGHTS:
        ground.cluster.kubectl("delete", "-f", str(path))


@pytest.fixture(scope="module")
def kinds(ground: Ground) -> Iterator[None]:
    """The kinds of autoscalers."""
    ground.cluster.apply([PROVISIONING_REQUEST, CAPACITY_BUFFER])

    def are_served() -> bool:
        try:
            for kind in ("v1/provisioningrequests", "v1beta1/capacitybuffers"):
                ground.cluster.api("GET", f"/apis/{GROUP}/{kind}")
        except ApiException:
            return False
        return True

    ground.wait(are_served, "the kinds are served")
    yield
    ground.cluster.kubectl("delete", "crd", f"provisioningrequests.{GROUP}", f"capacitybuffers.{GROUP}")


@pytest.fixture
def autoscaler(stage: Stage, kinds: None) -> Autoscaler:
    """An autoscaler that has no nodes to give."""
    del kinds
    ask(stage, Provider.PROVISIONING_REQUEST)
    return Autoscaler(stage.cluster, stage.namespace, back_off=0.0)


def ask(stage: Stage, provider: Provider) -> None:
    """Have the operator ask an autoscaler."""

    def clean() -> None:
        """The garbage collector looks for new kinds every half a minute only."""
        for kinds in ("dinf", "provisioningrequests,capacitybuffers,podtemplates"):
            stage.cluster.kubectl("delete", kinds, "--all", "-n", stage.namespace, check=False)
            stage.settle()

    stage.after(clean)
    stage.restart(operator={"capacity_provider": provider})


def group(stage: Stage, most: int, **fields: Any) -> NodeGroup:
    """A group whose nodes come in a rack of their own."""
    pool = NodeGroup(lambda _: stage.nodes(nodes=pool.size, prefix="more-"), most, **fields)
    return pool


def asked(stage: Stage, autoscaler: Autoscaler, count: int = 1) -> list[Object]:
    """The requests after a while: so many."""
    stage.advance(40)
    requests = autoscaler.requests()
    assert len(requests) == count, stage.told()
    return requests


def answered(stage: Stage, autoscaler: Autoscaler) -> tuple[str, str, str]:
    """What a resource says once the autoscaler has looked and nodes had time to come."""
    autoscaler.look()
    stage.advance(10)
    return stage.condition(CONDITION)


def check_over(stage: Stage, autoscaler: Autoscaler, count: int) -> list[Object]:
    """All pods have nodes, nothing is left of what was asked, and nothing is kept or said any more."""
    pods = stage.ready(count, inference="llm")
    stage.advance(10)
    assert not [*autoscaler.requests(), *autoscaler.buffers(), *autoscaler.templates()]
    assert stage.condition(CONDITION) == ("", "", "")
    root = stage.get("CompositePodGroup", "llm-0")
    assert "scheduling.covey.dev/capacity-asked" not in root["metadata"].get("annotations", {})
    assert "claim" not in root["status"]
    return pods


def gang(replicas: int, **fields: Any) -> Object:
    return workers("decode", replicas=replicas, **{"minReplicas": replicas, **fields})


def test_nobody_is_asked_before_the_kind_is_there(stage: Stage, request: pytest.FixtureRequest) -> None:
    ask(stage, Provider.PROVISIONING_REQUEST)
    stage.create(gang(2))
    stage.advance(40)
    status, reason, message = stage.condition(CONDITION)
    assert (status, reason) == ("False", "ProviderMissing")
    assert "ProvisioningRequest" in message
    request.getfixturevalue("kinds")
    stage.advance(70)
    assert asked(stage, Autoscaler(stage.cluster, stage.namespace))
    assert stage.condition(CONDITION)[0] == "True"


def test_gang_on_a_full_cluster_brings_its_nodes(stage: Stage, autoscaler: Autoscaler) -> None:
    """One node is free: all three pods are asked for all the same, and two nodes come."""

    for node in stage.nodes(nodes=3)[:2]:
        stage.occupy(node)
    pool = group(stage, 5)
    autoscaler.groups.append(pool)
    stage.create(gang(3))
    [request] = asked(stage, autoscaler)
    assert request["spec"]["podSets"][0]["count"] == 3
    stage.refusal()
    answered(stage, autoscaler)
    check_over(stage, autoscaler, 3)
    assert pool.size == 2


def test_time_until_nodes_come_is_counted(stage: Stage, autoscaler: Autoscaler) -> None:
    """They take a while, as nodes do: the call succeeds first."""

    def counted() -> float:
        return Scrape.parse(generate_latest(REGISTRY).decode())("covey_capacity_seconds_count")

    autoscaler.lies = True
    autoscaler.groups.append(group(stage, 2))
    before = counted()
    stage.create(gang(2))
    asked(stage, autoscaler)
    assert answered(stage, autoscaler)[:2] == ("True", "Coming")
    stage.nodes(nodes=2)
    check_over(stage, autoscaler, 2)
    assert counted() == before + 1


def test_request_that_nobody_waits_for_is_withdrawn(stage: Stage, autoscaler: Autoscaler) -> None:
    stage.create(workers("decode", replicas=3, minReplicas=2))
    [before] = asked(stage, autoscaler)
    stage.change(roles=[gang(3)])
    [after] = asked(stage, autoscaler)
    assert name_of(after) != name_of(before)
    assert after["spec"]["podSets"][0]["count"] == 3
    stage.change(suspend=True)
    asked(stage, autoscaler, 0)
    stage.change(suspend=False)
    [request] = asked(stage, autoscaler)
    # With the resource it goes as what belongs to it.
    assert [owner["kind"] for owner in request["metadata"]["ownerReferences"]] == [INFERENCE]


def test_refusal_of_the_autoscaler_is_told_and_taken_back(stage: Stage, autoscaler: Autoscaler) -> None:
    """There is no such node group; then somebody makes one, and the autoscaler tries again by itself."""
    stage.create(gang(2))
    asked(stage, autoscaler)
    status, reason, message = answered(stage, autoscaler)
    assert (status, reason) == ("True", "NoCapacity")
    assert "no node group has room for 2 pods" in message
    autoscaler.groups.append(group(stage, 2))
    answered(stage, autoscaler)
    check_over(stage, autoscaler, 2)


@pytest.mark.parametrize(
    ("knob", "last"), [("fails", "CapacityFailed"), ("lies", "NothingCame"), ("finds", "Disagreed")]
)
def test_answer_without_nodes_ends_and_the_same_is_asked_for_again(
    stage: Stage, autoscaler: Autoscaler, knob: str, last: str
) -> None:
    """And room that comes by another way admits the gang."""
    setattr(autoscaler, knob, True)
    autoscaler.groups.append(group(stage, 5))
    stage.create(gang(2))
    [first] = asked(stage, autoscaler)
    answered(stage, autoscaler)
    if knob != "fails":
        stage.advance(1000)
    status, reason, message = stage.condition(CONDITION)
    assert (status, reason) == ("False", last)
    [template] = autoscaler.templates()
    assert f"or once PodTemplate {name_of(template)} is deleted" in message
    # An edit that changes nothing of the ask makes no other.
    stage.change(gang={"timeoutSeconds": 200})
    stage.advance(3600)
    assert {name_of(request) for request in autoscaler.requests()} <= {name_of(first)}
    stage.nodes(nodes=2)
    check_over(stage, autoscaler, 2)


@pytest.mark.parametrize("process", ["operator", "scheduler"])
def test_process_when_it_is_killed_asks_no_second_time(stage: Stage, autoscaler: Autoscaler, process: str) -> None:
    autoscaler.groups.append(group(stage, 4))
    stage.create(workers("prefill", gpus=4), gang(2))
    before = {uid_of(request) for request in asked(stage, autoscaler, 2)}
    stage.kill_now(process)
    assert {uid_of(request) for request in asked(stage, autoscaler, 2)} == before
    for _ in range(2):
        answered(stage, autoscaler)
        stage.kill_now(process)
    check_over(stage, autoscaler, 3)


def test_request_when_its_creation_is_denied_is_made_later(stage: Stage, autoscaler: Autoscaler) -> None:
    denial = stage.deny("operator", verbs=("create",), resources=("provisioningrequests",))
    stage.create(gang(2))
    stage.advance(120)
    assert denial.denied
    assert len(autoscaler.requests()) == 1


def test_gang_of_one_rack_brings_a_whole_one(stage: Stage, autoscaler: Autoscaler) -> None:
    """No rack has room: the group of another one comes whole (ZeroOrMaxNodeScaling), and all of the gang lies in it."""
    for node in stage.nodes(racks=2, nodes=1):
        stage.occupy(node)
    rack = group(stage, 4, whole=True, labels={RACK: "the next"})
    autoscaler.groups.append(rack)
    stage.create(gang(3), topology={"name": "kueue", "required": "rack"})
    asked(stage, autoscaler)
    answered(stage, autoscaler)
    assert len(stage.domains(check_over(stage, autoscaler, 3), RACK)) == 1
    assert rack.size == 4


def test_rack_with_some_room_is_a_trap_and_it_is_told(stage: Stage, autoscaler: Autoscaler) -> None:
    """The first pod goes where there is room, the others have to join it, and a fresh rack does not help any more."""
    stage.occupy(stage.nodes(nodes=2)[1])
    autoscaler.groups.append(group(stage, 4, whole=True, labels={RACK: "the next"}))
    stage.create(gang(3), topology={"name": "kueue", "required": "rack"})
    asked(stage, autoscaler)
    assert answered(stage, autoscaler)[:2] == ("True", "NoCapacity")
    # Whoever adds the rack by hand has the gang in it all the same.
    stage.nodes(nodes=3, prefix="hand-")
    check_over(stage, autoscaler, 3)


@pytest.fixture
def racks(stage: Stage) -> list[str]:
    """A ClusterTopology with racks of four nodes that may come; those that come must be called so."""
    names = [f"{stage.namespace}-a", f"{stage.namespace}-b"]
    allocatable = {"nvidia.com/gpu": "8", "cpu": "64", "pods": "110"}
    elastic = [{"level": "rack", "names": names, "nodes": 4, "allocatable": allocatable}]
    levels = [{"name": "block", "keys": [BLOCK]}, {"name": "rack", "keys": [RACK]}]
    body = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": "growing"}}
    stage.cluster.api("POST", TOPOLOGIES, {**body, "spec": {"levels": levels, "elastic": elastic}})
    stage.after(lambda: stage.cluster.delete(f"{TOPOLOGIES}/growing"))
    return names


def test_rack_that_may_come_is_asked_for_by_name(stage: Stage, autoscaler: Autoscaler, racks: list[str]) -> None:
    """A rack with some room is no trap then; the first rack is not to be had, and the next one is asked for."""
    stage.occupy(stage.nodes(nodes=2)[1])
    where = {BLOCK: stage.namespace, RACK: racks[1]}
    second = NodeGroup(
        lambda count: stage.nodes(nodes=count, prefix="b-", labels=where), 4, whole=True, labels={RACK: racks[1]}
    )
    autoscaler.groups.append(second)
    stage.create(workers("prefill", gpus=4), gang(3), topology={"name": "growing", "required": "rack"})
    asked(stage, autoscaler, 2)
    selectors = {template["template"]["spec"]["nodeSelector"][RACK] for template in autoscaler.templates()}
    assert selectors == {racks[0]}
    while not second.size:
        answered(stage, autoscaler)
        stage.advance(600)
    assert stage.domains(check_over(stage, autoscaler, 4), RACK) == {(racks[1],)}


def kept(stage: Stage) -> tuple[str, set[str]]:
    """Why nodes are kept for who asked, and which, at rest."""
    stage.settle()
    claim = stage.get("CompositePodGroup", "llm-0").get("status", {}).get("claim") or {}
    return claim.get("purpose", ""), set(claim.get("nodes") or ())


def test_half_a_rack_is_kept_for_who_asked_until_the_other_half_is_there(
    stage: Stage, autoscaler: Autoscaler, racks: list[str]
) -> None:
    """A smaller gang behind it does not get the half; nobody who is killed meanwhile matters."""
    stage.create(gang(3), topology={"name": "growing", "required": "rack"})
    asked(stage, autoscaler)
    stage.create(workers("decode"), name="small")
    stage.refusal("small")
    where = {BLOCK: stage.namespace, RACK: racks[0]}
    half = stage.nodes(nodes=2, labels=where)
    assert kept(stage) == ("Capacity", set(half))
    for process in ("scheduler", "operator"):
        stage.kill_now(process)
    assert kept(stage) == ("Capacity", set(half))
    assert "2 of the nodes that it waits for have come" in stage.condition(CONDITION)[2]
    assert not stage.bound()
    stage.nodes(nodes=4, labels=where)
    stage.ready(1, inference="small")
    assert stage.domains(check_over(stage, autoscaler, 3), RACK) == {(racks[0],)}


def test_half_a_rack_is_given_up_where_the_other_half_never_comes(stage: Stage, autoscaler: Autoscaler) -> None:
    autoscaler.lies = True
    autoscaler.groups.append(group(stage, 4, whole=True, labels={RACK: "the next"}))
    stage.create(gang(3), topology={"name": "kueue", "required": "rack"})
    asked(stage, autoscaler)
    assert answered(stage, autoscaler)[:2] == ("True", "Coming")
    stage.create(workers("decode"), name="small")
    stage.refusal("small")
    half = stage.nodes(nodes=2)
    assert kept(stage) == ("Capacity", set(half))
    assert not stage.bound()
    stage.advance(1000)
    stage.ready(1, inference="small")
    assert stage.condition(CONDITION)[:2] == ("False", "NothingCame")
    assert kept(stage) == ("", set())


@pytest.mark.parametrize("provider", Provider)
def test_replicas_beyond_the_minimum_bring_nodes_too(stage: Stage, autoscaler: Autoscaler, provider: Provider) -> None:
    """An autoscaler of replicas raises a role on a full cluster; a buffer goes with the nodes that it brings."""
    ask(stage, provider)
    stage.nodes(nodes=1)
    pool = group(stage, 3)
    autoscaler.groups.append(pool)
    stage.create(workers("decode"))
    stage.ready(1)
    stage.change(roles=[workers("decode", replicas=3, minReplicas=1)])
    stage.advance(40)
    answered(stage, autoscaler)
    check_over(stage, autoscaler, 3)
    assert pool.size == 2
