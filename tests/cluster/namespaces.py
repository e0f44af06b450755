"""Namespaces of tests, which are emptied at the end, and stay.

To delete one, its controller deletes and lists each of sixty kinds, and all of them again while a pod is still there: some
300 requests, more than most tests make.
"""

from __future__ import annotations

import uuid
from typing import Final

from covey.kube import resources
from covey.kube.resources import Resource
from localcluster import Cluster, eventually

#: What makes new pods of those that are deleted: it goes first, with what it has made.
_OWNERS: Final = (
    resources.DISAGGREGATED_INFERENCES,
    resources.JOBS,
    Resource("apps", "v1", "deployments", "Deployment"),
    Resource("apps", "v1", "replicasets", "ReplicaSet"),
    Resource("apps", "v1", "statefulsets", "StatefulSet"),
    Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet"),
)
#: Everything else that Covey reads, and so would meet in later tests. Events and leases say nothing to it.
_READ: Final = [
    each
    for each in vars(resources).values()
    if isinstance(each, Resource) and each.namespaced and each not in {*_OWNERS, resources.EVENTS, resources.LEASES}
]


def make_namespace(cluster: Cluster, prefix: str = "test") -> str:
    """The name of a new namespace in which pods can be created."""
    name = f"{prefix}-{uuid.uuid4().hex[:6]}"
    cluster.api("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    eventually(lambda: cluster.api("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default"))
    return name


def empty_namespace(cluster: Cluster, name: str) -> None:
    """Delete what runs in a namespace, from the top, until no pod is left, and then what else Covey reads."""
    for each in _OWNERS:
        cluster.delete(each.path(name))
    pods = resources.PODS.path(name)

    def empty() -> bool:
        cluster.delete(f"{pods}?gracePeriodSeconds=0")
        return not cluster.api("GET", pods)["items"]

    try:
        # The API server deletes a thousand pods one after another: half a minute where others want the processors.
        eventually(empty, 240, f"no pod is left in {name}")
    finally:
        for each in _READ:
            cluster.delete(each.path(name))
