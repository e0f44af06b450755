"""Ordinary pods on a few nodes of their own, and what a scheduler makes of them, in words that two runs share.

Each scenario has a namespace and nodes of its own, so that many can run at the same time; its pods select its nodes.
Nodes are known by their ``class`` label: which of two equal nodes is taken is no outcome.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubernetes.client import ApiException

from cluster.namespaces import empty_namespace, make_namespace
from localcluster import Cluster, Nodes, eventually

Json = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
#: What kube-scheduler says of the nodes of the other scenarios.
_ELSEWHERE = "didn't match Pod's node affinity/selector"
_TAINTED = "had untolerated taint(s)"


@dataclass(frozen=True)
class Stage:
    """A namespace and nodes for one scenario."""

    cluster: Cluster
    namespace: str
    names: dict[str, list[str]] = field(default_factory=dict)

    @property
    def pods_path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def nodes(self, *classes: str, cpu: Mapping[str, str] | None = None, taints: Sequence[str] = ()) -> None:
        """Add one ready node of each class; its zone is called like its class."""
        for each in classes:
            labels = {"stage": self.namespace, "class": each, ZONE: f"{self.namespace}-{each}"}
            prefix = f"{self.namespace}-{each}-"
            nodes = Nodes(cpu=(cpu or {}).get(each, "4"), labels=labels, taints=taints, prefix=prefix)
            self.names.setdefault(each, []).extend(nodes.names)
            for body in nodes.manifests():
                self.cluster.api("POST", "/api/v1/nodes", body)

    def node(self, label: str) -> str:
        """The name of the node of a class."""
        [name] = self.names[label]
        return name

    def pod(self, name: str, *, cpu: str = "100m", gpus: int = 0, labels: Json | None = None, **spec: Any) -> str:
        """Create an ordinary pod for this stage's nodes."""
        amounts = {"cpu": cpu} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
        container = {"name": "main", "image": "registry.invalid/none"}
        container |= {"resources": {"requests": amounts, "limits": amounts}, "ports": spec.pop("ports", [])}
        body: Json = {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {
                "containers": [container],
                "nodeSelector": {"stage": self.namespace},
                "terminationGracePeriodSeconds": 0,
                **spec,
            },
        }
        self.cluster.api("POST", self.pods_path, body)
        return name

    def get(self, name: str) -> Json:
        return self.cluster.api("GET", f"{self.pods_path}/{name}")

    def delete(self, name: str) -> None:
        self.cluster.api("DELETE", f"{self.pods_path}/{name}?gracePeriodSeconds=0")

    def hold(self, name: str, *, held: bool = True) -> None:
        """Keep a pod that is deleted on its node, as one that takes long to end; or let it go."""
        body = {"metadata": {"finalizers": ["covey.test/hold"] if held else None}}
        self.cluster.api("PATCH", f"{self.pods_path}/{name}", body)

    def where(self, name: str, *, taints_matter: bool = False) -> str:
        """Wait until a pod is settled: the class of its node, or why it is pending."""
        return eventually(lambda: self._where(name, taints_matter=taints_matter), 60, f"{name} is settled")

    def await_bound(self, name: str) -> str:
        """Wait until a pod has a node, whatever was said of it before; returns the node's class."""
        node = eventually(lambda: self.get(name)["spec"].get("nodeName"), 60, f"{name} is bound")
        return self._class(node)

    def await_gone(self, name: str) -> str:
        """Wait until somebody has deleted a pod."""

        def gone() -> bool:
            try:
                return "deletionTimestamp" in self.get(name)["metadata"]
            except ApiException as error:
                return error.status == 404

        eventually(gone, 60, f"{name} is deleted")
        return "gone"

    def _where(self, name: str, *, taints_matter: bool) -> str:
        pod = self.get(name)
        if node := pod["spec"].get("nodeName"):
            return self._class(node)
        found = {each["type"]: each for each in pod.get("status", {}).get("conditions", [])}
        condition = found.get("PodScheduled", {})
        if condition.get("reason") == "Unschedulable":
            return why(condition["message"], taints_matter=taints_matter)
        return "gated" if condition.get("reason") == "SchedulingGated" else ""

    def _class(self, node: str) -> str:
        return next(label for label, names in self.names.items() if node in names)


@contextlib.contextmanager
def stage(cluster: Cluster) -> Iterator[Stage]:
    """A new stage; nothing of it is left afterwards."""
    made = Stage(cluster, make_namespace(cluster, "harm"))
    try:
        yield made
        empty_namespace(cluster, made.namespace)
    finally:
        cluster.delete_nodes([name for names in made.names.values() for name in names])


def why(message: str, *, taints_matter: bool = False) -> str:
    """The reasons in a scheduler's message, without the numbers of nodes and without other scenarios' nodes."""
    said = message.partition("nodes are available: ")[2].partition(". ")[0].rstrip(".")
    reasons = {re.sub(r"^\d+ (node\(s\) )?", "", each) for each in said.split(", ")}
    reasons -= {_ELSEWHERE} | (set() if taints_matter else {_TAINTED})
    return f"pending: {', '.join(sorted(reasons)) or 'no such node'}"


def select(label: str) -> Json:
    """A required node affinity to a class."""
    term = {"matchExpressions": [{"key": "class", "operator": "In", "values": [label]}]}
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}


def beside(kind: str, app: str) -> Json:
    """A required pod (anti-)affinity over zones."""
    return {kind: {REQUIRED: [{"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": ZONE}]}}
