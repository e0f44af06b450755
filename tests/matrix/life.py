"""Scenarios of the life of a resource: it grows, changes, loses pods, and goes."""

from __future__ import annotations

from typing import Final

from builders.manifests import Object
from cluster.kubelet import Kubelet, restart, runs_its_images
from cluster.published import Published
from cluster.serving import RACK, fewest_serving, serves, workers
from cluster.workbench import label, name_of, uid_of, uids
from kstatus import judge
from kubelet import environment_of
from localcluster import eventually
from matrix.bench import Bench
from matrix.columns import KUBERNETES_1_36, KUBERNETES_1_37, VOLCANO
from matrix.outcome import DiffersError, differs
from matrix.rows import NATIVE, Rows, roles
from scheduler_trees import node_of

ROWS: Final = Rows()
scenario = ROWS.scenario
_UNTOLD: Final = differs("they are empty: the scheduler says nothing of domains")
#: The finalizer of Kubernetes' own PodGroups goes when their pods are gone.
_PROTECTED: Final = "no pod is touched, and the deleted group stays until its pods are gone"


def is_ending(item: Object) -> bool:
    """Deleted, and held by a finalizer."""
    return bool(item["metadata"].get("deletionTimestamp"))


@scenario("a role grows and shrinks; what runs stays")
def scale_role(bench: Bench) -> None:
    bench.nodes(7)
    bench.create(*roles())
    bench.expect(prefill=2, decode=1)
    before = uids(bench.pods())
    bench.change({"roles": roles(prefill=3)})
    bench.expect(prefill=3, decode=1)
    assert before < uids(bench.pods())
    bench.change({"roles": roles(prefill=1)})
    bench.expect(prefill=1, decode=1)
    assert uids(bench.pods(role="decode")) <= before
    bench.change({"roles": roles(prefill=1, decode=3)})
    bench.expect(prefill=1, decode=3)


@scenario("a role is scaled through its RoleScaler, over all units; what runs stays")
def scale_outside(bench: Bench) -> None:
    bench.nodes(8)
    wanted = roles(prefill=1)
    wanted[0]["scaling"] = {"mode": "External"}
    bench.create(*wanted, replicas=2)
    one, two = {"prefill": 1, "decode": 1}, {"prefill": 2, "decode": 1}
    bench.expect_all({("llm", 0): one, ("llm", 1): one})
    before = uids(bench.pods())
    bench.ask("llm-prefill", 3)
    bench.expect_all({("llm", 0): two, ("llm", 1): one})
    assert before < uids(bench.pods())
    bench.ask("llm-prefill", 2)
    bench.expect_all({("llm", 0): one, ("llm", 1): one})
    assert uids(bench.pods()) == before


@scenario("the replica whose pods cost least to delete goes first, and whole")
def cheapest_goes(bench: Bench) -> None:
    bench.nodes(7)
    bench.create(*roles(prefill=3))
    bench.expect(prefill=3, decode=1)
    # A replica that does not serve yet would go before one that does, whatever it costs.
    eventually(lambda: all(map(serves, bench.pods())), 60, "all pods are Ready")
    (cheap, *_) = bench.pods(role="prefill", replica=1)
    cost = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-10"}}}
    bench.cluster.api("PATCH", bench.path("Pod", name_of(cheap)), cost)
    bench.rest()  # the operator hears of pods and of resources by two watches
    bench.change({"roles": roles(prefill=2)})
    bench.expect(prefill=2, decode=1)
    assert {label(pod, "replica") for pod in bench.pods(role="prefill")} == {"0", "2"}


@scenario("templates change: replicas are replaced whole, and as many serve all the while")
def roll_out(bench: Bench) -> None:
    bench.nodes(10)
    bench.create(*roles(decode=2))
    bench.expect(prefill=2, decode=2)
    eventually(lambda: all(map(serves, bench.pods())), 60, "all pods are Ready")
    before = bench.pods()
    wanted = roles(decode=2)
    for each in wanted:
        each["template"]["spec"]["containers"][0]["image"] = "registry.test/engine:2"
    with bench.cluster.record(bench.path("Pod")) as recording:
        bench.change({"roles": wanted})

        def rolled() -> bool:
            pods = bench.pods()
            images = {pod["spec"]["containers"][0]["image"] for pod in pods}
            assert images == {"registry.test/engine:2"}, f"{images}; {bench.states()}"
            assert len(pods) == 6
            return all(map(serves, pods))

        eventually(rolled, 120, "every replica is of the new template")
        bench.expect(prefill=2, decode=2)
        history = recording.events
    assert fewest_serving(before, history, "prefill", 2) == 2
    assert fewest_serving(before, history, "decode", 1) == 2


@scenario("`update.inPlace`: pods are given other images where they are; groups and nodes stay")
def in_place(bench: Bench) -> None:
    """No node is free, one replica may be missing."""
    bench.nodes(6)
    update = {"inPlace": "IfPossible", "maxSurge": 0, "maxUnavailable": 1}
    wanted = [{**each, "update": update} for each in roles(decode=2)]
    bench.create(*wanted)
    bench.expect(prefill=2, decode=2)
    eventually(lambda: all(map(serves, bench.pods())), 60, "all pods are Ready")
    before = {uid_of(pod): pod["spec"]["nodeName"] for pod in bench.pods()}
    groups = {uid_of(group) for _, group in bench.groups()}
    for each in wanted:
        each["template"]["spec"]["containers"][0]["image"] = "registry.test/engine:2"
    with Kubelet(bench):
        bench.change({"roles": wanted})

        def updated() -> bool:
            pods = bench.pods()
            images = {pod["spec"]["containers"][0]["image"] for pod in pods}
            assert images == {"registry.test/engine:2"}, f"{images}; {bench.states()}"
            return all(map(runs_its_images, pods))

        eventually(updated, 120, "every pod runs the new image")
        bench.await_condition("Progressing", "True", "Complete")
    assert {uid_of(pod): pod["spec"]["nodeName"] for pod in bench.pods()} == before
    assert {uid_of(group) for _, group in bench.groups()} == groups
    bench.expect(prefill=2, decode=2)


@scenario("units come and go; what runs stays")
def scale_units(bench: Bench) -> None:
    bench.nodes(6)
    bench.create(*roles(prefill=1))
    bench.expect(prefill=1, decode=1)
    before = uids(bench.pods())
    one = {"prefill": 1, "decode": 1}
    bench.change({"replicas": 2})
    bench.expect_all({("llm", 0): one, ("llm", 1): one})
    assert before < uids(bench.pods())
    bench.change({"replicas": 1})
    bench.expect(**one)
    assert uids(bench.pods()) == before


@scenario("a pod is lost: its replica is replaced, the others run on")
def replacement(bench: Bench) -> None:
    bench.nodes(5)
    bench.create(*roles())
    bench.expect(prefill=2, decode=1)
    before = {uid_of(pod): pod for pod in bench.pods()}
    [lost, *_] = bench.pods(role="prefill", replica=1)
    mates = uids(bench.pods(role="prefill", replica=1))
    bench.remove("Pod", name_of(lost))
    eventually(lambda: not mates & uids(bench.pods()), 60, "the whole replica is replaced")
    bench.view.touch()
    bench.expect(prefill=2, decode=1)
    assert before.keys() - mates == before.keys() & uids(bench.pods())


@scenario("`restart`: a replica that fails again is recreated whole, and waits for it the second time")
def restarts(bench: Bench) -> None:
    """A container restarts after the replica has been Ready; the others of the role go on."""
    bench.nodes(5)
    bench.create(*roles(restart={"backoff": {"baseSeconds": 3, "maxSeconds": 3}}))
    bench.expect(prefill=2, decode=1)
    for failures in (1, 2):
        _fail_replica(bench, failures)


def _fail_replica(bench: Bench, failures: int) -> None:
    def noted() -> bool:
        leaders = bench.pods(role="prefill", index=0)
        return all("covey.dev/started" in each["metadata"].get("annotations", {}) for each in leaders)

    eventually(noted, 60, "that they have been Ready is noted")
    mates = bench.pods(role="prefill", replica=1)
    gone, others = uids(mates), uids(bench.pods()) - uids(mates)
    restart(bench, mates[0])
    eventually(lambda: not gone & uids(bench.pods()), 60, "the whole replica is recreated")
    bench.view.touch()
    bench.expect(prefill=2, decode=1)
    assert others <= uids(bench.pods())
    told = {each["metadata"]["annotations"]["covey.dev/failures"] for each in bench.pods(role="prefill", replica=1)}
    assert told == {str(failures)}


@scenario("`network`: a Service with a cluster IP, and a headless one for each replica")
def services(bench: Bench) -> None:
    """Addresses lead to one pod each, and to its successor after it."""
    bench.nodes(5)
    ports = [{"name": "http", "port": 8000}]
    wanted = roles(network={"subdomain": "UniquePerReplica", "ports": ports, "service": {}})
    bench.create(*wanted)
    bench.expect(prefill=2, decode=1)
    published = Published(bench)

    def resolved() -> bool:
        pods = bench.pods()
        for pod in pods:
            leader = bench.pods(role=label(pod, "role"), replica=label(pod, "replica"), index=0)
            address = environment_of(pod)["LWS_LEADER_ADDRESS"]
            assert published.resolve(address) == [each["status"].get("podIP") for each in leader]
        leaders = {name_of(each) for each in pods if label(each, "role") == "prefill" and label(each, "index") == "0"}
        assert published.pods("llm-prefill-svc") == leaders
        return True

    eventually(resolved, 60, "every address leads to its pod")
    [lost, *_] = bench.pods(role="prefill", replica=1)
    mates = uids(bench.pods(role="prefill", replica=1))
    bench.remove("Pod", name_of(lost))
    eventually(lambda: not mates & uids(bench.pods()), 60, "the whole replica is replaced")
    bench.view.touch()
    bench.expect(prefill=2, decode=1)
    eventually(resolved, 60, "every address leads to the successors")


@scenario("`COVEY_DOMAIN_*`: containers are told the domains of their node", dict.fromkeys((*NATIVE, VOLCANO), _UNTOLD))
def domains_in_the_environment(bench: Bench) -> None:
    bench.nodes(2, racks=2)
    bench.create(workers("prefill", size=2, topology={"required": "rack"}))
    bench.expect(prefill=1)
    nodes = {name_of(node): node["metadata"]["labels"] for node in bench.cluster.api("GET", "/api/v1/nodes")["items"]}
    told = {environment_of(pod)["COVEY_DOMAIN_RACK"] for pod in bench.pods()}
    if told == {""}:
        raise DiffersError(_UNTOLD.text)
    assert told == {nodes[node_of(pod)][RACK] for pod in bench.pods()}


@scenario("a node is drained: its replica is built elsewhere first, and goes whole")
def drained(bench: Bench) -> None:
    bench.nodes(8)
    bench.create(*roles())
    bench.expect(prefill=2, decode=1)
    eventually(lambda: all(map(serves, bench.pods())), 60, "all pods are Ready")
    before = bench.pods()
    [victim, *_] = bench.pods(role="prefill", replica=1)
    with bench.cluster.record(bench.path("Pod")) as recording:
        bench.cluster.kubectl("drain", node_of(victim), "--ignore-daemonsets", "--timeout=120s")
        history = recording.events
    bench.view.touch()
    bench.expect(prefill=2, decode=1)
    assert fewest_serving(before, history, "prefill", 2) == 2
    stayed = {uid_of(pod) for pod in before if label(pod, "role") == "decode" or label(pod, "replica") == "0"}
    assert stayed == uids(before) & uids(bench.pods())


@scenario(
    "below its minimum for `gang.terminationDelaySeconds`: the unit is taken down, and starts when there is capacity"
)
def terminated(bench: Bench) -> None:
    bench.nodes(3)
    bench.create(workers("prefill", size=2), workers("decode"), gang={"terminationDelaySeconds": 5})
    bench.expect(prefill=1, decode=1)
    eventually(lambda: all(map(serves, bench.pods())), 60, "all pods are Ready")
    bench.await_condition("MinimumMet", "True", "MinimumMet")
    before = bench.pods()
    [victim] = bench.pods(role="decode")
    bench.cluster.kubectl("cordon", node_of(victim))
    bench.remove("Pod", name_of(victim))
    eventually(lambda: not uids(before) & uids(bench.pods()), 60, "nothing of it is left")
    bench.expect()
    bench.cluster.kubectl("uncordon", node_of(victim))
    bench.expect(prefill=1, decode=1)


@scenario("kstatus (Flux, Helm): in progress until all that is wanted serves, then current; so over a change")
def read_by_kstatus(bench: Bench) -> None:
    """At every version of the resource that the API server has shown; nothing has failed on the way."""
    with bench.cluster.record(bench.path("DisaggregatedInference")) as recording:
        bench.create(workers("prefill", size=2), workers("decode"))
        bench.expect()
        assert judge([bench.get("DisaggregatedInference", "llm")])[0].status == "InProgress"
        bench.nodes(4)
        bench.expect(prefill=1, decode=1)
        bench.await_condition("Ready", "True", "Ready")
        bench.change({"roles": [workers("prefill", size=2), workers("decode", replicas=2)]})
        bench.expect(prefill=1, decode=2)
        bench.await_condition("Ready", "True", "Ready")
        # The recording hears of it later than whoever asks.
        last = bench.get("DisaggregatedInference", "llm")["metadata"]["resourceVersion"]
        recording.wait(lambda events: any(body["metadata"]["resourceVersion"] == last for _, body in events))
        history = [body for kind, body in recording.events if kind != "DELETED"]
    for body, said in zip(history, judge(history), strict=True):
        status = body["status"]
        observed = status.get("observedGeneration") == body["metadata"]["generation"]
        serves_all = observed and all(role["ready"] == role["replicas"] for role in status["roles"])
        assert said.status == "InProgress" or (said.status == "Current" and serves_all), str(body)
    assert judge(history)[-1].status == "Current"


@scenario("suspended and resumed")
def suspend(bench: Bench) -> None:
    bench.nodes(5)
    bench.create(*roles())
    bench.expect(prefill=2, decode=1)
    bench.change({"suspend": True})
    bench.expect()
    eventually(lambda: not bench.groups(), 60, "no group is left")
    bench.change({"suspend": False})
    bench.expect(prefill=2, decode=1)


@scenario("deleted: nothing is left")
def nothing_left(bench: Bench) -> None:
    bench.nodes(5)
    bench.create(*roles())
    bench.expect(prefill=2, decode=1)
    assert bench.groups()
    bench.remove("DisaggregatedInference", "llm")

    def empty() -> bool:
        assert not (left := bench.left()), left
        return True

    eventually(empty, 60, "nothing is left")


@scenario(
    "a group is deleted by hand: it comes back, and no pod is touched",
    {KUBERNETES_1_37: differs(_PROTECTED), KUBERNETES_1_36: differs(_PROTECTED)},
)
def deleted_group(bench: Bench) -> None:
    bench.nodes(5)
    bench.create(*roles())
    bench.expect(prefill=2, decode=1)
    before = uids(bench.pods())
    gone = {path: uid_of(group) for path, group in bench.groups()}
    for path in gone:
        bench.cluster.api("DELETE", path)
    bench.rest()

    def settled() -> bool:
        assert {path for path, _ in bench.groups()} == gone.keys()
        return all(uid_of(group) != gone[path] or is_ending(group) for path, group in bench.groups())

    eventually(settled, 60, "all groups are back, or have to wait")
    bench.view.touch()
    bench.expect(prefill=2, decode=1)
    assert uids(bench.pods()) == before
    if any(is_ending(group) for _, group in bench.groups()):
        raise DiffersError(_PROTECTED)
