"""Two replicas of a program and one lease: one leads, the other is ready, and takes over with nothing lost."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest
from kubernetes.client import ApiException

from builders import files
from builders.manifests import role
from cluster.conftest import AddNodes
from cluster.scraping import await_scrape, scrape
from cluster.serving import Serving, check_history, serving, workers
from cluster.workbench import Workbench, uid_of
from covey import __version__
from localcluster import Cluster, Process, eventually, programs
from localcluster.programs import Program
from scheduler_trees import Bench, Role, gates_of, node_of, pin_of

__all__ = ["serving"]

LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/covey-system/leases"
LEASE_OF: Final[dict[Program, str]] = {"operator": "covey-operator", "scheduler": "covey-planner"}
MASTER: Final = "leader_election_master_status"


@pytest.fixture(autouse=True)
def alone(cluster: Cluster) -> Iterator[None]:
    """Every lease is free before and after, and nobody runs."""
    forget_leases(cluster)
    yield
    cluster.stop_all()
    forget_leases(cluster)


def forget_leases(cluster: Cluster) -> None:
    for lease in (*LEASE_OF.values(), "covey-scheduler"):
        with contextlib.suppress(ApiException):
            cluster.api("DELETE", f"{LEASES}/{lease}")


def lease(cluster: Cluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.api("GET", f"{LEASES}/{name}")
    return found


def start(cluster: Cluster, program: Program, letter: str, *flags: str, wait: bool = True) -> Process:
    return cluster.start_covey(program, "--leader-elect=true", *flags, name=f"covey-{program}-{letter}", wait=wait)


@pytest.fixture(params=LEASE_OF)
def program(request: pytest.FixtureRequest) -> Program:
    found: Program = request.param
    return found


@pytest.fixture
def replicas(cluster: Cluster, program: Program) -> tuple[Process, Process]:
    """The leader and the one that waits."""
    first = start(cluster, program, "a")
    name = LEASE_OF[program]
    await_scrape(first, lambda seen: seen(MASTER, name=name) == 1, "the first leads")
    return first, start(cluster, program, "b")


def test_leader_when_it_is_asked_to_end_hands_over_at_once_and_both_show_who_leads(
    cluster: Cluster, namespace: str, nodes: AddNodes, program: Program, replicas: tuple[Process, Process]
) -> None:
    first, second = replicas
    name = LEASE_OF[program]
    assert scrape(second)(MASTER, name=name) == 0
    spec = lease(cluster, name)["spec"]
    before = spec["leaseTransitions"]
    await_scrape(second, lambda seen: seen("covey_lease_transitions", name=name) == before, "it has read the lease")
    assert first.stop(timeout=60) == 0
    assert lease(cluster, name)["spec"].get("holderIdentity") != spec["holderIdentity"]
    seen = await_scrape(second, lambda seen: seen(MASTER, name=name) == 1, "the second leads")
    assert seen("covey_lease_transitions", name=name) == before + 1
    if program == "operator":
        bench = Workbench(cluster, namespace)
        bench.create()
        bench.await_pods(6)
    else:
        nodes(nodes=1)
        tree = Bench(cluster, namespace).unit("again", Role("decode"))
        eventually(lambda: all(map(pin_of, tree.pods())), describe="the successor pins")
    assert second.alive


def test_leader_when_its_lease_is_taken_ends(
    cluster: Cluster, program: Program, replicas: tuple[Process, Process]
) -> None:
    cluster.api("PATCH", f"{LEASES}/{LEASE_OF[program]}", {"spec": {"holderIdentity": "somebody-else"}})
    assert replicas[0].wait(timeout=60) == 1


def test_second_installation_ends_and_says_why(cluster: Cluster, program: Program) -> None:
    first, name = start(cluster, program, "a"), LEASE_OF[program]
    eventually(lambda: lease(cluster, name)["spec"]["holderIdentity"], describe="the first leads")
    second = start(cluster, program, "b", "--leader-elect-namespace=team-b", wait=False)
    assert second.wait(timeout=60) == 1
    text = second.log_text()
    assert f"lease {name} in namespace covey-system is renewed by" in text
    assert "uninstall one of the two installations" in text
    assert "Traceback" not in text
    assert first.alive


def test_replica_without_the_lease_guards_and_binds(cluster: Cluster, namespace: str, nodes: AddNodes) -> None:
    nodes(nodes=2)
    leader = start(cluster, "scheduler", "a")
    eventually(lambda: "leading" in leader.log_text(), describe="the first leads")
    other = start(cluster, "scheduler", "b")
    cluster.start_scheduler(programs.scheduler_config(other))
    Bench(cluster, namespace).unit("twin", Role("decode", size=2)).wait_bound()
    assert "gang released" in other.log_text()
    assert "gang released" not in leader.log_text()


def test_leader_when_it_is_asked_to_end_in_the_middle_of_a_gang_pins_nothing_after_it_gave_the_lease_up(
    cluster: Cluster, namespace: str, nodes: AddNodes
) -> None:
    nodes(nodes=32)
    bench = Bench(cluster, namespace)
    process = start(cluster, "scheduler", "a")
    eventually(lambda: lease(cluster, "covey-planner")["spec"]["holderIdentity"], describe="it leads")
    tree = bench.unit("large", Role("decode", size=256, gpus=1), pods=False)
    with cluster.record(bench.pods_path) as recording:
        tree.create()
        recording.wait(lambda events: pin_of(events[-1][1]) is not None, 60)
        assert process.stop(timeout=60) == 0
    given_up = lease(cluster, "covey-planner")
    assert not given_up["spec"]["holderIdentity"]
    pods = tree.pods()
    assert all(map(gates_of, (pod for pod in pods if not pin_of(pod))))
    # Versions are counted across all objects, and nobody else changes these pods.
    pinned = [int(pod["metadata"]["resourceVersion"]) for pod in pods if pin_of(pod)]
    assert max(pinned) < int(given_up["metadata"]["resourceVersion"])


ROLES: Final = (
    workers("prefill", gpus=1, replicas=16, minReplicas=16, size=4, topology={"required": "rack"}),
    workers("decode", gpus=1, replicas=8, minReplicas=8, size=8, topology={"required": "rack"}),
)


@pytest.mark.slow  # leases run out
def test_second_replicas_of_all_programs_finish_what_the_first_began(
    cluster: Cluster, serving: Serving, nodes: AddNodes
) -> None:
    nodes(racks=2, nodes=8)
    first = {}
    for letter in "ab":
        operator, scheduler = start(cluster, "operator", letter), start(cluster, "scheduler", letter)
        config = programs.scheduler_config(scheduler, leader_elect=True)
        binder = cluster.start_scheduler(
            config, name=f"kube-scheduler-{letter}", kubeconfig=cluster.kube_scheduler_kubeconfig()
        )
        first = first or {"operator": operator, "scheduler": scheduler, "binder": binder}
        for name in ("covey-operator", "covey-planner", "covey-scheduler"):
            eventually(lambda name=name: lease(cluster, name)["spec"]["holderIdentity"], describe=f"{name} is held")
    with cluster.record(serving.path("Pod")) as recording:
        serving.create(*ROLES, topology={"required": "block"})
        # At the first pod: 128 of them take a second, and what is watched comes late on a machine with other work.
        recording.wait(lambda events: len(events) >= 1, 60)
        first["operator"].kill()
        recording.wait(lambda events: any(pin_of(pod) for _, pod in events[-1:]), 120)
        # They share a pod, and its fate.
        first["scheduler"].kill()
        first["binder"].kill()
        recording.wait(lambda events: len({uid_of(pod) for _, pod in events if node_of(pod)}) == 128, 180)
        assert check_history(recording.events, *ROLES) == 128
        born = Counter(pod["spec"]["hostname"] for kind, pod in recording.events if kind == "ADDED")
    assert set(born.values()) == {1}
    serving.await_condition("Available", "True", "Available")


@pytest.mark.slow  # a lease runs out
def test_what_is_made_while_nobody_leads_is_expanded_by_who_does_next(cluster: Cluster, namespace: str) -> None:
    """The leader hangs; it is a process of its own that renews the lease, and so does nobody."""
    bench = Workbench(cluster, namespace)
    leader = start(cluster, "operator", "a")
    holder = eventually(lambda: lease(cluster, "covey-operator")["spec"]["holderIdentity"], describe="it leads")
    standby = start(cluster, "operator", "b")
    leader.pause()
    bench.create(role("r"))
    eventually(lambda: lease(cluster, "covey-operator")["spec"]["holderIdentity"] not in {"", holder}, 60)
    bench.await_pods(1)
    assert standby.alive
    leader.kill()


def test_lease_of_a_leader_tells_people_who_looks_after_resources(cluster: Cluster, namespace: str) -> None:
    def covey(*arguments: str) -> str:
        result = files.covey(*arguments, "--kubeconfig", cluster.kubeconfig)
        assert result.exit_code == 0, result.output
        return " ".join(result.output.split())

    first = start(cluster, "operator", "a", "--namespace=team-a")
    scheduler = "Scheduler Version: none leads (no lease: one that has started takes it in seconds)"
    eventually(lambda: f"Operator Version: {__version__} {scheduler}" in covey("version"))
    Workbench(cluster, namespace).create()
    assert f"watches namespaces team-a, and not {namespace}" in covey("explain", "llm", "-n", namespace)
    assert first.stop(timeout=60) == 0
    assert "Operator Version: none leads (its lease is held by nobody)" in covey("version")
    said = covey("explain", "llm", "-n", namespace)
    assert "no operator has looked at it yet" in said
    assert "lease covey-system/covey-operator is held by nobody" in said
