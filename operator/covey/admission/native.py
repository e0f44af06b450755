"""Kubernetes' own groups (``scheduling.k8s.io``) as Covey's: the one adapter for whatever controller makes them. Pure.

Job's ``spec.scheduling``, LeaderWorkerSet, JobSet and Grove write the same kinds, whose specs have the fields of
Covey's own. A native group gets a name that no object can have, so that a namesake of ``scheduling.covey.dev`` is
another group, and nobody can write it as the label of a pod. Labels, annotations and owners are left out: they say
nothing here, and in upstream's API whoever may create pods in a namespace may make them members of its groups.

A pod is a member if it names its group (``spec.schedulingGroup``) and has Covey's gate, or had it until Covey lifted
it. Every other pod with a group is whoever's it was; so are those of a DisaggregatedInference with the backend
Kubernetes, whose gate the operator lifts for kube-scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from covey.api import core
from covey.api.constants import (
    ADMITTED,
    ANNOTATION_PINNED,
    LABEL_INDEX,
    LABEL_INFERENCE,
    LABEL_POD_GROUP,
    LABEL_REPLICA,
    MOVABLE,
    SCHEDULED,
    TOPOLOGY_SATISFIED,
)
from covey.model import podstate

G = TypeVar("G", bound=core.Group)

#: No name of an object, and no value of a label, has a slash.
_NAME: Final = "scheduling.k8s.io/{}"
#: The conditions that Covey writes; those of others are theirs.
_OURS: Final = frozenset({ADMITTED, SCHEDULED, TOPOLOGY_SATISFIED, MOVABLE})

#: Labels by which our operator numbers places. Of pods numbered alike one counts, and these are anybody's.
_NUMBERS: Final = frozenset({LABEL_REPLICA, LABEL_INDEX})

#: Upstream takes ``basic`` of a group below another for a minimum of 1; Covey's own trees mean "outside the gang" by it.
_ONE_GROUP: Final = core.SchedulingPolicy(core.GangPolicy(min_group_count=1))
_ONE_POD: Final = core.SchedulingPolicy(core.GangPolicy(min_count=1))


class Spec(core.GroupSpec, frozen=True):
    """The spec of a native group: Covey's fields, and one that it cannot carry."""

    resource_claims: tuple[dict[str, Any], ...] | None = None


class StoredGroup(core.Group, frozen=True):
    """A native group as the API server has it; items of a list say no kind."""

    spec: Spec = Spec()


class MemberPod(core.Pod, frozen=True):
    """A pod; one that is a member of a native group names it by Covey's label."""

    def __post_init__(self) -> None:
        """Set the label."""
        super().__post_init__()
        meta, group = self.metadata, (self.spec.scheduling_group or {}).get("podGroupName")
        if not group or meta.label(LABEL_POD_GROUP) is not None:
            return
        waits = podstate.is_gated(self) and meta.label(LABEL_INFERENCE) is None
        if waits or meta.annotation(ANNOTATION_PINNED) == meta.uid:
            labels = {name: value for name, value in (meta.labels or {}).items() if name not in _NUMBERS}
            labels[LABEL_POD_GROUP] = _NAME.format(group)
            msgspec.structs.force_setattr(self, "metadata", msgspec.structs.replace(meta, labels=labels))


def is_member(pod: core.Pod) -> bool:
    """Tell whether a pod names a native group, which need not exist."""
    return "/" in (pod.metadata.label(LABEL_POD_GROUP) or "")


def adapt(kind: str, api_version: str, stored: StoredGroup) -> core.NativeGroup:
    """A native group as one of Covey's."""
    meta, spec = stored.metadata, stored.spec
    policy, below = spec.scheduling_policy, spec.parent_composite_pod_group_name is not None
    is_one_of = kind == "CompositePodGroup" and policy.gang is None and below
    constraints, parent = spec.scheduling_constraints, spec.parent_composite_pod_group_name
    return core.NativeGroup(
        metadata=core.Meta(
            name=_NAME.format(meta.name),
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            generation=meta.generation,
            creation_timestamp=meta.creation_timestamp,
        ),
        kind=kind,
        api_version=api_version,
        spec=core.GroupSpec(
            scheduling_policy=_ONE_GROUP if is_one_of else policy,
            membership="Namespace",
            parent_composite_pod_group_name=_NAME.format(parent) if parent else None,
            scheduling_constraints=core.SchedulingConstraints(topology=constraints.topology) if constraints else None,
            priority_class_name=spec.priority_class_name,
            priority=spec.priority,
        ),
        status=core.GroupStatus(
            conditions=tuple(condition for condition in stored.status.conditions or () if condition.type in _OURS)
            or None
        ),
        original=meta.name,
        is_one_of=is_one_of,
        refusal=_find_refusal(kind, stored),
    )


def adapt_children(parent: core.NativeGroup, children: list[core.Group]) -> list[core.Group]:
    """The groups under a native group: upstream's ``basic`` below a group that is ``basic`` itself asks for one pod."""
    if not parent.is_one_of:
        return children
    return [_with_policy(child, _ONE_POD) if child.spec.scheduling_policy.gang is None else child for child in children]


def adapt_root(group: G, pods: Iterable[core.Pod]) -> G:
    """A PodGroup of another controller, without a parent, as what it is now: a gang, or ``basic``.

    It is a gang whenever no member runs, and at least its minimum waits. While one runs, what comes is placed one by one:
    pods end and come anew one by one, as a Job's do, and the minimum might never be met again. So it is in upstream, too
    (``PodGroupInitiallyScheduled``), which remembers it; this is read from the present.

    Of a labelled Job the operator keeps the minimum at what is left of it. That of a native group stays, so fewer pods
    than that are its last ones where others have ended.
    """
    if group.kind != "PodGroup" or (gang := group.spec.scheduling_policy.gang) is None:
        return group
    there = list(podstate.members(group, pods))
    basic = core.SchedulingPolicy(basic={})
    if any(podstate.occupies_node(pod) and not podstate.is_terminating(pod) for pod in there):
        return _with_policy(group, basic)
    if isinstance(group, core.NativeGroup) and sum(map(podstate.counts, there)) < (gang.min_count or 0):
        has_ended = any(pod.spec.node_name and not podstate.is_terminating(pod) for pod in there)
        return msgspec.structs.replace(_with_policy(group, basic), is_rest=True) if has_ended else group
    return group


def _with_policy(group: G, policy: core.SchedulingPolicy) -> G:
    return msgspec.structs.replace(group, spec=msgspec.structs.replace(group.spec, scheduling_policy=policy))


def _find_refusal(kind: str, stored: StoredGroup) -> str | None:
    if not stored.spec.resource_claims:
        return None
    return (
        f"spec.resourceClaims of {kind} {stored.metadata.name}: Covey plans no claims that the pods of a group"
        " share; give each pod its own, or leave the group to kube-scheduler"
    )


def keep_conditions(status: dict[str, Any]) -> dict[str, Any]:
    """The part of a group's status that a native group has room for."""
    return {"conditions": status["conditions"]}


def find_unread(pod: core.Pod) -> str | None:
    """The reason for which the group that a pod names is not read: in Kubernetes 1.35 it is no object and has no status.

    Whether it waits, and why, could be said nowhere.
    """
    meta, reference = pod.metadata, pod.spec.workload_ref
    others = meta.label(LABEL_POD_GROUP) is not None or meta.label(LABEL_INFERENCE) is not None
    if not reference or others or not podstate.is_gated(pod):
        return None
    return (
        f"spec.workloadRef names {reference.get('podGroup')} of Workload {reference.get('name')}: Covey reads the groups of"
        f" scheduling.k8s.io from Kubernetes 1.36 on; before that make a PodGroup of scheduling.covey.dev, and give its"
        f" pods the label {LABEL_POD_GROUP}"
    )


def obstacle(pod: core.Pod) -> str | None:
    """The reason for which a member of a native group is not planned beside a kube-scheduler of the user's.

    That one may know the groups too: nobody can see its feature gates. It would hold each pod of a gang that it has not
    seen whole, and undo places of its own accord.

    Args:
        pod: an unbound member of any group.
    """
    if pod.spec.scheduling_group is None:
        return None
    return (
        f"pod {pod.metadata.name} is of a group of scheduling.k8s.io, which the kube-scheduler that calls Covey may plan"
        " as well (mode Existing): install Covey in mode Dedicated"
    )
