"""HorizontalPodAutoscalers of the real controller drive units and replicas, and come to rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from builders.manifests import Object
from cluster.conftest import AddNodes, Covey
from cluster.serving import Serving, workers
from cluster.workbench import label
from localcluster import Cluster, eventually
from localcluster.metrics_api import QUICK_AUTOSCALERS, REPLICAS, UNITS, Metrics, serve_metrics

#: What one unit, and one replica, can bear.
TARGET: Final = 10
_KINDS: Final = {UNITS: "DisaggregatedInference", REPLICAS: "RoleScaler"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A control plane of its own, whose autoscalers do not take minutes."""
    with Cluster(flags=QUICK_AUTOSCALERS) as running:
        running.install_rbac()
        yield running


@pytest.fixture(scope="module")
def metrics(cluster: Cluster) -> Iterator[Metrics]:
    """The metrics API."""
    with serve_metrics(cluster) as served:
        yield served


@dataclass(frozen=True)
class Scaled(Serving):
    """A namespace with autoscalers."""

    metrics: Metrics

    def autoscale(self, metric: str, target: str, least: int = 1, most: int = 8) -> None:
        """Have an autoscaler keep the load of each at ``TARGET``."""
        ref = {"apiVersion": "inference.covey.dev/v1alpha1", "kind": _KINDS[metric], "name": target}
        average = {"type": "AverageValue", "averageValue": str(TARGET)}
        spec = {
            "scaleTargetRef": ref,
            "minReplicas": least,
            "maxReplicas": most,
            "metrics": [{"type": "Pods", "pods": {"metric": {"name": metric}, "target": average}}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        }
        self.cluster.api("POST", self._path(), {"metadata": {"name": metric}, "spec": spec})

    def load(self, metric: str, load: int) -> None:
        """From now on there is so much to do."""
        self.metrics.loads[self.namespace, metric] = load

    def wants(self, metric: str, target: str) -> int:
        """What the autoscaler has written."""
        return int(self.get(_KINDS[metric], target)["spec"]["replicas"])

    def settles(self, metric: str, target: str, replicas: int) -> None:
        """Wait until it has written a number, and see that it stays there."""
        eventually(
            lambda: self.wants(metric, target) == replicas, 120, f"{target} has {replicas} ({self.told(metric)})"
        )
        eventually(lambda: self.scale_of(metric, target)["replicas"] == replicas, 120, f"{replicas} of {target} exist")
        # A look that began before pods went and ended after that has counted others than it measured.
        self.metrics.await_rounds(self.namespace, metric, 2)

        def is_settled() -> bool:
            return (self.wants(metric, target), self.scale_of(metric, target)["replicas"]) == (replicas, replicas)

        eventually(is_settled, 120, lambda: f"{target} stays at {replicas} ({self.told(metric)})")
        for _ in range(4):
            self.metrics.await_rounds(self.namespace, metric, 1)
            assert self.wants(metric, target) == replicas, self.told(metric)

    def scale_of(self, metric: str, target: str) -> Object:
        """The status of the scale subresource."""
        return dict(self.cluster.api("GET", f"{self.path(_KINDS[metric], target)}/scale")["status"])

    def told(self, metric: str) -> str:
        """What the autoscaler says."""
        return str(self.cluster.api("GET", f"{self._path()}/{metric}").get("status", {}).get("conditions"))

    def _path(self) -> str:
        return f"/apis/autoscaling/v2/namespaces/{self.namespace}/horizontalpodautoscalers"


@pytest.fixture
def scaled(cluster: Cluster, covey: Covey, namespace: str, metrics: Metrics) -> Scaled:
    """A new namespace in which all of Covey runs."""
    assert covey
    return Scaled(cluster, namespace, metrics)


def roles(version: int = 1, **prefill: Any) -> list[Object]:
    found = [
        workers("prefill", size=2, gpus=1, **{"scaling": {"mode": "External"}, **prefill}),
        workers("decode", gpus=1),
    ]
    for each in found:
        each["template"]["spec"]["containers"][0]["image"] = f"registry.test/engine:{version}"
    return found


def test_units_follow_the_load_and_come_to_rest(scaled: Scaled, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=2, nodes=4)
    scaled.create(*roles(scaling={"mode": "Static"}))
    scaled.await_bound(3)
    scaled.load(UNITS, TARGET)
    scaled.autoscale(UNITS, "llm")
    scaled.settles(UNITS, "llm", 1)
    scaled.load(UNITS, 3 * TARGET)
    scaled.settles(UNITS, "llm", 3)
    scaled.await_bound(9)
    scaled.load(UNITS, 2 * TARGET)
    scaled.settles(UNITS, "llm", 2)
    scaled.await_bound(6)


def test_replicas_follow_the_load_and_come_to_rest(scaled: Scaled, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=2, nodes=4)
    scaled.create(*roles(), replicas=2)
    scaled.await_bound(6)
    scaled.load(REPLICAS, 2 * TARGET)
    scaled.autoscale(REPLICAS, "llm-prefill", least=2)
    scaled.settles(REPLICAS, "llm-prefill", 2)
    scaled.load(REPLICAS, 5 * TARGET)
    scaled.settles(REPLICAS, "llm-prefill", 5)
    pods = scaled.await_bound(10, role="prefill")
    assert sorted(label(pod, "unit") for pod in pods) == ["0"] * 6 + ["1"] * 4
    scaled.load(REPLICAS, 3 * TARGET)
    scaled.settles(REPLICAS, "llm-prefill", 3)
    scaled.await_bound(6, role="prefill")
    # Nothing to do: down to the minimum of both units, and not below.
    scaled.load(REPLICAS, 0)
    scaled.settles(REPLICAS, "llm-prefill", 2)


def test_the_value_survives_an_edit_a_rollout_and_a_kill(scaled: Scaled, nodes: AddNodes, covey_to_kill: Covey) -> None:
    nodes(blocks=1, racks=2, nodes=4)
    scaled.create(*roles(), replicas=1)
    scaled.await_bound(3)
    scaled.load(REPLICAS, 3 * TARGET)
    scaled.autoscale(REPLICAS, "llm-prefill")
    scaled.settles(REPLICAS, "llm-prefill", 3)
    scaled.change({"roles": roles(replicas=6)})
    scaled.await_condition("Progressing", "True", "Complete")
    assert scaled.wants(REPLICAS, "llm-prefill") == 3
    scaled.change({"roles": roles(version=2, replicas=6)})
    # In the middle of the rollout, and with more to do by the time it is back.
    covey_to_kill.operator.kill()
    # A replica of the rollout may be there by now, and bears its part: of four that bear 4 * TARGET nothing follows.
    scaled.load(REPLICAS, 5 * TARGET)
    eventually(lambda: scaled.wants(REPLICAS, "llm-prefill") == 5, 120, "the autoscaler goes on")
    covey_to_kill.operator.start()
    scaled.await_condition("Progressing", "True", "Complete")
    pods = scaled.await_bound(10, role="prefill")
    assert {pod["spec"]["containers"][0]["image"] for pod in pods} == {"registry.test/engine:2"}
    scaled.settles(REPLICAS, "llm-prefill", 5)


def test_an_autoscaler_that_asks_for_too_few_is_told_so(scaled: Scaled, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=2, nodes=4)
    scaled.create(*roles(replicas=2, minReplicas=2))
    scaled.await_bound(5)
    scaled.load(REPLICAS, 1)
    scaled.autoscale(REPLICAS, "llm-prefill", least=1)
    eventually(lambda: "1 replicas are fewer than the 2 that the role needs" in scaled.told(REPLICAS), 60)
    assert scaled.wants(REPLICAS, "llm-prefill") == 2


def test_an_autoscaler_of_one_role_leaves_those_that_are_scaled_together(scaled: Scaled, nodes: AddNodes) -> None:
    """An autoscaler drives the router while a planner exchanges the others: neither undoes what the other one wrote."""
    nodes(blocks=1, racks=1, nodes=5)
    together = {"scaling": {"mode": "Together"}, "gpus": 8}
    prefill = workers("prefill", replicas=3, **together)
    router = workers("router", gpus=1, scaling={"mode": "External"})
    scaled.create(prefill, workers("decode", **together), router)
    scaled.await_bound(5)
    scaled.load(REPLICAS, TARGET)
    scaled.autoscale(REPLICAS, "llm-router")
    scaled.settles(REPLICAS, "llm-router", 1)
    scaled.load(REPLICAS, 4 * TARGET)
    path = scaled.path("RoleScaler", "llm.together")
    scaled.cluster.api("PATCH", path, {"spec": {"targets": {"prefill": 1, "decode": 3}}})
    scaled.settles(REPLICAS, "llm-router", 4)
    scaled.await_bound(3, role="decode")
    scaled.await_bound(1, role="prefill")
    scaled.load(REPLICAS, 2 * TARGET)
    scaled.cluster.api("PATCH", path, {"spec": {"targets": {"prefill": 2, "decode": 2}}})
    scaled.settles(REPLICAS, "llm-router", 2)
    scaled.await_bound(2, role="decode")
    scaled.await_bound(2, role="prefill")
    scaled.await_bound(2, role="router")
    assert scaled.get("RoleScaler", "llm.together")["status"]["committed"] == {"prefill": 2, "decode": 2}
