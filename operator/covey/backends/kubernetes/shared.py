"""Common parts of all dialects of Kubernetes' own groups: kinds, parts of objects, and what none of them carries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from covey.api import constants as names
from covey.api.inference import DisaggregatedInferenceSpec, DisruptionMode, Proximity
from covey.api.roles import Role
from covey.backends.extender_only import refused_starts, refused_vectors
from covey.backends.seam import FieldProbe
from covey.compile import Levels, Owner
from covey.compile.groups import Object
from covey.kube import resources
from covey.kube.resources import Resource

GROUP: Final = "scheduling.k8s.io"
#: Kubernetes 1.37. Of the two versions that it serves this one is to stay.
WORKLOADS: Final = Resource(GROUP, "v1beta1", "workloads", "Workload")
POD_GROUPS: Final = resources.NATIVE_POD_GROUPS
#: Of Kubernetes 1.37, and of 1.38, whose API server may have both.
COMPOSITE_POD_GROUPS: Final = resources.NATIVE_COMPOSITE_POD_GROUPS
COMPOSITE_POD_GROUPS_1_38: Final = Resource(GROUP, "v1beta1", "compositepodgroups", "CompositePodGroup")

#: ``WorkloadMaxPodGroupTemplates``: templates in one list of a Workload.
MOST_TEMPLATES: Final = 8
#: ``permitTimeoutDuration`` of the plugin GangScheduling, in seconds; nothing sets it.
PERMIT_TIMEOUT: Final = 300
_EXTENDER: Final = "or use backend Extender"


def key_of(level: str, levels: Levels | None) -> str:
    """The node label key of a level; the level itself where no topology is known (objects that are only printed)."""
    return levels[level][0] if levels and level in levels else level


def is_finer(level: str, other: str | None, levels: Levels | None) -> bool:
    """Tell whether a level asks for more than another one does, as far as is known."""
    if other is None:
        return True
    order = tuple(levels or ())
    return level not in order or other not in order or order.index(level) > order.index(other)


def replica_level(role: Role, spec: DisaggregatedInferenceSpec, levels: Levels | None) -> str | None:
    """The level whose domain all pods of a replica share; None where it adds nothing to the unit's own."""
    required = role.topology.required
    if required is None:
        return None
    unit = spec.topology.required if role.topology.follow_unit else None
    return required if is_finer(required, unit, levels) else None


def object_of(kind: Resource, metadata: Object, spec: Object) -> Object:
    """An object of a kind."""
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def controller_of(owner: Owner) -> Object:
    """``controllerRef`` of a Workload."""
    return {"apiGroup": names.INFERENCE_GROUP, "kind": "DisaggregatedInference", "name": owner.name}


def constraints(level: str | None, levels: Levels | None) -> Object:
    """``schedulingConstraints``, where a level is required: one key of a node label, which is all that they take."""
    return {"schedulingConstraints": {"topology": [{"key": key_of(level, levels)}]}} if level else {}


def priority_fields(spec: DisaggregatedInferenceSpec) -> Object:
    """The PriorityClass, at every level. Admission adds its number and its preemption policy."""
    return {"priorityClassName": spec.priority_class_name} if spec.priority_class_name else {}


def disruption_of(spec: DisaggregatedInferenceSpec) -> DisruptionMode:
    """Return what preemption may take at a time, the API's default where nothing is said."""
    return spec.disruption_mode or DisruptionMode.UNIT


def refused_fields(spec: DisaggregatedInferenceSpec, levels: Levels | None) -> Iterator[str]:
    """Yield the refusals that all dialects have in common: one sentence each."""
    if spec.queue is not None:
        yield "spec.queue is for backends Extender and Volcano: remove it"
    if spec.gang.timeout_seconds != PERMIT_TIMEOUT:
        yield (
            f"spec.gang.timeoutSeconds is {spec.gang.timeout_seconds}, but kube-scheduler waits {PERMIT_TIMEOUT} seconds, "
            f"whatever is asked for: remove it, {_EXTENDER}"
        )
    if spec.disruption is not None and spec.disruption.hold_seconds:
        yield f"spec.disruption.holdSeconds: kube-scheduler holds no capacity for what was lost: remove it, {_EXTENDER}"
    if spec.preemption is not None:
        yield (
            "spec.preemption: kube-scheduler preempts by its own rules, without a delay and whatever has just begun to "
            f"serve: remove it, {_EXTENDER}"
        )
    yield from refused_vectors(spec, "kube-scheduler plans no replicas that are still to come")
    if spec.spread is not None:
        yield f"spec.spread cannot be said to kube-scheduler, which keeps no groups apart: remove it, {_EXTENDER}"
    for rule in spec.proximity:
        if not _is_kept_anyway(rule, spec, levels):
            yield (
                f"spec.proximity of {' and '.join(rule.roles)} cannot be said to kube-scheduler, which keeps no roles "
                f"together but those of a whole unit: use spec.topology.required, {_EXTENDER}"
            )
    yield from refused_starts(spec, "kube-scheduler")
    yield from _refused_levels("spec.topology", spec.topology.required, spec.topology.preferred, levels)
    for role in spec.roles:
        path = f"spec.roles[{role.name}].topology"
        yield from _refused_levels(path, role.topology.required, role.topology.preferred, levels)


def _is_kept_anyway(rule: Proximity, spec: DisaggregatedInferenceSpec, levels: Levels | None) -> bool:
    """Tell whether the unit's own level keeps these roles together."""
    unit = spec.topology.required
    follow = all(role.topology.follow_unit for role in spec.roles if role.name in rule.roles)
    return unit is not None and follow and not is_finer(rule.level, unit, levels)


def _refused_levels(path: str, required: str | None, preferred: str | None, levels: Levels | None) -> Iterator[str]:
    if preferred is not None:
        yield (
            f"{path}.preferred cannot be said to kube-scheduler, whose groups know required levels only: remove it, "
            f"{_EXTENDER}"
        )
    if required is None:
        return
    if levels is None:
        yield (
            f"{path}.required names level {required}, but there is no ClusterTopology to say which node label that is, "
            f"and none is detected for kube-scheduler: create one, {_EXTENDER}"
        )
    elif len(levels.get(required, ("",))) > 1:
        yield (
            f"{path}.required names level {required}, which has several keys ({', '.join(levels[required])}), but "
            f"kube-scheduler takes one: give the level one key, {_EXTENDER}"
        )


def refused_single_pods(role: Role, spec: DisaggregatedInferenceSpec, levels: Levels | None) -> Iterator[str]:
    """A level of a role of single pods only asks that a pod's node has it, for which a group has no word."""
    if role.size == 1 and replica_level(role, spec, levels) is not None:
        yield (
            f"spec.roles[{role.name}].topology.required asks on a role of size 1 that nodes have level "
            f"{role.topology.required}, for which kube-scheduler's groups have no word: remove it and select those nodes "
            "in the template"
        )


def pod_probe(name: str, membership: Mapping[str, Any], path: tuple[str | int, ...]) -> FieldProbe:
    """A pod that any namespace admits, with what ties a pod to its group: kept only where a feature gate is on."""
    quantities = {"cpu": "1m", "memory": "1Mi"}
    container = {
        "name": "probe",
        "image": "probe",
        "resources": {"requests": quantities, "limits": quantities},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "containers": [container],
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
        **membership,
    }
    metadata = {"name": "covey-probe"}
    return FieldProbe(
        name, resources.PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, path
    )


#: That a pod may name its group, from Kubernetes 1.36 on.
MEMBER: Final = pod_probe(
    "kubernetes-pod-scheduling-group",
    {"schedulingGroup": {"podGroupName": "covey-probe"}},
    ("spec", "schedulingGroup", "podGroupName"),
)
