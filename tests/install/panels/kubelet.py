"""What kubelets say of pods, for nodes that nobody plays: a model takes its time to load, and one image never does."""

from __future__ import annotations

import contextlib
import time
import zlib
from datetime import UTC, datetime
from typing import Any, Final

from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from localcluster import Background, Cluster

Json = dict[str, Any]
_PODS: Final = "/api/v1/pods?resourceVersion=0"
#: Seconds between two looks at all pods.
_PAUSE: Final = 0.5
#: The tag of images whose pods never become Ready.
BROKEN: Final = "broken"


class Kubelet(Background):
    """Makes each bound pod Ready some seconds after it was bound.

    Args:
        cluster: one without kwok.
        least: seconds that the quickest pod takes.
        spread: seconds by which others take longer; how long is decided by the pod's name.
    """

    def __init__(self, cluster: Cluster, least: float, spread: float) -> None:
        super().__init__()
        self._cluster = cluster
        self._least = least
        self._spread = spread
        self._due: dict[str, float] = {}
        self._done: set[str] = set()

    def _run(self) -> None:
        while not self.ended.wait(_PAUSE):
            with contextlib.suppress(ApiException, HTTPError):
                for pod in self._cluster.api("GET", _PODS)["items"]:
                    self._look(pod)

    def _look(self, pod: Json) -> None:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        if not pod["spec"].get("nodeName") or uid in self._done or pod["metadata"].get("deletionTimestamp"):
            return
        if any(each["image"].endswith(f":{BROKEN}") for each in pod["spec"]["containers"]):
            return
        seconds = self._least + self._spread * (zlib.crc32(name.encode()) % 100) / 100
        if self._due.setdefault(uid, time.monotonic() + seconds) > time.monotonic():
            return
        since = datetime.now(UTC).strftime("%FT%TZ")
        kinds = ("Ready", "ContainersReady")
        conditions = [{"type": kind, "status": "True", "lastTransitionTime": since} for kind in kinds]
        if tell(self._cluster, pod, {"phase": "Running", "conditions": conditions}):
            self._done.add(uid)
            del self._due[uid]


def tell(cluster: Cluster, pod: Json, status: Json) -> bool:
    """Write a part of a pod's status; returns whether the pod was still there."""
    meta = pod["metadata"]
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
    try:
        cluster.api("PATCH", path, {"metadata": {"uid": meta["uid"]}, "status": status}, patch="strategic")
    except ApiException as error:
        if error.status not in {404, 409}:
            raise
        return False
    return True
