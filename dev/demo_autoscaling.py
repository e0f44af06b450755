"""``make demo-autoscaling``: load rises on a cluster without nodes; replicas and nodes come, and go with the load.

The autoscalers are real: the HorizontalPodAutoscaler of the controller-manager, and Karpenter with its provider of
simulated nodes. A stand-in reports the load. ``make demo-autoscaling`` puts ``dev`` on the path.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from demo import ROOT, Stage, heading, say, title
from localcluster import TROUBLES, Cluster, binaries, sentence_of
from localcluster.karpenter import rack_pool, start_karpenter, waiting_pod
from localcluster.metrics_api import QUICK_AUTOSCALERS, REPLICAS, Metrics, serve_metrics
from localcluster.programs import scheduler_config

_POOLS: Final = ("rack-a", "rack-b")
#: Seconds that a node stays empty before Karpenter takes it down.
_IDLE: Final = 10
#: Requests that wait, and how many of them one replica of decode can bear.
_QUIET: Final = 10
_BUSY: Final = 40
_EACH: Final = 10
_NODES: Final = "/api/v1/nodes"
_CLAIMS: Final = "/apis/karpenter.sh/v1/nodeclaims"
_BUFFERS: Final = "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/default/capacitybuffers"
_SCALER: Final = "/apis/inference.covey.dev/v1alpha1/namespaces/default/rolescalers/qwen-decode"
_AUTOSCALERS: Final = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
_RIGHTS: Final = ROOT / "manifests" / "components" / "capacity-buffers" / "rights.yaml"


def main() -> int:
    """Play the story; returns the exit status."""
    try:
        run()
    except TROUBLES as error:
        print(f"error: {sentence_of(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.")
        return 130
    return 0


@dataclass(frozen=True)
class State:
    """The figures that the story is about."""

    wanted: int
    bound: int
    asked: int
    nodes: int

    def line(self) -> str:
        """The state as a line of the table."""
        return f"{self.wanted:>14} {self.bound:>12} {self.asked:>16} {self.nodes:>8}"


@dataclass(frozen=True)
class Figures:
    """Nodes at the end of each act, and how many NodeClaims Karpenter made in all."""

    nodes: tuple[int, ...]
    made: int


def run() -> Figures:
    """Play all acts on a control plane of its own."""
    title("Covey: load brings replicas, replicas bring nodes, and all of them go again")
    binaries.ensure()
    heading("A real control plane without a node, Covey, and Karpenter with two racks of up to 4 nodes of 8 GPUs")
    with Cluster(flags=QUICK_AUTOSCALERS) as cluster, ExitStack() as stack:
        cluster.install_rbac()
        cluster.install_rbac(_RIGHTS)
        cluster.install_account_policies()
        start_karpenter(cluster)
        asking = ("--capacity-provider=CapacityBuffer", "--capacity-after-seconds=1", "--capacity-wait-seconds=120")
        cluster.start_covey("operator", *asking)
        cluster.start_scheduler(scheduler_config(cluster.start_covey("scheduler")))
        cluster.apply([rack_pool(name, block="block-k", nodes=4, idle=f"{_IDLE}s") for name in _POOLS])
        metrics = stack.enter_context(serve_metrics(cluster))
        claims = stack.enter_context(cluster.record(_CLAIMS))
        nodes = play(Story(cluster, metrics))
        return Figures(nodes, len({each["metadata"]["uid"] for _, each in claims.events}))


def play(story: Story) -> tuple[int, ...]:
    """Play the acts in their order; returns the nodes at the end of each."""
    stage, ends = story.stage, []
    heading("(a) One prefill and one decode of 8 GPUs: the minimum asks for its nodes")
    story.load(_QUIET)
    stage.apply(manifest())
    ends.append(story.follow("the minimum runs", lambda now: now.bound == 2 and not now.asked))
    heading(f"(b) {_BUSY} requests wait, {_EACH} for each decode are well: the HorizontalPodAutoscaler wants four")
    stage.cluster.api("POST", _AUTOSCALERS, autoscaler())
    story.load(_BUSY)
    ends.append(story.follow("four decode run", lambda now: (now.wanted, now.bound, now.asked) == (4, 5, 0)))
    story.settle()
    stage.kubectl("get", "hpa,dinf")
    stage.show_replicas("qwen")
    heading("(c) The load goes: replicas go, then the nodes that they leave empty")
    story.load(_QUIET)
    with waiting_pod(stage.cluster):  # or Karpenter may keep nodes that it made for a buffer
        ends.append(story.follow("two nodes are left", lambda now: (now.wanted, now.bound, now.nodes) == (1, 2, 2)))
    stage.show_replicas("qwen")
    heading("(d) Deleted: the cluster is as empty as before")
    stage.cluster.api("DELETE", f"{_AUTOSCALERS}/decode")
    stage.kubectl("delete", "dinf", "qwen")
    ends.append(story.follow("nothing is left", lambda now: now == State(0, 0, 0, 0)))
    return tuple(ends)


class Story:
    """The stage, and the load on it."""

    def __init__(self, cluster: Cluster, metrics: Metrics) -> None:
        self.stage = Stage(cluster)
        self._metrics = metrics

    def load(self, waiting: int) -> None:
        """From now on so many requests wait."""
        self._metrics.loads["default", REPLICAS] = waiting

    def settle(self) -> None:
        """Wait until all pods serve, and the autoscaler has seen it."""
        self.stage.until("qwen says that all is ready", lambda: self.stage.is_ready("qwen"))
        self._metrics.await_rounds("default", REPLICAS, 2)

    def follow(self, what: str, reached: Callable[[State], bool]) -> int:
        """Print each change until something is so; returns the nodes that there are then."""
        print(f"    {'seconds':>8} {'decode wanted':>14} {'pods bound':>12} {'nodes asked for':>16} {'nodes':>8}")
        began, seen = time.monotonic(), [State(-1, 0, 0, 0)]

        def look() -> bool:
            now = self._look()
            if now != seen[-1]:
                seen.append(now)
                print(f"    {time.monotonic() - began:8.1f} {now.line()}", flush=True)
            return reached(now)

        self.stage.until(what, look, 180)
        say(f"After {time.monotonic() - began:.1f} s {what}.")
        return seen[-1].nodes

    def _look(self) -> State:
        """Read the API server; the buffers' replicas are the nodes asked for, as each pod takes a whole one."""
        cluster = self.stage.cluster
        pods = cluster.api("GET", "/api/v1/namespaces/default/pods")["items"]
        bound = [each for each in pods if each["spec"].get("nodeName") and "deletionTimestamp" not in each["metadata"]]
        scalers = cluster.api("GET", _SCALER.rpartition("/")[0])["items"]
        buffers = cluster.api("GET", _BUFFERS)["items"]
        return State(
            sum(each["spec"]["replicas"] for each in scalers if each["metadata"]["name"] == "qwen-decode"),
            len(bound),
            sum(each["spec"]["replicas"] for each in buffers),
            len(cluster.api("GET", _NODES)["items"]),
        )


def manifest() -> str:
    """Two roles in one block, each pod a whole node; an autoscaler scales decode."""
    roles = [
        {
            "name": name,
            "replicas": 1,
            "minReplicas": 1,
            **scaling,
            "template": {
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [
                        {
                            "name": "engine",
                            "image": "registry.test/engine:1",
                            "resources": {"limits": {"nvidia.com/gpu": 8}},
                        }
                    ],
                }
            },
        }
        for name, scaling in (("prefill", {}), ("decode", {"scaling": {"mode": "External"}}))
    ]
    return json.dumps(
        {
            "apiVersion": "inference.covey.dev/v1alpha1",
            "kind": "DisaggregatedInference",
            "metadata": {"name": "qwen", "namespace": "default"},
            "spec": {"topology": {"name": "kueue", "required": "block"}, "roles": roles},
        }
    )


def autoscaler() -> dict[str, Any]:
    """Keeps so many waiting requests for each replica of decode, at most four, without the wait before it goes down."""
    average = {"type": "AverageValue", "averageValue": str(_EACH)}
    return {
        "metadata": {"name": "decode"},
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "inference.covey.dev/v1alpha1",
                "kind": "RoleScaler",
                "name": "qwen-decode",
            },
            "minReplicas": 1,
            "maxReplicas": 4,
            "metrics": [{"type": "Pods", "pods": {"metric": {"name": REPLICAS}, "target": average}}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    }


if __name__ == "__main__":
    raise SystemExit(main())
