"""Groups of ``scheduling.k8s.io`` as their own controllers make them, planned by Covey (Kubernetes 1.37)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from builders.manifests import Object
from cluster.native_groups import FLAGS, GATES, RIGHTS, Foreign, name_of, pod_spec, start_covey
from cluster.workbench import is_gated
from localcluster import Cluster, Nodes, eventually
from localcluster.programs import ROOT
from scheduler_trees import node_of, pin_of

RACK = "cloud.provider.com/topology-rack"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """2 blocks of 2 racks of 2 nodes, and everything of Covey with native groups switched on."""
    with Cluster(gates=GATES, flags=FLAGS) as running:
        running.add_nodes(Nodes(blocks=2, racks=2, nodes=2))
        running.install_rbac()
        running.install_rbac(RIGHTS)
        running.install_account_policies()
        running.apply((ROOT / "manifests" / "base" / "admission-policy.yaml").read_text())
        running.apply(yaml.safe_load((ROOT / "examples" / "topology.yaml").read_text()))
        start_covey(running)
        yield running
        assert not running.account_denials()


@pytest.fixture
def foreign(cluster: Cluster) -> Iterator[Foreign]:
    name = f"test-{uuid.uuid4().hex[:6]}"
    cluster.api("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    eventually(lambda: cluster.api("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default"))
    made = Foreign(cluster, name)
    yield made
    made.empty()
    cluster.api("DELETE", f"/api/v1/namespaces/{name}")


def job(name: str, pods: int, scheduling: Object, cpu: str = "1", **spec: Any) -> Object:
    template = {"spec": pod_spec(cpu, restartPolicy="Never")}
    return {"parallelism": pods, "completions": pods, "scheduling": scheduling, "template": template, **spec}


def test_a_job_with_scheduling_of_its_own_starts_whole(foreign: Foreign) -> None:
    """Upstream's Job controller makes Workload and PodGroup (``WorkloadWithJob``); no label, no policy of Covey's."""
    foreign.make("Job", "train", job("train", 3, {"schedulingPolicy": {"gang": {"minCount": 3}}}))

    def complete() -> bool:
        status = foreign.cluster.api("GET", foreign.path("Job", "train"))["status"]
        assert status.get("succeeded") == 3, str(status)
        assert not status.get("failed")
        return True

    eventually(complete, 90, "the Job is done")
    [group] = foreign.cluster.api("GET", foreign.path("PodGroup"))["items"]
    said = {each["type"]: each["status"] for each in group["status"]["conditions"]}
    assert said.keys() >= {"Admitted", "Scheduled"}
    assert "status" not in foreign.cluster.api("GET", foreign.path("Workload"))["items"][0]
