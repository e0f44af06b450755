"""A cluster worth a picture: gangs that serve, one that waits, a rollout on its way, a node that is to be empty."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from localcluster import Cluster, Nodes, eventually

Json = dict[str, Any]
RACK: Final = {"required": "rack"}
SMALL: Final = Nodes(blocks=2, racks=3, nodes=6)
LARGE: Final = Nodes(blocks=5, racks=8, nodes=16)
#: Seconds; the machine may be busy.
PATIENCE: Final = 600
NAMESPACES: Final = ("chat", "search", "batch")
_KIND: Final = {"apiVersion": "inference.covey.dev/v1alpha1", "kind": "DisaggregatedInference"}


def role(name: str, replicas: int, minimum: int, size: int = 1, gpus: int = 8, **spec: Any) -> Json:
    """A role whose pods want so many GPUs; a router wants none."""
    wants = {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "4"}
    container = {"name": "engine", "image": "registry.example.com/engine:1", "resources": {"limits": wants}}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    return {"name": name, "replicas": replicas, "minReplicas": minimum, "size": size, "template": template, **spec}


def engine(prefill: int, decode: int, size: int = 2, gpus: int = 8, *, surplus: bool = True) -> list[Json]:
    """Prefill and decode, each replica in one rack, and two routers; without surplus all of it is the minimum."""
    return [
        role("prefill", prefill, 1 if surplus else prefill, size, gpus, topology=RACK),
        role("decode", decode, 1 if surplus else decode, size * 2, gpus, topology=RACK),
        role("router", 2, 1, gpus=0, topology={"followUnit": False}),
    ]


@dataclass(frozen=True)
class Scene:
    """A cluster on which something is played."""

    cluster: Cluster

    def prepare(self, nodes: Nodes) -> None:
        """Start everything and make the namespaces."""
        self.cluster.start_all(nodes)
        for name in NAMESPACES:
            self.cluster.ensure("/api/v1/namespaces", {"metadata": {"name": name}})
            account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
            eventually(partial(self.cluster.api, "GET", account))

    def create(self, key: str, roles: list[Json], **spec: Any) -> None:
        """A resource, by ``namespace/name``."""
        namespace, _, name = key.partition("/")
        body = {
            **_KIND,
            "metadata": {"name": name},
            "spec": {"topology": {"required": "block"}, **spec, "roles": roles},
        }
        self.cluster.api("POST", self._path(key).rpartition("/")[0], body)
        assert namespace in NAMESPACES

    def until(self, key: str, kind: str, status: str) -> None:
        """Wait for a condition."""

        def reached() -> bool:
            conditions = self.cluster.api("GET", self._path(key)).get("status", {}).get("conditions", ())
            return any((each["type"], each["status"]) == (kind, status) for each in conditions)

        eventually(reached, PATIENCE, f"{key}: {kind} is {status}")

    def settle(self) -> None:
        """Wait until whatever is on a node is Ready."""

        def ready() -> bool:
            pods = [pod for pod in self.cluster.api("GET", "/api/v1/pods")["items"] if pod["spec"].get("nodeName")]
            conditions = [pod.get("status", {}).get("conditions", ()) for pod in pods]
            return all(
                any((each["type"], each["status"]) == ("Ready", "True") for each in found) for found in conditions
            )

        eventually(ready, PATIENCE, "what is bound is Ready")

    def held(self, key: str) -> None:
        """Wait until a rollout says what it waits for."""

        def hold() -> Any:
            status = self.cluster.api("GET", self._path(key)).get("status", {})
            return status.get("rollout", {}).get("hold")

        eventually(hold, PATIENCE, f"{key}: the rollout is held")

    def roll(self, key: str, image: str) -> None:
        """Another image in every role with GPUs."""
        roles = self.cluster.api("GET", self._path(key))["spec"]["roles"]
        changes = [
            {"op": "replace", "path": f"/spec/roles/{place}/template/spec/containers/0/image", "value": image}
            for place, each in enumerate(roles)
            if each["name"] != "router"
        ]
        namespace, _, name = key.partition("/")
        self.cluster.kubectl("-n", namespace, "patch", "dinf", name, "--type=json", "-p", json.dumps(changes))

    def fill(self, keep: int) -> None:
        """Pods of others on all nodes that nobody uses but the last ``keep``; on every third one they leave half."""
        used = {each["spec"].get("nodeName") for each in self.cluster.api("GET", "/api/v1/pods")["items"]}
        free = [each["metadata"]["name"] for each in self.cluster.api("GET", "/api/v1/nodes")["items"]]
        for place, node in enumerate([name for name in free if name not in used][: -keep or None]):
            limits = {"nvidia.com/gpu": "4" if place % 3 == 1 else "8"}
            container = {"name": "job", "image": "registry.example.com/job:1", "resources": {"limits": limits}}
            spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]}
            pod = {"metadata": {"name": f"job-{place}", "namespace": "batch"}, "spec": spec}
            self.cluster.api("POST", "/api/v1/namespaces/batch/pods", pod)

    def node_of(self, key: str, of_role: str) -> str:
        """A node on which a pod of a role runs."""
        namespace, _, name = key.partition("/")
        selector = f"covey.dev%2Finference%3D{name}%2Ccovey.dev%2Frole%3D{of_role}"
        pods = self.cluster.api("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")["items"]
        return str(pods[-1]["spec"]["nodeName"])

    @staticmethod
    def _path(key: str) -> str:
        namespace, _, name = key.partition("/")
        return f"/apis/inference.covey.dev/v1alpha1/namespaces/{namespace}/disaggregatedinferences/{name}"


def small(scene: Scene) -> None:
    """36 nodes, nearly full: three gangs serve, one waits; a rollout is held and a node cannot be emptied for want of capacity."""
    scene.prepare(SMALL)
    scene.create("chat/llama", engine(3, 1))
    scene.create("search/embed", engine(2, 1, size=1, gpus=4))
    scene.create("chat/qwen", engine(2, 1, surplus=False))
    for key in ("chat/llama", "search/embed", "chat/qwen"):
        scene.until(key, "Available", "True")
    scene.fill(keep=2)
    scene.create("batch/mixtral", engine(2, 1))
    scene.until("batch/mixtral", "Admitted", "False")
    scene.cluster.kubectl("cordon", scene.node_of("chat/llama", "decode"))
    scene.roll("chat/qwen", "registry.example.com/engine:2")
    scene.until("chat/llama", "EvacuationBlocked", "True")
    scene.held("chat/qwen")
    scene.settle()


def large(scene: Scene) -> None:
    """640 nodes, thirty gangs that serve, others' jobs, and one gang that waits for more racks than a block has."""
    scene.prepare(LARGE)
    models = ("llama", "qwen", "mistral", "gemma", "phi", "granite", "olmo", "falcon", "yi", "command")
    keys = [f"{namespace}/{model}" for model in models for namespace in NAMESPACES]
    for place, key in enumerate(keys):
        scene.create(key, engine(2 + place % 3, 1 + place % 2, size=1 + place % 2, gpus=(8, 4, 8)[place % 3]))
    for key in keys:
        scene.until(key, "Available", "True")
    scene.fill(keep=240)
    scene.create("batch/frontier", [role("train", 20, 20, 8, topology=RACK)], topology={"required": "block"})
    scene.until("batch/frontier", "Admitted", "False")
    scene.settle()
