"""Nodes from an autoscaler, with everything running: asked for once, used when they come, and no longer than needed.

The autoscaler is a stand-in that answers as the real ones do (``cluster.autoscaler``); Kubernetes is the real one.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest

from builders.manifests import Object
from cluster.autoscaler import CAPACITY_BUFFER, GROUP, PROVISIONING_REQUEST, Autoscaler, NodeGroup
from cluster.conftest import Covey
from cluster.serving import BLOCK, RACK, AddNodes, Serving, serving, workers
from cluster.workbench import name_of, uid_of
from localcluster import Cluster, eventually
from localcluster.process import Process
from localcluster.programs import ROOT, scheduler_config
from scrapes import Scrape

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")

COMPONENTS = ROOT / "manifests" / "components"
RIGHTS = tuple(COMPONENTS / name / "rights.yaml" for name in ("provisioning-requests", "capacity-buffers"))
SOON = ("--capacity-after-seconds=1", "--capacity-wait-seconds=4")


@pytest.fixture(scope="module")
def covey(cluster: Cluster) -> Iterator[Covey]:
    """The processes, the operator with an autoscaler to ask and the rights for it; nobody has installed its kinds."""
    cluster.install_rbac(ROOT / "manifests" / "base" / "rbac", *RIGHTS)
    try:
        scheduler = cluster.start_covey("scheduler")
        kube_scheduler = cluster.start_scheduler(scheduler_config(scheduler))
        operator = cluster.start_covey("operator", "--capacity-provider=ProvisioningRequest", *SOON)
        yield Covey(operator, scheduler, kube_scheduler)
    finally:
        cluster.stop_all()
        for path in RIGHTS:
            cluster.kubectl("delete", "-f", str(path))
        cluster.kubectl("delete", "crd", f"provisioningrequests.{GROUP}", f"capacitybuffers.{GROUP}", check=False)


@pytest.fixture
def autoscaler(serving: Serving) -> Autoscaler:
    """An autoscaler that does not run yet, and has no nodes to give."""
    serving.cluster.apply([PROVISIONING_REQUEST, CAPACITY_BUFFER])
    # A new kind is not known for a moment, and then for another one its lists are refused.
    for kind in ("v1/provisioningrequests", "v1beta1/capacitybuffers"):
        eventually(lambda path=f"/apis/{GROUP}/{kind}": serving.cluster.api("GET", path), 60, f"{kind} are served")
    return Autoscaler(serving.cluster, serving.namespace)


def group(nodes: AddNodes, most: int, **fields: object) -> NodeGroup:
    """A group whose nodes come in a rack of their own."""
    return NodeGroup(lambda count: nodes(nodes=count), most, **fields)  # type: ignore[arg-type] # fields of it


def fill(serving: Serving, names: list[str]) -> None:
    for name in names:
        serving.take_room(name)


def await_gone(autoscaler: Autoscaler) -> None:
    """Wait until nothing is left of what was asked."""
    eventually(
        lambda: not [*autoscaler.requests(), *autoscaler.buffers(), *autoscaler.templates()], 60, "nothing is asked for"
    )


def await_asked(autoscaler: Autoscaler, count: int = 1) -> list[Object]:
    def there() -> list[Object]:
        found = autoscaler.requests()
        assert len(found) == count, str(found)
        return found

    return eventually(there, 60, f"{count} requests")


def has_condition(serving: Serving, name: str = "llm") -> bool:
    found = serving.get("DisaggregatedInference", name)["status"]["conditions"]
    return any(each["type"] == "CapacityAsked" for each in found)


def has_answer(resource: Object, reason: str) -> bool:
    """Say whether the status of a resource has this answer to a request that is open."""
    found = resource.get("status", {}).get("conditions", ())
    return ("CapacityAsked", "True", reason) in {(each["type"], each["status"], each["reason"]) for each in found}


def test_nobody_is_asked_before_the_kind_is_there(serving: Serving) -> None:
    serving.create(workers("decode", replicas=2, minReplicas=2))
    message = serving.await_condition("CapacityAsked", "False", "ProviderMissing")
    assert "ProvisioningRequest" in message
    scaler = Autoscaler(serving.cluster, serving.namespace)
    assert not scaler.templates()
    serving.cluster.apply([PROVISIONING_REQUEST, CAPACITY_BUFFER])
    await_asked(scaler)

    def is_told() -> bool:
        # Nobody answers, and after a few seconds it says so.
        found = serving.condition("CapacityAsked")
        return found["status"] == "True" and found["reason"] in {"Asked", "NoAnswer"}

    eventually(is_told, 60, "it is told")


def test_a_gang_on_a_full_cluster_brings_its_nodes(serving: Serving, nodes: AddNodes, autoscaler: Autoscaler) -> None:
    """One node is free: all three pods are asked for all the same, and two nodes come."""
    fill(serving, nodes(nodes=2))
    nodes(nodes=1)
    pool = group(nodes, 5)
    autoscaler.groups.append(pool)
    serving.create(workers("decode", replicas=3, minReplicas=3))
    (asked,) = await_asked(autoscaler)
    assert asked["spec"]["podSets"][0]["count"] == 3
    serving.await_condition("Admitted", "False", "Infeasible")
    with autoscaler.running():
        serving.await_ready(3, inference="llm")
        await_gone(autoscaler)
    assert pool.size == 2
    eventually(lambda: not has_condition(serving), 30, "nothing is said of it any more")


def test_the_time_until_nodes_come_is_counted(
    serving: Serving, nodes: AddNodes, autoscaler: Autoscaler, covey_to_kill: Covey
) -> None:
    """They take a while, as nodes do: the call succeeds first."""
    # Only an answer that is still believed when they come is counted.
    operator = be_patient(serving, covey_to_kill, 600)

    def counted(metric: str, **labels: str) -> float:
        with urllib.request.urlopen(operator.metrics_url, timeout=10) as answer:
            return Scrape.parse(answer.read().decode())(metric, **labels)

    autoscaler.lies = True
    autoscaler.groups.append(group(nodes, 2))
    before = counted("covey_capacity_seconds_count")
    coming = counted("covey_capacity_answers_total", reason="Coming")
    serving.create(workers("decode", replicas=2, minReplicas=2))
    with autoscaler.running():
        serving.await_condition("CapacityAsked", "True", "Coming")
        nodes(nodes=2)
        serving.await_ready(2, inference="llm")
        await_gone(autoscaler)
    eventually(lambda: counted("covey_capacity_seconds_count") == before + 1, 30, "the time is counted, once")
    assert counted("covey_capacity_answers_total", reason="Coming") == coming + 1


@pytest.mark.parametrize("how", ["suspended", "changed", "deleted"])
def test_what_nobody_waits_for_is_withdrawn(serving: Serving, autoscaler: Autoscaler, how: str) -> None:
    serving.create(workers("decode", replicas=3, minReplicas=2))
    (before,) = await_asked(autoscaler)
    if how == "changed":
        serving.change({"roles": [workers("decode", replicas=3, minReplicas=3)]})

        def renewed() -> bool:
            counts = {name_of(each): each["spec"]["podSets"][0]["count"] for each in autoscaler.requests()}
            return name_of(before) not in counts and list(counts.values()) == [3]

        eventually(renewed, 60, "the new minimum is asked for, and the former one is not")
        return
    if how == "suspended":
        serving.change({"suspend": True})
    else:
        serving.delete("DisaggregatedInference", "llm")
    await_gone(autoscaler)


def test_a_refusal_is_told_and_taken_back(serving: Serving, nodes: AddNodes, autoscaler: Autoscaler) -> None:
    """There is no such node group; then somebody makes one, and the autoscaler tries again by itself."""
    serving.create(workers("decode", replicas=2, minReplicas=2))
    with autoscaler.running():
        message = serving.await_condition("CapacityAsked", "True", "NoCapacity")
        assert "no node group has room for 2 pods" in message
        autoscaler.groups.append(group(nodes, 2))
        serving.await_ready(2, inference="llm")
        await_gone(autoscaler)


@pytest.mark.parametrize(
    ("knob", "first", "last"),
    [("fails", None, "CapacityFailed"), ("lies", "Coming", "NothingCame"), ("finds", "Disagreed", "Disagreed")],
)
def test_an_answer_without_nodes_ends_and_is_asked_for_again(
    serving: Serving, nodes: AddNodes, autoscaler: Autoscaler, knob: str, first: str | None, last: str
) -> None:
    """Whatever the answer, the same is asked once more; and room that comes by another way admits the gang."""
    setattr(autoscaler, knob, True)
    autoscaler.groups.append(group(nodes, 5))
    path = f"/apis/{GROUP}/v1/namespaces/{serving.namespace}/provisioningrequests"
    resources = serving.path("DisaggregatedInference")
    with (
        serving.cluster.record(path) as recording,
        serving.cluster.record(resources) as statuses,
        autoscaler.running(),
    ):
        serving.create(workers("decode", replicas=2, minReplicas=2))
        if first:
            # For a few seconds only: a poll may miss it.
            statuses.wait(lambda events: any(has_answer(each, first) for _, each in events))
        message = serving.await_condition("CapacityAsked", "False", last)
        (template,) = autoscaler.templates()
        assert f"or once PodTemplate {name_of(template)} is deleted" in message
        recording.wait(lambda events: len({uid_of(each) for _, each in events}) > 1)
        # An edit that changes nothing of the ask makes no other.
        serving.change({"gang": {"timeoutSeconds": 200}})
        serving.await_condition("CapacityAsked", "False", last)
        nodes(nodes=2)
        serving.await_ready(2, inference="llm")
        await_gone(autoscaler)
    assert {name_of(each) for _, each in recording.events} == {name_of(template)}


def test_an_operator_that_is_killed_makes_no_second_request(
    serving: Serving, nodes: AddNodes, autoscaler: Autoscaler, covey_to_kill: Covey
) -> None:
    operator = covey_to_kill.operator
    path = f"/apis/{GROUP}/v1/namespaces/{serving.namespace}/provisioningrequests"
    autoscaler.groups.append(group(nodes, 4))
    with serving.cluster.record(path) as recording:
        serving.create(workers("prefill", replicas=1, gpus=4), workers("decode", replicas=2, minReplicas=2))
        eventually(autoscaler.templates, 60, "something is asked for")
        for _ in range(3):
            operator.kill()
            operator.start()
            await_asked(autoscaler, 2)
        with autoscaler.running():
            serving.await_ready(3, inference="llm")
            operator.kill()
            operator.start()
            await_gone(autoscaler)
    assert len({uid_of(each) for _, each in recording.events}) == 2


def test_a_scheduler_process_that_starts_anew_withdraws_nothing(
    serving: Serving, autoscaler: Autoscaler, covey_to_kill: Covey
) -> None:
    serving.create(workers("decode", replicas=2, minReplicas=2))
    (before,) = await_asked(autoscaler)
    covey_to_kill.scheduler.kill()
    covey_to_kill.scheduler.start()
    serving.await_condition("Admitted", "False", "Infeasible")
    assert [uid_of(each) for each in autoscaler.requests()] == [uid_of(before)]


def test_a_gang_of_one_rack_brings_a_whole_one(serving: Serving, nodes: AddNodes, autoscaler: Autoscaler) -> None:
    """No rack has room: the group of another one comes whole (ZeroOrMaxNodeScaling), and all of the gang lies in it."""
    fill(serving, nodes(racks=2, nodes=2))
    rack = group(nodes, 4, whole=True, labels={RACK: "the next"})
    autoscaler.groups.append(rack)
    serving.create(workers("decode", replicas=3, minReplicas=3), topology={"name": "kueue", "required": "rack"})
    with autoscaler.running():
        pods = serving.await_ready(3, inference="llm")
        await_gone(autoscaler)
    assert rack.size == 4
    assert len(serving.domains(pods, RACK)) == 1


def test_a_rack_with_some_room_is_a_trap_and_it_is_told(
    serving: Serving, nodes: AddNodes, autoscaler: Autoscaler
) -> None:
    """The first pod goes where there is room, the others have to join it, and a fresh rack does not help any more."""
    fill(serving, nodes(racks=1, nodes=2)[1:])
    autoscaler.groups.append(group(nodes, 4, whole=True, labels={RACK: "the next"}))
    serving.create(workers("decode", replicas=3, minReplicas=3), topology={"name": "kueue", "required": "rack"})
    with autoscaler.running():
        serving.await_condition("CapacityAsked", "True", "NoCapacity")
        # Whoever adds the rack by hand has the gang in it all the same.
        nodes(nodes=3)
        serving.await_ready(3, inference="llm")
        await_gone(autoscaler)


@pytest.fixture
def racks(serving: Serving) -> Iterator[list[str]]:
    """A ClusterTopology with racks of four nodes that may come; those that come must be called so."""
    names = [f"{serving.namespace}-a-rack-0-0", f"{serving.namespace}-b-rack-0-0"]
    kind = {
        "level": "rack",
        "names": names,
        "nodes": 4,
        "allocatable": {"nvidia.com/gpu": "8", "cpu": "64", "pods": "110"},
    }
    levels = [{"name": "block", "keys": [BLOCK]}, {"name": "rack", "keys": [RACK]}]
    path = "/apis/scheduling.covey.dev/v1alpha1/clustertopologies"
    body = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": "growing"}}
    serving.cluster.api("POST", path, {**body, "spec": {"levels": levels, "elastic": [kind]}})
    yield names
    serving.cluster.api("DELETE", f"{path}/growing")


def test_a_rack_that_may_come_is_asked_for_by_name(
    serving: Serving, nodes: AddNodes, autoscaler: Autoscaler, racks: list[str]
) -> None:
    """A rack with some room is no trap then; the first rack is not to be had, and the next one is asked for."""
    fill(serving, nodes(racks=1, nodes=2)[1:])
    second = NodeGroup(
        lambda count: nodes(nodes=count, prefix=racks[1].removesuffix("rack-0-0")),
        4,
        whole=True,
        labels={RACK: racks[1]},
    )
    autoscaler.groups.append(second)
    serving.create(
        workers("prefill", replicas=1, minReplicas=1, gpus=4),
        workers("decode", replicas=3, minReplicas=3),
        topology={"name": "growing", "required": "rack"},
    )
    await_asked(autoscaler, 2)
    selectors = {each["template"]["spec"]["nodeSelector"][RACK] for each in autoscaler.templates()}
    assert selectors == {racks[0]}
    with autoscaler.running():
        pods = serving.await_ready(4, inference="llm")
        await_gone(autoscaler)
    assert second.size == 4
    assert serving.domains(pods, RACK) == {(racks[1],)}


def await_kept(serving: Serving, count: int) -> Object:
    """Wait until so many nodes are kept for the gang that asked; returns its claim."""

    def is_kept() -> Object:
        claim = serving.get("CompositePodGroup", "llm-0").get("status", {}).get("claim") or {}
        assert (claim.get("purpose"), len(claim.get("nodes") or ())) == ("Capacity", count), str(claim)
        return dict(claim)

    return eventually(is_kept, 60, f"{count} nodes are kept for who asked")


def be_patient(serving: Serving, covey: Covey, seconds: int) -> Process:
    """Start another operator in the place of the first."""
    covey.operator.stop()
    flags = (
        "--capacity-provider=ProvisioningRequest",
        "--capacity-after-seconds=1",
        f"--capacity-wait-seconds={seconds}",
    )
    return serving.cluster.start_covey("operator", *flags, name="covey-operator-patient")


def test_half_a_rack_is_kept_for_who_asked_until_the_other_half_is_there(
    serving: Serving, nodes: AddNodes, autoscaler: Autoscaler, racks: list[str], covey_to_kill: Covey
) -> None:
    """A smaller gang behind it, and an ordinary pod, do not get the half; nobody who is killed meanwhile matters."""
    operator = be_patient(serving, covey_to_kill, 600)
    serving.create(workers("decode", replicas=3, minReplicas=3), topology={"name": "growing", "required": "rack"})
    (asked,) = await_asked(autoscaler)
    serving.create(workers("decode", replicas=1), name="small")
    serving.await_condition("Admitted", "False", "Infeasible", "small")
    where = {BLOCK: serving.namespace, RACK: racks[0]}
    half = nodes(nodes=2, labels=where)
    before = await_kept(serving, 2)
    assert sorted(before["nodes"]) == sorted(half)
    container = {"name": "job", "image": "registry.test/job:1", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    ordinary = {"schedulerName": "covey-scheduler", "containers": [container]}
    serving.cluster.api("POST", serving.path("Pod"), {"metadata": {"name": "ordinary"}, "spec": ordinary})
    for process in (covey_to_kill.scheduler, operator):
        process.kill()
        process.start(wait=False)

    def is_kept_off() -> bool:
        conditions = serving.get("Pod", "ordinary").get("status", {}).get("conditions", ())
        return any("is kept for a gang" in each.get("message", "") for each in conditions)

    eventually(is_kept_off, 60, "the ordinary pod is kept off")
    assert await_kept(serving, 2) == before
    told = "2 of the nodes that it waits for have come"
    # The operator may have been killed before it has told so, and has to come up again.
    eventually(lambda: told in serving.condition("CapacityAsked")["message"], 60, "it is told")
    assert not serving.bound(inference="small")
    # The smaller gang asks for a node of its own.
    assert uid_of(asked) in map(uid_of, autoscaler.requests())
    serving.delete("Pod", "ordinary")  # it may be faster than the smaller gang, which needs the whole node
    nodes(nodes=2, labels=where)
    pods = serving.await_ready(3, inference="llm")
    serving.await_ready(1, inference="small")
    await_gone(autoscaler)
    assert serving.domains(pods, RACK) == {(racks[0],)}

    def is_over() -> bool:
        root = serving.get("CompositePodGroup", "llm-0")
        noted = "scheduling.covey.dev/capacity-asked" in root["metadata"].get("annotations", {})
        return not noted and "claim" not in root["status"]

    eventually(is_over, 60, "nothing is kept, and nothing is noted")


def test_half_a_rack_is_given_up_where_the_other_half_never_comes(
    serving: Serving, nodes: AddNodes, autoscaler: Autoscaler, covey_to_kill: Covey
) -> None:
    be_patient(serving, covey_to_kill, 25)
    autoscaler.lies = True
    autoscaler.groups.append(group(nodes, 4, whole=True, labels={RACK: "the next"}))
    serving.create(workers("decode", replicas=3, minReplicas=3), topology={"name": "kueue", "required": "rack"})
    with autoscaler.running():
        serving.await_condition("CapacityAsked", "True", "Coming")
        serving.create(workers("decode", replicas=1), name="small")
        serving.await_condition("Admitted", "False", "Infeasible", "small")
        nodes(nodes=2)
        await_kept(serving, 2)
        assert not serving.bound(inference="small")
        serving.await_ready(1, inference="small")
        serving.await_condition("CapacityAsked", "False", "NothingCame")
    eventually(lambda: "claim" not in serving.get("CompositePodGroup", "llm-0")["status"], 60, "nothing is kept")


def test_replicas_beyond_the_minimum_bring_nodes_too(serving: Serving, nodes: AddNodes, autoscaler: Autoscaler) -> None:
    """An autoscaler of replicas raises a role on a full cluster."""
    nodes(nodes=1)
    pool = group(nodes, 3)
    autoscaler.groups.append(pool)
    serving.create(workers("decode", replicas=1))
    serving.await_ready(1, inference="llm")
    serving.change({"roles": [workers("decode", replicas=3, minReplicas=1)]})
    # Of two pods made in different seconds the first one asks alone for a moment.
    eventually(lambda: [each["spec"]["podSets"][0]["count"] for each in autoscaler.requests()] == [2], 60, "both ask")
    with autoscaler.running():
        serving.await_ready(3, inference="llm")
        await_gone(autoscaler)
    assert pool.size == 2


def test_a_buffer_brings_nodes_and_goes_with_them(
    serving: Serving, nodes: AddNodes, autoscaler: Autoscaler, covey_to_kill: Covey
) -> None:
    """Once pods have the nodes a buffer would ask for as many beside them."""
    covey_to_kill.operator.stop()
    pool = group(nodes, 5)
    autoscaler.groups.append(pool)
    name = "covey-operator-buffers"
    serving.cluster.start_covey("operator", "--capacity-provider=CapacityBuffer", *SOON, name=name)
    serving.create(workers("decode", replicas=2, minReplicas=2))
    eventually(autoscaler.buffers, 60, "a buffer is there")
    # Not in a loop: a look between a bind and the end of the buffer makes nodes too many, as the guide says.
    autoscaler.look()
    serving.await_ready(2, inference="llm")
    await_gone(autoscaler)
    autoscaler.look()
    assert pool.size == 2
