"""A stand-in for the controller of NVIDIA's ComputeDomains: it makes the ResourceClaimTemplate of each, and nothing else.

The kind is written by hand after the published API, as far as Covey uses it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kubernetes.client import ApiException

from builders.manifests import Object
from localcluster import Cluster

GROUP: Final = "resource.nvidia.com"
CHANNEL: Final = "compute-domain-default-channel.nvidia.com"
_LOOP: Final = 0.1
_SPEC: Final = {
    "type": "object",
    "required": ["numNodes", "channel"],
    "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "A computeDomain.spec is immutable"}],
    "x-kubernetes-preserve-unknown-fields": True,
}
DEFINITION: Final = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"computedomains.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "ComputeDomain", "plural": "computedomains", "singular": "computedomain"},
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _SPEC}}},
            }
        ],
    },
}


class Controller:
    """Makes templates in one namespace while it runs."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.domains = f"/apis/{GROUP}/v1beta1/namespaces/{namespace}/computedomains"
        self.templates = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates"

    def all(self) -> list[Object]:
        """The ComputeDomains that there are."""
        found: list[Object] = self.cluster.api("GET", self.domains)["items"]
        return found

    def make_templates(self) -> None:
        """Make the template of each domain, where it is missing."""
        for domain in self.all():
            exactly = {"deviceClassName": CHANNEL, "allocationMode": "ExactCount", "count": 1}
            meta = {key: domain["metadata"][key] for key in ("name", "uid")}
            owner = {"apiVersion": f"{GROUP}/v1beta1", "kind": "ComputeDomain", **meta}
            name = domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
            spec = {"spec": {"devices": {"requests": [{"name": "channel", "exactly": exactly}]}}}
            self.cluster.ensure(
                f"{self.templates}", {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}
            )

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run beside a test."""
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(_LOOP):
                try:
                    self.make_templates()
                except ApiException:
                    continue

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
