"""Checking a DisaggregatedInference without an API server: what kubectl and the CRD's rules would refuse.

The models hold types and bounds. Unknown fields are refused as by kubectl's strict validation, and the rules that the
CRD states in CEL are stated here once more, in Python: there is no CEL interpreter among the dependencies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from covey.api import core
from covey.api.inference import MOST_PODS, DisaggregatedInference, DisaggregatedInferenceSpec, UnitTopology
from covey.api.meta import DNS_LABEL
from covey.api.roles import Role, RoleTopology
from covey.api.support import in_circles
from covey.api.template import RESERVED
from covey.manifests.documents import Document, convert, wrong_field
from covey.manifests.errors import InputError, Problem
from covey.manifests.quantities import bad_quantities
from covey.manifests.strict import validate

_LONGEST_NAME: Final = 63
#: A name without dots, as the CRD's rule has it: it is part of host names.
_NAME: Final = re.compile(DNS_LABEL)


def read_inference(document: Document, namespace: str) -> DisaggregatedInference:
    """Validate a document.

    Args:
        document: of kind DisaggregatedInference.
        namespace: given to a resource that names none.

    Raises:
        InputError: with one line for everything that is wrong.
    """
    metadata = dict(document.body.get("metadata") or {})
    metadata["namespace"] = metadata.get("namespace") or namespace
    inference = validate(DisaggregatedInference, document, {**document.body, "metadata": metadata})
    problems = [Problem(document.place.at(path), what, remedy) for path, what, remedy in _rules(inference)]
    if problems:
        raise InputError.of(problems)
    return inference


Found = tuple[str, str, str]


def _rules(inference: DisaggregatedInference) -> Iterator[Found]:
    """The CRD's CEL rules that a single object can break."""
    name = inference.metadata.name
    if not name:
        yield "metadata.name", "is missing", "give the resource a name"
    elif len(name) > _LONGEST_NAME:
        yield "metadata.name", f"has {len(name)} characters", f"use at most {_LONGEST_NAME}"
    elif not _NAME.fullmatch(name):
        remedy = "use lower-case letters, digits and -, with a letter or digit at both ends"
        yield "metadata.name", f"{name!r} is no name for it", remedy
    spec = inference.spec
    yield from _levels("spec.topology", spec.topology)
    yield from _role_rules(spec)
    if spec.pods > MOST_PODS:
        what = f"{spec.pods:,} pods (units times replicas times size, over all roles) are more than {MOST_PODS:,}"
        yield "spec.roles", what, "lower one of these, or split the units over several resources"
    known = {role.name for role in spec.roles}
    for number, rule in enumerate(spec.proximity):
        for stranger in sorted(set(rule.roles) - known):
            yield f"spec.proximity[{number}].roles", f"there is no role {stranger}", f"name some of {_list(known)}"


def _role_rules(spec: DisaggregatedInferenceSpec) -> Iterator[Found]:
    if not any(role.min_replicas for role in spec.roles):
        yield "spec.roles", "no role has minReplicas > 0", "give at least one role a minimum: it is what starts as one"
    names = [role.name for role in spec.roles]
    for number, role in enumerate(spec.roles):
        path = f"spec.roles[{number}]"
        if role.name in names[:number]:
            yield f"{path}.name", f"there are two roles {role.name}", "give each role a name of its own"
        if role.min_replicas > role.replicas:
            what = f"minReplicas {role.min_replicas} is greater than replicas {role.replicas}"
            yield f"{path}.minReplicas", what, "lower minReplicas or raise replicas"
        if role.update and role.update.moves_nothing:
            what = "maxSurge and maxUnavailable are both 0, so nothing could be replaced"
            yield f"{path}.update.maxUnavailable", what, "raise one of them"
        yield from _ports(path, role)
        yield from _levels(f"{path}.topology", role.topology)
        yield from _dependencies(path, role, spec)
        for key, template in (("template", role.template), ("leaderTemplate", role.leader_template)):
            if template is not None:
                yield from _template(f"{path}.{key}", template)


def _ports(path: str, role: Role) -> Iterator[Found]:
    ports = role.network.ports if role.network else ()
    for number, port in enumerate(ports):
        if any((port.port, port.protocol) == (other.port, other.protocol) for other in ports[:number]):
            what = f"port {port.port}/{port.protocol} has two names, which a Service cannot have"
            yield f"{path}.network.ports[{number}].port", what, "remove one, or give it another port or protocol"
    if role.network and role.network.service and not ports:
        what = "a Service with a cluster IP needs a port"
        yield f"{path}.network.service", what, "name one in ports, or remove service"


def _levels(path: str, topology: UnitTopology | RoleTopology) -> Iterator[Found]:
    if topology.required and topology.required == topology.preferred:
        yield f"{path}.preferred", "is the same level as required", "remove it, or name a finer level"


def _dependencies(path: str, role: Role, spec: DisaggregatedInferenceSpec) -> Iterator[Found]:
    roles = [each.name for each in spec.roles]
    for number, dependency in enumerate(role.depends_on):
        if dependency.role not in roles:
            yield f"{path}.dependsOn[{number}].role", f"there is no role {dependency.role}", f"use {_list(roles)}"
    if role.name in in_circles(spec):
        yield f"{path}.dependsOn", f"{role.name} depends on itself in the end", "break the circle"


def _template(path: str, template: Mapping[str, Any]) -> Iterator[Found]:
    spec = template.get("spec")
    if not isinstance(spec, Mapping):
        yield f"{path}.spec", "is missing", "give the pod's spec, as in a Deployment"
        return
    for key, instead in RESERVED.items():
        if spec.get(key) is not None:
            yield f"{path}.spec.{key}", "is Covey's own", f"remove it; {instead}"
    if not spec.get("containers"):
        yield f"{path}.spec.containers", "is missing or empty", "give the pod a container"
        return
    try:
        convert({"metadata": template.get("metadata") or {}, "spec": spec}, core.Pod)
    except msgspec.ValidationError as error:
        field, what = wrong_field(error)
        yield f"{path}.{field}", what, "correct it"
        return
    for field, what, instead in bad_quantities(spec):
        yield f"{path}.spec.{field}", what, instead


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
