"""What ordinary pods rely on a scheduler for: scenarios, and the outcome that each must have."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from cluster.processes.ordinary import HOST, PREFERRED, REQUIRED, ZONE, Stage, beside, select
from localcluster import eventually

Outcome = Mapping[str, object]


def node_affinity(stage: Stage) -> Outcome:
    stage.nodes("a", "b")
    stage.pod("required", affinity=select("b"))
    stage.pod("nowhere", affinity=select("none"))
    term = {"matchExpressions": [{"key": "class", "operator": "In", "values": ["a"]}]}
    stage.pod("preferred", affinity={"nodeAffinity": {PREFERRED: [{"weight": 100, "preference": term}]}})
    return {name: stage.where(name) for name in ("required", "nowhere", "preferred")}


def pod_affinity(stage: Stage) -> Outcome:
    stage.nodes("a", "b")
    first = stage.where(stage.pod("first", labels={"app": "x"}, affinity=select("b")))
    stage.pod("follows", affinity=beside("podAffinity", "x"))
    stage.pod("follows-nobody", affinity=beside("podAffinity", "y"))
    stage.pod("avoids", labels={"app": "x"}, affinity=beside("podAntiAffinity", "x"))
    found = {name: stage.where(name) for name in ("follows", "follows-nobody", "avoids")}
    stage.pod("avoids-too", labels={"app": "x"}, affinity=beside("podAntiAffinity", "x"))
    return {"first": first, **found, "avoids-too": stage.where("avoids-too")}


def taints(stage: Stage) -> Outcome:
    stage.nodes("a", taints=["dedicated=x:NoSchedule"])
    toleration = {"key": "dedicated", "operator": "Exists"}
    stage.pod("refused")
    runs = stage.where(stage.pod("runs", tolerations=[toleration]))
    stage.pod("stays", tolerations=[toleration, {"key": "broken", "operator": "Exists"}])
    stays = stage.where("stays")
    broken = {"key": "broken", "effect": "NoExecute"}
    path = f"/api/v1/nodes/{stage.node('a')}"
    present = stage.cluster.api("GET", path)["spec"]["taints"]
    stage.cluster.api("PATCH", path, {"spec": {"taints": [*present, broken]}})
    return {
        "refused": stage.where("refused", taints_matter=True),
        "runs": [runs, stage.await_gone("runs")],
        "stays": [stays, stage.where("stays")],
    }


def host_ports(stage: Stage) -> Outcome:
    stage.nodes("a", "b")
    port = {"containerPort": 8080, "hostPort": 8080}
    found = [stage.where(stage.pod(f"pod-{number}", ports=[port])) for number in range(3)]
    return {"bound": sorted(found[:2]), "third": found[2]}


def preemption(stage: Stage) -> Outcome:
    """The cheaper of two is evicted; an equal evicts nobody."""
    stage.nodes("a", "b", cpu={"a": "2", "b": "2"})
    stage.pod("cheap", cpu="2", affinity=select("a"), priorityClassName="harm-low")
    stage.pod("dear", cpu="2", affinity=select("b"), priorityClassName="harm-middle")
    before = [stage.where("cheap"), stage.where("dear")]
    equal = stage.where(stage.pod("equal", cpu="2", priorityClassName="harm-low"))
    stage.delete("equal")
    stage.pod("high", cpu="2", priorityClassName="harm-high")
    return {
        "before": before,
        "equal": equal,
        "cheap": stage.await_gone("cheap"),
        "high": stage.await_bound("high"),
        "dear": stage.where("dear"),
    }


def disruption_budget(stage: Stage) -> Outcome:
    """Of two equal victims the one without a budget goes."""
    stage.nodes("a", "b", cpu={"a": "2", "b": "2"})
    stage.pod("kept", cpu="2", affinity=select("a"), priorityClassName="harm-low", labels={"app": "kept"})
    stage.pod("loose", cpu="2", affinity=select("b"), priorityClassName="harm-low")
    before = [stage.where("kept"), stage.where("loose")]
    path = f"/apis/policy/v1/namespaces/{stage.namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}
    stage.cluster.api("POST", path, {"metadata": {"name": "kept"}, "spec": spec})
    eventually(lambda: stage.cluster.api("GET", f"{path}/kept")["status"]["expectedPods"] == 1)
    stage.pod("high", cpu="2", priorityClassName="harm-high")
    return {"before": before, "loose": stage.await_gone("loose"), "high": stage.await_bound("high")}


def local_volume(stage: Stage) -> Outcome:
    stage.nodes("a", "b")
    with _local_volume(stage, "b"):
        for claim in ("there", "missing"):
            body = {
                "storageClassName": stage.namespace,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi" if claim == "there" else "5Gi"}},
            }
            path = f"/api/v1/namespaces/{stage.namespace}/persistentvolumeclaims"
            stage.cluster.api("POST", path, {"metadata": {"name": claim}, "spec": body})
            stage.pod(claim, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": claim}}])
        # Until the controller-manager has called the volume available kube-scheduler passes it over.
        return {"there": stage.await_bound("there"), "missing": stage.where("missing")}


@contextlib.contextmanager
def _local_volume(stage: Stage, label: str) -> Iterator[None]:
    """A storage class without provisioner, and one volume on a node."""
    classes, volumes = "/apis/storage.k8s.io/v1/storageclasses", "/api/v1/persistentvolumes"
    storage = {"metadata": {"name": stage.namespace}, "provisioner": "kubernetes.io/no-provisioner"}
    stage.cluster.api("POST", classes, storage | {"volumeBindingMode": "WaitForFirstConsumer"})
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [stage.node(label)]}]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": stage.namespace,
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    stage.cluster.api("POST", volumes, {"metadata": {"name": stage.namespace}, "spec": spec})
    try:
        yield
    finally:
        stage.cluster.api("DELETE", f"{classes}/{stage.namespace}")
        stage.cluster.kubectl("delete", "persistentvolume", stage.namespace, "--wait=false")


def spread(stage: Stage) -> Outcome:
    """Over two zones, of which one holds two pods only."""
    stage.nodes("a", "b", cpu={"a": "16", "b": "2"})
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    constraint["labelSelector"] = {"matchLabels": {"app": "x"}}
    found = [
        stage.where(stage.pod(f"p{number}", cpu="1", labels={"app": "x"}, topologySpreadConstraints=[constraint]))
        for number in range(6)
    ]
    return {"bound": sorted(found[:5]), "sixth": found[5]}


def room(stage: Stage) -> Outcome:
    """What does not fit is told so; a pod that goes makes room for one that waits."""
    stage.nodes("a", cpu={"a": "2"})
    first = stage.where(stage.pod("first", cpu="2"))
    second = stage.where(stage.pod("second", cpu="2"))
    stage.delete("first")
    return {"first": first, "second": [second, stage.await_bound("second")]}


def daemon(stage: Stage) -> Outcome:
    """A pod of a DaemonSet is meant for one node by its name."""
    stage.nodes("a", "b", cpu={"a": "4", "b": "2"})
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [stage.node("b")]}]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [named]}}}
    first = stage.where(stage.pod("first", cpu="2", affinity=affinity))
    second = stage.where(stage.pod("second", cpu="2", affinity=affinity))
    other = stage.where(stage.pod("other", cpu="2"))
    stage.delete("first")
    return {"first": first, "second": [second, stage.await_bound("second")], "other": other}


def gates(stage: Stage) -> Outcome:
    """A gate of somebody else's holds a pod until it is lifted."""
    stage.nodes("a")
    held = stage.where(stage.pod("held", schedulingGates=[{"name": "example.com/hold"}]))
    path = f"{stage.pods_path}/held"
    stage.cluster.api("PATCH", path, [{"op": "remove", "path": "/spec/schedulingGates/0"}])
    return {"held": [held, stage.await_bound("held")]}


_NO_CPU: Final = "pending: Insufficient cpu"
SCENARIOS: Final[Mapping[Callable[[Stage], Outcome], Mapping[str, Any]]] = {
    node_affinity: {"required": "b", "nowhere": "pending: no such node", "preferred": "a"},
    pod_affinity: {
        "first": "b",
        "follows": "b",
        "follows-nobody": "pending: didn't match pod affinity rules",
        "avoids": "a",
        "avoids-too": "pending: didn't match pod anti-affinity rules",
    },
    taints: {"refused": "pending: had untolerated taint(s)", "runs": ["a", "gone"], "stays": ["a", "a"]},
    host_ports: {"bound": ["a", "b"], "third": "pending: didn't have free ports for the requested pod ports"},
    preemption: {"before": ["a", "b"], "equal": _NO_CPU, "cheap": "gone", "high": "a", "dear": "b"},
    disruption_budget: {"before": ["a", "b"], "loose": "gone", "high": "b"},
    local_volume: {"there": "b", "missing": "pending: didn't find available persistent volumes to bind"},
    spread: {
        "bound": ["a", "a", "a", "b", "b"],
        "sixth": "pending: Insufficient cpu, didn't match pod topology spread constraints",
    },
    room: {"first": "a", "second": [_NO_CPU, "a"]},
    daemon: {"first": "b", "second": [f"{_NO_CPU}, didn't satisfy plugin(s) [NodeAffinity]", "b"], "other": "a"},
    gates: {"held": ["gated", "a"]},
}
