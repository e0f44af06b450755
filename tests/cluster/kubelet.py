"""The kubelet's part, of which kwok only ever says that pods run: containers that restart, pods that fail, other images.

As the real one (``SyncPod`` of ``pkg/kubelet/kuberuntime``): a container with another image is killed and started anew,
with one restart more; the pod stays Ready until the kubelet has heard of the change. An image that cannot be pulled
leaves its container waiting.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from builders.manifests import Object
from cluster.workbench import Workbench, is_ready, name_of, uid_of
from localcluster import Background, eventually

#: Seconds between a change of the spec and the end of the old containers, and from there to the start of the new.
_HEARS, _STARTS = 0.3, 0.3


class Kubelet(Background):
    """Plays it for the pods of one namespace.

    Args:
        bench: the namespace.
        missing: images that cannot be pulled.
    """

    def __init__(self, bench: Workbench, missing: Collection[str] = ()) -> None:
        super().__init__()
        self.missing = set(missing)
        self._bench = bench
        self._heard: dict[tuple[str, str], float] = {}

    def _run(self) -> None:
        with ThreadPoolExecutor(8) as pool:
            while not self.ended.wait(0.1):
                # A server that was killed answers again; a pod may be gone by now.
                with contextlib.suppress(ApiException, HTTPError):
                    list(pool.map(self._sync, [pod for pod in self._bench.all("Pod") if _is_running(pod)]))

    def _sync(self, pod: Object) -> None:
        told = pod["status"]["containerStatuses"]
        wanted = {each["name"]: each["image"] for each in pod["spec"]["containers"]}
        statuses = [dict(each) for each in told]
        if any(each["image"] != wanted[each["name"]] for each in statuses):
            if not self._is_due(pod, "hears", _HEARS):
                return
            for each in statuses:
                if each["image"] != wanted[each["name"]]:
                    each |= {"image": wanted[each["name"]], "ready": False, "state": _waiting("ContainerCreating")}
        elif any("waiting" in each["state"] for each in statuses):
            if not self._is_due(pod, "starts", _STARTS):
                return
            for each in statuses:
                if "waiting" not in each["state"]:
                    continue
                if each["image"] in self.missing:
                    each["state"] = _waiting("ImagePullBackOff")
                else:
                    image = f"registry.test/digest@sha256:{each['image']}"
                    each |= {"imageID": image, "restartCount": each["restartCount"] + 1, "ready": True}
                    each["state"] = {"running": {"startedAt": _now()}}
        if statuses != told or pod["status"].get("observedGeneration", 0) < pod["metadata"].get("generation", 0):
            self._tell(pod, statuses)

    def _is_due(self, pod: Object, what: str, after: float) -> bool:
        key = (uid_of(pod), f"{what} {pod['spec']['containers']}")
        return time.monotonic() - self._heard.setdefault(key, time.monotonic()) >= after

    def _tell(self, pod: Object, statuses: list[Object]) -> None:
        ready = str(all(each["ready"] for each in statuses))
        conditions = [
            each | {"status": ready, "lastTransitionTime": _now()}
            if each["type"] in {"Ready", "ContainersReady"} and each["status"] != ready
            else each
            for each in pod["status"]["conditions"]
        ]
        status = {
            "containerStatuses": statuses,
            "conditions": conditions,
            "observedGeneration": pod["metadata"].get("generation", 0),
        }
        body = {"metadata": {"uid": uid_of(pod)}, "status": status}
        with contextlib.suppress(ApiException):
            self._bench.cluster.api("PATCH", f"{self._bench.path('Pod', name_of(pod))}/status", body)


def restart(bench: Workbench, pod: Object, count: int = 1) -> None:
    """A container of a pod has restarted."""
    path = f"{bench.path('Pod', name_of(pod))}/status"
    statuses = bench.get("Pod", name_of(pod))["status"]["containerStatuses"]
    for each in statuses:
        each["restartCount"] = count
    bench.cluster.api("PATCH", path, {"metadata": {"uid": uid_of(pod)}, "status": {"containerStatuses": statuses}})


def fail(bench: Workbench, pod: Object, reason: str = "") -> None:
    """A pod has failed; with a reason, the kubelet has not taken it."""
    path = f"{bench.path('Pod', name_of(pod))}/status"
    # Before, kwok may be about to say that it runs.
    eventually(lambda: is_ready(bench.get("Pod", name_of(pod))), 60, "the pod runs")
    status = {"phase": "Failed", **({"reason": reason} if reason else {})}
    with contextlib.suppress(ApiException):
        bench.cluster.api("PATCH", path, {"metadata": {"uid": uid_of(pod)}, "status": status})


def runs_its_images(pod: Object) -> bool:
    """Ready, with containers of the images that it shall have."""
    told = pod.get("status", {}).get("containerStatuses", ())
    running = {each["name"]: each["image"] for each in told if each["ready"]}
    return running == {each["name"]: each["image"] for each in pod["spec"]["containers"]}


def _is_running(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")


def _waiting(reason: str) -> dict[str, Any]:
    return {"waiting": {"reason": reason}}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
