"""A namespace as the tests of the operator see it: resources in, objects out, pods bound by hand.

There is no scheduler process here, so whatever it would do to a pod or to a root group, a test does itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from builders.manifests import Object, role
from localcluster import Cluster, concurrently, eventually

_PATHS = {
    "DisaggregatedInference": "/apis/inference.covey.dev/v1alpha1/namespaces/{}/disaggregatedinferences",
    "RoleScaler": "/apis/inference.covey.dev/v1alpha1/namespaces/{}/rolescalers",
    "Workload": "/apis/scheduling.covey.dev/v1alpha1/namespaces/{}/workloads",
    "CompositePodGroup": "/apis/scheduling.covey.dev/v1alpha1/namespaces/{}/compositepodgroups",
    "PodGroup": "/apis/scheduling.covey.dev/v1alpha1/namespaces/{}/podgroups",
    "ControllerRevision": "/apis/apps/v1/namespaces/{}/controllerrevisions",
    "Service": "/api/v1/namespaces/{}/services",
    "Pod": "/api/v1/namespaces/{}/pods",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "ResourceQuota": "/api/v1/namespaces/{}/resourcequotas",
}
#: Everything that the operator makes, in the order in which it does.
OWNED = ("Workload", "CompositePodGroup", "PodGroup", "Service", "PodDisruptionBudget", "Pod")
GANG = {"name": "scheduling.covey.dev/gang"}
ROLES = (role("prefill", replicas=2, size=2), role("decode", replicas=2))


@dataclass(frozen=True)
class Workbench:
    """One namespace of a cluster."""

    cluster: Cluster
    namespace: str

    def path(self, kind: str, name: str = "") -> str:
        path = _PATHS[kind].format(self.namespace)
        return f"{path}/{name}" if name else path

    def create(self, *roles: Object, name: str = "llm", **spec: Any) -> Object:
        """Create a resource; two roles of four and two pods unless others are given."""
        body = {"metadata": {"name": name}, "spec": {"roles": list(roles or ROLES), **spec}}
        api_version = "inference.covey.dev/v1alpha1"
        kind = "DisaggregatedInference"
        return self.cluster.api("POST", self.path(kind), {"apiVersion": api_version, "kind": kind, **body})

    def change(self, spec: Object, name: str = "llm") -> None:
        self.cluster.api("PATCH", self.path("DisaggregatedInference", name), {"spec": spec})

    def all(self, kind: str) -> list[Object]:
        return self.cluster.api("GET", self.path(kind))["items"]

    def get(self, kind: str, name: str) -> Object:
        return self.cluster.api("GET", self.path(kind, name))

    def delete(self, kind: str, name: str) -> None:
        self.cluster.api("DELETE", self.path(kind, name))

    def owned(self, kind: str) -> list[Object]:
        """The objects of a kind that belong to some resource."""
        return [item for item in self.all(kind) if item["metadata"].get("ownerReferences")]

    def pods(self, **labels: Any) -> list[Object]:
        """Live pods with these ``covey.dev`` labels."""
        wanted = {f"covey.dev/{key}": str(value) for key, value in labels.items()}
        return [
            pod
            for pod in self.all("Pod")
            if not pod["metadata"].get("deletionTimestamp")
            and wanted.items() <= pod["metadata"].get("labels", {}).items()
        ]

    def await_pods(self, count: int, timeout: float = 60, **labels: Any) -> list[Object]:
        """Wait until there are exactly so many live pods."""

        def there() -> tuple[list[Object]]:
            pods = self.pods(**labels)
            assert len(pods) == count, f"{len(pods)} pods: {sorted(map(name_of, pods))}"
            return (pods,)

        (pods,) = eventually(there, timeout, f"{count} pods")
        return pods

    def bind(self, pods: list[Object], node: str) -> None:
        """Lift the gate and bind, as both schedulers would; then the simulated kubelet makes them Ready."""

        def bind_one(pod: Object) -> None:
            path = self.path("Pod", name_of(pod))
            self.cluster.api("PATCH", path, [{"op": "remove", "path": "/spec/schedulingGates/0"}])
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
            binding = {"metadata": {"name": name_of(pod), "uid": uid_of(pod)}, "target": target}
            self.cluster.api("POST", f"{path}/binding", binding)

        concurrently(bind_one, pods)
        uids = {uid_of(pod) for pod in pods}
        eventually(lambda: uids <= {uid_of(pod) for pod in self.all("Pod") if is_ready(pod)}, describe="pods are Ready")

    def condition(self, kind: str, name: str = "llm") -> Object:
        """A condition of the resource; an AssertionError while it is not there, or not of this generation."""
        found = self.get("DisaggregatedInference", name)
        status = found.get("status", {})
        assert status.get("observedGeneration") == found["metadata"]["generation"], "not observed yet"
        conditions = {item["type"]: item for item in status["conditions"]}
        assert kind in conditions, f"no condition {kind}"
        return conditions[kind]

    def await_condition(
        self, kind: str, status: str, reason: str = "", name: str = "llm", *, timeout: float = 60
    ) -> str:
        """Wait for a condition, of any reason unless one is given, and return its message."""

        def reached() -> Object:
            found = self.condition(kind, name)
            assert (found["status"], found["reason"]) == (status, reason or found["reason"]), str(found)
            return found

        return str(eventually(reached, timeout, f"{kind}={status}/{reason}")["message"])

    def events(self) -> set[str]:
        """Reasons of the Events in the namespace."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"
        return {
            event["reason"]
            for event in self.cluster.api("GET", path)["items"]
            if event["regarding"]["kind"] == "DisaggregatedInference"
        }


def name_of(item: Object) -> str:
    return str(item["metadata"]["name"])


def uid_of(item: Object) -> str:
    return str(item["metadata"]["uid"])


def uids(items: list[Object]) -> set[str]:
    return {uid_of(item) for item in items}


def label(item: Object, key: str) -> str:
    return str(item["metadata"]["labels"][f"covey.dev/{key}"])


def hostnames(pods: list[Object]) -> list[str]:
    return sorted(pod["spec"]["hostname"] for pod in pods)


def is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def is_gated(pod: Object) -> bool:
    return GANG in pod["spec"].get("schedulingGates", ())
