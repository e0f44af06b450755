"""Labelled Jobs: none has a pod before its gang's turn, and what a user or Kueue suspends is theirs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client import ApiException

from builders.manifests import Object
from cluster.job_gangs import is_in_force, job, policies
from cluster.workbench import is_gated, name_of
from covey.kube.resources import JOBS
from localcluster import eventually
from scheduler_trees import node_of, pin_of
from stage import Stage
from stage.play import run_covey

QUEUED = "covey.dev/queued"


@pytest.fixture
def gangs(stage: Stage) -> Iterator[Stage]:
    """A stage with gangs of Jobs."""
    mine = [each for each in policies() if each["metadata"]["name"] != "covey-pods"]
    stage.cluster.apply(mine)
    eventually(lambda: is_in_force(stage.cluster), 60, "the policies are in force")
    stage.restart(operator={"job_gangs": True})
    yield stage
    for item in [*stage.all("Job")]:
        stage.delete("Job", name_of(item))


def create(stage: Stage, name: str, pods: int, *, labels: Object | None = None, **spec: Any) -> None:
    wanted = {"covey.dev/gang": "true", **(labels or {})}
    # A Job that waits has no pods, at which they would go.
    stage.claim_nodes()
    stage.cluster.api("POST", JOBS.path(stage.namespace), job(name, pods, wanted, **spec))


def pods_of(stage: Stage, name: str) -> list[Object]:
    return [pod for pod in stage.pods() if pod["metadata"]["labels"].get("job-name") == name]


def is_done(stage: Stage, name: str) -> bool:
    found = next((each for each in stage.all("Job") if name_of(each) == name), {})
    conditions = found.get("status", {}).get("conditions", ())
    return any(each["type"] == "Complete" and each["status"] == "True" for each in conditions)


def is_suspended(stage: Stage, name: str) -> bool:
    return bool(stage.get("Job", name)["spec"].get("suspend"))


def is_resumed(stage: Stage, name: str) -> bool:
    """Tell whether a Job is not suspended; not so before the record has it."""
    return any(name_of(found) == name and not found["spec"].get("suspend") for found in stage.all("Job"))


def waits(stage: Stage, name: str, reason: str) -> str:
    """The words for which a Job waits suspended, at rest, without a pod and without a clock that runs."""
    stage.settle()
    status, found, message = stage.condition("Admitted", name, of="PodGroup")
    assert (status, found) == ("False", reason), message
    assert not pods_of(stage, name)
    assert is_suspended(stage, name)
    assert "startTime" not in stage.get("Job", name)["status"]
    return message


def test_two_jobs_when_a_quota_holds_one_and_a_half_of_them_run_one_after_the_other(gangs: Stage) -> None:
    gangs.nodes()
    gangs.quota("few", pods=6)
    create(gangs, "first", 4)
    create(gangs, "second", 4)
    gangs.settle()
    assert is_done(gangs, "first")
    assert is_done(gangs, "second")
    assert max(len(_live(gangs, event.version)) for event in gangs.history("Pod")) == 4


def _live(stage: Stage, version: int) -> set[str]:
    """UIDs of the pods that were there, and had not ended, at a version."""
    found: dict[str, bool] = {}
    for event in stage.history("Pod"):
        if event.version <= version:
            phase = event.object.get("status", {}).get("phase")
            found[event.object["metadata"]["uid"]] = event.change != "DELETED" and phase not in {"Succeeded", "Failed"}
    return {uid for uid, is_live in found.items() if is_live}


def test_job_when_its_gang_has_no_nodes_waits_without_pods_and_its_deadline_does_not_run(gangs: Stage) -> None:
    gangs.nodes(nodes=1)
    create(gangs, "large", 2, cpu="90", activeDeadlineSeconds=1)
    assert "2" in waits(gangs, "large", "Infeasible")
    gangs.advance(600)
    waits(gangs, "large", "Infeasible")


def test_job_when_its_user_has_suspended_it_stays_so(gangs: Stage) -> None:
    gangs.nodes()
    create(gangs, "mine", 2, suspend=True)
    gangs.advance(600)
    assert is_suspended(gangs, "mine")
    assert not gangs.all("PodGroup")
    assert gangs.never("Pod", lambda _: True)
    # Once its user resumes it, it is in the queue like any other.
    gangs.patch("Job", "mine", {"spec": {"suspend": False}})
    gangs.settle()
    assert is_done(gangs, "mine")


def test_job_when_its_user_suspends_it_while_it_runs_stays_so(gangs: Stage) -> None:
    gangs.nodes()
    create(gangs, "mine", 2, completions=500)
    gangs.await_event(lambda: any(map(node_of, pods_of(gangs, "mine"))), "it runs")
    gangs.patch("Job", "mine", {"spec": {"suspend": True}})
    gangs.settle()
    assert gangs.get("Job", "mine")["metadata"]["annotations"][QUEUED] == "false"
    assert not pods_of(gangs, "mine")
    assert not gangs.all("PodGroup")


def test_job_when_it_is_kueue_s_is_not_touched(gangs: Stage) -> None:
    gangs.nodes()
    create(gangs, "theirs", 2, labels={"kueue.x-k8s.io/queue-name": "q"}, suspend=True)
    create(gangs, "resumed", 2, labels={"kueue.x-k8s.io/queue-name": "q"})
    gangs.settle()
    assert is_suspended(gangs, "theirs")
    assert not gangs.writes("operator", "patch", "jobs")
    assert is_done(gangs, "resumed")


@pytest.mark.parametrize("write", range(1, 8))
def test_job_when_the_operator_dies_on_its_way_has_its_gang_run_once(gangs: Stage, write: int) -> None:
    gangs.nodes()
    gangs.quota("few", pods=6)
    gangs.kill("operator", at=write)
    create(gangs, "first", 4)
    gangs.settle()
    assert is_done(gangs, "first")
    assert gangs.get("Job", "first")["status"]["succeeded"] == 4
    assert len([pod for pod in gangs.history("Pod") if pod.change == "ADDED"]) == 4


def test_job_when_its_pods_do_not_come_in_time_is_suspended_again_and_holds_nothing(gangs: Stage) -> None:
    """A policy denies them that lets a dry run pass: what was reserved is free for others, and it is tried again."""
    gangs.nodes(nodes=1)
    deny_pods(gangs)
    create(gangs, "denied", 2, cpu="40", activeDeadlineSeconds=3600)
    gangs.await_event(lambda: is_resumed(gangs, "denied"), "it is resumed")
    gangs.advance(60)
    assert is_suspended(gangs, "denied")
    assert "startTime" not in gangs.get("Job", "denied")["status"]
    assert any("0 of the 2 pods of its minimum exist" in note for note in gangs.event_notes("GangSuspended"))
    create(gangs, "other", 2, cpu="40")
    gangs.await_event(lambda: is_done(gangs, "other"), "the other has run")
    allow_pods(gangs)
    gangs.advance(60)
    gangs.await_event(lambda: is_done(gangs, "denied"), "it has run as well")


def deny_pods(stage: Stage) -> None:
    """Deny pods of the Job ``denied`` in the namespace, but in a dry run."""
    label = "object.metadata.?labels[?'job-name'].orValue('')"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}},
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            ],
        },
        "validations": [
            {"expression": f"request.?dryRun.orValue(false) || {label} != 'denied'", "message": "not here"}
        ],
    }
    common = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "deny-pods"}}
    binding = {"policyName": "deny-pods", "validationActions": ["Deny"]}
    stage.cluster.apply(
        [
            {**common, "kind": "ValidatingAdmissionPolicy", "spec": spec},
            {**common, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
        ]
    )
    stage.after(lambda: allow_pods(stage))
    body = {
        "metadata": {"name": "probe", "labels": {"job-name": "denied"}},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    }

    def denied() -> bool:
        try:
            stage.cluster.api("POST", stage.path("Pod"), body)
        except ApiException:
            return True
        stage.cluster.delete(f"{stage.path('Pod', 'probe')}?gracePeriodSeconds=0")
        return False

    eventually(denied, 60, "the policy is in force")


def allow_pods(stage: Stage) -> None:
    """End that."""
    kinds = "validatingadmissionpolicy/deny-pods", "validatingadmissionpolicybinding/deny-pods"
    stage.cluster.kubectl("delete", "--ignore-not-found", *kinds)


def test_two_jobs_when_nodes_hold_one_and_a_half_of_them_run_one_after_the_other(gangs: Stage) -> None:
    """The places of the first are reserved before its pods are there, from the second as from anybody."""
    gangs.nodes(nodes=1)
    for name in ("first", "second"):
        create(gangs, name, 2, cpu="40")
    gangs.settle()
    assert is_done(gangs, "first")
    assert is_done(gangs, "second")
    assert max(len(_live(gangs, event.version)) for event in gangs.history("Pod")) == 2
    assert not gangs.event_notes("GangSuspended")


def test_job_when_the_scheduler_dies_between_its_resumption_and_its_pins_has_its_gang_run(gangs: Stage) -> None:
    gangs.nodes(nodes=1)
    deny_pods(gangs)
    create(gangs, "denied", 2, cpu="40")
    gangs.await_event(lambda: is_resumed(gangs, "denied"), "it is resumed")
    gangs.kill_now("scheduler")
    gangs.kill_now("operator")
    allow_pods(gangs)
    gangs.advance(180)
    gangs.await_event(lambda: is_done(gangs, "denied"), "it has run")


def test_jobs_when_they_are_released_are_resumed_without_the_mark_and_those_of_their_users_stay(gangs: Stage) -> None:
    gangs.nodes(nodes=1)
    create(gangs, "large", 2, cpu="90")
    create(gangs, "mine", 2, suspend=True)
    waits(gangs, "large", "Infeasible")
    released = f'job.batch "large" resumed in {gangs.namespace} namespace\n'
    assert run_covey(gangs, "release-jobs", "-n", gangs.namespace) == (0, released)
    gangs.settle()
    assert not is_suspended(gangs, "large")
    assert QUEUED not in gangs.get("Job", "large")["metadata"].get("annotations", {})
    assert all(map(is_gated, pods_of(gangs, "large")))
    gangs.advance(120)
    assert len(pods_of(gangs, "large")) == 2
    assert is_suspended(gangs, "mine")
    said = "No Job that Covey suspends found.\n"
    assert run_covey(gangs, "release-jobs", "-n", gangs.namespace) == (0, said)


def test_two_jobs_when_each_holds_a_part_of_a_quota_name_each_other_and_the_younger_gives_its_pods_back(
    gangs: Stage,
) -> None:
    """Jobs that Covey does not suspend: their pods are there, as far as the quota lets them."""
    gangs.nodes()
    # Six pods in all; until each has three, no more of either.
    gangs.quota("few", pods=6)
    for name in ("first", "second"):
        scope = {"scopeName": "PriorityClass", "operator": "In", "values": [gangs.priority_class(name, 1)]}
        spec = {"hard": {"pods": "3"}, "scopeSelector": {"matchExpressions": [scope]}}
        gangs.cluster.api("POST", gangs.path("ResourceQuota"), {"metadata": {"name": name}, "spec": spec})
    gangs.settle()
    for name in ("first", "second"):
        theirs = {"kueue.x-k8s.io/queue-name": "q"}
        create(gangs, name, 4, labels=theirs, pod={"priorityClassName": name})
        gangs.await_event(lambda name=name: len(pods_of(gangs, name)) == 3, f"the quota of {name} is full")
    gangs.outlive_second_of(gangs.get("Job", "second"))
    for name in ("first", "second"):
        gangs.delete("ResourceQuota", name)
    gangs.advance(40)
    assert "second lacks pods as well" in gangs.condition("Admitted", "first", of="PodGroup")[2]
    assert "first lacks pods as well" in gangs.condition("Admitted", "second", of="PodGroup")[2]
    gangs.advance(30)
    notes = [each.object["metadata"].get("annotations", {}) for each in gangs.history("Pod")]
    assert sum(note.get("scheduling.covey.dev/release") == "GivenBack" for note in notes) >= 3
    gangs.await_event(lambda: is_done(gangs, "first") or is_done(gangs, "second"), "one of them has run")


def test_job_when_it_is_deleted_without_its_pods_leaves_them_where_they_are_and_they_hold_no_room(gangs: Stage) -> None:
    """As ``kubectl delete --cascade=orphan``, before kube-scheduler has bound what is pinned: nobody lets them go any more."""
    gangs.nodes(nodes=1)
    with gangs.away("kube-scheduler"):
        create(gangs, "left", 2, cpu="40", labels={"kueue.x-k8s.io/queue-name": "q"})
        gangs.await_event(lambda: len(list(filter(pin_of, gangs.pods()))) == 2, "its pods are pinned")
        gangs.delete("Job", "left", policy="Orphan")
        gangs.await_event(lambda: not gangs.all("Job") + gangs.all("PodGroup"), "Job and group are gone")
    create(gangs, "next", 2, cpu="40")
    gangs.settle()
    assert is_done(gangs, "next")
    assert [node_of(pod) for pod in pods_of(gangs, "left")] == ["", ""]
