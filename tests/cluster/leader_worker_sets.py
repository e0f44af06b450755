"""LeaderWorkerSets with the label ``covey.dev/gang``: StatefulSets as its controller writes them, and Covey's component."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
import yaml

from builders.manifests import Object
from cluster.conftest import Covey
from cluster.workbench import Workbench, name_of
from localcluster import Cluster, eventually
from localcluster.programs import ROOT, scheduler_config
from scheduler_trees import node_of

_LWS: Final = "leaderworkerset.sigs.k8s.io"
_COMPONENT: Final = ROOT / "manifests" / "components" / "leader-worker-sets"
_FILES: Final = (
    _COMPONENT / "policies.yaml",
    _COMPONENT / "rights.yaml",
    ROOT / "manifests" / "base" / "admission-policy.yaml",
)


@dataclass(frozen=True)
class Sets(Workbench):
    """One namespace with the StatefulSets of a LeaderWorkerSet."""

    def make(
        self, name: str, labels: Object, annotations: Object, *, replicas: int, start: int = 0, **more: Any
    ) -> None:
        """Create a StatefulSet."""
        labels = {f"{_LWS}/{key}": value for key, value in labels.items()} | more.pop(
            "marks", {"covey.dev/gang": "true"}
        )
        container = {"name": "engine", "image": "engine", "resources": {"requests": {"cpu": more.pop("cpu", "1")}}}
        annotations = {f"{_LWS}/{key}": value for key, value in annotations.items()}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 0, **more.pop("pod", {})}
        body = {
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "serviceName": "lws",
            "ordinals": {"start": start},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec},
        }
        path = f"/apis/apps/v1/namespaces/{self.namespace}/statefulsets"
        self.cluster.api("POST", path, {"metadata": {"name": name}, "spec": body})

    def leaders(
        self, name: str, size: int, replicas: int = 1, *, annotations: Object | None = None, **more: Any
    ) -> None:
        notes = {"size": str(size), **(annotations or {})}
        self.make(name, {"name": name, "worker-index": "0"}, notes, replicas=replicas, **more)

    def workers(self, name: str, group: int, size: int, **more: Any) -> None:
        """Those of one group; what its webhook adds, the index, says nothing to Covey."""
        leader = f"{name}-{group}"
        labels = {"name": name, "group-index": str(group)}
        notes = {"size": str(size), "leader-name": leader}
        self.make(leader, labels, notes, replicas=size - 1, start=1, **more)

    def group_of(self, leader: str) -> list[Object]:
        named = (
            pod for pod in self.pods() if pod["metadata"]["labels"].get("scheduling.covey.dev/pod-group") == leader
        )
        return sorted(named, key=name_of)

    def await_members(self, leader: str, count: int) -> list[Object]:
        def there() -> list[Object]:
            found = self.group_of(leader)
            assert len(found) == count, f"{len(found)} pods"
            return found

        return eventually(there, 60, f"{count} pods of {leader}")

    def await_bound(self, leader: str, count: int) -> None:
        def bound() -> bool:
            found = [name_of(pod) for pod in self.group_of(leader) if node_of(pod)]
            assert len(found) == count, str(found)
            return True

        eventually(bound, 90, f"{leader} is bound")


def policies() -> list[Object]:
    return [each for file in _FILES for each in yaml.safe_load_all(file.read_text())]


def is_in_force(cluster: Cluster) -> bool:
    """Tell whether a pod gets the gate that LeaderWorkerSet's own webhook would take, where there is one."""
    labels = {"covey.dev/gang": "true", f"{_LWS}/name": "probe", f"{_LWS}/worker-index": "0"}
    metadata = {"name": "probe-0", "labels": labels, "annotations": {f"{_LWS}/size": "1"}}
    body = {"metadata": metadata, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    made = cluster.api("POST", "/api/v1/namespaces/default/pods?dryRun=All", body)
    return "schedulingGates" in made["spec"]


@pytest.fixture(scope="module")
def covey(cluster: Cluster) -> Iterator[Covey]:
    made = policies()
    cluster.apply(made)
    try:
        eventually(lambda: cluster.api("GET", "/api/v1/namespaces/default/serviceaccounts/default"))
        eventually(lambda: is_in_force(cluster), 60, "the policies are in force")
        operator = cluster.start_covey("operator", "--leader-worker-sets")
        scheduler = cluster.start_covey("scheduler")
        cluster.start_scheduler(scheduler_config(scheduler))
        yield Covey(operator, scheduler, cluster.processes["kube-scheduler"])
    finally:
        cluster.stop_all()
        for each in made:
            cluster.kubectl("delete", each["kind"], each["metadata"]["name"], "--ignore-not-found")
