"""The part of a driver for dynamic resource allocation that the API server sees: slices and classes, written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from builders.devices import DRIVER, Json, gpus, request_body, slice_body, wish_body
from localcluster import Cluster
from scheduler_trees import Tree, node_of

API = "/apis/resource.k8s.io/v1"


class Driver:
    """Writes slices and classes, and takes them away again."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.claims = f"{API}/namespaces/{namespace}/resourceclaims"
        self.made: list[str] = []

    def make(self, plural: str, body: Json) -> None:
        self.cluster.api("POST", f"{API}/{plural}", body)
        self.made.append(f"{API}/{plural}/{body['metadata']['name']}")

    def offer(self, node: str, count: int, name: str = "", **spec: Any) -> None:
        """GPUs of a node."""
        self.make("resourceslices", slice_body(f"{node}{name}", *gpus(count), node=node, **spec))

    def withdraw(self, node: str) -> None:
        self.cluster.api("DELETE", f"{API}/resourceslices/{node}")
        self.made.remove(f"{API}/resourceslices/{node}")

    def take(self, claim: str, node: str, device: str) -> None:
        """Make a claim and allocate a device to it, as another scheduler would."""
        wish = wish_body(request_body(1))
        self.cluster.api("POST", self.claims, {"metadata": {"name": claim}, "spec": wish})
        results = [{"request": "r", "driver": DRIVER, "pool": node, "device": device}]
        status = {"status": {"allocation": {"devices": {"results": results}}}}
        self.cluster.api("PATCH", f"{self.claims}/{claim}/status", status)

    def give_back(self, claim: str) -> None:
        self.cluster.api("DELETE", f"{self.claims}/{claim}")

    def allocated(self) -> dict[str, set[tuple[str, str]]]:
        """By UID of the pod: pool and name of the devices that the claims have which were made for it."""
        found: dict[str, set[tuple[str, str]]] = {}
        for claim in self.cluster.api("GET", self.claims)["items"]:
            meta, allocation = claim["metadata"], claim.get("status", {}).get("allocation")
            if allocation and meta.get("ownerReferences"):
                results = allocation["devices"]["results"]
                mine = found.setdefault(meta["ownerReferences"][0]["uid"], set())
                mine |= {(each["pool"], each["device"]) for each in results}
        return found


def assert_devices(driver: Driver, tree: Tree, each: int, pool_of: Callable[[str], str] = str) -> None:
    """Every pod of a unit has so many devices of its own node, and no device has two owners.

    Args:
        driver: that has the claims of the unit's namespace.
        tree: the unit.
        each: devices of a pod.
        pool_of: the name of a node's pool.
    """
    allocated = driver.allocated()
    taken: list[tuple[str, str]] = []
    for pod in tree.bound():
        devices = allocated[pod["metadata"]["uid"]]
        assert len(devices) == each
        assert {pool for pool, _ in devices} == {pool_of(node_of(pod))}
        taken += devices
    assert len(taken) == len(set(taken))
