"""The deployments of the run, and what is done with them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from localcluster import ApiError, Cluster, Nodes, eventually

Json = dict[str, Any]
BLOCK: Final = {"required": "block"}
RACK: Final = {"required": "rack"}
#: Two kinds of GPU: 512 of one in two blocks, 128 of the other in a third.
KINDS: Final = (
    Nodes(blocks=2, racks=4, nodes=8),
    Nodes(prefix="a-", racks=2, nodes=8, product="NVIDIA-A100-SXM4-80GB"),
)


def role(name: str, replicas: int, size: int, *, gpus: int = 8, image: str = "1", port: int = 0, **spec: Any) -> Json:
    """A role; ``port`` is one of the node's own."""
    container: Json = {
        "name": "engine",
        "image": f"registry.example.com/engine:{image}",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    if port:
        container["ports"] = [{"containerPort": port, "hostPort": port}]
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    return {"name": name, "replicas": replicas, "size": size, "template": template, **spec}


@dataclass
class Fleet:
    """The cluster as somebody who deploys sees it; ``marks`` are the times at which something was done."""

    cluster: Cluster
    began: float = 0.0
    marks: list[tuple[float, str]] = field(default_factory=list)

    def mark(self, text: str) -> None:
        """Something begins now."""
        self.marks.append((time.time(), text))

    def create(self, namespace: str, name: str, roles: Sequence[Json], **spec: Any) -> None:
        """A resource."""
        body = {"apiVersion": "inference.covey.dev/v1alpha1", "kind": "DisaggregatedInference"}
        metadata = {"name": name, "namespace": namespace}
        self.cluster.api("POST", _path(namespace), {**body, "metadata": metadata, "spec": {"roles": roles, **spec}})

    def change(self, namespace: str, name: str, **spec: Any) -> None:
        """A change of its spec."""
        self.cluster.api("PATCH", _path(namespace, name), {"spec": spec})

    def delete(self, namespace: str, name: str) -> None:
        """It goes, sooner or later."""
        with contextlib.suppress(ApiError):
            self.cluster.api("DELETE", _path(namespace, name))

    def condition(self, namespace: str, name: str, kind: str) -> Json:
        """A condition of its status; empty when it is not there."""
        found = self.cluster.api("GET", _path(namespace, name)).get("status", {}).get("conditions", ())
        return next((each for each in found if each["type"] == kind), {})

    def await_condition(self, namespace: str, name: str, kind: str, reason: str, timeout: float = 90) -> None:
        """Wait until a condition has this reason."""

        def reached() -> bool:
            found = self.condition(namespace, name, kind)
            assert found.get("reason") == reason, f"{namespace}/{name} {kind}: {found}"
            return True

        eventually(reached, timeout, f"{namespace}/{name}: {kind} {reason}")

    def pods(self, namespace: str, name: str) -> list[Json]:
        """Its pods."""
        selector = f"labelSelector=covey.dev%2Finference%3D{name}"
        found: list[Json] = self.cluster.api("GET", f"/api/v1/namespaces/{namespace}/pods?{selector}")["items"]
        return found

    def node_of(self, namespace: str, name: str, role: str) -> str:
        """A node that has a pod of a role."""

        def bound() -> str:
            pods = self.pods(namespace, name)
            mine = [pod for pod in pods if pod["metadata"]["labels"]["covey.dev/role"] == role]
            return next((str(pod["spec"]["nodeName"]) for pod in mine if pod["spec"].get("nodeName")), "")

        return eventually(bound, 60, f"{namespace}/{name} has a pod of {role} on a node")

    def cordon(self, node: str, *, cordoned: bool = True) -> None:
        """Let nothing new onto a node, or again."""
        self.cluster.api("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": cordoned or None}})

    def repair(self, node: str) -> None:
        """A node that was deleted is there again."""
        [manifest] = [each for kind in KINDS for each in kind.manifests(ready=True) if each["metadata"]["name"] == node]
        self.cluster.ensure("/api/v1/nodes", manifest)

    def job(self, name: str, node: str, port: int) -> None:
        """An ordinary pod on a port of a node."""
        container = {"name": "job", "image": "registry.example.com/job:1", "ports": [{"containerPort": port}]}
        container["ports"][0]["hostPort"] = port  # type: ignore[index] # its values have several types
        spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]}
        self.cluster.api("POST", "/api/v1/namespaces/research/pods", {"metadata": {"name": name}, "spec": spec})


def patiently(what: Callable[[], object], timeout: float = 60) -> None:
    """Do something as soon as the API server takes it."""

    def done() -> bool:
        try:
            what()
        except OSError as error:
            raise AssertionError(str(error)) from error
        return True

    eventually(done, timeout, "the API server takes it")


def _path(namespace: str, name: str = "") -> str:
    path = f"/apis/inference.covey.dev/v1alpha1/namespaces/{namespace}/disaggregatedinferences"
    return f"{path}/{name}" if name else path
