"""``make demo``: the story of Covey, played with kubectl on a real control plane with simulated GPU nodes.

It prints each command that it runs and what comes of it. ``KEEP=1`` applies the example once more at the end and leaves
the cluster running until Ctrl-C. ``make demo`` puts ``dev`` on the path.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localcluster import TROUBLES, Cluster, Nodes, binaries, sentence_of

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = "examples/disaggregated.yaml"
_GROUPS = "/apis/scheduling.covey.dev/v1alpha1/namespaces/default"
TREE = (
    f"{_GROUPS}/workloads",
    f"{_GROUPS}/compositepodgroups",
    f"{_GROUPS}/podgroups",
    "/api/v1/namespaces/default/pods",
)
SHAPE = Nodes(blocks=2, racks=3, nodes=6, gpus=8)
COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ
STARTED = time.monotonic()


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


def run() -> None:
    """Play the five acts and a summary."""
    title("Covey: a working set of prefill and decode workers starts, close together, or nothing does")
    build = subprocess.Popen(
        [sys.executable, str(ROOT / "dev/localcluster/binaries.py")], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    preview()
    wait_for_build(build)
    with Cluster() as cluster:
        play(Stage(cluster))
        if os.environ.get("KEEP"):
            stay(Stage(cluster))


def preview() -> None:
    """What `covey plan` says before any cluster exists; a first build of the control plane runs meanwhile."""
    heading("Before anything runs: where would it land?")
    run_covey("plan", "-f", EXAMPLE, "--nodes", "examples/offline/nodes.json", "-o", "picture")


def wait_for_build(build: subprocess.Popen[bytes]) -> None:
    """Pass on the progress of a first build; nothing is printed when the programs are there already."""
    assert build.stderr is not None
    for line in build.stderr:
        print(line.decode(), end="", file=sys.stderr, flush=True)
    if build.wait():
        raise SystemExit("The control plane could not be built.")
    binaries.ensure()


def play(stage: Stage) -> None:
    """All acts, in order."""
    heading("A real control plane: etcd, kube-apiserver, kube-scheduler, controller-manager, 36 simulated nodes")
    before = time.monotonic()
    stage.cluster.start_all(nodes=SHAPE)
    say(
        f"Running after {time.monotonic() - before:.1f} s: 2 blocks x 3 racks x 6 nodes x 8 GPUs, both Covey processes."
    )
    act_a(stage)
    act_b(stage)
    act_c(stage)
    act_d(stage)
    act_e(stage)
    summary(stage)


def act_a(stage: Stage) -> None:
    """One resource becomes a bound gang."""
    heading("(a) One resource: prefill 4 x 2 pods, decode 2 x 4 pods, one block, each replica in one rack")
    with contextlib.ExitStack() as stack:
        recordings = [stack.enter_context(stage.cluster.record(path)) for path in TREE]
        before = time.monotonic()
        stage.kubectl("apply", "-f", EXAMPLE)
        stage.until("all 16 pods are bound", lambda: stage.bound("llama") == 16)
        stage.note("apply to all bound", f"{time.monotonic() - before:.2f} s")
        say("The tree, in the order in which the API server stored it:")
        show_creation_order([item for recording in recordings for kind, item in recording.events if kind == "ADDED"])
    say("Where each replica landed:")
    stage.show_replicas("llama")
    stage.until("llama says that all is ready", lambda: stage.is_ready("llama"))
    stage.kubectl("get", "dinf", "llama", "-o", "wide")


def act_b(stage: Stage) -> None:
    """What does not fit does not start, and says why."""
    heading("(b) One that does not fit: batch jobs hold most of the second block")
    stage.fill_block("block-1" if stage.block_of("llama") == "block-0" else "block-0", keep_free=3)
    stage.apply(MISTRAL)
    stage.until("the reason is known", lambda: stage.admitted("mistral").get("reason") == "Infeasible")
    stage.kubectl("get", "dinf", "mistral", "-o", "wide")
    say("Nothing started: every pod is still gated.")
    stage.kubectl("get", "pods", "-l", "covey.dev/inference=mistral", "--no-headers")


def act_c(stage: Stage) -> None:
    """Capacity comes free: minimums first."""
    heading("(c) Capacity comes free: the minimum starts at once, the surplus when there is more")
    before = time.monotonic()
    stage.free_nodes(stage.hosts_of_batch()[:3])
    stage.until("the minimum is bound", lambda: stage.bound("mistral") >= 6)
    stage.note("capacity to minimum bound", f"{time.monotonic() - before:.2f} s")
    stage.show_replicas("mistral")
    stage.free_nodes(stage.hosts_of_batch())
    stage.until("the surplus is bound", lambda: stage.bound("mistral") == 12)
    stage.until("mistral says that all is ready", lambda: stage.is_ready("mistral"))
    stage.kubectl("get", "dinf", "mistral", "-o", "wide")


def act_d(stage: Stage) -> None:
    """A node fails and is drained at once: its replica is replaced in its rack."""
    heading("(d) A node fails: its replica is replaced inside its rack, the others are not touched")
    victim = stage.replica_with_a_free_neighbour("llama")
    node = victim[0]["spec"]["nodeName"]
    before = {pod["metadata"]["uid"] for pod in stage.pods("llama")}
    lost = {pod["metadata"]["uid"] for pod in victim}
    say(f"{victim[0]['metadata']['name']} runs on {node}, in {stage.rack(node)}.")
    since = time.monotonic()
    stage.kubectl("taint", "node", node, "hardware=failed:NoExecute")
    stage.until(
        "the replica is whole again",
        lambda: stage.bound("llama") == 16 and not lost & {pod["metadata"]["uid"] for pod in stage.pods("llama")},
    )
    stage.note("node failed to replica bound again", f"{time.monotonic() - since:.2f} s")
    kept = before & {pod["metadata"]["uid"] for pod in stage.pods("llama")}
    stage.show_replicas("llama", only=victim[0]["metadata"]["labels"])
    say(f"{len(kept)} of {len(before)} pods are the very same as before.")


def act_e(stage: Stage) -> None:
    """Scale, and delete."""
    heading("(e) Scale a role, then delete")
    scaled = [{"op": "replace", "path": "/spec/roles/0/replicas", "value": 1}]
    stage.kubectl("patch", "dinf", "mistral", "--type=json", "-p", json.dumps(scaled))
    stage.until("surplus is gone", lambda: len(stage.pods("mistral")) == 10)
    scaled[0]["value"] = 2
    stage.kubectl("patch", "dinf", "mistral", "--type=json", "-p", json.dumps(scaled))
    stage.until("surplus is back", lambda: stage.bound("mistral") == 12)
    stage.until("both say that all is ready", lambda: stage.is_ready("llama") and stage.is_ready("mistral"))
    stage.kubectl("get", "dinf", "-o", "wide")
    stage.kubectl("delete", "dinf", "--all")
    stage.until("everything is gone", lambda: not stage.items("covey,services,pods", "-l", "covey.dev/inference"), 120)
    say("No object is left of either.")


def summary(stage: Stage) -> None:
    """What was measured."""
    heading("Summary")
    stage.note("the whole demo", f"{time.monotonic() - STARTED:.0f} s")
    for name, value in stage.notes:
        say(f"{name:<34} {value}")


def stay(stage: Stage) -> None:
    """Leave the cluster running, with something in it to look at."""
    heading("KEEP=1: the example once more, to look at")
    stage.kubectl("apply", "-f", EXAMPLE)
    stage.until("llama says that all is ready", lambda: stage.is_ready("llama"))
    say("The cluster runs until you press Ctrl-C here. In another terminal:")
    print(f"\n  export KUBECONFIG={stage.cluster.kubeconfig}")
    print(f"  export PATH={Path(sys.executable).parent}:{stage.cluster.binary('kubectl').parent}:$PATH")
    print("  kubectl get dinf -o wide\n  covey status llama -o picture", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()


MISTRAL = """
apiVersion: inference.covey.dev/v1alpha1
kind: DisaggregatedInference
metadata: {name: mistral, namespace: default}
spec:
  topology: {required: block}
  roles:
  - name: prefill
    replicas: 2
    minReplicas: 1
    size: 2
    topology: {required: rack}
    template: &pod
      spec:
        containers:
        - name: engine
          image: example.com/engine:1
          resources: {limits: {nvidia.com/gpu: 8}}
  - name: decode
    replicas: 2
    minReplicas: 1
    size: 4
    topology: {required: rack}
    template: *pod
"""

BATCH_POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "job", "image": "example.com/job:1", "resources": {"limits": {"nvidia.com/gpu": 8}}}],
    },
}


class Stage:
    """The cluster, seen through kubectl, and the figures noted on the way."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.notes: list[tuple[str, str]] = []

    def note(self, name: str, value: str) -> None:
        """Keep a figure for the summary."""
        self.notes.append((name, value))

    def kubectl(self, *arguments: str) -> None:
        """Run a command as a person would, and show it."""
        command("kubectl", *arguments)
        show(self.cluster.kubectl(*arguments))

    def apply(self, manifest: str) -> None:
        """Apply YAML text, and show it."""
        command("kubectl", "apply", "-f", "-")
        show(self.cluster.kubectl("apply", "-f", "-", input=manifest))

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        """What `kubectl get` finds."""
        found: list[dict[str, Any]] = json.loads(self.cluster.kubectl("get", *arguments, "-o", "json"))["items"]
        return found

    def pods(self, inference: str) -> list[dict[str, Any]]:
        """The pods of a resource."""
        return self.items("pods", "-l", f"covey.dev/inference={inference}")

    def bound(self, inference: str) -> int:
        """Live pods that have a node."""
        return sum(
            1
            for pod in self.pods(inference)
            if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
        )

    def status(self, inference: str) -> dict[str, Any]:
        """The status of a resource; empty when it has none yet."""
        found: dict[str, Any] = json.loads(self.cluster.kubectl("get", "dinf", inference, "-o", "json"))
        return found.get("status", {})

    def is_ready(self, inference: str) -> bool:
        """Whether a resource itself says, as ``kubectl get`` shows it, that each role is whole."""
        summary = self.status(inference).get("summary", {})
        counts = [word.split("/") for word in summary.get("ready", "").split() if "/" in word]
        return bool(counts) and all(ready == wanted for ready, wanted in counts) and not summary.get("reason")

    def admitted(self, inference: str) -> dict[str, Any]:
        """The condition Admitted of a resource; empty when it is not there."""
        conditions = self.status(inference).get("conditions", [])
        return next((condition for condition in conditions if condition["type"] == "Admitted"), {})

    def until(self, what: str, reached: Callable[[], bool], timeout: float = 60) -> None:
        """Wait for something to be so.

        Raises:
            SystemExit: after the time-out, with the state of the resources.
        """
        deadline = time.monotonic() + timeout
        while not reached():
            if time.monotonic() > deadline:
                print(self.cluster.kubectl("get", "dinf,pods", "-o", "wide"))
                raise SystemExit(f"The demo failed: after {timeout:.0f} s it is not so that {what}.")
            time.sleep(0.1)

    def node_labels(self) -> dict[str, dict[str, str]]:
        """The labels of every node, by its name."""
        return {node["metadata"]["name"]: node["metadata"]["labels"] for node in self.items("nodes")}

    def rack(self, node: str) -> str:
        """``block/rack`` of a node."""
        return rack_of(self.node_labels()[node])

    def block_of(self, inference: str) -> str:
        """The block that a resource lies in."""
        return self.rack(self.pods(inference)[0]["spec"]["nodeName"]).split("/")[0]

    def show_replicas(self, inference: str, only: dict[str, str] | None = None) -> None:
        """A line for each replica: its rack and its nodes."""
        labels = self.node_labels()
        replicas: dict[tuple[str, str], list[str]] = {}
        for pod in self.pods(inference):
            mark = pod["metadata"]["labels"]
            key = (mark["covey.dev/role"], mark["covey.dev/replica"])
            if only is None or key == (only["covey.dev/role"], only["covey.dev/replica"]):
                replicas.setdefault(key, []).append(pod["spec"].get("nodeName", ""))
        for (role, replica), nodes in sorted(replicas.items()):
            placed = sorted(node for node in nodes if node)
            racks = {rack_of(labels[node]) for node in placed}
            where = f"{', '.join(sorted(racks))}: {' '.join(placed)}" if placed else "waiting, all pods gated"
            print(f"    {role:<8} {replica}   {where}")

    def fill_block(self, block: str, keep_free: int) -> None:
        """Ordinary pods, one a node, through the same scheduler; ``keep_free`` nodes of the block stay free."""
        hosts = [
            name
            for name, labels in sorted(self.node_labels().items())
            if labels["cloud.provider.com/topology-block"] == block
        ]
        for host in hosts[keep_free:]:
            pod = BATCH_POD | {"metadata": {"name": f"batch-{host}", "labels": {"app": "batch"}}}
            pod["spec"] = pod["spec"] | {
                "schedulerName": "covey-scheduler",
                "nodeSelector": {"kubernetes.io/hostname": host},
            }
            self.cluster.kubectl("create", "-f", "-", input=json.dumps(pod))
        say(f"{len(hosts) - keep_free} ordinary pods take one node each of {block}, through the same kube-scheduler.")
        self.until("they run", lambda: len(self.hosts_of_batch()) == len(hosts) - keep_free)

    def hosts_of_batch(self) -> list[str]:
        """The nodes that ordinary pods run on."""
        return sorted(p["spec"]["nodeName"] for p in self.items("pods", "-l", "app=batch") if p["spec"].get("nodeName"))

    def free_nodes(self, hosts: list[str]) -> None:
        """Delete the ordinary pods on these nodes."""
        names = [f"batch-{host}" for host in hosts]
        command("kubectl", "delete", "pod", *names[:2], more=f" … ({len(names)} pods)")
        self.cluster.kubectl("delete", "pod", "--wait=false", *names)

    def replica_with_a_free_neighbour(self, inference: str) -> list[dict[str, Any]]:
        """The pods of a replica in the rack of its block that has most room."""
        labels = self.node_labels()
        hosts = [pod["spec"]["nodeName"] for pod in self.items("pods") if pod["spec"].get("nodeName")]
        used = Counter(rack_of(labels[host]) for host in hosts)
        pods = sorted(self.pods(inference), key=lambda pod: used[rack_of(labels[pod["spec"]["nodeName"]])])
        mark = pods[0]["metadata"]["labels"]["scheduling.covey.dev/pod-group"]
        return [pod for pod in pods if pod["metadata"]["labels"]["scheduling.covey.dev/pod-group"] == mark]


def rack_of(labels: dict[str, str]) -> str:
    """``block/rack`` of a node with these labels."""
    return "/".join(labels[f"cloud.provider.com/topology-{level}"] for level in ("block", "rack"))


def show_creation_order(created: list[dict[str, Any]]) -> None:
    """A line for each run of objects of one kind, by the resourceVersion that each was born with."""
    created.sort(key=lambda item: int(item["metadata"]["resourceVersion"]))
    for kind, run in itertools.groupby(created, key=lambda item: item["kind"]):
        names = [item["metadata"]["name"] for item in run]
        more = f" … {names[-1]} ({len(names)})" if len(names) > 3 else ""
        print(f"    {kind:<18} {', '.join(names[:3])}{more}")


def run_covey(*arguments: str) -> None:
    """Run the command line of the tree, and show it."""
    command("covey", *arguments)
    subprocess.run([sys.executable, "-m", "covey", *arguments], cwd=ROOT, check=True)


def title(text: str) -> None:
    """Print the first line."""
    print(f"\033[1m{text}\033[0m" if COLOUR else text, flush=True)


def heading(text: str) -> None:
    """Print the beginning of an act."""
    print(f"\n\033[1;36m== {text}\033[0m" if COLOUR else f"\n== {text}", flush=True)


def say(text: str) -> None:
    """Print what the demo itself has to say."""
    print(f"  {text}", flush=True)


def command(*words: str, more: str = "") -> None:
    """Print a command as it could be typed."""
    line = f"  $ {shlex.join(words)}{more}"
    print(f"\033[1m{line}\033[0m" if COLOUR else line, flush=True)


def show(text: str) -> None:
    """Print what a command printed."""
    for line in text.rstrip().splitlines():
        print(f"    {line}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
