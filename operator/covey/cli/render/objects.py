"""Trees of a resource (groups and pods) and of a plan (unit, role, replica, nodes), and phrases of all output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from covey.api.constants import LABEL_POD_GROUP
from covey.cli.picture.colors import bright
from covey.picture.short_names import path_order
from covey.placement.model import Path
from covey.planning.report import (
    DomainReport,
    InstanceReport,
    PlannedRoleReport,
    PlannedUnitReport,
    PlanReport,
    TopologyReport,
    WorkloadReport,
)

GOOD: Final = "green"
BAD: Final = "red"
DIM: Final = "bright_black"


def verdict_style(verdict: str) -> str:
    """The colour of a verdict."""
    return {"Admitted": GOOD, "Infeasible": BAD}.get(verdict, "yellow")


def topology_words(topology: TopologyReport) -> str:
    """The chosen topology in a line: its name and levels, broad to narrow."""
    levels = " > ".join(level.name for level in topology.levels)
    return f"topology {topology.name}: {levels}" if topology.name else "no topology"


def domains(placement: Sequence[DomainReport], known: Sequence[DomainReport] = ()) -> str:
    """``block b1, rack r2``; hosts are said by the node's name anyway, and what is ``known`` is not said again."""
    above = {domain.level for domain in known}
    return ", ".join(
        domain_name(domain.level, domain.domain) for domain in placement if domain.level not in {*above, "host"}
    )


def domain_name(level: str, domain: str | None) -> str:
    """A domain with its level, which is left out where the domain's own name begins with it (``rack-7``)."""
    return str(domain) if str(domain).startswith(level) else f"{level} {domain}"


def finest(instances: Sequence[InstanceReport], known: Sequence[DomainReport]) -> str:
    """The finest domains of a role's replicas beyond what is ``known`` of the unit, in natural order."""
    names: dict[Path, str] = {}
    for instance in instances:
        shown = [domain for domain in instance.placement if domain.level != "host" and domain not in known]
        if shown:
            names[shown[-1].path] = domain_name(shown[-1].level, shown[-1].domain)
    return ", ".join(dict.fromkeys(names[path] for path in sorted(names, key=path_order)))


def headline(workload: WorkloadReport) -> str:
    """The outcome for a workload, in a few words."""
    admitted = sum(unit.admitted for unit in workload.units)
    many = f", {admitted} of {len(workload.units)} units" if len(workload.units) > 1 else ""
    return f"{workload.verdict}{many}"


Object = Mapping[str, Any]


def print_objects(objects: Sequence[Object], console: Console) -> None:
    """A tree for each Workload: groups below their parents, pods below their group, Services beside."""
    below: dict[tuple[str, str], list[Object]] = {}
    tops: list[Object] = []
    for body in objects:
        parent = _parent(body)
        if parent is None:
            tops.append(body)
        else:
            below.setdefault((body["metadata"]["namespace"], parent), []).append(body)
    for body in tops:
        tree = Tree(_label(body), guide_style=DIM)
        _grow(tree, body, below)
        console.print(tree)


def _grow(tree: Tree, body: Object, below: Mapping[tuple[str, str], Sequence[Object]]) -> None:
    if body["kind"] not in ("CompositePodGroup", "PodGroup"):
        return
    for child in below.get((body["metadata"]["namespace"], body["metadata"]["name"]), ()):
        if _fits(body, child):
            _grow(tree.add(_label(child)), child, below)


def _fits(parent: Object, child: Object) -> bool:
    return bool((child["kind"] == "Pod") == (parent["kind"] == "PodGroup"))


def _parent(body: Object) -> str | None:
    if body["kind"] == "Pod":
        parent = (body["metadata"].get("labels") or {}).get(LABEL_POD_GROUP)
    else:
        parent = (body.get("spec") or {}).get("parentCompositePodGroupName")
    return str(parent) if parent else None


def _label(body: Object) -> Text:
    return Text(f"{body['kind']} ", DIM).append(body["metadata"]["name"], "bold").append(_detail(body), DIM)


def _detail(body: Object) -> str:
    spec = body.get("spec") or {}
    parts = []
    policy = spec.get("schedulingPolicy")
    if policy is not None:
        gang = policy.get("gang") or {}
        desired = spec.get("desiredGroupCount", spec.get("desiredCount"))
        least = gang.get("minGroupCount", gang.get("minCount"))
        parts.append(f"gang {least} of {desired}" if gang else f"no gang, {desired}")
    constraints = spec.get("schedulingConstraints") or {}
    parts += [
        f"{'one' if constraint.get('scope') != 'Pod' else 'on a'} {constraint.get('level') or constraint.get('key')}"
        f"{'' if constraint.get('mode', 'Required') == 'Required' else ' preferred'}"
        for constraint in constraints.get("topology") or ()
    ]
    return f"  {', '.join(parts)}" if parts else ""


#: Nodes named for one replica; the rest is counted.
_NODES = 8


def print_tree(report: PlanReport, console: Console) -> None:
    """A tree for each workload."""
    console.print(Text(topology_words(report.topology), DIM), soft_wrap=True)
    for workload in report.workloads:
        console.print(_workload(workload))


def _workload(workload: WorkloadReport) -> Tree:
    label = Text().append(f"{workload.namespace}/{workload.name}  ", "bold")
    if workload.workload is not None:
        label.append(f"{workload.kind} of Workload {workload.workload}  ", DIM)
    label.append(headline(workload), verdict_style(workload.verdict))
    tree = Tree(label.append(f"  {workload.elapsed_ms:g} ms", DIM), guide_style=DIM)
    for unit in workload.units:
        _add_unit(tree, workload, unit)
    return tree


def _add_unit(tree: Tree, workload: WorkloadReport, unit: PlannedUnitReport) -> None:
    label = Text("✓ " if unit.admitted else "✗ ", GOOD if unit.admitted else BAD)
    label.append(f"unit {unit.index}").append(f"  {domains(unit.placement)}", DIM)
    branch = tree.add(label)
    for number, role in enumerate(unit.roles):
        _add_role(branch, role, unit, number)
    for wish in unit.preferred:
        mark, style = ("✓", GOOD) if wish.achieved else ("○", "yellow")
        reached = "" if wish.achieved else f", reached {wish.reached or 'nothing'}"
        branch.add(Text(f"{mark} ", style).append(f"{wish.scope} prefers one {wish.level}{reached}", DIM))
    for message in dict.fromkeys(reason.message for reason in workload.reasons if reason.unit == unit.index):
        branch.add(Text(message, BAD))


def _add_role(branch: Tree, role: PlannedRoleReport, unit: PlannedUnitReport, number: int) -> None:
    label = Text(role.name, f"bold {bright(number)}").append(f"  {role.admitted}/{role.replicas}")
    inner = branch.add(label.append(f"  minimum {role.min_replicas}", DIM))
    for instance in role.instances:
        inner.add(_instance(instance, unit, number))


def _instance(instance: InstanceReport, unit: PlannedUnitReport, number: int) -> Text:
    label = Text("● " if instance.minimum else "○ ", bright(number, instance.replica))
    label.append(f"replica {instance.replica}  ")
    nodes = list(dict.fromkeys(pod.node for pod in instance.pods))
    named = ", ".join(nodes[:_NODES]) + (f" and {len(nodes) - _NODES} more" if len(nodes) > _NODES else "")
    where = domains(instance.placement, unit.placement)
    return label.append(f"{where}  " if where else "").append(named, DIM)
