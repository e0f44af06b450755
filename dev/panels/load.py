"""A run on a real control plane that gives every panel something to show, in about four minutes.

Deployments start, one does not fit, revisions are rolled out and one of them never gets ready, nodes are drained and one
dies, a kube-scheduler finds a port taken that the planner knows nothing of, the API server restarts, a leader dies.
Meanwhile small gangs come and go. Prometheus scrapes all of Covey's processes from the beginning.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from localcluster import ApiError, Cluster, Process
from panels.fleet import BLOCK, KINDS, RACK, Fleet, patiently, role
from panels.kubelet import BROKEN, Kubelet, tell
from panels.prometheus import Prometheus, Scraped

#: Seconds between two scrapes.
SCRAPE: Final = 2.0
NAMESPACES: Final = ("chat", "code", "research")
CLUSTER: Final = "demo"
#: Replicas of Covey's processes: the second stands by.
PROGRAMS: Final = ("covey-operator", "covey-operator-2", "covey-scheduler")
#: Small gangs that live at a time.
LIVES: Final = 5
_PORT: Final = 9400


@contextlib.contextmanager
def run(directory: Path) -> Iterator[tuple[Fleet, Prometheus]]:
    """Play the whole run; both are still there within the block."""
    with Cluster(kwok=False) as cluster:
        for namespace in NAMESPACES:
            cluster.ensure("/api/v1/namespaces", {"metadata": {"name": namespace}})
        for kind in KINDS:
            cluster.add_nodes(kind)
        cluster.start_all(None, "--leader-elect=true", leader_elect=True)
        cluster.start_covey("operator", "--leader-elect=true", name="covey-operator-2")
        fleet = Fleet(cluster)
        with Prometheus(directory, "covey-system/covey", scraped(cluster), seconds=SCRAPE) as prometheus:
            with Kubelet(cluster, least=2, spread=5), restarts(cluster), traffic(fleet):
                play(fleet)
            yield fleet, prometheus


def scraped(cluster: Cluster) -> list[Scraped]:
    """Covey's processes, with the labels that the chart's PodMonitor would give them."""
    return [
        Scraped(
            urlsplit(cluster.processes[name].metrics_url).netloc,
            {"cluster": CLUSTER, "namespace": "covey-system", "pod": name, "endpoint": "metrics"},
        )
        for name in PROGRAMS
    ]


@contextlib.contextmanager
def restarts(cluster: Cluster) -> Iterator[None]:
    """A process that has ended is started again, as a kubelet would: who loses the lease ends."""
    with _again("restarts", 1, lambda _: [start(cluster.processes[name]) for name in (*PROGRAMS, "kube-scheduler")]):
        yield


def start(process: Process) -> None:
    """Start a process unless it runs."""
    if not process.alive:
        process.start(wait=False)


@contextlib.contextmanager
def traffic(fleet: Fleet) -> Iterator[None]:
    """Small gangs come and go all the time."""

    def step(number: int) -> None:
        with contextlib.suppress(ApiError, OSError):
            fleet.create("chat", f"trial-{number}", [role("prefill", 1, 1, gpus=2), role("decode", 1, 2, gpus=2)])
        if number > LIVES:
            with contextlib.suppress(OSError):
                fleet.delete("chat", f"trial-{number - LIVES}")

    with _again("traffic", 4, step):
        yield


@contextlib.contextmanager
def _again(name: str, seconds: float, step: Callable[[int], object]) -> Iterator[None]:
    """Do something every few seconds, in a thread; the number counts from 1."""
    end = threading.Event()

    def work() -> None:
        for number in itertools.count(1):
            if end.wait(seconds):
                return
            step(number)

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def play(fleet: Fleet) -> None:
    """All scenes, in order."""
    fleet.began = time.time()
    time.sleep(6)  # the quiet before
    deploy(fleet)
    roll_out(fleet)
    overcommit(fleet)
    drain(fleet)
    lose_a_node(fleet)
    take_a_port(fleet)
    roll_out_what_never_gets_ready(fleet)
    block_an_evacuation(fleet)
    restart_the_api_server(fleet)
    change_the_leader(fleet)
    make_room(fleet)
    time.sleep(10)


def deploy(fleet: Fleet) -> None:
    """Six deployments of several shapes."""
    fleet.mark("deployments start")
    fleet.create("chat", "llama", _llama("1"), topology=BLOCK)
    fleet.create("chat", "mistral", [role("prefill", 2, 1, minReplicas=1), role("decode", 2, 2, minReplicas=1)])
    time.sleep(3)
    fleet.create("code", "qwen", _qwen("1"), topology=BLOCK, rollout={"progressDeadlineSeconds": 15})
    fleet.create("code", "phi", [role("decode", 1, 12, gpus=1)], topology={"preferred": "host"})
    time.sleep(3)
    fleet.create("research", "gemma", [role("prefill", 4, 1, gpus=4), role("decode", 4, 1, gpus=4)])
    for namespace, name in (("chat", "llama"), ("code", "qwen"), ("research", "gemma")):
        fleet.await_condition(namespace, name, "Available", "Available")
    time.sleep(8)


def overcommit(fleet: Fleet) -> None:
    """One that no block has room for, and one whose surplus has none."""
    fleet.mark("a gang that does not fit")
    fleet.create("code", "wide", [role("prefill", 12, 4, topology=RACK, minReplicas=1)])
    fleet.await_condition("code", "wide", "Admitted", "Admitted")
    time.sleep(3)  # until its surplus has taken what there is
    fleet.create("research", "giant", [role("decode", 1, 24, topology=BLOCK)])
    fleet.await_condition("research", "giant", "Admitted", "Infeasible")
    time.sleep(12)


def roll_out(fleet: Fleet) -> None:
    """A new image, replica by replica."""
    fleet.mark("a rollout")
    fleet.change("chat", "llama", roles=_llama("2"))
    time.sleep(1)
    fleet.await_condition("chat", "llama", "Progressing", "Complete", 180)
    time.sleep(4)


def drain(fleet: Fleet) -> None:
    """A node is cordoned: its replicas are built elsewhere first."""
    fleet.mark("a node is drained")
    node = fleet.node_of("chat", "mistral", "prefill")
    fleet.cordon(node)
    time.sleep(18)
    fleet.cordon(node, cordoned=False)


def lose_a_node(fleet: Fleet) -> None:
    """A node dies, and a container ends by itself."""
    fleet.mark("a node dies")
    node = fleet.node_of("chat", "llama", "decode")
    fleet.cluster.delete_nodes([node])
    pod = next(each for each in fleet.pods("research", "gemma") if each["spec"].get("nodeName"))
    tell(fleet.cluster, pod, {"phase": "Failed", "reason": "Error"})
    time.sleep(20)
    fleet.repair(node)
    time.sleep(4)


def take_a_port(fleet: Fleet) -> None:
    """Somebody sits on a port of every free node but few: kube-scheduler sends the pods back, and they are placed anew."""
    fleet.mark("a port is taken")
    hosts = KINDS[1].names
    for number, node in enumerate(hosts[:4]):
        fleet.job(f"exporter-{number}", node, _PORT)
    selector = {"nvidia.com/gpu.product": KINDS[1].product}
    monitor = role("decode", 8, 1, gpus=1, port=_PORT)
    monitor["template"]["spec"]["nodeSelector"] = selector
    fleet.create("research", "monitored", [monitor])
    time.sleep(10)


def roll_out_what_never_gets_ready(fleet: Fleet) -> None:
    """A rollout gets no further, and is held."""
    fleet.mark("a rollout is held")
    fleet.change("code", "qwen", roles=_qwen(BROKEN))
    fleet.await_condition("code", "qwen", "Progressing", "ProgressDeadlineExceeded", 120)
    time.sleep(8)


def block_an_evacuation(fleet: Fleet) -> None:
    """A node of a gang that fits nowhere else is drained."""
    fleet.mark("an evacuation is blocked")
    node = fleet.node_of("code", "wide", "prefill")
    fleet.cordon(node)
    time.sleep(15)
    fleet.cordon(node, cordoned=False)


def restart_the_api_server(fleet: Fleet) -> None:
    """The API server is away for some seconds."""
    fleet.mark("the API server restarts")
    server = fleet.cluster.processes["kube-apiserver"]
    server.kill()
    time.sleep(3)
    server.start()
    time.sleep(10)


def change_the_leader(fleet: Fleet) -> None:
    """The operator that leads dies; the other one follows when the lease has run out."""
    fleet.mark("the operator's leader dies")
    fleet.cluster.processes["covey-operator"].kill()
    time.sleep(20)


def make_room(fleet: Fleet) -> None:
    """Others go, and the one that waited gets its place."""
    fleet.mark("room comes free")
    for namespace, name in (("code", "wide"), ("code", "qwen"), ("chat", "llama")):
        patiently(lambda namespace=namespace, name=name: fleet.delete(namespace, name))  # type: ignore[misc]
    fleet.await_condition("research", "giant", "Available", "Available", 120)


def _llama(image: str) -> list[dict[str, object]]:
    return [
        role("prefill", 4, 1, image=image, topology=RACK, minReplicas=1, update={"maxSurge": 2}),
        role("decode", 2, 2, image=image, topology=RACK, minReplicas=1),
    ]


def _qwen(image: str) -> list[dict[str, object]]:
    return [
        role("prefill", 2, 2, image=image, topology=RACK, minReplicas=1),
        role("decode", 2, 1, image=image, minReplicas=1),
    ]
