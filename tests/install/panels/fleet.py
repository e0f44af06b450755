"""The deployments of the run, and what is done with them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.request import urlopen

from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from localcluster import Cluster, Nodes, eventually

Json = dict[str, Any]
BLOCK: Final = {"required": "block"}
RACK: Final = {"required": "rack"}
#: Two kinds of GPU: 512 of one in two blocks, 128 of the other in a third.
KINDS: Final = (
    Nodes(blocks=2, racks=4, nodes=8),
    Nodes(prefix="a-", racks=2, nodes=8, product="NVIDIA-A100-SXM4-80GB"),
)
#: Selects nodes of the second kind.
A100: Final = {"nvidia.com/gpu.product": KINDS[1].product}
_PIN: Final = "kubernetes.io/hostname"


def role(
    name: str,
    replicas: int,
    size: int,
    *,
    gpus: int = 8,
    image: str = "1",
    on: Mapping[str, str] | None = None,
    **spec: Any,
) -> Json:
    """A role; ``on`` selects its nodes."""
    container = {
        "name": "engine",
        "image": f"registry.example.com/engine:{image}",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    pod: Json = {"containers": [container], "terminationGracePeriodSeconds": 0, "nodeSelector": dict(on or {})}
    return {"name": name, "replicas": replicas, "size": size, "template": {"spec": pod}, **spec}


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

    def ask_for_room(self, namespace: str, name: str) -> None:
        """Ask how many replicas of each role could have places, now and again every ten seconds."""
        asked = {"covey.dev/headroom": "the run", "covey.dev/headroom-seconds": "10"}
        self.cluster.api("PATCH", _path(namespace, name), {"metadata": {"annotations": asked}})

    def delete(self, namespace: str, name: str) -> None:
        """It goes, sooner or later."""
        with contextlib.suppress(ApiException):
            self.cluster.api("DELETE", _path(namespace, name))

    def condition(self, namespace: str, name: str, kind: str) -> Json:
        """A condition of its status; empty when there is none about the present spec."""
        found = self.cluster.api("GET", _path(namespace, name))
        current = found["metadata"]["generation"]
        conditions = found.get("status", {}).get("conditions", ())
        return next((each for each in conditions if (each["type"], each["observedGeneration"]) == (kind, current)), {})

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
        [manifest] = [each for kind in KINDS for each in kind.manifests() if each["metadata"]["name"] == node]
        self.cluster.ensure("/api/v1/nodes", manifest)

    def taint(self, node: str, key: str, effect: str) -> None:
        """A node has this taint, and no other."""
        self.cluster.api("PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": [{"key": key, "effect": effect}]}})

    def pin_of(self, namespace: str, name: str, role: str) -> str:
        """A node that a pod of a role has its place on."""

        def pinned() -> str:
            for pod in self.pods(namespace, name):
                affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
                required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
                for term in required.get("nodeSelectorTerms", ()):
                    for each in (*term.get("matchFields", ()), *term.get("matchExpressions", ())):
                        if (
                            each["key"] in {"metadata.name", _PIN}
                            and pod["metadata"]["labels"]["covey.dev/role"] == role
                        ):
                            return str(each["values"][0])
            return ""

        return eventually(pinned, 60, f"{namespace}/{name} has a pod of {role} with a place")

    def intrude(self, node: str) -> None:
        """Somebody takes all of a node without asking any scheduler."""
        container = {
            "name": "job",
            "image": "registry.example.com/job:1",
            "resources": {"limits": {"nvidia.com/gpu": "8"}},
        }
        spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]}
        self.cluster.api("POST", "/api/v1/namespaces/research/pods", {"metadata": {"name": "intruder"}, "spec": spec})

    def leader(self, lease: str, programs: Iterable[str]) -> str:
        """The program that says that it holds a lease."""
        held = f'leader_election_master_status{{name="{lease}"}} 1'

        def found() -> str:
            for name in programs:
                # One that has lost its lease is down for a moment.
                with contextlib.suppress(OSError), urlopen(self.cluster.processes[name].metrics_url) as page:
                    if held in page.read().decode():
                        return name
            return ""

        return eventually(found, 60, f"somebody holds {lease}")


def patiently(what: Callable[[], object], timeout: float = 60) -> None:
    """Do something as soon as the API server takes it."""

    def done() -> bool:
        try:
            what()
        except HTTPError as error:
            raise AssertionError(str(error)) from error
        return True

    eventually(done, timeout, "the API server takes it")


def _path(namespace: str, name: str = "") -> str:
    path = f"/apis/inference.covey.dev/v1alpha1/namespaces/{namespace}/disaggregatedinferences"
    return f"{path}/{name}" if name else path
