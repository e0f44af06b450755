"""The autoscalers of ``examples/autoscaling`` find what they scale; those of Kubernetes itself are driven by the real controller.

KEDA does not run here: its ScaledObjects are checked by its own CRD, and what KEDA does with them by hand. It writes the scale
subresource between zero and one itself, and leaves the rest to an HPA like those above.
"""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.client import ApiException

from cluster.serving import Serving
from cluster.workbench import name_of
from examples.conftest import Apply, await_ready
from examples.files import EXAMPLES, of_kind
from localcluster import eventually
from localcluster.metrics_api import Metrics

AUTOSCALING = EXAMPLES / "autoscaling"
pytestmark = pytest.mark.usefixtures("racks")


def wants(serving: Serving, kind: str, name: str, replicas: int) -> None:
    """Wait until an autoscaler has written a number, and so many exist."""

    def reached() -> bool:
        found = scale(serving, kind, name)
        written, exist = found["spec"].get("replicas", 0), found["status"].get("replicas", 0)
        assert (written, exist) == (replicas, replicas), told(serving)
        return True

    eventually(reached, 180, f"{replicas} of {name}")


def scale(serving: Serving, kind: str, name: str) -> dict[str, Any]:
    return dict(serving.cluster.api("GET", f"{serving.path(kind, name)}/scale"))


def write_scale(serving: Serving, kind: str, name: str, replicas: int) -> None:
    """As KEDA does, and ``kubectl scale``."""
    serving.cluster.api("PATCH", f"{serving.path(kind, name)}/scale", {"spec": {"replicas": replicas}})


def finish_requests(serving: Serving) -> None:
    """As an engine says that it has answered all: a replica that drains need not wait."""
    serving.kubectl("annotate", "pods", "--all", "covey.dev/in-flight=0")


def autoscalers(serving: Serving) -> str:
    return f"/apis/autoscaling/v2/namespaces/{serving.namespace}/horizontalpodautoscalers"


def told(serving: Serving) -> str:
    items = serving.cluster.api("GET", autoscalers(serving))["items"]
    return str({name_of(each): each.get("status", {}).get("conditions") for each in items})


def test_prefill_and_decode_follow_different_signals(apply: Apply, serving: Serving, metrics: Metrics) -> None:
    apply(AUTOSCALING / "llama.yaml")
    await_ready(serving)
    metrics.loads[serving.namespace, "vllm_num_requests_waiting"] = 45
    metrics.loads[serving.namespace, "vllm_kv_cache_usage_perc"] = 3
    apply(AUTOSCALING / "hpa.yaml")
    wants(serving, "RoleScaler", "llama-prefill", 5)
    wants(serving, "RoleScaler", "llama-decode", 4)
    await_ready(serving)
    # Nothing waits any more, and the caches are as full as before.
    quick = {"spec": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}}
    serving.cluster.api("PATCH", f"{autoscalers(serving)}/llama-prefill", quick)
    metrics.loads[serving.namespace, "vllm_num_requests_waiting"] = 0
    finish_requests(serving)
    wants(serving, "RoleScaler", "llama-prefill", 1)
    wants(serving, "RoleScaler", "llama-decode", 4)


def test_units_follow_the_load(apply: Apply, serving: Serving, metrics: Metrics) -> None:
    metrics.loads[serving.namespace, "requests_per_second"] = 50
    apply(AUTOSCALING / "hpa-units.yaml")
    wants(serving, "DisaggregatedInference", "qwen", 3)
    await_ready(serving)


def test_what_keda_writes_is_taken(apply: Apply, serving: Serving) -> None:
    """Each number between its bounds is taken, one below the role's minimum is not."""
    apply(AUTOSCALING / "llama.yaml")
    await_ready(serving)
    apply(AUTOSCALING / "keda.yaml")
    for scaled in of_kind(AUTOSCALING / "keda.yaml", "ScaledObject"):
        spec = scaled["spec"]
        target = spec["scaleTargetRef"]
        assert scale(serving, target["kind"], target["name"])["status"]["selector"]
        with pytest.raises(ApiException, match="fewer than the 1 that the role needs"):
            write_scale(serving, target["kind"], target["name"], spec["minReplicaCount"] - 1)
        write_scale(serving, target["kind"], target["name"], spec["maxReplicaCount"])
        wants(serving, target["kind"], target["name"], spec["maxReplicaCount"])
        finish_requests(serving)
        write_scale(serving, target["kind"], target["name"], spec["minReplicaCount"])
        wants(serving, target["kind"], target["name"], spec["minReplicaCount"])


def test_idle_to_zero_and_back(apply: Apply, serving: Serving) -> None:
    file = AUTOSCALING / "keda-idle.yaml"
    apply(file)
    await_ready(serving)
    [scaled] = of_kind(file, "ScaledObject")
    target = scaled["spec"]["scaleTargetRef"]
    assert scaled["spec"]["minReplicaCount"] == 0
    write_scale(serving, target["kind"], target["name"], 0)
    eventually(lambda: not serving.pods(), 180, "no pod is left")
    wants(serving, target["kind"], target["name"], 0)
    write_scale(serving, target["kind"], target["name"], 1)
    serving.await_bound(2)
    await_ready(serving)
