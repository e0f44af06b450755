"""A namespace of a cluster with Kubernetes' own groups, as the tests of 1.37 see it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from builders.manifests import Object, role, template
from cluster.namespaces import empty_namespace, make_namespace
from localcluster import Cluster, Process, eventually
from localcluster.programs import ROOT

BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"
_GROUPS = "/apis/scheduling.k8s.io/{}/namespaces/{}/{}"
_KINDS = {"Workload": "v1beta1", "CompositePodGroup": "v1alpha3", "PodGroup": "v1beta1"}
_GPUS = {"requests": {"nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}}


def start_operator(cluster: Cluster) -> Process:
    """The operator under its own rights, for Kubernetes' own groups as well."""
    manifests = ROOT / "manifests"
    cluster.install_rbac(manifests / "base" / "rbac", manifests / "components" / "kubernetes" / "rights.yaml")
    return cluster.start_covey("operator", "--backends=Extender,Kubernetes")


def whole(name: str, **fields: Any) -> Object:
    """A role whose pods take a node each."""
    pod = template()
    pod["spec"]["containers"][0]["resources"] = copy.deepcopy(_GPUS)
    return role(name, **{"template": pod, **fields})


@dataclass(frozen=True)
class Native:
    """One namespace. ``kinds`` are those of its groups, with their versions."""

    cluster: Cluster
    namespace: str
    kinds: Mapping[str, str] = field(default_factory=lambda: dict(_KINDS))

    # Paths

    @property
    def pods_path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def path(self, kind: str, name: str = "") -> str:
        path = _GROUPS.format(self.kinds[kind], self.namespace, f"{kind.lower()}s")
        return f"{path}/{name}" if name else path

    def inference_path(self, name: str = "llm") -> str:
        return f"/apis/inference.covey.dev/v1alpha1/namespaces/{self.namespace}/disaggregatedinferences/{name}"

    # Actions

    def create(self, *roles: Object, name: str = "llm", **spec: Any) -> None:
        body = {"apiVersion": "inference.covey.dev/v1alpha1", "kind": "DisaggregatedInference"}
        body |= {"metadata": {"name": name}, "spec": {"backend": "Kubernetes", "roles": list(roles), **spec}}
        self.cluster.api("POST", self.inference_path("").rstrip("/"), body)

    def apply_example(self) -> str:
        """``kubectl apply`` of the demo's example with this backend; the resource's name."""
        body = yaml.safe_load((ROOT / "examples" / "disaggregated.yaml").read_text())
        body["spec"]["backend"] = "Kubernetes"
        self.cluster.kubectl("apply", f"--namespace={self.namespace}", "-f", "-", input=yaml.safe_dump(body))
        return str(body["metadata"]["name"])

    def change(self, spec: Object, name: str = "llm") -> None:
        self.cluster.api("PATCH", self.inference_path(name), {"spec": spec})

    def delete(self, path: str) -> None:
        self.cluster.api("DELETE", path)

    # What is there

    def groups(self, kind: str) -> dict[str, Object]:
        return {item["metadata"]["name"]: item for item in self.cluster.api("GET", self.path(kind))["items"]}

    def pods(self, **labels: Any) -> list[Object]:
        """Live pods with these ``covey.dev`` labels."""
        wanted = {f"covey.dev/{key}": str(value) for key, value in labels.items()}
        return [
            pod
            for pod in self.cluster.api("GET", self.pods_path)["items"]
            if not pod["metadata"].get("deletionTimestamp") and wanted.items() <= pod["metadata"]["labels"].items()
        ]

    def bound(self, **labels: Any) -> list[Object]:
        return [pod for pod in self.pods(**labels) if pod["spec"].get("nodeName")]

    def conditions(self, name: str = "llm") -> dict[str, Object]:
        found = self.cluster.api("GET", self.inference_path(name))
        status = found.get("status") or {}
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            return {}
        return {item["type"]: item for item in status["conditions"]}

    def events(self) -> set[str]:
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"
        return {event["reason"] for event in self.cluster.api("GET", path)["items"]}

    # Waiting

    def await_bound(self, count: int, timeout: float = 60, **labels: Any) -> list[Object]:
        """Wait until there are exactly so many live pods, all bound."""

        def reached() -> tuple[list[Object]]:
            pods = self.pods(**labels)
            bound = [pod for pod in pods if pod["spec"].get("nodeName")]
            assert (len(pods), len(bound)) == (count, count), f"{len(bound)} of {len(pods)} pods are bound"
            return (bound,)

        (found,) = eventually(reached, timeout, f"{count} pods are bound")
        return found

    def await_condition(
        self, kind: str, status: str, reason: str = "", *, name: str = "llm", timeout: float = 60
    ) -> str:
        """Wait for a condition and return its message."""

        def reached() -> Object:
            found = self.conditions(name).get(kind) or {}
            assert found.get("status") == status, str(found)
            assert not reason or found["reason"] == reason, str(found)
            return found

        return str(eventually(reached, timeout, f"{kind}={status}/{reason}")["message"])

    def await_nothing(self, timeout: float = 60) -> None:
        """Wait until neither pods nor groups are left."""

        def gone() -> bool:
            left = {kind: sorted(self.groups(kind)) for kind in self.kinds}
            left["Pod"] = [pod["metadata"]["name"] for pod in self.cluster.api("GET", self.pods_path)["items"]]
            assert not any(left.values()), str(left)
            return True

        eventually(gone, timeout, "nothing is left")

    def empty(self) -> None:
        """Delete what is there, from the top."""
        found = self.cluster.api("GET", self.inference_path("").rstrip("/"))["items"]
        for item in found:
            self.delete(self.inference_path(item["metadata"]["name"]))
        self.await_nothing()


def uids(items: list[Object]) -> set[str]:
    return {str(item["metadata"]["uid"]) for item in items}


def domains(cluster: Cluster, pods: list[Object], key: str) -> set[str]:
    """The values of a node label over the nodes of pods."""
    nodes = {node["metadata"]["name"]: node for node in cluster.api("GET", "/api/v1/nodes")["items"]}
    return {nodes[pod["spec"]["nodeName"]]["metadata"]["labels"][key] for pod in pods}


def first_bound(events: list[tuple[str, Object]]) -> Mapping[str, int]:
    """At which change each pod was first seen bound, by host name."""
    found: dict[str, int] = {}
    for position, (_, pod) in enumerate(events):
        if pod["spec"].get("nodeName"):
            found.setdefault(pod["spec"]["hostname"], position)
    return found


def first_seen(events: list[tuple[str, Object]]) -> Mapping[str, int]:
    """At which change each pod was first there, by host name."""
    found: dict[str, int] = {}
    for position, (_, pod) in enumerate(events):
        found.setdefault(pod["spec"]["hostname"], position)
    return found


def namespaced(cluster: Cluster, kinds: Mapping[str, str] = _KINDS) -> Iterator[Native]:
    """A new namespace; emptied at the end."""
    native = Native(cluster, make_namespace(cluster), kinds)
    yield native
    try:
        native.empty()
    finally:
        empty_namespace(cluster, native.namespace)
