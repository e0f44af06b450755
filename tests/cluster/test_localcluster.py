"""The local control plane that all other cluster tests stand on."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localcluster import (
    NATIVE_GROUPS,
    Cluster,
    Nodes,
    PortTakenError,
    Process,
    ProcessError,
    eventually,
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


def test_a_failed_node_becomes_unreachable_and_stays_so(cluster: Cluster, nodes: Any) -> None:
    victim, other = nodes(nodes=2)
    cluster.fail_node(victim)

    def taints(name: str) -> set[str]:
        return {taint["key"] for taint in cluster.api("GET", f"/api/v1/nodes/{name}")["spec"].get("taints") or []}

    eventually(lambda: "node.kubernetes.io/unreachable" in taints(victim))
    assert not taints(other)


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
