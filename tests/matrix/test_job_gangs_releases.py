"""The policies for gangs of Jobs on the oldest release that has each of them."""

from __future__ import annotations

import json

import pytest
from kubernetes.client import ApiException

from builders.manifests import Object
from cluster.job_gangs import is_in_force, job, policies
from localcluster import Cluster, eventually, status_of

PATH = "/apis/batch/v1/namespaces/default/jobs?dryRun=All"
GATE = {"name": "scheduling.covey.dev/gang"}


def by_hand(name: str) -> Object:
    """A Job as people write it where no policy sets anything: the example of ``docs/how-to/jobs.md``."""
    ignored = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    pod = {"schedulerName": "covey-scheduler", "schedulingGates": [GATE]}
    made = job(name, 2, podFailurePolicy={"rules": [ignored]}, pod=pod)
    made["spec"]["template"]["metadata"]["labels"]["scheduling.covey.dev/pod-group"] = name
    return made


def refused(cluster: Cluster, body: Object) -> str | None:
    try:
        cluster.api("POST", PATH, body)
    except ApiException as error:
        return str(status_of(error)["message"])
    return None


def test_in_kubernetes_136_jobs_are_prepared() -> None:
    with Cluster(kubernetes="1.36", kwok=False) as cluster:
        cluster.apply([each for each in policies() if each["metadata"]["name"] in {"covey-jobs", "covey-queued-jobs"}])
        eventually(lambda: is_in_force(cluster), 60, "the policies are in force")
        made = cluster.api("POST", PATH, job("train", 2))
        assert made["spec"]["suspend"]
        assert made["spec"]["template"]["spec"]["schedulingGates"] == [GATE]


def test_before_that_a_job_has_to_be_written_whole() -> None:
    with Cluster(kubernetes="1.30", kwok=False) as cluster:
        cluster.apply([each for each in policies() if each["kind"].startswith("Validating")])
        said = eventually(lambda: refused(cluster, job("train", 2)), 60, "the policy is in force")
        assert "Covey sets them from Kubernetes 1.36 on, before that write them" in said
        assert refused(cluster, by_hand("train")) is None


def test_a_job_whose_scheduler_has_another_name_since_can_be_changed() -> None:
    """It cannot be mended, and nobody could change it, or take its finalizers."""
    path = PATH.removesuffix("?dryRun=All")
    with Cluster(kubernetes="1.30", kwok=False) as cluster:
        body = by_hand("train")
        body["spec"]["suspend"] = True
        cluster.api("POST", path, body)
        found = [each for each in policies() if each["kind"].startswith("Validating")]
        cluster.apply(json.loads(json.dumps(found).replace("['covey-scheduler']", "['another']")))
        eventually(lambda: refused(cluster, by_hand("other")), 60, "the policy is in force")
        cluster.api("PATCH", f"{path}/train", {"metadata": {"annotations": {"a": "b"}}, "spec": {"parallelism": 1}})
        with pytest.raises(ApiException) as caught:
            cluster.api("PATCH", f"{path}/train", {"spec": {"template": {"spec": {"schedulingGates": []}}}})
        assert "need spec.schedulerName" in str(status_of(caught.value)["message"])
