"""The local control plane that all other cluster tests stand on."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiException

from localcluster import Cluster, Process, ProcessError, eventually
from localcluster.programs import ROOT
from localcluster.watch import WatchStream

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "dev"), "KEEP": ""}


def test_node_when_it_failed_becomes_unreachable_and_stays_so(cluster: Cluster, nodes: Any) -> None:
    victim, other = nodes(nodes=2)
    cluster.fail_node(victim)

    def taints(name: str) -> set[str]:
        return {taint["key"] for taint in cluster.api("GET", f"/api/v1/nodes/{name}")["spec"].get("taints") or []}

    eventually(lambda: "node.kubernetes.io/unreachable" in taints(victim))
    assert not taints(other)


def test_recording_has_every_change_in_order_and_goes_on_where_its_watch_was_ended(
    cluster: Cluster, namespace: str
) -> None:
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    with cluster.record(f"{maps}?labelSelector=mine") as recording:
        for number in range(4):
            cluster.api("POST", maps, {"metadata": {"name": f"n{number}", "labels": {"mine": ""}}})
            if number % 2:
                recording.disconnect()
        cluster.api("DELETE", f"{maps}/n0")
        recording.wait(lambda events: events[-1:] != [] and events[-1][0] == "DELETED")
        recording.check()
    seen = [(kind, item["metadata"]["name"]) for kind, item in recording.events]
    assert seen == [*(("ADDED", f"n{number}") for number in range(4)), ("DELETED", "n0")]


def test_watch_when_its_version_is_gone_or_it_is_refused_is_an_error(cluster: Cluster, namespace: str) -> None:
    # The API server has events of a kind from the moment on when the kind was installed.
    path = "/apis/inference.covey.dev/v1alpha1/disaggregatedinferences?timeoutSeconds=10"
    with pytest.raises(ApiException) as gone:
        list(WatchStream(cluster.client, path, "1"))
    assert gone.value.status == 410
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    with cluster.service_account_client(namespace, "nobody") as nobody, pytest.raises(ApiException) as refused:
        WatchStream(nobody, maps, "1")
    assert refused.value.status == 403


def test_program_when_it_ends_at_once_is_reported_with_its_log(tmp_path: Path) -> None:
    process = script(tmp_path, "import sys; sys.exit('cannot do it')")
    with pytest.raises(ProcessError, match=r"status 1 before it was ready.*(?s:.)*cannot do it"):
        process.start()


def test_program_when_it_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    process = script(
        tmp_path,
        "import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"pathlib.Path({str(ready)!r}).touch(); time.sleep(600)",
        ready,
    )
    process.start()
    assert process.stop(timeout=0.2) == -signal.SIGKILL


@pytest.mark.slow  # a control plane of its own
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


@pytest.mark.slow  # a control plane of its own
def test_cluster_when_it_is_detached_is_stopped_by_its_directory() -> None:
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
