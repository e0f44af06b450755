"""What a kubelet says of pods that run, or do not: kwok only ever says that they do."""

from __future__ import annotations

import contextlib

from api_manifests import Object
from cluster.workbench import Workbench, is_ready, name_of, uid_of
from localcluster import ApiError, eventually


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
    with contextlib.suppress(ApiError):
        bench.cluster.api("PATCH", path, {"metadata": {"uid": uid_of(pod)}, "status": status})
