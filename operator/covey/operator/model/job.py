"""Gangs of Jobs: the groups that a labelled Job has, from the Job and the groups that are there. Pure.

The label ``covey.dev/gang`` says how many pods start together: ``"true"`` for ``parallelism``, or a number. The admission
policy of the chart has prepared the Job's template; a Job whose template does not name its own group is left alone.

A gang counts until it was bound once. From then on the group is ``basic``: later pods, of further completions or in
place of failed ones, are placed one by one, since a Job that is nearly done has fewer pods than its minimum for good.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from covey.api import constants as names
from covey.api import core
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


class Template(core.Read, frozen=True):
    """The pods' template."""

    metadata: core.Meta = core.Meta()
    spec: TemplateSpec = TemplateSpec()


class JobSpec(core.Read, frozen=True):
    """``spec`` of a Job."""

    parallelism: int = 1
    completions: int | None = None
    suspend: bool = False
    template: Template = Template()


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
    def pod_count(self) -> int:
        """Pods that the Job controller makes at a time; 0 where the Job has no group."""
        ended = any(core.condition(self.status.conditions, kind) for kind in ("Complete", "Failed"))
        is_member = self.spec.template.metadata.label(names.LABEL_POD_GROUP) == self.metadata.name
        if self.spec.suspend or ended or not is_member or self.metadata.deletion_timestamp is not None:
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
    """The fields of the PodGroup's spec that change with the Job, as long as the gang has not been bound."""
    return {"schedulingPolicy": {"gang": {"minCount": job.minimum}}, "desiredCount": job.pod_count}


def group_patch(job: Job, stored: Owned, pods: Iterable[core.Pod]) -> Object:
    """The merge patch that brings a PodGroup up to date; empty where it is.

    Args:
        job: one that wants pods.
        stored: its PodGroup.
        pods: the Job's.
    """
    was_bound = "basic" in stored.spec["schedulingPolicy"] or any(_is_bound_since(stored, job, pod) for pod in pods)
    wanted: Object = {"schedulingPolicy": {"basic": {}}} if was_bound else gang_spec(job)
    policy = {"gang": None, "basic": None, **wanted["schedulingPolicy"]}
    patch = {"desiredCount": None, **wanted, "schedulingPolicy": policy}
    return (
        {}
        if wanted.items() <= stored.spec.items() and patch["desiredCount"] == stored.spec.get("desiredCount")
        else patch
    )


def make_groups(job: Job) -> tuple[Object, Object]:
    """The Workload and the PodGroup of a Job."""
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
    priority_class = job.spec.template.spec.priority_class_name
    common = gang_spec(job) | ({"priorityClassName": priority_class} if priority_class else {})
    workload = {
        "controllerRef": {"apiGroup": JOBS.group, "kind": JOBS.kind, "name": name},
        "podGroupTemplates": [{"name": TEMPLATE, **common}],
    }
    group = {"workloadRef": {"workloadName": name, "templateName": TEMPLATE}, **common}
    return (
        {"apiVersion": WORKLOADS.api_version, "kind": WORKLOADS.kind, "metadata": metadata, "spec": workload},
        {"apiVersion": POD_GROUPS.api_version, "kind": POD_GROUPS.kind, "metadata": metadata, "spec": group},
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


def _is_bound_since(group: Owned, job: Job, pod: core.Pod) -> bool:
    """Tell whether a pod was bound in the time of its group, even if it has ended since: members are bound all or none.

    A Job that was suspended has pods of its former group still; those that were bound within the second in which the group
    was made count as its own.
    """
    scheduled = core.condition(pod.status.conditions, "PodScheduled")
    owner = pod.metadata.controller
    return (
        pod.spec.node_name is not None
        and (owner is not None and owner.uid == job.metadata.uid)
        and scheduled is not None
        and (scheduled.last_transition_time or "") >= group.metadata.creation_timestamp
    )


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
        f"Covey gave up the place of the pod before it was bound: {pod.metadata.annotation(names.ANNOTATION_RELEASE)}"
    )
    times = {"DisruptionTarget": core.rfc3339(now), "Ready": pod.metadata.creation_timestamp}
    told = {"reason": "Released", "message": message}
    conditions = [
        {"type": kind, "status": "True" if kind == "DisruptionTarget" else "False", "lastTransitionTime": time, **told}
        for kind, time in times.items()
    ]
    return {"phase": "Failed", **told, "conditions": conditions}
