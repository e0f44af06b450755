"""What Services publish, as the endpoints of the real EndpointSlices say it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from builders.manifests import Object
from cluster.serving import Event, Serving
from cluster.workbench import name_of, uid_of
from localcluster import Cluster, Recording, eventually


def slices_path(namespace: str) -> str:
    return f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"


@dataclass(frozen=True)
class Published:
    """The Services of a namespace, by what they publish."""

    serving: Serving

    @property
    def cluster(self) -> Cluster:
        return self.serving.cluster

    def record(self) -> Recording:
        """Every change of an EndpointSlice."""
        return self.cluster.record(slices_path(self.serving.namespace))

    def slices(self) -> list[Object]:
        return list(self.cluster.api("GET", slices_path(self.serving.namespace))["items"])

    def endpoints(self, service: str) -> list[Object]:
        """The endpoints of one Service."""
        return [each for found in self.slices() if service_of(found) == service for each in endpoints_of(found)]

    def pods(self, service: str) -> set[str]:
        """Names of the pods that a Service sends requests to."""
        return {each["targetRef"]["name"] for each in self.endpoints(service) if each["conditions"]["ready"]}

    def await_pods(self, service: str, pods: Iterable[Object]) -> None:
        """Wait until a Service sends requests to exactly these pods."""
        wanted = {name_of(pod) for pod in pods}

        def published() -> bool:
            found = self.pods(service)
            assert found == wanted, f"{service} publishes {sorted(found)}, not {sorted(wanted)}"
            return True

        eventually(published, 60, f"{service} publishes {len(wanted)} pods")

    def resolve(self, address: str) -> list[str]:
        """What the cluster's DNS answers for a pod's address ``<host name>.<Service>.<namespace>``."""
        return resolved(self.slices(), address)


def service_of(found: Object) -> str:
    return str(found["metadata"]["labels"]["kubernetes.io/service-name"])


def endpoints_of(found: Object) -> Sequence[Object]:
    return found.get("endpoints") or ()


def resolved(slices: Iterable[Object], address: str) -> list[str]:
    """The IP addresses that stand behind a pod's address: the endpoints of its Service with its host name."""
    hostname, service, namespace = address.split(".")
    return [
        ip
        for found in slices
        if (service_of(found), found["metadata"]["namespace"]) == (service, namespace)
        for each in endpoints_of(found)
        if each.get("hostname") == hostname
        for ip in each["addresses"]
    ]


def check_addresses(events: Iterable[Event]) -> int:
    """At no moment had two pods one address; returns how many pods have had one."""
    slices: dict[str, Object] = {}
    pods: set[str] = set()
    for kind, found in events:
        slices.pop(uid_of(found), None)
        if kind != "DELETED":
            slices[uid_of(found)] = found
        named: dict[tuple[str, str], str] = {}
        for each in slices.values():
            for endpoint in endpoints_of(each):
                if "hostname" not in endpoint:
                    continue
                pod = endpoint["targetRef"]["uid"]
                pods.add(pod)
                owner = named.setdefault((service_of(each), endpoint["hostname"]), pod)
                assert owner == pod, f"{endpoint['hostname']}.{service_of(each)} means two pods"
    return len(pods)
