"""Gangs of Jobs: the groups that a labelled Job has, from the Job and the groups that are there. Pure.

The label ``covey.dev/gang`` says how many pods start together: ``"true"`` for ``parallelism``, or a number. The admission
policy of the chart has prepared the Job's template; a Job whose template does not name its own group is left alone.

From Kubernetes 1.36 on that policy suspends the Job, with a mark (``covey.dev/queued``), so that it has no pods, is
charged by no quota, and its deadline does not run before it is its turn (``model.job_queue``). What its user, or Kueue,
suspends is theirs.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from covey.api import constants as names
from covey.api import core
from covey.api.annotations import Expected, dump_expected
from covey.backends import Owned
from covey.kube.resources import JOBS, POD_GROUPS, PODS, WORKLOADS

Object = dict[str, Any]

#: One index, or the first and the last of several.
_INDEXES: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
#: Controllers whose pods are let go when they have lost their places: they make others.
_REPLACING: Final = (JOBS.kind, "StatefulSet")
#: The one template of a Job's Workload.
TEMPLATE: Final = "job"


class TemplateSpec(core.Read, frozen=True):
    """The part of a pod template that groups depend on."""

    priority_class_name: str | None = None


class JobPodTemplate(core.Read, frozen=True):
    """The pods' template."""

    metadata: core.Meta = core.Meta()
    spec: TemplateSpec = TemplateSpec()


class JobSpec(core.Read, frozen=True):
    """``spec`` of a Job."""

    parallelism: int = 1
    completions: int | None = None
    suspend: bool = False
    #: As it is written: pods are made of it.
    template: dict[str, Any] = msgspec.field(default_factory=dict)


class JobStatus(core.Read, frozen=True):
    """``status`` of a Job."""

    succeeded: int = 0
    #: As in ``1,3-5``: nobody makes pods for these any more, where each index has a back-off limit of its own.
    failed_indexes: str = ""
    conditions: tuple[core.Condition, ...] = ()


class Job(core.Read, frozen=True):
    """A Job with the label ``covey.dev/gang``."""

    metadata: core.Meta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    @property
    def template(self) -> JobPodTemplate:
        """The part of the pods' template that groups depend on."""
        return msgspec.convert(self.spec.template, JobPodTemplate)

    @property
    def is_managed(self) -> bool:
        """Covey suspends and resumes the Job: it has Covey's mark, and no queue of Kueue's."""
        mark = self.metadata.annotation(names.ANNOTATION_QUEUED)
        has_run = mark == "false" and not self.spec.suspend
        return (has_run or self.is_queued) and self.metadata.label(names.LABEL_KUEUE_QUEUE) is None

    @property
    def is_queued(self) -> bool:
        """Covey suspends the Job, until it is its turn; not so what its user has suspended since it ran."""
        return self.spec.suspend and self.metadata.annotation(names.ANNOTATION_QUEUED) == "true"

    @property
    def pod_count(self) -> int:
        """Pods that the Job controller makes at a time once it may; 0 where the Job has no group."""
        ended = any(core.condition(self.status.conditions, kind) for kind in ("Complete", "Failed"))
        is_member = self.template.metadata.label(names.LABEL_POD_GROUP) == self.metadata.name
        is_suspended = self.spec.suspend and not (self.is_queued and self.is_managed)
        if is_suspended or ended or not is_member or self.metadata.deletion_timestamp is not None:
            return 0
        if self.spec.completions is None:
            return max(0, self.spec.parallelism)
        failed = sum(
            int(last or first) - int(first) + 1 for first, last in _INDEXES.findall(self.status.failed_indexes)
        )
        return max(0, min(self.spec.parallelism, self.spec.completions - self.status.succeeded - failed))

    @property
    def minimum(self) -> int:
        """Pods of which none starts without the others."""
        written = self.metadata.label(names.LABEL_JOB_GANG) or ""
        return min(int(written), self.pod_count) if written.isdecimal() and int(written) else self.pod_count


def gang_spec(job: Job) -> Object:
    """The fields of the PodGroup's spec that change with the Job."""
    return {"schedulingPolicy": {"gang": {"minCount": job.minimum}}, "desiredCount": job.pod_count}


def group_patch(job: Job, stored: Owned, expected: Expected | None = None) -> Object:
    """The merge patch that brings a PodGroup up to date; empty where it is.

    Args:
        job: one that wants pods.
        stored: its PodGroup.
        expected: the pods that are not created before they have places.
    """
    wanted = gang_spec(job)
    patch: Object = {}
    if not wanted.items() <= stored.spec.items():
        # Former releases made a gang basic once it was bound.
        patch["spec"] = {**wanted, "schedulingPolicy": {"basic": None, **wanted["schedulingPolicy"]}}
    text = dump_expected(expected)
    if text != stored.metadata.annotation(names.ANNOTATION_EXPECTED):
        patch["metadata"] = {"annotations": {names.ANNOTATION_EXPECTED: text}}
    return patch


def make_groups(job: Job, expected: Expected | None = None) -> tuple[Object, Object]:
    """The Workload and the PodGroup of a Job; the latter tells of pods that are not created before they have places."""
    name = job.metadata.name
    owner = {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "name": name,
        "uid": job.metadata.uid,
        "controller": True,
    }
    metadata = {
        "name": name,
        "namespace": job.metadata.namespace,
        # By it they are found again.
        "labels": {names.LABEL_JOB_GANG: "true"},
        "ownerReferences": [owner],
    }
    priority_class = job.template.spec.priority_class_name
    common = gang_spec(job) | ({"priorityClassName": priority_class} if priority_class else {})
    workload = {
        "controllerRef": {"apiGroup": JOBS.group, "kind": JOBS.kind, "name": name},
        "podGroupTemplates": [{"name": TEMPLATE, **common}],
    }
    group = {"workloadRef": {"workloadName": name, "templateName": TEMPLATE}, **common}
    text = dump_expected(expected)
    notes = {"annotations": {names.ANNOTATION_EXPECTED: text}} if text is not None else {}
    return (
        {"apiVersion": WORKLOADS.api_version, "kind": WORKLOADS.kind, "metadata": metadata, "spec": workload},
        {"apiVersion": POD_GROUPS.api_version, "kind": POD_GROUPS.kind, "metadata": metadata | notes, "spec": group},
    )


def make_leader_group(leader: core.Pod) -> Object | None:
    """The PodGroup of a LeaderWorkerSet's group, which has its leader's name and goes with it; None where there is none.

    The controllers of leader and workers differ, so its members are whatever pods of the namespace name it.
    """
    meta, size = leader.metadata, leader.metadata.annotation(names.ANNOTATION_LWS_SIZE) or ""
    is_one = meta.label(names.LABEL_POD_GROUP) == meta.name and size.isdecimal() and int(size) > 0
    if not is_one or meta.deletion_timestamp is not None or core.is_terminal(leader):
        return None
    owner = {"apiVersion": PODS.api_version, "kind": PODS.kind, "name": meta.name, "uid": meta.uid, "controller": True}
    policy = {"schedulingPolicy": {"gang": {"minCount": int(size)}}, "desiredCount": int(size)}
    priority_class = leader.spec.priority_class_name
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": {names.LABEL_JOB_GANG: "true"},
            "ownerReferences": [owner],
        },
        "spec": {
            **policy,
            "membership": "Namespace",
            **({"priorityClassName": priority_class} if priority_class else {}),
        },
    }


def has_lost_place(pod: core.Pod) -> bool:
    """Tell whether the pod of another controller is to go since its pin was undone: its successor can be planned again.

    A Job's or a StatefulSet's that is a member, or one of a group of ``scheduling.k8s.io``; without a controller it would
    have no successor. Covey's own have another life.
    """
    owner, labels = pod.metadata.controller, pod.metadata.labels or {}
    return (
        owner is not None
        and owner.kind != "DisaggregatedInference"
        and (pod.spec.scheduling_group is not None or (owner.kind in _REPLACING and names.LABEL_POD_GROUP in labels))
        and pod.metadata.annotation(names.ANNOTATION_RELEASE) is not None
        and pod.metadata.deletion_timestamp is None
        and pod.spec.node_name is None
    )


def disruption(pod: core.Pod, now: float) -> Object:
    """The status of a pod that has lost its place, all in one write: a failure that the Job's policy ignores.

    The Job controller counts a pod that was deleted before it ran as failed, and looks at the conditions of a pod only
    once its phase is Failed. It makes no successor for a while after failures, ignored ones too (10 s, doubled for each pod
    since the last success, 10 minutes at most): from the time when the pod ceased to be ready, which it never was.
    """
    message = (
        f"Covey gave up the node of the pod before it was bound: {pod.metadata.annotation(names.ANNOTATION_RELEASE)}"
    )
    times = {"DisruptionTarget": core.rfc3339(now), "Ready": pod.metadata.creation_timestamp}
    cause = {"reason": "Released", "message": message}
    conditions = [
        {"type": kind, "status": "True" if kind == "DisruptionTarget" else "False", "lastTransitionTime": time, **cause}
        for kind, time in times.items()
    ]
    return {"phase": "Failed", **cause, "conditions": conditions}
