"""Head-room of each role, from files: replicas that could have places once all that is planned has its own.

Nodes added for a what-if: copies of a node join the facts before anything is planned.

A copy is as its template is: allocatable resources, labels, taints and conditions, but no pods. It has a name of its
own, which is also its hostname and whatever else names a host in the topology, so it stands in the template's rack;
asked for with a level, all copies of one option stand together in one new domain of that level, and of each finer one,
inside the template's broader domains. An option may name a domain that a ClusterTopology declares as elastic instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Final

import msgspec

from covey.admission.compiled_units import stand_in
from covey.admission.growth import Site
from covey.admission.headroom import HeadroomAnswer, most_feasible, within_quota
from covey.api import core
from covey.api.constants import HOSTNAME_LABEL
from covey.manifests.documents import read_documents
from covey.manifests.errors import InputError, ManifestPath
from covey.placement.cluster.elastic import ElasticDomain, expand_elastic
from covey.placement.cluster.node_filters import state_cause
from covey.placement.model import Gang, Level, Topology, Verdict
from covey.planning.facts import ClusterFacts, read_node
from covey.planning.inferences import choose_topologies, default_topology
from covey.planning.report import AddedReport, CamelStruct, PlanReport
from covey.planning.run import Planned, plan_all
from covey.planning.trees import PlannedWorkload


class RoleHeadroomReport(CamelStruct, frozen=True):
    """One role: replicas that are wanted, that have places, and that could have some (None where nobody knows)."""

    name: str
    replicas: int
    admitted: int
    max_feasible: int | None


class HeadroomReport(CamelStruct, frozen=True):
    """One resource. ``observed_at`` and ``asked`` are empty where no cluster was asked."""

    namespace: str
    name: str
    roles: tuple[RoleHeadroomReport, ...]
    message: str = ""
    observed_at: str = ""
    asked: str = ""


def headroom_of(planned: Planned) -> Iterator[HeadroomReport]:
    """The head-room of each workload.

    Args:
        planned: what was planned; its inventory is as it was afterwards.
    """
    world = planned.world
    for workload, gangs in zip(planned.workloads, planned.gangs, strict=True):
        sites = [
            Site(world.reservations.confine(gang, surplus=True)[0], lacks=bool(unit.absent))
            for unit, gang in zip(workload.units, gangs, strict=True)
        ]
        yield _report(workload, gangs, [_ask(name, workload, sites, planned) for name in _roles(gangs)])


def _ask(role: str, workload: PlannedWorkload, sites: Sequence[Site], planned: Planned) -> HeadroomAnswer:
    is_shared = role in workload.summed
    answer = most_feasible(role, sites, planned.inventory, is_shared=is_shared)
    root = workload.units[0].key
    return within_quota(answer, sites, partial(planned.world.quotas.room_for, root), is_shared=is_shared)


def _roles(gangs: Sequence[Gang]) -> list[str]:
    return list(dict.fromkeys(role.name for gang in gangs for role in gang.roles))


def _report(workload: PlannedWorkload, gangs: Sequence[Gang], answers: Sequence[HeadroomAnswer]) -> HeadroomReport:
    rows = []
    for answer in answers:
        same_name = [role for gang in gangs for role in gang.roles if role.name == answer.role]
        admitted = sum(replica.placed for role in same_name for replica in role.replicas)
        rows.append(RoleHeadroomReport(answer.role, sum(role.desired for role in same_name), admitted, answer.replicas))
    return HeadroomReport(workload.namespace, workload.name, tuple(rows), describe_remarks(answers))


def describe_remarks(answers: Sequence[HeadroomAnswer]) -> str:
    """Describe what there is to say in addition to the numbers."""
    texts = [f"{answer.role}: {answer.message}" for answer in answers if answer.message]
    texts += [f"{answer.role}: there may be capacity for more" for answer in answers if answer.is_floor]
    return "; ".join(texts)


OPTION: Final = "--add-nodes"
#: A slip of the keyboard should not take all memory.
MOST_NODES: Final = 20_000
_WISH: Final = re.compile(r"(?P<template>.+)=(?P<count>[1-9][0-9]{0,8})(@(?P<level>.+))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Addition:
    """The nodes of one option; ``domain`` is the new domain of ``level``, where one was asked for."""

    template: str
    level: str | None
    domain: str | None
    nodes: tuple[core.Node, ...]


@dataclass(frozen=True, slots=True)
class _NodeRequest:
    template: core.Node
    many: int
    level: str | None


def add_nodes(
    facts: ClusterFacts, options: Sequence[str], workloads: Sequence[PlannedWorkload]
) -> tuple[ClusterFacts, list[Addition]]:
    """The facts with the nodes that are wished for.

    Args:
        facts: the cluster.
        options: each ``TEMPLATE=N`` or ``TEMPLATE=N@LEVEL``, or the name of an elastic domain.
        workloads: what is to be planned; levels are of the first one's topology.

    Raises:
        InputError: an option is malformed, there is no such template, or no such level to make a domain of.
    """
    if not options:
        return facts, []
    elastic = {domain.name: domain for written in facts.topologies for domain in expand_elastic(written)}
    come = [elastic[option] for option in options if option in elastic]
    wishes = [_wish(option, facts) for option in options if option not in elastic]
    if sum(wish.many for wish in wishes) + sum(domain.kind.nodes for domain in come) > MOST_NODES:
        raise InputError(OPTION, f"asks for more than {MOST_NODES:,} nodes", "add fewer")
    seen = replace(facts, nodes=(*facts.nodes, *(wish.template for wish in wishes)))
    topologies = choose_topologies(workloads, seen) or [default_topology(seen)]
    hosts = {key for topology in topologies for level in topology.levels if _is_host(level) for key in level.keys}
    names = {node.metadata.name for node in facts.nodes}
    nodes, additions, warnings = list(seen.nodes), [], []
    for wish in wishes:
        labels, domain = _labels(wish, topologies[0], nodes)
        own = {HOSTNAME_LABEL, *(hosts & labels.keys())}
        copies = tuple(islice(_copies(wish, labels, own, names), wish.many))
        nodes += copies
        additions.append(Addition(wish.template.metadata.name, wish.level, domain, copies))
        closed = state_cause(wish.template)
        if closed:
            warnings.append(f"{OPTION}: {wish.template.metadata.name} is {closed}, and so are its copies")
    additions += [Addition("a node", place.level, place.name, tuple(place.make_nodes())) for place in come]
    added = [node for addition in additions for node in addition.nodes]
    return replace(facts, nodes=(*facts.nodes, *added), warnings=(*facts.warnings, *warnings)), additions


def with_additions(report: PlanReport, additions: Sequence[Addition]) -> PlanReport:
    """Add to the report what became of the added nodes."""
    placed = {
        pod.node
        for workload in report.workloads
        for unit in workload.units
        for role in unit.roles
        for instance in role.instances
        for pod in instance.pods
    }
    added = []
    for addition in additions:
        names = tuple(node.metadata.name for node in addition.nodes)
        used = tuple(name for name in names if name in placed)
        added.append(AddedReport(addition.template, addition.level, addition.domain, names, used))
    return msgspec.structs.replace(report, added_nodes=tuple(added))


def with_elastic(planned: Planned, clock: Callable[[], float]) -> PlanReport:
    """Add to refusals that something would fit in an elastic domain if it came: one of each declaration is tried."""
    report = planned.report
    reports = list(report.workloads)
    for domain in _absent_domains(planned.facts):
        if all(other.verdict != Verdict.INFEASIBLE for other in reports):
            break
        seen = replace(planned.facts, nodes=(*planned.facts.nodes, *domain.make_nodes()))
        then = plan_all(planned.workloads, seen, clock).report.workloads
        for number, (now, later) in enumerate(zip(report.workloads, then, strict=True)):
            if now.verdict == Verdict.INFEASIBLE and later.verdict == Verdict.ADMITTED and reports[number] is now:
                what = f"; would fit in {domain} if it came"
                reasons = (msgspec.structs.replace(reason, message=reason.message + what) for reason in now.reasons)
                reports[number] = msgspec.structs.replace(now, reasons=tuple(reasons))
    return msgspec.structs.replace(report, workloads=tuple(reports))


def _absent_domains(facts: ClusterFacts) -> Iterator[ElasticDomain]:
    """Yield the first domain of each declaration that has no node yet."""
    labels = [(node.metadata.labels or {}).items() for node in facts.nodes]
    tried: set[int] = set()
    for domain in (domain for topology in facts.topologies for domain in expand_elastic(topology)):
        if id(domain.kind) not in tried and not any(domain.selector.items() <= label for label in labels):
            tried.add(id(domain.kind))
            yield domain


def _wish(option: str, facts: ClusterFacts) -> _NodeRequest:
    match = _WISH.fullmatch(option)
    if match is None:
        raise InputError(
            OPTION, f"{option!r} is not TEMPLATE=N or TEMPLATE=N@LEVEL, and no elastic domain", "write, say, node-1=8"
        )
    name = match["template"]
    known = next((node for node in facts.nodes if node.metadata.name == name), None)
    return _NodeRequest(known or _from_file(name), int(match["count"]), match["level"])


def _from_file(path: str) -> core.Node:
    if not Path(path).exists():
        remedy = "name a node of the input, or a file with one Node"
        raise InputError(OPTION, f"there is no node {path}, and no such file", remedy)
    documents = list(read_documents((path,)))
    if len(documents) != 1 or (documents[0].group, documents[0].kind) != ("", "Node"):
        raise InputError(
            ManifestPath(path), "does not hold one Node and nothing else", "give a file with the template alone"
        )
    node = read_node(documents[0])
    if not node.status.allocatable:
        place = documents[0].place.at("status.allocatable")
        raise InputError(place, "is missing", "say what a copy has, as `kubectl get node -o yaml` does")
    return node


def _is_host(level: Level) -> bool:
    return level.name == "host" or HOSTNAME_LABEL in level.keys


def _labels(wish: _NodeRequest, topology: Topology, nodes: Sequence[core.Node]) -> tuple[Mapping[str, str], str | None]:
    """Labels of the copies but for those of hosts, and the name of their new domain, if there is to be one."""
    labels = dict(wish.template.metadata.labels or {})
    if wish.level is None:
        return labels, None
    depth = _depth(wish, topology)
    for level in topology.levels[depth:]:
        for key in (key for key in level.keys if labels.get(key)):
            taken = {(node.metadata.labels or {}).get(key) for node in nodes}
            labels[key] = next(name for name in _added_names(labels[key], 1) if name not in taken)
    return labels, _value(topology.levels[depth], labels)


def _depth(wish: _NodeRequest, topology: Topology) -> int:
    known = [level.name for level in topology.levels]
    if wish.level not in known:
        raise InputError(
            OPTION, f"topology {topology.name} has no level {wish.level}", f"use one of {', '.join(known)}"
        )
    depth = known.index(wish.level)
    level = topology.levels[depth]
    if _is_host(level):
        raise InputError(OPTION, f"every copy is a {level.name} of its own", f"leave @{level.name} out")
    if _value(level, wish.template.metadata.labels or {}) is None:
        what = f"{wish.template.metadata.name} has no label {' or '.join(level.keys)} of level {level.name}"
        raise InputError(OPTION, what, "take a template that has one")
    return depth


def _value(level: Level, labels: Mapping[str, str]) -> str | None:
    return next((labels[key] for key in level.keys if labels.get(key)), None)


def _copies(
    wish: _NodeRequest, labels: Mapping[str, str], own: AbstractSet[str], taken: set[str]
) -> Iterator[core.Node]:
    """Copies without end, each with a name that nobody has; names of one option have the same length, so they sort."""
    meta = wish.template.metadata
    for name in _added_names(meta.name, len(str(wish.many))):
        if name not in taken:
            taken.add(name)
            marked = {**labels, **dict.fromkeys(own, name)}
            renamed = msgspec.structs.replace(meta, name=name, uid=stand_in("node", name), labels=marked)
            yield msgspec.structs.replace(wish.template, metadata=renamed)


def _added_names(name: str, digits: int) -> Iterator[str]:
    return (f"{name}-added-{number:0{digits}d}" for number in count(1))
