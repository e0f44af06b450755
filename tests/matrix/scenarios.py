"""What is tried on every backend, each once: the rows of the table.

A scenario ends quietly when all is as wanted.  A backend that refuses it raises RefusedError, one that ends elsewhere
DiffersError; both have to be declared here beside it, so that a scheduler that changes is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from builders.manifests import Object
from cluster.kubelet import Kubelet, restart, runs_its_images
from cluster.published import Published
from cluster.serving import BLOCK, RACK, fewest_serving, replicas, serves, workers
from cluster.workbench import label, name_of, uid_of, uids
from kstatus import judge
from kubelet import environment_of
from localcluster import eventually
from localcluster.programs import ROOT
from matrix.bench import Bench
from matrix.columns import (
    COLUMNS,
    EXTENDER,
    EXTENDER_OLDEST,
    KUBERNETES_1_35,
    KUBERNETES_1_36,
    KUBERNETES_1_37,
    VOLCANO,
    Column,
)
from matrix.outcome import OK, DiffersError, Outcome, differs, refused
from matrix.upstream import CORES, Groups
from scheduler_trees import node_of

Play = Callable[[Bench], None]


@dataclass(frozen=True)
class Scenario:
    """One row: what is played, on which backends, and how it ends on those where not all is as wanted."""

    title: str
    play: Play
    otherwise: Mapping[Column, Outcome]
    only: Sequence[Column]

    def expected(self, column: Column) -> Outcome:
        """How it ends on a backend."""
        return self.otherwise.get(column, OK)


SCENARIOS: Final[list[Scenario]] = []
#: Of a gang whose replicas each take the fullest rack, one after the other, and go back on none.
_NOTHING: Final = "nothing is bound"
_HALF_A_GANG: Final = "one role takes both nodes, the other has none"
_NATIVE: Final = (KUBERNETES_1_37, KUBERNETES_1_36, KUBERNETES_1_35)
_UNTOLD: Final = differs("they are empty: the scheduler says nothing of domains")
#: The finalizer of Kubernetes' own PodGroups goes when their pods are gone.
_PROTECTED: Final = "no pod is touched, and the deleted group stays until its pods are gone"


def scenario(
    title: str, otherwise: Mapping[Column, Outcome] | None = None, only: Sequence[Column] = COLUMNS
) -> Callable[[Play], Play]:
    """Add a row."""

    def add(play: Play) -> Play:
        SCENARIOS.append(Scenario(title, play, otherwise or {}, only))
        return play

    return add


def roles(prefill: int = 2, decode: int = 1, **fields: Any) -> list[Object]:
    """Prefill replicas of two pods, decode replicas of one, the minimum one of each."""
    return [workers("prefill", replicas=prefill, size=2, minReplicas=1, **fields), workers("decode", replicas=decode)]


def busy(name: str, size: int) -> Object:
    """A replica in one rack. Its pods ask for most cores of a node: schedulers that compare racks compare those."""
    made = workers(name, size=size, topology={"required": "rack"})
    for container in made["template"]["spec"]["containers"]:
        container["resources"]["limits"]["cpu"] = CORES
    return made


def is_ending(item: Object) -> bool:
    """Deleted, and held by a finalizer."""
    return bool(item["metadata"].get("deletionTimestamp"))


# Gangs


@scenario("Gap 1: a minimum counts replicas, not pods")
def minimum_counts_replicas(bench: Bench) -> None:
    """Kthena's published example: minimum 2 of 2 and 1 of 2, two pods each, a pod to a node."""
    bench.nodes(5)
    bench.create(
        workers("prefill", replicas=2, size=2, minReplicas=2), workers("decode", replicas=2, size=2, minReplicas=1)
    )
    bench.expect()
    bench.nodes(1)
    bench.expect(prefill=2, decode=1)
    bench.nodes(6)
    bench.expect(prefill=2, decode=2)


@scenario("Gap 2: roles start together, replicas of one pod")
def roles_together_single(bench: Bench) -> None:
    """Four prefill pods would take every node before decode has its minimum."""
    bench.nodes(1)
    bench.create(workers("prefill", replicas=4, minReplicas=1), workers("decode", replicas=2, minReplicas=1))
    bench.expect()
    bench.nodes(1)
    bench.expect(prefill=1, decode=1)


@scenario("Gap 2: roles start together, replicas of several pods")
def roles_together_multi(bench: Bench) -> None:
    """Three nodes hold a replica of either role, and no gang."""
    bench.nodes(3)
    bench.create(
        workers("prefill", replicas=3, size=2, minReplicas=1), workers("decode", replicas=2, size=2, minReplicas=1)
    )
    bench.expect()
    bench.nodes(1)
    bench.expect(prefill=1, decode=1)


@scenario("nothing partial: of two gangs that exclude each other one starts")
def one_of_two(bench: Bench) -> None:
    """Each needs four of six nodes; the other one starts whole when the first is gone."""
    bench.nodes(6)
    both = ("first", "second")
    for name in both:
        bench.create(workers("prefill", size=2), workers("decode", size=2), name=name)
    bench.rest()
    started = [name for name in both if bench.whole(name) == {"prefill": 1, "decode": 1}]
    assert len(started) == 1, f"{started} have started"
    [winner] = started
    [loser] = set(both) - {winner}
    one = {"prefill": 1, "decode": 1}
    bench.expect_all({(winner, 0): one, (loser, 0): {}})
    bench.remove("DisaggregatedInference", winner)
    bench.expect(loser, **one)


@scenario("minimums first: no unit grows before every unit has its minimum")
def minimums_first(bench: Bench) -> None:
    """Two units that want six pods each, and four nodes."""
    bench.nodes(4)
    bench.create(
        workers("prefill", replicas=4, minReplicas=1), workers("decode", replicas=2, minReplicas=1), replicas=2
    )
    one = {"prefill": 1, "decode": 1}
    bench.expect_all({("llm", 0): one, ("llm", 1): one})


@scenario(
    "a gang that fits in one way only",
    {KUBERNETES_1_37: differs(_NOTHING), VOLCANO: differs(_NOTHING)},
    # Groups that stand side by side are tried in any order, so it may fit by luck.
    only=(EXTENDER, EXTENDER_OLDEST, KUBERNETES_1_37, VOLCANO),
)
def one_way_only(bench: Bench) -> None:
    """Five replicas of 2, 3, 2, 3 and 2 pods, each in one rack, fill two racks of six as 2 + 2 + 2 and 3 + 3."""
    bench.nodes(6, racks=2)
    sizes = {"a": 2, "b": 3, "c": 2, "d": 3, "e": 2}
    bench.create(*(busy(name, size) for name, size in sizes.items()))
    bench.expect(**dict.fromkeys(sizes, 1))


# Life


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


@scenario(
    "`COVEY_DOMAIN_*`: containers are told the domains of their node", dict.fromkeys((*_NATIVE, VOLCANO), _UNTOLD)
)
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


@scenario("below its minimum for `gang.terminationDelaySeconds`: the unit is taken down, and starts when there is room")
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
        assert not bench.left(), str(bench.left()[:5])
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


# What can be carried


@scenario("`minReplicas: 0`: a role outside the gang")
def outside_the_gang(bench: Bench) -> None:
    """Three nodes hold the gang; the router asks for no GPU, so it could start before, and may or may not."""
    bench.nodes(2)
    router = workers("router", gpus=0, minReplicas=0)
    bench.create(workers("prefill", size=2), workers("decode"), router)
    bench.rest()
    bench.nodes(1)
    bench.expect(prefill=1, decode=1, router=1)


@scenario("`topology.required`: a unit in one block")
def unit_in_one_block(bench: Bench) -> None:
    """Two blocks have two free nodes each, and three are needed, until a block of four comes."""
    bench.nodes(1, racks=2, blocks=2)
    bench.create(workers("prefill", size=2), workers("decode"), topology={"required": "block"})
    bench.expect()
    bench.nodes(2, racks=2)
    bench.expect(prefill=1, decode=1)
    assert len(bench.domains_of(BLOCK)) == 1


@scenario("`roles[].topology.required`: each replica in one rack")
def replica_in_one_rack(bench: Bench) -> None:
    bench.nodes(3, racks=3)
    wanted = {"required": "rack"}
    bench.create(workers("prefill", replicas=2, size=3, minReplicas=2, topology=wanted), workers("decode"))
    bench.expect(prefill=2, decode=1)
    for members in replicas(bench.pods(role="prefill")).values():
        assert len(bench.domains(members, RACK)) == 1


@scenario("both: a unit in one block, each replica in one rack")
def two_levels(bench: Bench) -> None:
    bench.nodes(2, racks=2, blocks=2)
    wanted = {"required": "rack"}
    prefill = workers("prefill", replicas=2, size=2, minReplicas=2, topology=wanted)
    bench.create(prefill, topology={"required": "block"})
    bench.expect(prefill=2)
    assert len(bench.domains_of(BLOCK)) == 1
    assert len(bench.domains_of(RACK)) == 2
    for members in replicas(bench.pods()).values():
        assert len(bench.domains(members, RACK)) == 1


@scenario(
    "`topology.preferred`: as close as there is room for",
    dict.fromkeys((*_NATIVE, VOLCANO), refused("spec.topology.preferred")),
)
def preferred_level(bench: Bench) -> None:
    bench.nodes(2, racks=2)
    bench.create(workers("prefill", size=3), topology={"required": "block", "preferred": "rack"})
    bench.expect(prefill=1)
    assert len(bench.domains_of(RACK)) == 2


@scenario("`proximity`: two of three roles in one rack", dict.fromkeys((*_NATIVE, VOLCANO), refused("spec.proximity")))
def proximity(bench: Bench) -> None:
    bench.nodes(2, racks=2)
    together: dict[str, Any] = {"roles": ["prefill", "decode"], "level": "rack", "mode": "Required"}
    bench.create(workers("prefill"), workers("decode"), workers("router"), proximity=[together])
    bench.expect(prefill=1, decode=1, router=1)
    inside = [each for name in ("prefill", "decode") for each in bench.bound(role=name)]
    assert len(bench.domains(inside, RACK)) == 1


@scenario("`spread`: units in different racks", dict.fromkeys((*_NATIVE, VOLCANO), refused("spec.spread")))
def spread(bench: Bench) -> None:
    bench.nodes(2, racks=2)
    bench.create(workers("prefill"), replicas=2, spread={"level": "rack", "mode": "Required"})
    one = {"prefill": 1}
    bench.expect_all({("llm", 0): one, ("llm", 1): one})
    assert len(bench.domains_of(RACK)) == 2


@scenario(
    "nine roles",
    {
        KUBERNETES_1_37: refused("a list of templates in a Workload takes 8"),
        KUBERNETES_1_36: refused("a Workload takes 8"),
        KUBERNETES_1_35: refused("a Workload takes 8"),
    },
)
def nine_roles(bench: Bench) -> None:
    names = [f"role-{number}" for number in range(9)]
    bench.nodes(9)
    bench.create(*(workers(name) for name in names))
    bench.expect(**dict.fromkeys(names, 1))
    assert {label(pod, "role") for pod in bench.pods()} == set(names)


@scenario("the example of the README, `examples/disaggregated.yaml`")
def example(bench: Bench) -> None:
    """Four and two replicas in one of two blocks, each in one of its three racks."""
    bench.nodes(6, racks=3, blocks=2)
    manifest = yaml.safe_load((ROOT / "examples" / "disaggregated.yaml").read_text())
    bench.create(*manifest["spec"].pop("roles"), **manifest["spec"])
    bench.expect(prefill=4, decode=2)
    assert len(bench.domains_of(BLOCK)) == 1
    for members in replicas(bench.pods()).values():
        assert len(bench.domains(members, RACK)) == 1


# What Kubernetes' own gangs do without Covey's operator, from the same pods


@scenario(
    "*kube-scheduler alone:* surplus leaves room for the other role's minimum",
    {
        KUBERNETES_1_37: differs(_NOTHING),
        KUBERNETES_1_36: differs(_HALF_A_GANG),
    },
    # 1.35 takes pod after pod, of whichever role comes first.
    only=(KUBERNETES_1_37, KUBERNETES_1_36),
)
def surplus_steals(bench: Bench) -> None:
    """Four and two pods, the minimum one of each, and two nodes."""
    bench.nodes(2)
    Groups(bench, {"prefill": (4, 1), "decode": (2, 1)}).create()
    try:
        bench.expect(prefill=1, decode=1)
    except DiffersError:
        if sorted(bench.whole().values()) == [0, 2]:
            raise DiffersError(_HALF_A_GANG) from None
        raise


@scenario(
    "*kube-scheduler alone:* a gang that fits in one way only",
    {KUBERNETES_1_37: differs(_NOTHING)},
    only=(KUBERNETES_1_37,),
)
def one_way_only_upstream(bench: Bench) -> None:
    """Groups of 2, 3, 2, 3 and 2 pods, each in one rack, fill two racks of six as 2 + 2 + 2 and 3 + 3."""
    bench.nodes(6, racks=2)
    sizes = {"a": 2, "b": 3, "c": 2, "d": 3, "e": 2}
    Groups(bench, {name: (size, size) for name, size in sizes.items()}, in_racks=True).create()
    bench.expect(**sizes)
