"""A run on a real control plane that gives every panel something to show, in about four minutes.

Deployments start, one does not fit, revisions are rolled out and one of them never gets ready, nodes are drained and one
dies, kube-scheduler stands still and somebody takes a node's capacity meanwhile, it refuses what the planner cannot know, the API
server restarts, a leader dies. Meanwhile small gangs come and go. Prometheus scrapes all of Covey's processes from the
beginning.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from install.panels.fleet import A100, BLOCK, KINDS, RACK, Fleet, patiently, role
from install.panels.kubelet import BROKEN, Kubelet, tell
from install.panels.prometheus import Prometheus, Scraped
from localcluster import Background, Cluster
from localcluster.programs import scheduler_config

#: Seconds between two scrapes.
SCRAPE: Final = 2.0
NAMESPACES: Final = ("chat", "code", "research")
CLUSTER: Final = "demo"
#: More than enough for one of the namespaces, so that it delays nobody.
QUEUE: Final = {
    "apiVersion": "scheduling.covey.dev/v1alpha1",
    "kind": "Queue",
    "metadata": {"name": "code"},
    "spec": {
        "namespaces": {"selector": {"matchLabels": {"kubernetes.io/metadata.name": "code"}}},
        "flavors": [{"resources": [{"name": "nvidia.com/gpu", "nominal": 10_000}]}],
    },
}
#: What somebody who looks at the dashboard would choose: all but the small gangs that come and go.
CHOSEN: Final = {"name": ("edge", "gemma", "giant", "late", "llama", "mistral", "phi", "qwen", "wide")}
#: Replicas of Covey's processes: the second stands by.
PROGRAMS: Final = ("covey-operator", "covey-operator-2", "covey-scheduler")
#: Small gangs that live at a time.
LIVES: Final = 5


@contextlib.contextmanager
def run(directory: Path) -> Iterator[tuple[Fleet, Prometheus]]:
    """Play the whole run; both are still there within the block."""
    with Cluster(kwok=False) as cluster:
        for namespace in NAMESPACES:
            cluster.ensure("/api/v1/namespaces", {"metadata": {"name": namespace}})
        cluster.ensure("/apis/scheduling.covey.dev/v1alpha1/queues", QUEUE)
        for kind in KINDS:
            cluster.add_nodes(kind)
        start_covey(cluster)
        fleet = Fleet(cluster)
        with Prometheus(directory, "covey-system/covey", scraped(cluster), seconds=SCRAPE) as prometheus:
            with Kubelet(cluster, least=2, spread=5), Restarts(cluster), Traffic(fleet):
                play(fleet)
            yield fleet, prometheus


def start_covey(cluster: Cluster) -> None:
    """All processes, with leader election; room is kept for a gang that has waited for half a minute."""
    cluster.start_covey("operator", "--leader-elect=true")
    cluster.start_covey("operator", "--leader-elect=true", name="covey-operator-2")
    scheduler = cluster.start_covey("scheduler", "--leader-elect=true", "--reserve-after=30s")
    config = scheduler_config(scheduler, leader_elect=True)
    cluster.start_scheduler(config, kubeconfig=cluster.kube_scheduler_kubeconfig())


def scraped(cluster: Cluster) -> list[Scraped]:
    """Covey's processes, with the labels that the chart's PodMonitor would give them."""
    return [
        Scraped(
            urlsplit(cluster.processes[name].metrics_url).netloc,
            {"cluster": CLUSTER, "namespace": "covey-system", "pod": name, "endpoint": "metrics"},
        )
        for name in PROGRAMS
    ]


class Restarts(Background):
    """Starts processes again that have ended, as a kubelet would: who loses the lease ends.

    Not at once: an end that falls between two scrapes would show nowhere.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._processes = [cluster.processes[name] for name in (*PROGRAMS, "kube-scheduler")]

    def _run(self) -> None:
        while not self.ended.wait(1):
            for process in self._processes:
                if not process.alive and not self.ended.wait(2 * SCRAPE):
                    process.start(wait=False)


class Traffic(Background):
    """Lets small gangs come and go all the time."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self._fleet = fleet

    def _run(self) -> None:
        roles = [role("prefill", 1, 1, gpus=2), role("decode", 1, 2, gpus=2)]
        for number in itertools.count(1):
            if self.ended.wait(4):
                return
            with contextlib.suppress(ApiException, HTTPError):
                self._fleet.create("chat", f"trial-{number}", roles, topology={"preferred": "host"})
            if number > LIVES:
                with contextlib.suppress(HTTPError):
                    self._fleet.delete("chat", f"trial-{number - LIVES}")


def play(fleet: Fleet) -> None:
    """All scenes, in order."""
    fleet.began = time.time()
    time.sleep(6)  # the quiet before
    for scene in SCENES:
        fleet.mark(str(scene.__doc__))
        scene(fleet)


def deploy(fleet: Fleet) -> None:
    """Deployments start."""
    edge = [role("decode", 1, 8, topology=RACK, on=A100), role("router", 1, 1, gpus=0, on=A100)]
    fleet.create("research", "edge", edge, gang={"terminationDelaySeconds": 5})
    fleet.await_condition("research", "edge", "Admitted", "Admitted")  # while a rack is free
    fleet.create("chat", "llama", _llama("1"), topology=BLOCK)
    time.sleep(3)
    fleet.create("chat", "mistral", [role("prefill", 2, 1, minReplicas=1), role("decode", 2, 2, minReplicas=1)])
    fleet.create("code", "qwen", _qwen("1"), topology=BLOCK, rollout={"progressDeadlineSeconds": 15})
    time.sleep(3)
    fleet.create("code", "phi", [role("decode", 1, 12, gpus=1)], topology={"preferred": "host"})
    fleet.create("research", "gemma", [role("prefill", 4, 1, gpus=4), role("decode", 4, 1, gpus=4)])
    for namespace, name in (("chat", "llama"), ("code", "qwen"), ("research", "gemma"), ("research", "edge")):
        fleet.await_condition(namespace, name, "Available", "Available")
    time.sleep(8)


def roll_out(fleet: Fleet) -> None:
    """A new revision is rolled out."""
    fleet.change("chat", "llama", roles=_llama("2"))
    time.sleep(1)
    fleet.await_condition("chat", "llama", "Progressing", "Complete", 180)
    time.sleep(4)


def overcommit(fleet: Fleet) -> None:
    """A gang comes that does not fit, after one whose surplus takes all that there is."""
    fleet.create("code", "wide", [role("prefill", 16, 4, topology=RACK, minReplicas=1)])
    fleet.await_condition("code", "wide", "Admitted", "Admitted")
    time.sleep(3)
    fleet.create("research", "giant", [role("decode", 1, 24, topology=BLOCK)])
    fleet.await_condition("research", "giant", "Admitted", "Infeasible")
    for namespace, name in (("chat", "llama"), ("research", "gemma"), ("research", "giant")):
        fleet.ask_for_room(namespace, name)
    time.sleep(8)


def drain(fleet: Fleet) -> None:
    """A node is drained."""
    node = fleet.node_of("research", "gemma", "prefill")
    fleet.cordon(node)
    fleet.taint(fleet.node_of("chat", "mistral", "decode"), "DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule")
    time.sleep(15)
    fleet.cordon(node, cordoned=False)


def lose_a_node(fleet: Fleet) -> None:
    """A node dies, and containers end by themselves."""
    node = fleet.node_of("chat", "llama", "decode")
    fleet.cluster.delete_nodes([node])
    for pod in [each for each in fleet.pods("research", "gemma") if each["spec"].get("nodeName")][:2]:
        tell(fleet.cluster, pod, {"phase": "Failed", "reason": "Error"})
    time.sleep(15)
    fleet.repair(node)


def block_an_evacuation(fleet: Fleet) -> None:
    """A node is drained and its gang has nowhere to go; then it dies."""
    node = fleet.node_of("research", "edge", "decode")
    fleet.cordon(node)
    fleet.await_condition("research", "edge", "EvacuationBlocked", "NoNodes")
    time.sleep(5)
    fleet.cluster.delete_nodes([node])
    time.sleep(15)
    fleet.repair(node)


def stand_still(fleet: Fleet) -> None:
    """kube-scheduler stands still, and somebody takes a node's capacity meanwhile."""
    scheduler = fleet.cluster.processes["kube-scheduler"]
    scheduler.pause()
    fleet.create("research", "late", [role("decode", 2, 1, gpus=2)])
    node = fleet.pin_of("research", "late", "decode")
    fleet.intrude(node)
    time.sleep(10)
    scheduler.resume()
    time.sleep(4)


def roll_out_what_never_gets_ready(fleet: Fleet) -> None:
    """A rollout gets no further, and is held."""
    fleet.change("code", "qwen", roles=_qwen(BROKEN))
    fleet.await_condition("code", "qwen", "Progressing", "ProgressDeadlineExceeded", 120)
    time.sleep(6)


def restart_the_api_server(fleet: Fleet) -> None:
    """The API server restarts."""
    server = fleet.cluster.processes["kube-apiserver"]
    server.kill()
    time.sleep(3)
    server.start()
    time.sleep(10)


def change_the_leader(fleet: Fleet) -> None:
    """The operator that leads dies."""
    fleet.cluster.processes[fleet.leader("covey-operator", PROGRAMS)].kill()
    time.sleep(20)


def make_room(fleet: Fleet) -> None:
    """Capacity comes free."""
    patiently(lambda: fleet.delete("code", "wide"))
    fleet.await_condition("research", "giant", "Available", "Available", 120)
    time.sleep(10)


def _llama(image: str) -> list[dict[str, object]]:
    return [
        role("prefill", 4, 1, image=image, topology=RACK, minReplicas=1, update={"maxSurge": 2}),
        role("decode", 2, 2, image=image, topology=RACK, minReplicas=2),
    ]


def _qwen(image: str) -> list[dict[str, object]]:
    return [
        role("prefill", 2, 2, image=image, topology=RACK, minReplicas=1),
        role("decode", 2, 1, image=image, minReplicas=1),
    ]


#: What happens, in this order; the first line of each says what it is.
SCENES: Final = (
    deploy,
    roll_out,
    overcommit,
    drain,
    lose_a_node,
    block_an_evacuation,
    stand_still,
    roll_out_what_never_gets_ready,
    change_the_leader,
    restart_the_api_server,
    make_room,
)
