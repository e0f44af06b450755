"""A volume that is provisioned when a test says so, which holds one pod back and so the binds of its whole gang."""

from __future__ import annotations

from typing import Any

from localcluster import Cluster, eventually

Json = dict[str, Any]
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_SELECTED = "volume.kubernetes.io/selected-node"


class LateVolume:
    """A claim of one namespace, unbound. kube-scheduler chooses the node of the pod that uses it, waits for the
    volume, and calls the barrier only then."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = f"late-{namespace}"
        self._claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        storage = {"metadata": {"name": self._name}, "provisioner": "example.com/none"}
        cluster.api("POST", _CLASSES, storage | {"volumeBindingMode": "WaitForFirstConsumer"})
        spec = self._terms | {"resources": {"requests": {"storage": "1Gi"}}}
        cluster.api("POST", self._claims, {"metadata": {"name": "late"}, "spec": spec})

    @property
    def _terms(self) -> Json:
        return {"storageClassName": self._name, "accessModes": ["ReadWriteOnce"]}

    @property
    def pod_spec(self) -> Json:
        """What a pod's spec needs to use it."""
        return {"volumes": [{"name": "late", "persistentVolumeClaim": {"claimName": "late"}}]}

    def wait_wanted(self) -> None:
        """Wait until kube-scheduler has chosen the node."""
        eventually(self._is_wanted, 60, "a node is chosen for the late volume")

    def provide(self) -> None:
        """Provision the volume."""
        claim = self._cluster.api("GET", f"{self._claims}/late")
        reference = {"kind": "PersistentVolumeClaim", "name": "late", "namespace": self._namespace}
        spec = self._terms | {
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/nowhere"},
            "claimRef": reference | {"uid": claim["metadata"]["uid"]},
        }
        self._cluster.api("POST", "/api/v1/persistentvolumes", {"metadata": {"name": self._name}, "spec": spec})

    def remove(self) -> None:
        """Leave nothing behind outside the namespace."""
        self._cluster.api("DELETE", f"{_CLASSES}/{self._name}")
        self._cluster.kubectl("delete", "persistentvolume", self._name, "--ignore-not-found", "--wait=false")

    def _is_wanted(self) -> bool:
        return _SELECTED in self._cluster.api("GET", f"{self._claims}/late")["metadata"].get("annotations", {})
