"""RoleBasedGroup (``workloads.x-k8s.io/v1alpha2``): one unit, whose roles are those of the group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from covey.convert.disaggregatedset import NO_GANG
from covey.convert.draft import Draft, Object
from covey.convert.fields import ConversionError, Fields
from covey.convert.leaderworkerset import ONLY_OWN, budgets
from covey.convert.replica_template import PodPart, ReplicaTemplate, leader_and_workers, replica_of
from covey.convert.strategic_merge import apply_merge
from covey.convert.templates import Template, add_labels, remark_on, template_of, with_variables

GROUP: Final = "workloads.x-k8s.io"
_PREFIX: Final = "rbg.workloads.x-k8s.io/"
_GANG: Final = f"{_PREFIX}group-gang-scheduling"
_PATTERNS: Final = ("standalonePattern", "leaderWorkerPattern", "customComponentsPattern")
_RESTARTS: Final = {"None": "None", "RecreateRoleInstanceOnPodRestart": "RecreateReplica"}
_IN_PLACE: Final = {"RecreatePod": "Never", "InPlaceIfPossible": "IfPossible"}
_VARIABLES: Final = {"RBG_ROLE_NAME": "$(COVEY_ROLE)", "RBG_ROLE_INDEX": "$(COVEY_REPLICA)"}
_WITH_LEADER: Final = {
    **_VARIABLES,
    "RBG_LWP_LEADER_ADDRESS": "$(COVEY_LEADER_ADDRESS)",
    "RBG_LWP_WORKER_INDEX": "$(COVEY_INDEX)",
    "RBG_LWP_GROUP_SIZE": "$(COVEY_SIZE)",
}


def convert(document: Fields, draft: Draft) -> None:
    """Convert a RoleBasedGroup."""
    annotations = draft.take_metadata(document)
    spec = document.child("spec")
    draft.spec["replicas"] = 1
    whole = _gang(annotations, draft)
    _exclusive(annotations, draft)
    shared = _shared_templates(spec)
    before: dict[str, tuple[Fields, Object]] = {}
    for source in spec.each("roles"):
        role = _role(source, shared, draft, whole=whole)
        before[source.text("name")] = (source, role)
    for source, role in before.values():
        _dependencies(source, role, before, draft)
    if not whole:
        draft.remark("spec.roles", *NO_GANG)


def _gang(annotations: Fields, draft: Draft) -> bool:
    """Convert the annotations of the gang, and tell whether all pods of the group are one gang."""
    whole = annotations.text(_GANG) == "true"
    timeout, priority, queue = (f"{_GANG}-{end}" for end in ("timeout", "volcano-priority", "volcano-queue"))
    if timeout in annotations:
        text = annotations.text(timeout)
        seconds: Any = int(text) if text.isdecimal() else text
        draft.wish(annotations.at(timeout), None, "gang.timeoutSeconds", seconds)
    if name := annotations.text(priority):
        draft.spec["priorityClassName"] = name
    if name := annotations.text(queue):
        draft.wish(annotations.at(queue), None, "queue", name)
    return whole


def _exclusive(annotations: Fields, draft: Draft) -> None:
    key = f"{_PREFIX}group-exclusive-topology"
    label = annotations.text(key)
    level = draft.level_of(annotations.at(key), label) if label else None
    if level:
        draft.constrain(draft.spec, level, None)
        draft.remark(annotations.at(key), *ONLY_OWN)


def _shared_templates(spec: Fields) -> dict[str, Fields]:
    return {shared.text("name"): shared for shared in spec.each("roleTemplates")}


def _role(source: Fields, shared: Mapping[str, Fields], draft: Draft, *, whole: bool) -> Object:
    replicas = source.number("replicas", 1)
    annotations = source.child("annotations")
    alone = annotations.text(f"{_PREFIX}role-disable-exclusive") == "true"
    annotations.settle(f"{_PREFIX}role-instance-gang-scheduling", "true")  # a replica is always whole
    role = draft.add_role(
        source.at("name"),
        source.text("name"),
        replicas=replicas,
        minReplicas=replicas if whole else min(1, replicas),
        topology={"followUnit": False} if alone else None,
        **_replica(source, shared, draft).fields(),
    )
    _update(source.child("rolloutStrategy"), role, draft)
    _ports(source, role, draft)
    if source.child("scalingAdapter").flag("enable"):
        draft.wish(source.at("scalingAdapter"), role, "scaling.mode", "External")
    source.settle("minReadySeconds", 0)
    source.settle("podManagementPolicy", "Parallel")
    for pattern in map(source.child, _PATTERNS):
        for key in ("restartPolicyConfig", "restartPolicy"):  # the examples' name, and the Go type's
            _restart(pattern.child(key), role, draft)
    return role


def _restart(source: Fields, role: Object, draft: Draft) -> None:
    if policy := source.meaning("type", _RESTARTS):
        draft.wish(source.at("type"), role, "restart.policy", policy)
    if "baseDelaySeconds" in source:
        draft.wish(
            source.at("baseDelaySeconds"), role, "restart.backoff.baseSeconds", source.number("baseDelaySeconds", 0)
        )
    if "maxDelaySeconds" in source:
        draft.wish(
            source.at("maxDelaySeconds"), role, "restart.backoff.maxSeconds", source.number("maxDelaySeconds", 0)
        )


def _replica(source: Fields, shared: Mapping[str, Fields], draft: Draft) -> ReplicaTemplate:
    given = [key for key in _PATTERNS if key in source]
    if len(given) != 1:
        what = f"has {' and '.join(given) if given else 'no pattern'}"
        raise ConversionError(source.path, what, f"give it one of {', '.join(_PATTERNS)}")
    pattern = source.child(given[0])
    if given[0] == "customComponentsPattern":
        components = pattern.each("components")
        parts = [_component(component, draft) for component in components]
        replica = replica_of(pattern.at("components"), parts)
        if replica.leader and components[0].text("name") != replica.leader:
            draft.remark(pattern.at("components"), f"{replica.leader} is pod 0 of a replica, the leader")
        return replica
    if given[0] == "standalonePattern":
        return ReplicaTemplate(1, _template(pattern, shared, _VARIABLES, draft))
    template = _template(pattern, shared, _WITH_LEADER, draft)
    pattern.settle("sharedServiceSelection", "All")
    leader, worker = (
        apply_merge(template, pattern.take(key), pattern.at(key)) if key in pattern else template
        for key in ("leaderTemplatePatch", "workerTemplatePatch")
    )
    return leader_and_workers(pattern.number("size", 1), leader, worker)


def _component(source: Fields, draft: Draft) -> PodPart:
    template = _with_known_variables(
        template_of(source.child("template"), draft), source.at("template"), _VARIABLES, draft
    )
    for key in ("labels", "annotations"):
        template = add_labels(template, key, source.strings(key))
    return PodPart(source.text("name"), source.number("size", 1), template)


def _template(pattern: Fields, shared: Mapping[str, Fields], variables: Mapping[str, str], draft: Draft) -> Template:
    if "templateRef" not in pattern:
        return _with_known_variables(
            template_of(pattern.child("template"), draft), pattern.at("template"), variables, draft
        )
    reference = pattern.child("templateRef")
    name = reference.text("name")
    if name not in shared:
        what = f"names {name!r}, which is not in spec.roleTemplates"
        raise ConversionError(reference.at("name"), what, "add the template, or correct the name")
    base = template_of(shared[name].child("template"), draft)
    patched = apply_merge(base, reference.take("patch") or {}, reference.at("patch"))
    return _with_known_variables(patched, reference.path, variables, draft)


def _with_known_variables(template: Template, path: str, variables: Mapping[str, str], draft: Draft) -> Template:
    """Return a template with the variables that Covey can tell, and remark on those that it cannot."""
    template = with_variables(template, variables)
    instead = "COVEY_* variables and covey.dev labels say what Covey knows"
    foreign = r"\bRBG_[A-Z_]+\b|rbg\.workloads\.x-k8s\.io/[a-z-]+"
    remark_on(draft, template, path, foreign, "means nothing to Covey", instead)
    return template


def _update(source: Fields, role: Object, draft: Draft) -> None:
    source.settle("type", "RollingUpdate")
    rolling = source.child("rollingUpdate")
    budgets(rolling, role, draft)
    if in_place := rolling.meaning("type", _IN_PLACE):
        draft.wish(rolling.at("type"), role, "update.inPlace", in_place)
    if rolling.flag("paused"):
        draft.wish(rolling.at("paused"), None, "rollout.paused", value=True)


def _ports(source: Fields, role: Object, draft: Draft) -> None:
    """Ports of the headless Service, where the number is the container's own."""
    ports = []
    for index, port in enumerate(source.each("servicePorts")):
        number, target = port.number("port", 0), port.take("targetPort")
        if isinstance(target, int) and target != number:
            draft.remark(port.at("port"), f"{number} becomes {target}, as the Service is headless", "use the latter")
            number = target
        elif target not in (None, number):
            draft.remark(port.at("targetPort"), f"{target} is no number; the Service is headless, its port is {number}")
        name, protocol = port.text("name") or f"port-{index}", port.text("protocol")
        ports.append({"name": name, "port": number, **({"protocol": protocol} if protocol else {})})
    if ports:
        role["network"] = {"ports": ports}


def _dependencies(source: Fields, role: Object, roles: Mapping[str, tuple[Fields, Object]], draft: Draft) -> None:
    names = source.texts("dependencies")
    for name in names:
        if name not in roles:
            raise ConversionError(source.at("dependencies"), f"there is no role {name}", "correct the name")
    if names:
        after = [{"role": roles[name][1]["name"], "condition": "Ready"} for name in names]
        draft.wish(source.at("dependencies"), role, "dependsOn", after)
