"""PodCliqueSet of Grove (``grove.io/v1alpha1``).

A replica of the set is a unit. A scaling group is a role, its cliques together being one replica of it; a clique
outside any group is a role whose replicas are single pods. ``minAvailable`` is the minimum of both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from covey.api.durations import parse_duration
from covey.convert.draft import Draft, Object
from covey.convert.fields import ConversionError, Fields
from covey.convert.replica_template import PodPart, ReplicaTemplate, replica_of
from covey.convert.templates import Template, add_labels, remark_on, template_of, with_variables

GROUP: Final = "grove.io"
_STARTUPS: Final = {f"CliqueStartupType{order}": order for order in ("AnyOrder", "InOrder", "Explicit")}
_VARIABLES: Final = {"GROVE_PCS_INDEX": "$(COVEY_UNIT)"}
_IN_GROUP: Final = {**_VARIABLES, "GROVE_PCSG_INDEX": "$(COVEY_REPLICA)"}


@dataclass(frozen=True, slots=True)
class _Clique:
    """A clique of the template, with its pods' template as the source has it."""

    source: Fields
    spec: Fields
    name: str
    replicas: int
    template: Template


@dataclass(frozen=True, slots=True)
class _Roles:
    """Clique → its role, and the cliques that lead a replica."""

    of: dict[str, Object] = field(default_factory=dict)
    leaders: set[str] = field(default_factory=set)


def convert(document: Fields, draft: Draft) -> None:
    """Convert a PodCliqueSet."""
    draft.take_metadata(document)
    spec = document.child("spec")
    draft.spec["replicas"] = spec.number("replicas", 0)  # the CRD's default
    spec.child("updateStrategy").settle("type", "RollingRecreate", "Coherent")
    template = spec.child("template")
    _gang(template, draft)
    required, preferred = _domains(template.child("topologyConstraint"), draft)
    draft.constrain(draft.spec, required, preferred)
    groups = template.each("podCliqueScalingGroups")
    members = {name for group in groups for name in group.texts("cliqueNames")}
    cliques = [_clique(clique, draft) for clique in template.each("cliques")]
    by_name = {clique.name: clique for clique in cliques}
    roles = _Roles()
    for clique in cliques:
        if clique.name not in members:
            roles.of[clique.name] = _standalone(clique, draft)
    for group in groups:
        _group(group, by_name, roles, draft)
    _order(template, cliques, roles, draft)


def _gang(template: Fields, draft: Draft) -> None:
    if name := template.text("priorityClassName"):
        draft.spec["priorityClassName"] = name
    template.child("headlessServiceConfig").settle("publishNotReadyAddresses", True)  # noqa: FBT003 - a value of the field
    if delay := template.text("terminationDelay"):
        after = parse_duration(delay)
        if after is None:
            raise ConversionError(template.at("terminationDelay"), f"{delay!r} is no duration", "write it as 4h or 15m")
        draft.wish(template.at("terminationDelay"), None, "gang.terminationDelaySeconds", math.ceil(after))


def _domains(source: Fields, draft: Draft) -> tuple[str | None, str | None]:
    """The levels that a constraint requires and prefers."""
    draft.topology_name(source.at("topologyName"), source.text("topologyName"))
    pack = source.child("pack")
    required = draft.domain(pack.at("required"), pack.text("required"))
    legacy = draft.domain(source.at("packDomain"), source.text("packDomain"))
    return required or legacy, draft.domain(pack.at("preferred"), pack.text("preferred"))


def _clique(source: Fields, draft: Draft) -> _Clique:
    name, spec = source.text("name"), source.child("spec")
    spec.settle("roleName", name)
    template = template_of(spec, draft, spec="podSpec")
    for key in ("labels", "annotations"):
        template = add_labels(template, key, source.strings(key))
    return _Clique(source, spec, name, spec.number("replicas", 1) or 1, template)


def _pods(clique: _Clique, variables: Mapping[str, str], draft: Draft) -> Template:
    """Return the template with the variables that Covey can tell, and remark on those that it cannot."""
    template = with_variables(clique.template, variables)
    instead = "COVEY_INDEX, COVEY_SIZE and COVEY_LEADER_ADDRESS say where a pod stands in its replica"
    foreign = r"\bGROVE_[A-Z_]+\b|grove\.io/[a-z-]+"
    remark_on(draft, template, clique.spec.at("podSpec"), foreign, "is not set by Covey", instead)
    return template


def _standalone(clique: _Clique, draft: Draft) -> Object:
    minimum = clique.spec.number("minAvailable", clique.replicas)
    role = draft.add_role(
        clique.source.at("name"),
        clique.name,
        replicas=clique.replicas,
        minReplicas=min(minimum, clique.replicas),
        **ReplicaTemplate(1, _pods(clique, _VARIABLES, draft)).fields(),
    )
    _together(clique.source.child("topologyConstraint"), [role], draft)
    _scaling(clique.spec.child("autoScalingConfig"), role, draft)
    _rolling(clique.source.child("rollingUpdate"), role, draft)
    return role


def _group(source: Fields, cliques: Mapping[str, _Clique], roles: _Roles, draft: Draft) -> None:
    names = source.texts("cliqueNames")
    for name in names:
        if name not in cliques or name in roles.of:
            what = f"there is no clique {name}" if name not in cliques else f"{name} is in two scaling groups"
            raise ConversionError(source.at("cliqueNames"), what, "correct the name")
    inner = [cliques[name] for name in names]
    replicas = source.number("replicas", 1)
    minimum = min(source.number("minAvailable", 1), replicas)
    parts = [PodPart(clique.name, clique.replicas, _pods(clique, _IN_GROUP, draft)) for clique in inner]
    try:
        replica = replica_of(source.at("cliqueNames"), parts)
    except ConversionError:
        if minimum < replicas or (replicas > 1 and "topologyConstraint" in source):
            raise
        roles.of.update(_roles_of_cliques(source, inner, replicas, draft))
        return
    roles.leaders.add(replica.leader)
    if replica.leader and replica.leader != names[0]:
        draft.remark(source.at("cliqueNames"), f"{replica.leader} is pod 0 of a replica, the leader")
    role = draft.add_role(
        source.at("name"), source.text("name"), replicas=replicas, minReplicas=minimum, **replica.fields()
    )
    required, preferred = _domains(source.child("topologyConstraint"), draft)
    draft.constrain(role, required, preferred)
    for clique in inner:
        roles.of[clique.name] = role
        minimum = clique.spec.number("minAvailable", clique.replicas)
        if minimum < clique.replicas:
            what = f"is {minimum} of {clique.replicas} pods, but a replica of Covey is always whole"
            draft.remark(clique.spec.at("minAvailable"), what)
    _scaling(source.child("scaleConfig"), role, draft)
    _rolling(source.child("rollingUpdate"), role, draft)


def _roles_of_cliques(source: Fields, cliques: Sequence[_Clique], replicas: int, draft: Draft) -> dict[str, Object]:
    """Convert the cliques of a group to roles of their own; the minimum is the same, as all replicas are needed."""
    source.take("name")
    names = ", ".join(clique.name for clique in cliques)
    what = f"has pods of {len(cliques)} kinds in one replica, which becomes the roles {names}"
    draft.remark(source.path, what, "scale them together, and none of them alone")
    roles = {}
    for clique in cliques:
        roles[clique.name] = draft.add_role(
            clique.source.at("name"),
            clique.name,
            replicas=replicas * clique.replicas,
            minReplicas=replicas * min(clique.spec.number("minAvailable", clique.replicas), clique.replicas),
            **ReplicaTemplate(1, _pods(clique, _VARIABLES, draft)).fields(),
        )
    _together(source.child("topologyConstraint"), list(roles.values()), draft)
    return roles


def _together(source: Fields, roles: Sequence[Object], draft: Draft) -> None:
    for level, mode in zip(_domains(source, draft), ("Required", "Preferred"), strict=True):
        if level:
            draft.together(source.path, roles, level, mode)


def _scaling(source: Fields, role: Object, draft: Draft) -> None:
    """Bounds carry over; what drives the autoscaler is an autoscaler's own."""
    if "maxReplicas" not in source:
        return
    draft.wish(source.path, role, "scaling.mode", "External")
    if "minReplicas" in source:
        draft.wish(source.at("minReplicas"), role, "scaling.min", source.number("minReplicas", 0))
    draft.wish(source.at("maxReplicas"), role, "scaling.max", source.number("maxReplicas", 0))


def _rolling(source: Fields, role: Object, draft: Draft) -> None:
    if "maxUnavailable" in source:
        draft.wish(source.at("maxUnavailable"), role, "update.maxUnavailable", source.take("maxUnavailable"))


def _order(template: Fields, cliques: Sequence[_Clique], roles: _Roles, draft: Draft) -> None:
    """Convert which clique starts after which: to a dependency of its role, or to the leader that workers wait for."""
    after: dict[str, tuple[str, Object, set[str]]] = {}
    for path, clique, before in _pairs(template, cliques):
        role, other = roles.of[clique.name], roles.of[before.name]
        if other is not role:
            after.setdefault(role["name"], (path, role, set()))[2].add(other["name"])
        elif before.name in roles.leaders:
            draft.wish(path, role, "startup", "LeaderReady")
        else:
            draft.remark(path, f"{clique.name} after {before.name}, which is no leader of their replica; left out")
    for path, role, names in after.values():
        draft.wish(path, role, "dependsOn", [{"role": name, "condition": "Ready"} for name in sorted(names)])


def _pairs(template: Fields, cliques: Sequence[_Clique]) -> Iterator[tuple[str, _Clique, _Clique]]:
    """Yield a path, the clique that starts later by what stands there, and the one that starts before it."""
    kind = template.meaning("cliqueStartupType", _STARTUPS)
    if kind == "InOrder":
        path = template.at("cliqueStartupType")
        yield from ((path, after, before) for before, after in pairwise(cliques))
    elif kind == "Explicit":
        by_name = {clique.name: clique for clique in cliques}
        for clique in cliques:
            path = clique.spec.at("startsAfter")
            for name in clique.spec.texts("startsAfter"):
                if name not in by_name:
                    raise ConversionError(path, f"there is no clique {name}", "correct the name")
                yield path, clique, by_name[name]
