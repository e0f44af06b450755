"""The CEL rules of the CRD that a single DisaggregatedInference can break, stated in Python.

The API server evaluates them for what people write. Two readers see specs that it may never have seen: the command
line, which needs no cluster, and the operator, which finds accepted specs in ControllerRevisions. There is no CEL
interpreter among the dependencies, so each rule stands here once more; the refusals of
``tests/cluster/test_api_rules.py`` are asked of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from covey.api.inference import MOST_PODS, BackendName, DisaggregatedInferenceSpec, Routing, UnitTopology
from covey.api.interconnect import InterconnectScope
from covey.api.roles import InPlace, Restart, Role, RoleTopology, Scaling, ScalingMode, Subdomain
from covey.api.routing import EndpointPickerRef, LlmdLabels
from covey.api.template import FOR_PEOPLE, RESERVED

#: The path of a field, what is wrong with it, and what to do.
Broken = tuple[str, str, str]

_OWN: Final = "covey.dev/"


def broken_rules(spec: DisaggregatedInferenceSpec) -> Iterator[Broken]:
    """Evaluate the CRD's rules on a spec: the faults found."""
    yield from _levels("spec.topology", spec.topology)
    yield from _role_rules(spec)
    yield from broken_bounds(spec)
    known = {role.name for role in spec.roles}
    for number, rule in enumerate(spec.proximity):
        for stranger in sorted(set(rule.roles) - known):
            yield f"spec.proximity[{number}].roles", f"there is no role {stranger}", f"name some of {_list(known)}"


def _role_rules(spec: DisaggregatedInferenceSpec) -> Iterator[Broken]:
    if not any(role.min_replicas for role in spec.roles):
        yield "spec.roles", "no role has minReplicas > 0", "give at least one role a minimum: it is what starts as one"
    if sum(role.is_exchanged for role in spec.roles) == 1:
        yield (
            "spec.roles",
            "one role alone has scaling.mode Together",
            "set it on another role too, or set mode to External",
        )
    if spec.compat.llmd is LlmdLabels.ALWAYS and not any(role.capability for role in spec.roles):
        yield "spec.compat.llmd", "no role serves prefill or decode", "set serves on a role, or remove compat.llmd"
    if spec.rollout is not None and spec.rollout.routing is Routing.EXCLUSIVE:
        yield from _exclusive("spec.rollout.routing", spec)
    yield from _interconnect(spec)
    if spec.routing is not None and spec.routing.pool is not None:
        yield from _pool("spec.routing.pool", spec, spec.routing.pool.endpoint_picker_ref)
    names = [role.name for role in spec.roles]
    for number, role in enumerate(spec.roles):
        path = f"spec.roles[{number}]"
        if role.name in names[:number]:
            yield f"{path}.name", f"there are two roles {role.name}", "give each role a name of its own"
        if role.update and role.update.moves_nothing:
            what = "maxSurge and maxUnavailable are both 0, so nothing could be replaced"
            yield f"{path}.update.maxUnavailable", what, "raise one of them"
        yield from _network(path, role)
        yield from _levels(f"{path}.topology", role.topology)
        yield from _dependencies(path, role, spec)
        yield from _scaling(f"{path}.scaling", role.scaling)
        yield from _backoff(f"{path}.restart.backoff", role.restart)


def _exclusive(path: str, spec: DisaggregatedInferenceSpec) -> Iterator[Broken]:
    if not any(role.capability for role in spec.roles):
        yield path, "no role serves prefill or decode", "set serves on a role, or remove rollout.routing"
    if any(role.update is not None and role.update.in_place is InPlace.IF_POSSIBLE for role in spec.roles):
        yield path, "images change in place", "set inPlace to Never, or rollout.routing to Paired"


def _interconnect(spec: DisaggregatedInferenceSpec) -> Iterator[Broken]:
    path, asked = "spec.interconnect", spec.interconnect
    if (asked is not None) != any(role.interconnect for role in spec.roles):
        yield path, "it and roles with interconnect: true need each other", "set both, or remove both"
    if asked is not None and spec.backend is BackendName.VOLCANO:
        yield path, "is not supported with backend Volcano", "use Extender or Kubernetes, or remove it"
    if asked is not None and asked.exclusive and asked.scope is InterconnectScope.REPLICA:
        remedy = "set scope to Unit and make each replica a unit, or remove exclusive"
        yield f"{path}.exclusive", "cliques are kept from other units, not from replicas of the same one", remedy
    if asked is not None and asked.exclusive and spec.backend not in {BackendName.AUTO, BackendName.EXTENDER}:
        yield f"{path}.exclusive", "is kept by Covey's own scheduler", "use backend Extender, or remove it"


def _pool(path: str, spec: DisaggregatedInferenceSpec, picker: EndpointPickerRef) -> Iterator[Broken]:
    if len([role for role in spec.roles if role.capability]) not in {1, len(spec.roles)}:
        what = "an InferencePool selects by equal labels, so it has the pods of one role or of all of them"
        yield path, what, "set serves on every role, or on one alone, or remove routing.pool"
    if picker.port is None and picker.kind in {None, "Service"}:
        yield f"{path}.endpointPickerRef.port", "a Service needs one", "set port.number to that of the Service"


def broken_bounds(spec: DisaggregatedInferenceSpec) -> Iterator[Broken]:
    """The rules about pods that nobody may ask for: every release has had them, so every stored spec keeps them."""
    if spec.pods > MOST_PODS:
        what = f"{spec.pods:,} pods (units times replicas times size, over all roles) are more than {MOST_PODS:,}"
        yield "spec.roles", what, "lower one of these, or split the units over several resources"
    for number, role in enumerate(spec.roles):
        path = f"spec.roles[{number}]"
        if role.min_replicas > role.replicas:
            what = f"minReplicas {role.min_replicas} is greater than replicas {role.replicas}"
            yield f"{path}.minReplicas", what, "lower minReplicas or raise replicas"
        for key, template in (("template", role.template), ("leaderTemplate", role.leader_template)):
            if template is not None:
                yield from broken_rules_of_template(f"{path}.{key}", template)


def _network(path: str, role: Role) -> Iterator[Broken]:
    ports = role.network.ports if role.network else ()
    for number, port in enumerate(ports):
        if any((port.port, port.protocol) == (other.port, other.protocol) for other in ports[:number]):
            what = f"port {port.port}/{port.protocol} has two names, which a Service cannot have"
            yield f"{path}.network.ports[{number}].port", what, "remove one, or give it another port or protocol"
    if role.network and role.network.service and not ports:
        what = "a Service with a cluster IP needs a port"
        yield f"{path}.network.service", what, "name one in ports, or remove service"
    metadata = role.network.metadata if role.network else None
    if role.network and metadata and not ports and role.network.subdomain is not Subdomain.UNIQUE_PER_REPLICA:
        yield f"{path}.network.metadata", "the role has no Service of its own", "name a port in ports, or remove it"
    for kind, texts in (("labels", metadata.labels), ("annotations", metadata.annotations)) if metadata else ():
        if own := [key for key in texts or () if _is_own(key)]:
            what = f"{_list(own)}: {kind} under covey.dev are Covey's own"
            yield f"{path}.network.metadata.{kind}", what, "remove them, or use a prefix of yours"


def _levels(path: str, topology: UnitTopology | RoleTopology) -> Iterator[Broken]:
    if topology.required and topology.required == topology.preferred:
        yield f"{path}.preferred", "is the same level as required", "remove it, or name a finer level"


def _dependencies(path: str, role: Role, spec: DisaggregatedInferenceSpec) -> Iterator[Broken]:
    roles = {other.name: other for other in spec.roles}
    for number, dependency in enumerate(role.depends_on):
        other = roles.get(dependency.role)
        if other is None:
            yield f"{path}.dependsOn[{number}].role", f"there is no role {dependency.role}", f"use {_list(roles)}"
        elif other.replicas and not other.min_replicas:
            what = f"role {other.name} has minReplicas 0, so nobody would wait for it"
            yield f"{path}.dependsOn[{number}].role", what, "set its minReplicas to 1 or more, or remove the dependency"
    if role.name in in_circles(spec):
        yield f"{path}.dependsOn", f"{role.name} depends on itself in the end", "break the circle"


def _scaling(path: str, scaling: Scaling | None) -> Iterator[Broken]:
    if scaling is None:
        return
    least, most = scaling.min, scaling.max
    if least is not None and most is not None and least > most:
        yield f"{path}.min", f"min {least} is greater than max {most}", "lower min or raise max"
    if (least, most) != (None, None) and scaling.mode is not ScalingMode.EXTERNAL:
        yield f"{path}.mode", "min and max bound what an autoscaler asks for", "set mode to External, or remove them"


def _backoff(path: str, restart: Restart | None) -> Iterator[Broken]:
    backoff = restart.backoff if restart else None
    if backoff and backoff.base > backoff.most:
        what = f"baseSeconds {backoff.base} is greater than maxSeconds {backoff.most}"
        yield f"{path}.baseSeconds", what, "lower the one or raise the other"


def broken_rules_of_template(path: str, template: Mapping[str, Any]) -> Iterator[Broken]:
    """Evaluate the CRD's rules on a pod template: the faults found."""
    metadata, spec = template.get("metadata") or {}, template.get("spec")
    if not isinstance(metadata, Mapping):
        yield f"{path}.metadata", "is no map", "correct it"
        return
    for kind, allowed in (("labels", ()), ("annotations", FOR_PEOPLE)):
        texts = metadata.get(kind) or {}
        if not isinstance(texts, Mapping) or not all(isinstance(text, str) for text in (*texts, *texts.values())):
            yield f"{path}.metadata.{kind}", "is no map of strings", "put its values in quotes"
        elif own := [key for key in texts if key not in allowed and _is_own(key)]:
            yield f"{path}.metadata.{kind}", f"{_list(own)}: {kind} under covey.dev are Covey's own", "remove them"
    if not isinstance(spec, Mapping):
        yield f"{path}.spec", "is missing", "give the pod's spec, as in a Deployment"
        return
    for key, instead in RESERVED.items():
        if spec.get(key) is not None:
            yield f"{path}.spec.{key}", "is Covey's own", f"remove it; {instead}"
    for kind in ("containers", "initContainers"):
        yield from _containers(f"{path}.spec.{kind}", spec.get(kind) or (), needed=kind == "containers")


def _containers(path: str, listed: Any, *, needed: bool) -> Iterator[Broken]:
    if needed and not listed:
        yield path, "is missing or empty", "give the pod a container"
    elif not isinstance(listed, Sequence) or not all(
        isinstance(container, Mapping) and container.get("name") for container in listed
    ):
        yield path, "expected a list of containers with names", "correct it"


def _is_own(key: str) -> bool:
    return key.startswith(_OWN) or f".{_OWN}" in key


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def in_circles(spec: DisaggregatedInferenceSpec) -> list[str]:
    """Roles that depend on themselves in the end, in their order. CEL sees only those that name themselves."""
    after = {role.name: {dependency.role for dependency in role.depends_on} for role in spec.roles}

    def reachable_from(name: str) -> set[str]:
        reached, edge = set[str](), after[name]
        while edge:
            reached |= edge
            edge = set().union(*(after.get(role, set()) for role in edge)) - reached
        return reached

    return [name for name in after if name in reachable_from(name)]
