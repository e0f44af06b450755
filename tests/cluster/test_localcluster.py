"""The local control plane that all other cluster tests stand on."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiException

from localcluster import (
    NATIVE_GROUPS,
    Cluster,
    Nodes,
    PortTakenError,
    Process,
    ProcessError,
    eventually,
    request,
    status_of,
)
from localcluster.programs import ROOT

pytestmark = pytest.mark.slow  # control planes of their own

#: The first two take many seconds to stop while the others hold watches, so they are only killed alone.
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kwok", "kube-scheduler")

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "dev"), "KEEP": ""}


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    """A cluster whose programs may be killed, with a stock scheduler and two nodes."""
    with Cluster(scheduler_config="", crds=(), gates=NATIVE_GROUPS) as cluster:
        cluster.add_nodes(Nodes(nodes=2))
        yield cluster


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "example.com/x:1"}], **spec}}


def runs(cluster: Cluster, name: str) -> str:
    """The node of a pod of the default namespace, once it runs."""
    found = cluster.api("GET", f"/api/v1/namespaces/default/pods/{name}")
    return found["spec"]["nodeName"] if found["status"]["phase"] == "Running" else ""


@pytest.mark.parametrize(
    ("program", "end"), [*((program, "kill") for program in PROGRAMS), *((program, "stop") for program in PROGRAMS[2:])]
)
def test_each_program_can_be_ended_and_started_again(own: Cluster, program: str, end: str) -> None:
    process = own.processes[program]
    status = process.kill() if end == "kill" else process.stop(timeout=60)

    assert not process.alive
    assert (status == -signal.SIGKILL) == (end == "kill")
    process.start()

    assert process.ready
    name = f"after-{end}-{program}"
    eventually(lambda: own.api("GET", "/readyz") == "ok", describe="the API server serves")
    own.api("POST", "/api/v1/namespaces/default/pods", pod(name))
    assert eventually(lambda: runs(own, name), describe=f"{name} runs") in {"node-0-0-0", "node-0-0-1"}


def test_a_paused_program_does_not_answer_until_it_is_resumed(own: Cluster) -> None:
    scheduler = own.processes["kube-scheduler"]
    scheduler.pause()
    own.api("POST", "/api/v1/namespaces/default/pods", pod("meanwhile"))

    assert scheduler.alive
    assert not scheduler.ready
    assert not runs(own, "meanwhile")
    scheduler.resume()

    assert eventually(lambda: runs(own, "meanwhile"))


def test_a_paused_program_can_be_stopped(own: Cluster) -> None:
    scheduler = own.processes["kube-scheduler"]
    scheduler.pause()
    scheduler.stop()
    assert not scheduler.alive
    scheduler.start()


def test_native_groups_are_served_when_asked_for(own: Cluster) -> None:
    served = own.kubectl("api-resources", "--api-group=scheduling.k8s.io", "-o=name").split()
    assert {"compositepodgroups.scheduling.k8s.io", "podgroups.scheduling.k8s.io"} <= set(served)


def test_two_clusters_run_side_by_side(own: Cluster, cluster: Cluster) -> None:
    assert own.server != cluster.server
    assert own.directory != cluster.directory
    kept = own.kubectl("get", "nodes", "-o=name").split()
    assert kept == ["node/node-0-0-0", "node/node-0-0-1"]
    assert not set(kept) & set(cluster.kubectl("get", "nodes", "-o=name").split())


def test_nodes_are_ready_and_carry_what_was_described(cluster: Cluster, nodes: Any) -> None:
    names = nodes(
        blocks=2, racks=2, nodes=2, gpus=4, taints=["dedicated=llm:NoSchedule"], labels={"pool": "a"}, prefix="x-"
    )
    assert len(names) == 8

    found = cluster.api("GET", "/api/v1/nodes/x-node-1-0-1")
    assert found["status"]["allocatable"] == {
        "cpu": "128",
        "memory": "1Ti",
        "ephemeral-storage": "1Ti",
        "pods": "110",
        "nvidia.com/gpu": "4",
    }
    assert found["spec"]["taints"] == [{"key": "dedicated", "value": "llm", "effect": "NoSchedule"}]
    assert (
        found["metadata"]["labels"].items()
        >= {
            "pool": "a",
            "kubernetes.io/hostname": "x-node-1-0-1",
            "cloud.provider.com/topology-block": "x-block-1",
            "cloud.provider.com/topology-rack": "x-rack-1-0",
        }.items()
    )
    ready = {item["type"]: item["status"] for item in found["status"]["conditions"]}
    assert ready["Ready"] == "True"


def test_a_failed_node_becomes_unreachable_and_stays_so(cluster: Cluster, nodes: Any) -> None:
    victim, other = nodes(nodes=2)
    cluster.fail_node(victim)

    def taints(name: str) -> set[str]:
        return {taint["key"] for taint in cluster.api("GET", f"/api/v1/nodes/{name}")["spec"].get("taints") or []}

    eventually(lambda: "node.kubernetes.io/unreachable" in taints(victim))
    assert not taints(other)


def test_nodes_without_kwok_are_ready_and_stay_so() -> None:
    with Cluster(kwok=False, crds=()) as bare:
        [name] = bare.add_nodes(Nodes())
        found = bare.api("GET", f"/api/v1/nodes/{name}")
        assert {"type": "Ready", "status": "True"}.items() <= found["status"]["conditions"][-1].items()
        assert "taints" not in found["spec"]


def test_rbac_denies_what_was_not_granted(cluster: Cluster, namespace: str) -> None:
    with cluster.service_account_client(namespace, "nobody") as nobody, pytest.raises(ApiException) as refused:
        request(nobody, "GET", f"/api/v1/namespaces/{namespace}/pods")
    assert (refused.value.status, status_of(refused.value)["reason"]) == (403, "Forbidden")

    kubeconfig = cluster.service_account_kubeconfig(namespace, "nobody")
    answer = cluster.kubectl(f"--kubeconfig={kubeconfig}", "auth", "can-i", "list", "pods", check=False)
    assert "no" in answer.split()


def test_a_recording_has_every_change_in_order(cluster: Cluster, namespace: str) -> None:
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    with cluster.record(f"{maps}?labelSelector=mine") as recording:
        for number in range(5):
            body = {"metadata": {"name": f"n{number}", "labels": {"mine": ""}}}
            cluster.api("POST", maps, body)
        cluster.api("DELETE", f"{maps}/n0")
        recording.wait(lambda events: events[-1:] != [] and events[-1][0] == "DELETED")
        recording.check()
    seen = [(kind, item["metadata"]["name"]) for kind, item in recording.events]
    assert seen == [*(("ADDED", f"n{number}") for number in range(5)), ("DELETED", "n0")]


def test_a_recording_goes_on_where_its_watch_was_ended(cluster: Cluster, namespace: str) -> None:
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    with cluster.record(f"{maps}?labelSelector=mine") as recording:
        for number in range(6):
            cluster.api("POST", maps, {"metadata": {"name": f"n{number}", "labels": {"mine": ""}}})
            if number % 2:
                recording.disconnect()
        recording.wait(lambda events: len(events) == 6)
    assert [item["metadata"]["name"] for _, item in recording.events] == [f"n{number}" for number in range(6)]


def test_a_recording_that_cannot_go_on_has_a_gap(cluster: Cluster, namespace: str) -> None:
    with cluster.record(f"/api/v1/namespaces/{namespace}/configmaps?labelSelector=mine") as recording:
        recording._version = "none"
        recording.disconnect()
        with pytest.raises(RuntimeError, match="gap"):
            recording.wait(bool)


def test_deletion_follows_owners_of_covey_kinds(cluster: Cluster, namespace: str) -> None:
    groups = f"/apis/scheduling.covey.dev/v1alpha1/namespaces/{namespace}/podgroups"
    owner = cluster.api("POST", groups, {
        "apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "PodGroup", "metadata": {"name": "owner"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}},
    })  # fmt: skip
    owned = pod("owned", schedulerName="nobody")
    owned["metadata"]["ownerReferences"] = [
        {key: owner[key] for key in ("apiVersion", "kind")} | {key: owner["metadata"][key] for key in ("name", "uid")}
    ]
    cluster.api("POST", f"/api/v1/namespaces/{namespace}/pods", owned)
    cluster.api("DELETE", f"{groups}/owner")

    # Well below the 30 s after which the garbage collector would have looked for new kinds.
    eventually(lambda: not cluster.api("GET", f"/api/v1/namespaces/{namespace}/pods")["items"], timeout=25)


def test_a_program_that_ends_at_once_is_reported_with_its_log(tmp_path: Path) -> None:
    process = script(tmp_path, "import sys; sys.exit('cannot do it')")
    with pytest.raises(ProcessError, match=r"status 1 before it was ready.*(?s:.)*cannot do it"):
        process.start()


def test_a_taken_port_is_told_from_other_failures(tmp_path: Path) -> None:
    process = script(tmp_path, "raise OSError(98, 'Address already in use')")
    with pytest.raises(PortTakenError):
        process.start()


def test_a_program_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    process = script(
        tmp_path,
        "import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"pathlib.Path({str(ready)!r}).touch(); time.sleep(600)",
        ready,
    )
    process.start()
    assert process.stop(timeout=0.2) == -signal.SIGKILL


def test_nothing_is_left_when_the_owner_is_killed() -> None:
    program = (
        "import sys, time; from localcluster import Cluster\n"
        "with Cluster(crds=()) as c:\n"
        "    print(c.directory, *(p.pid for p in c.processes.values()), flush=True); time.sleep(600)"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert owner.stdout is not None
    with owner.stdout:
        directory, *pids = owner.stdout.readline().split()
    owner.kill()
    owner.wait()

    # Each program has ten seconds to end before it is killed, and three groups of them go one after the other.
    eventually(lambda: not any(running(int(pid)) for pid in pids), 60, "all programs are gone")
    eventually(lambda: not Path(directory).exists(), 60, "the directory is gone")


def test_a_detached_cluster_is_stopped_by_its_directory() -> None:
    command = [sys.executable, "-m", "localcluster"]
    printed = subprocess.run(
        [*command, "--detach", "--blocks=1", "--racks=1", "--nodes=1"],
        env=ENVIRONMENT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    kubeconfig = Path(printed.split("KUBECONFIG=")[1].split()[0])
    assert kubeconfig.exists()

    subprocess.run([*command, "stop", kubeconfig.parent], env=ENVIRONMENT, check=True)
    assert not kubeconfig.parent.exists()
    again = subprocess.run([*command, "stop", kubeconfig.parent], env=ENVIRONMENT, capture_output=True, check=False)
    assert again.returncode == 1


def script(directory: Path, text: str, ready: Path | None = None) -> Process:
    for name in ("logs", "run"):
        (directory / name).mkdir()
    return Process(
        "script", [sys.executable, "-c", text, str(directory)],
        directory=directory, ready=lambda: ready is not None and ready.exists(),
    )  # fmt: skip


def running(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
