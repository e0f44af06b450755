"""The life of a deployment beside others' tools, with everything running: what is right, and is not so yet."""

from __future__ import annotations

import pytest

from cluster.conftest import AddNodes, Covey
from cluster.serving import Serving, serving, workers
from cluster.workbench import is_ready, name_of, uids
from localcluster import Cluster, eventually

__all__ = ["serving"]

APIS = "/apis/apiregistration.k8s.io/v1/apiservices"
PREFILL, DECODE = workers("prefill", gpus=1), workers("decode", gpus=1)


@pytest.mark.usefixtures("covey")
def test_the_status_when_the_resource_is_being_deleted_does_not_say_that_it_serves(
    cluster: Cluster, serving: Serving, nodes: AddNodes
) -> None:
    """One pod takes long to end; all others have gone."""
    nodes(nodes=1)
    serving.create(PREFILL, DECODE)
    slow, _ = serving.await_ready(2)
    path = serving.path("Pod", name_of(slow))
    cluster.api("PATCH", path, {"metadata": {"finalizers": ["example.com/log-shipper"]}})
    try:
        cluster.api("DELETE", f"{serving.path('DisaggregatedInference', 'llm')}?propagationPolicy=Foreground")
        eventually(lambda: len(serving.all("Pod")) == 1, 60, "the other pod has gone")
        for kind in ("Ready", "Admitted", "Available"):
            serving.await_condition(kind, "False", "Deleting")
            eventually(lambda kind=kind: serving.condition(kind)["message"] == "it is being deleted: 1 pod is left")
        columns = serving.kubectl("get", "dinf", "llm", "--no-headers")
        assert "True" not in columns
        assert "1/1" not in columns
    finally:
        cluster.api("PATCH", path, {"metadata": {"finalizers": None}})


@pytest.mark.usefixtures("covey")
def test_a_refusal_when_no_node_has_a_level_names_those_that_nodes_have(serving: Serving, nodes: AddNodes) -> None:
    nodes(nodes=1)
    serving.create(DECODE, topology={"required": "racks"})
    message = serving.await_condition("Admitted", "False", "InvalidTopology")
    assert "rack" in message.replace("racks", "")
    assert "superblock" not in message


def test_gangs_when_an_aggregated_api_is_down_and_kinds_come_back_start_and_pods_are_not_touched(
    cluster: Cluster, covey_to_kill: Covey, serving: Serving, nodes: AddNodes
) -> None:
    nodes(nodes=1)
    service = {"name": "prometheus-adapter", "namespace": "monitoring"}
    terms = {"groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": True, "service": service}
    spec = {"group": "custom.metrics.k8s.io", "version": "v1beta1", **terms}
    cluster.api("POST", APIS, {"metadata": {"name": "v1beta1.custom.metrics.k8s.io"}, "spec": spec})
    try:
        for process in (covey_to_kill.operator, covey_to_kill.scheduler):
            process.restart()
        serving.create(DECODE)
        before = uids(serving.await_ready(1))
    finally:
        cluster.api("DELETE", f"{APIS}/v1beta1.custom.metrics.k8s.io")
    cluster.kubectl("delete", "crd", "podgroups.scheduling.covey.dev", "rolescalers.inference.covey.dev")
    cluster.install_crds()
    eventually(lambda: serving.all("PodGroup"), 120, "the groups are there again")
    serving.create(PREFILL, name="again")
    serving.await_ready(1, inference="again")
    assert uids(serving.pods(inference="llm")) == before
    assert all(map(is_ready, serving.pods(inference="llm")))
