"""Kinds that are not served, for a while or yet, and APIs of others that do not answer: nobody waits for them in vain."""

from __future__ import annotations

import pytest
from kubernetes.client import ApiException

from builders.manifests import role
from cluster.conftest import AddNodes, Covey
from cluster.scraping import await_scrape, scrape
from cluster.serving import Serving, serving, workers
from cluster.workbench import Workbench, is_ready, uids
from covey.kube.resources import QUEUES
from localcluster import Cluster, eventually
from localcluster.programs import ROOT
from scheduler_trees import Bench, Role

__all__ = ["serving"]

APIS = "/apis/apiregistration.k8s.io/v1/apiservices"
NODES = {"nodes": 1, "racks": 1, "blocks": 1}


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
        serving.create(workers("decode", gpus=1))
        before = uids(serving.await_ready(1))
    finally:
        cluster.api("DELETE", f"{APIS}/v1beta1.custom.metrics.k8s.io")
    cluster.kubectl("delete", "crd", "podgroups.scheduling.covey.dev", "rolescalers.inference.covey.dev")
    cluster.install_crds()
    eventually(lambda: serving.all("PodGroup"), 120, "the groups are there again")
    serving.create(workers("prefill", gpus=1), name="again")
    serving.await_ready(1, inference="again")
    assert uids(serving.pods(inference="llm")) == before
    assert all(map(is_ready, serving.pods(inference="llm")))


def _is_gone(cluster: Cluster, path: str) -> bool:
    try:
        cluster.api("GET", path)
    except ApiException as error:
        return error.status == 404
    return False


def test_kind_of_a_backend_when_it_is_not_served_is_named_and_found_once_it_is(
    cluster: Cluster, namespace: str, covey_to_kill: Covey
) -> None:
    covey_to_kill.operator.stop()
    cluster.kubectl("delete", "crd", "podgroups.scheduling.covey.dev")
    # The definition is gone before its kind: an operator that starts then would still be served.
    eventually(lambda: _is_gone(cluster, "/apis/scheduling.covey.dev/v1alpha1/podgroups"), describe="the kind is gone")
    bench = Workbench(cluster, namespace)
    try:
        covey_to_kill.operator.start()
        bench.create(role("r"))
        assert "does not serve podgroups" in bench.await_condition("BackendSupported", "False", "Unsupported")
        assert not bench.owned("Workload")
    finally:
        cluster.install_crds()
    bench.await_pods(1)
    bench.await_condition("BackendSupported", "True", "Supported")


@pytest.mark.usefixtures("covey")
def test_queues_when_their_kind_comes_later_than_the_process_count_from_then_on(
    cluster: Cluster, namespace: str, covey_to_kill: Covey, nodes: AddNodes
) -> None:
    nodes(nodes=2)
    bench, scheduler = Bench(cluster, namespace), covey_to_kill.scheduler
    file = f"--filename={ROOT}/crds/scheduling.covey.dev_queues.yaml"
    cluster.kubectl("delete", file)
    try:
        scheduler.restart()
        bench.unit("one", Role("decode")).wait_bound()
        assert scrape(scheduler)("covey_queues_served") == 0.0
        assert "quota is not counted" in scheduler.log_text()
    finally:
        cluster.kubectl("apply", "--server-side", file)
    await_scrape(scheduler, lambda seen: seen("covey_queues_served") == 1.0, "the kind is served")
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    flavors = [{"resources": [{"name": "nvidia.com/gpu", "nominal": 8}]}]
    body = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "Queue", "metadata": {"name": namespace}}
    cluster.ensure(QUEUES.path(None), body | {"spec": {"namespaces": {"selector": selector}, "flavors": flavors}})
    try:
        bench.unit("two", Role("decode")).wait_refused("OverQuota")
    finally:
        cluster.api("DELETE", QUEUES.path(None, namespace))
