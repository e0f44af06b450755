"""Jobs with the label ``covey.dev/gang`` with everything running, and what nobody else notices of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import pytest
from kubernetes.client import ApiException

from builders.manifests import Object
from cluster.conftest import AddNodes, Covey
from cluster.job_gangs import LABELS, Jobs, is_in_force, job, policies, without_identity
from cluster.workbench import is_gated, name_of, uids
from localcluster import Cluster, eventually, status_of
from localcluster.programs import scheduler_config
from scheduler_trees import node_of, pin_of
from scrapes import Scrape

pytestmark = pytest.mark.usefixtures("covey")

GATE = {"name": "scheduling.covey.dev/gang"}
IGNORED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def template(**spec: Any) -> Object:
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "a", "image": "web"}], **spec}}


def workload(kind: str, **spec: Any) -> tuple[str, Object]:
    labels = {"app": "web", "covey.dev/gang": "true"}
    body = {"selector": {"matchLabels": {"app": "web"}}, "template": template(), "replicas": 2, **spec}
    return f"apps/v1/namespaces/default/{kind.lower()}s", {"metadata": {"name": "web", "labels": labels}, "spec": body}


def unlabelled(**spec: Any) -> tuple[str, Object]:
    return "batch/v1/namespaces/default/jobs", job("plain", 3, {"team": "a", "covey.dev/gangs": "true"}, **spec)


#: Jobs without the label, and other workloads even with it.
CORPUS = (
    unlabelled(),
    unlabelled(restartPolicy="OnFailure", backoffLimit=2),
    unlabelled(completionMode="Indexed", backoffLimitPerIndex=1),
    unlabelled(suspend=True, pod={"schedulerName": "other", "schedulingGates": [{"name": "example.com/wait"}]}),
    unlabelled(podFailurePolicy={"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}]}),
    unlabelled(podReplacementPolicy="TerminatingOrFailed", ttlSecondsAfterFinished=5),
    workload("Deployment", strategy={"type": "Recreate"}),
    workload("StatefulSet", serviceName="web", podManagementPolicy="Parallel"),
    (
        "batch/v1/namespaces/default/cronjobs",
        {
            "metadata": {"name": "nightly", "labels": LABELS},
            "spec": {"schedule": "0 1 * * *", "jobTemplate": {"spec": job("x", 2)["spec"]}},
        },
    ),
)


def created(cluster: Cluster) -> list[Object]:
    """The corpus as the API server would store it."""
    return [without_identity(cluster.api("POST", f"/apis/{path}?dryRun=All", body)) for path, body in CORPUS]


@pytest.fixture(scope="module")
def before(cluster: Cluster) -> list[Object]:
    """The corpus as it was without Covey's policies."""
    return created(cluster)


@pytest.fixture(scope="module")
def covey(cluster: Cluster, before: list[Object]) -> Iterator[Covey]:
    """All processes, with gangs of Jobs switched on."""
    assert before
    made = policies()
    cluster.apply(made)
    try:
        eventually(lambda: is_in_force(cluster), 60, "the policies are in force")
        operator = cluster.start_covey("operator", "--job-gangs")
        scheduler = cluster.start_covey("scheduler")
        cluster.start_scheduler(scheduler_config(scheduler))
        yield Covey(operator, scheduler, cluster.processes["kube-scheduler"])
    finally:
        cluster.stop_all()
        for each in made:
            cluster.kubectl("delete", each["kind"], each["metadata"]["name"], "--ignore-not-found")


@pytest.fixture
def jobs(cluster: Cluster, namespace: str) -> Iterator[Jobs]:
    """A new namespace; its Jobs go before its pods."""
    yield Jobs(cluster, namespace)
    cluster.api("DELETE", f"/apis/batch/v1/namespaces/{namespace}/jobs?propagationPolicy=Background")


def test_the_conformance_test_s_gang_that_fits_completes(jobs: Jobs, nodes: AddNodes) -> None:
    """``TestGangScheduling``, positive: 2 pods of 100m and 128Mi are complete within two minutes."""
    nodes(blocks=1, racks=1, nodes=1)
    jobs.post(job("fits", 2))
    done = jobs.await_complete("fits")
    assert done["metadata"]["labels"] == LABELS
    pods = jobs.pods_of("fits")
    assert pods
    assert all(map(node_of, pods))
    assert done["status"].get("failed", 0) == 0


@pytest.mark.slow
def test_the_conformance_test_s_gang_that_does_not_fit_gets_no_node(jobs: Jobs, nodes: AddNodes, covey: Covey) -> None:
    """Negative: of 1,000 pods none is created for 30 s; the gang was refused once, and others pass it by (J5)."""
    nodes(blocks=1, racks=1, nodes=1)
    jobs.post(job("huge", 1000))
    assert "huge" in jobs.await_refusal("huge")
    asked = plans(covey)
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        assert not jobs.pods_of("huge")
        time.sleep(1)
    assert plans(covey) == asked
    jobs.post(job("small", 2))
    jobs.await_complete("small")
    assert not jobs.pods_of("huge")


def plans(covey: Covey) -> float:
    """How often a gang was planned so far."""
    with urlopen(covey.scheduler.metrics_url) as answer:
        return Scrape.parse(answer.read().decode())("covey_plan_duration_seconds_count")


def test_the_groups_of_a_job_are_its_own_and_go_with_it(jobs: Jobs, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=1)
    made = jobs.post(job("train", 3, {"covey.dev/gang": "2"}, cpu="1000", suspend=True))
    jobs.post(job("later", 1))
    jobs.await_complete("later")  # by then it has been looked at
    assert [*map(name_of, jobs.all("PodGroup"))] == []
    jobs.patch("train", {"suspend": False})
    group = eventually(lambda: jobs.get("PodGroup", "train"), 30, "the group is there")
    assert group["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
    assert jobs.get("Workload", "train")["spec"]["controllerRef"]["kind"] == "Job"
    assert "train" in jobs.await_refusal("train")
    assert not jobs.pods_of("train")
    jobs.end("train")
    eventually(lambda: not (jobs.all("PodGroup") or jobs.all("Workload")), 60, "the groups have gone with the Job")


def test_later_completions_wait_for_nobody(jobs: Jobs, nodes: AddNodes) -> None:
    """7 completions of 4 at a time: the last pods are fewer than the gang was."""
    nodes(blocks=1, racks=1, nodes=1)
    jobs.post(job("many", 4, completions=7))
    assert jobs.await_complete("many")["status"]["succeeded"] == 7


def test_a_suspended_job_is_a_gang_again_when_it_goes_on(jobs: Jobs, nodes: AddNodes) -> None:
    """Pods that are done belong to the former gang: what is left starts together."""
    [node] = nodes(blocks=1, racks=1, nodes=1)
    # Pods that are done count, too: after the first two none is made before the Job is suspended.
    quota = {"metadata": {"name": "two"}, "spec": {"hard": {"count/pods": "2"}}}
    jobs.cluster.api("POST", jobs.path("ResourceQuota"), quota)
    eventually(lambda: jobs.get("ResourceQuota", "two").get("status", {}).get("hard"), 60, "the quota is counted")
    jobs.post(job("train", 2, completions=4))
    eventually(lambda: jobs.read("train")["status"].get("succeeded", 0) == 2, 60, "half of them are done")
    jobs.patch("train", {"suspend": True})
    eventually(lambda: not jobs.all("PodGroup"), 30, "the group has gone")
    jobs.delete("ResourceQuota", "two")
    jobs.cluster.kubectl("cordon", node)
    jobs.patch("train", {"suspend": False})
    group = eventually(lambda: jobs.get("PodGroup", "train"), 30, "the group is there again")
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
    jobs.cluster.kubectl("uncordon", node)
    jobs.await_complete("train")


def test_a_pod_that_lost_its_place_is_no_failure(jobs: Jobs, nodes: AddNodes, covey_to_kill: Covey) -> None:
    """With ``backoffLimit: 0`` one failure would be the end of the Job (J3)."""
    [first, _] = nodes(blocks=1, racks=1, nodes=2)
    covey_to_kill.kube_scheduler.pause()  # so that the gang is pinned, and nothing of it is bound
    jobs.post(job("train", 2, backoffLimit=0, cpu="20"))

    def pinned() -> list[Object]:
        pods = jobs.pods_of("train")
        assert len([pod for pod in pods if pin_of(pod) and not is_gated(pod)]) == 2
        return pods

    pods = eventually(pinned, 60, "the gang is pinned")
    jobs.cluster.kubectl("cordon", next(iter({pin_of(pod) for pod in pods} - {None}), first))

    def replaced() -> bool:
        live = jobs.pods_of("train")
        assert len(live) == 2
        assert not uids(live) & uids(pods)
        return True

    eventually(replaced, 60, "their successors are there")
    covey_to_kill.kube_scheduler.resume()
    done = jobs.await_complete("train")
    assert done["status"].get("failed", 0) == 0
    assert done["status"]["succeeded"] == 2


def test_no_pod_of_a_gang_runs_before_all_have_nodes(jobs: Jobs, nodes: AddNodes) -> None:
    """Each event of each pod is looked at: gated without a node, and none has one before all have pins (J2)."""
    nodes(blocks=1, racks=1, nodes=1)
    with jobs.cluster.record(jobs.path("Pod")) as recording:
        jobs.post(job("train", 5))
        jobs.await_complete("train")
        events = list(recording.events)
    born: set[str] = set()
    decided: set[str] = set()
    for _, pod in events:
        uid = pod["metadata"]["uid"]
        if uid not in born:
            assert is_gated(pod), f"{name_of(pod)} was born without its gate"
        born.add(uid)
        if not is_gated(pod):
            assert pin_of(pod) or node_of(pod), f"{name_of(pod)} lost its gate without a node"
            decided.add(uid)
        if node_of(pod):
            assert len(decided) == 5, f"{name_of(pod)} was bound before all were decided"
    assert len(born) == 5


def test_a_stranger_s_pod_completes_no_gang(jobs: Jobs, nodes: AddNodes) -> None:
    """A pod that only has the label is none of the Job's (J7)."""
    nodes(blocks=1, racks=1, nodes=1)
    labels = {"scheduling.covey.dev/pod-group": "train"}
    spec = {
        "schedulerName": "covey-scheduler",
        "schedulingGates": [GATE],
        "containers": [{"name": "a", "image": "a"}],
    }
    jobs.cluster.api("POST", jobs.path("Pod"), {"metadata": {"name": "stranger", "labels": labels}, "spec": spec})
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}}
    jobs.cluster.api("POST", jobs.path("ResourceQuota"), quota)
    eventually(lambda: jobs.get("ResourceQuota", "few")["status"]["used"]["pods"] == "1", 60, "the quota is counted")
    jobs.post(job("train", 2))

    def waits() -> bool:
        conditions = {each["type"]: each for each in jobs.get("PodGroup", "train")["status"]["conditions"]}
        return "pods 2 needed, 1 left" in conditions["Admitted"]["message"]

    eventually(waits, 60, "the gang waits for quota")
    assert [*map(name_of, jobs.all("Pod"))] == ["stranger"]
    jobs.delete("ResourceQuota", "few")
    jobs.await_complete("train")
    assert is_gated(jobs.get("Pod", "stranger"))


def test_objects_without_the_label_are_stored_as_before(cluster: Cluster, before: list[Object]) -> None:
    """Jobs, Deployments, StatefulSets and CronJobs, byte for byte (J4)."""
    assert created(cluster) == before


def test_a_labelled_job_is_prepared(jobs: Jobs) -> None:
    prepared = jobs.post(job("train", 2), "?dryRun=All")["spec"]
    pod = prepared["template"]["spec"]
    assert (pod["schedulerName"], pod["schedulingGates"]) == ("covey-scheduler", [GATE])
    assert pod["containers"][0]["resources"]["limits"] == {"scheduling.covey.dev/member": "0"}
    assert prepared["template"]["metadata"]["labels"]["scheduling.covey.dev/pod-group"] == "train"
    assert prepared["podFailurePolicy"] == {"rules": [IGNORED]}
    assert prepared["podReplacementPolicy"] == "Failed"


def test_what_a_job_says_itself_is_kept(jobs: Jobs) -> None:
    """Its own rules come first, and ``OnFailure`` has no failure policy."""
    own = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}
    with_rules = jobs.post(job("train", 2, podFailurePolicy={"rules": [own]}), "?dryRun=All")["spec"]
    assert [rule["action"] for rule in with_rules["podFailurePolicy"]["rules"]] == ["FailJob", "Ignore"]
    again = jobs.post(job("train", 2, restartPolicy="OnFailure", backoffLimit=9), "?dryRun=All")["spec"]
    assert "podFailurePolicy" not in again
    gates = [{"name": "example.com/wait"}]
    gated = jobs.post(job("train", 2, pod={"schedulingGates": gates}), "?dryRun=All")["spec"]["template"]["spec"]
    assert gated["schedulingGates"] == [*gates, GATE]


COUNT = {"action": "Count", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"podFailurePolicy": {"rules": [COUNT]}}, "the first with DisruptionTarget must have action Ignore"),
        ({"labels": {"covey.dev/gang": "no"}}, 'is "true", for all pods of its parallelism, or the number of pods'),
        ({"labels": {"covey.dev/gang": "3"}}, "asks for more pods at a time than spec.parallelism allows"),
        ({"pod": {"schedulerName": "other"}}, "need spec.schedulerName covey-scheduler"),
    ],
    ids=["counts disruptions", "no number", "too many", "another scheduler"],
)
def test_a_job_that_could_not_start_whole_is_refused(jobs: Jobs, changed: Object, sentence: str) -> None:
    assert sentence in refusal(jobs, job("train", 2, **changed))


def test_a_job_without_a_name_is_refused(jobs: Jobs) -> None:
    body = job("train", 2)
    body["metadata"] = {"generateName": "train-", "labels": LABELS}
    del body["spec"]["template"]["metadata"]
    assert "needs metadata.name" in refusal(jobs, body)


def test_the_label_and_the_gate_stay(jobs: Jobs) -> None:
    jobs.post(job("train", 2, suspend=True))
    path = f"/apis/batch/v1/namespaces/{jobs.namespace}/jobs/train"
    for change, sentence in (
        ({"metadata": {"labels": {"covey.dev/gang": None}}}, "cannot be set, changed or removed later"),
        ({"spec": {"template": {"spec": {"schedulingGates": []}}}}, "need spec.schedulerName covey-scheduler"),
    ):
        with pytest.raises(ApiException) as caught:
            jobs.cluster.api("PATCH", path, change)
        assert sentence in status_of(caught.value)["message"]
    jobs.patch("train", {"parallelism": 3})


def refusal(jobs: Jobs, body: Object) -> str:
    """The words with which a Job is refused."""
    with pytest.raises(ApiException) as caught:
        jobs.post(body)
    message = str(status_of(caught.value)["message"])
    assert "ValidatingAdmissionPolicy 'covey-jobs'" in message
    return message


def test_only_the_job_controller_makes_members_for_those_who_may_not(cluster: Cluster, jobs: Jobs) -> None:
    """It is one account for everybody's Jobs, and the right to create PodGroups is what the policy asks of it."""
    body = {"metadata": {"name": "a", "labels": {"scheduling.covey.dev/pod-group": "train"}}}
    body["spec"] = {"schedulingGates": [GATE], "containers": [{"name": "a", "image": "a"}]}
    asked = ("create", f"--namespace={jobs.namespace}", "--dry-run=server", "--filename=-")
    text = json.dumps({"apiVersion": "v1", "kind": "Pod", **body})
    for account, allowed in (("job-controller", True), ("replicaset-controller", False)):
        said = cluster.kubectl(*asked, f"--as=system:serviceaccount:kube-system:{account}", input=text, check=False)
        assert ("you may not create PodGroups here" not in said) is allowed, said
        assert ("created" in said) is allowed, said


def test_a_name_that_is_taken_is_said(jobs: Jobs, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=1)
    group = {
        "apiVersion": "scheduling.covey.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    }
    jobs.cluster.api("POST", jobs.path("PodGroup"), group)
    jobs.post(job("train", 2, cpu="90"))
    events = f"/apis/events.k8s.io/v1/namespaces/{jobs.namespace}/events"

    def said() -> list[str]:
        return [each["note"] for each in jobs.cluster.api("GET", events)["items"] if each["reason"] == "NameTaken"]

    assert "PodGroup train exists and is not of this Job" in eventually(said, 30, "an Event")[0]
    jobs.delete("PodGroup", "train")
    eventually(lambda: jobs.get("PodGroup", "train")["metadata"]["ownerReferences"], 30, "the group is the Job's")


@pytest.mark.parametrize(("pods", "cpu"), [(4, "100m"), (2, "90")], ids=["quota", "room"])
def test_a_job_when_its_gang_cannot_start_has_no_pods_and_its_deadline_does_not_run(
    jobs: Jobs, nodes: AddNodes, pods: int, cpu: str
) -> None:
    """Else two gangs hold half a quota each for ever, and a Job fails that has never had a node."""
    nodes(blocks=1, racks=1, nodes=1)
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "3"}}}
    jobs.cluster.api("POST", jobs.path("ResourceQuota"), quota)
    eventually(lambda: jobs.get("ResourceQuota", "few").get("status", {}).get("hard"), 60, "the quota is counted")
    jobs.post(job("train", pods, cpu=cpu, activeDeadlineSeconds=3600))

    def look() -> Object:
        """The Job controller has either made pods, or said that the Job is suspended."""
        status = jobs.read("train")["status"]
        assert status.get("active") or "Suspended" in {each["type"] for each in status.get("conditions", ())}
        return status

    status = eventually(look, 90, "the Job controller has looked at the Job")
    assert (status.get("active", 0), status.get("startTime")) == (0, None)
