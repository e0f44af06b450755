"""A namespace of a cluster with Kubernetes' own groups, as the tests of 1.37 see it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from builders.manifests import Object, role, template
from cluster.namespaces import empty_namespace, make_namespace
from cluster.serving import Serving
from cluster.workbench import name_of
from localcluster import Cluster, Process
from localcluster.programs import ROOT

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
class Native(Serving):
    """One namespace. ``kinds`` are those of its groups, with their versions."""

    kinds: Mapping[str, str] = field(default_factory=lambda: dict(_KINDS))

    def path(self, kind: str, name: str = "") -> str:
        if kind not in self.kinds:
            return super().path(kind, name)
        path = _GROUPS.format(self.kinds[kind], self.namespace, f"{kind.lower()}s")
        return f"{path}/{name}" if name else path

    def create(self, *roles: Object, name: str = "llm", **spec: Any) -> Object:
        return super().create(*roles, name=name, backend="Kubernetes", **spec)

    def apply_example(self, *without: str) -> str:
        """``kubectl apply`` of the demo's example with this backend, without these fields; the resource's name."""
        body = yaml.safe_load((ROOT / "examples" / "disaggregated.yaml").read_text())
        body["spec"]["backend"] = "Kubernetes"
        for key in without:
            del body["spec"][key]
        self.cluster.kubectl("apply", f"--namespace={self.namespace}", "-f", "-", input=yaml.safe_dump(body))
        return name_of(body)

    def groups(self, kind: str) -> dict[str, Object]:
        return {name_of(item): item for item in self.all(kind)}


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
        for item in native.all("DisaggregatedInference"):
            native.delete("DisaggregatedInference", name_of(item))
        native.await_nothing_left()
    finally:
        empty_namespace(cluster, native.namespace)
