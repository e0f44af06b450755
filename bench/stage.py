"""The cluster of ``bench.life``, its resources and what is counted of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.request import urlopen

from localcluster import Cluster, Process, eventually
from scrapes import Scrape
from soak.facts import Pod, Replica, by_replica, read_pod

Json = dict[str, Any]
NAMESPACE: Final = "life"
RESOURCES: Final = f"/apis/inference.covey.dev/v1alpha1/namespaces/{NAMESPACE}/disaggregatedinferences"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
PROGRAMS: Final = ("covey-operator", "covey-scheduler")


def role(name: str, replicas: int, *, gpus: int = 1, image: int = 1, **fields: Any) -> Json:
    """A role of small pods."""
    container = {
        "name": "engine",
        "image": f"registry.test/engine:{image}",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    return {"name": name, "replicas": replicas, "template": template, **fields}


@dataclass
class Bench:
    """The cluster and what is asked of it."""

    cluster: Cluster
    rows: list[tuple[str, str]] = field(default_factory=list)

    def tell(self, what: str, value: str) -> None:
        """One row of the table."""
        self.rows.append((what, value))
        print(f"{what:<72}{value}", flush=True)

    def create(self, name: str, roles: Sequence[Json], **spec: Any) -> None:
        """A resource."""
        body = {"apiVersion": "inference.covey.dev/v1alpha1", "kind": "DisaggregatedInference"}
        self.cluster.api(
            "POST", RESOURCES, {**body, "metadata": {"name": name}, "spec": {"roles": list(roles), **spec}}
        )

    def change(self, name: str, **spec: Any) -> None:
        """A change of its spec."""
        self.cluster.api("PATCH", f"{RESOURCES}/{name}", {"spec": spec})

    def delete(self, name: str) -> None:
        """Delete a resource, and wait until its pods are gone."""
        self.cluster.api("DELETE", f"{RESOURCES}/{name}")
        eventually(lambda: not self.pods(name), 120)

    def pods(self, name: str) -> list[Pod]:
        """Its pods."""
        path = f"{PODS}?labelSelector=covey.dev%2Finference%3D{name}"
        return [read_pod(each) for each in self.cluster.api("GET", path)["items"]]

    def serving(self, name: str) -> set[Replica]:
        """Its replicas that serve."""
        return {replica for replica, pods in by_replica(iter(self.pods(name))).items() if serves(pods)}

    def await_serving(self, name: str, count: int, timeout: float = 300) -> None:
        """Wait until exactly so many replicas serve and nothing is on its way."""
        path = f"{RESOURCES}/{name}"

        def complete() -> bool:
            found = self.cluster.api("GET", path)
            conditions = {each["type"]: each for each in found.get("status", {}).get("conditions", ())}
            current = found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]
            return current and conditions.get("Progressing", {}).get("reason") == "Complete"

        eventually(lambda: complete() and len(self.serving(name)) == count, timeout, f"{count} replicas of {name}")

    def requests(self) -> Counter[tuple[str, str, str]]:
        """Requests so far by program, verb and resource."""
        found: Counter[tuple[str, str, str]] = Counter()
        for program in PROGRAMS:
            for (metric, labels), value in scrape(self.cluster.processes[program]).samples.items():
                if metric == "covey_kube_requests_total":
                    pairs = dict(labels)
                    found[program.removeprefix("covey-"), pairs["verb"], pairs["resource"]] += int(value)
        return found

    def settled_requests(self, seconds: float = 5.0) -> Counter[tuple[str, str, str]]:
        """The same, once none has come for a while."""
        last, since = self.requests(), time.monotonic()
        end = since + 120
        while time.monotonic() - since < seconds and time.monotonic() < end:
            time.sleep(0.5)
            if (now := self.requests()) != last:
                last, since = now, time.monotonic()
        return last


def scrape(process: Process) -> Scrape:
    """The metrics of a process."""
    with urlopen(process.metrics_url) as page:
        return Scrape.parse(page.read().decode())


def serves(pods: Sequence[Pod]) -> bool:
    """All pods of a replica serve."""
    return len({pod.index for pod in pods if pod.serves}) == max(pod.size for pod in pods)


# Other load
