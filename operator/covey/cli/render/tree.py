"""The plan as a tree: workload, unit, role, replica, nodes."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from covey.cli.picture.palette import bright
from covey.cli.render import words
from covey.planning.report import InstanceReport, Report, RoleReport, UnitReport, WorkloadReport

#: Nodes named for one replica; the rest is counted.
_NODES = 8


def print_tree(report: Report, console: Console) -> None:
    """A tree for each workload."""
    console.print(Text(words.topology_words(report.topology), words.DIM), soft_wrap=True)
    for workload in report.workloads:
        console.print(_workload(workload))


def _workload(workload: WorkloadReport) -> Tree:
    label = Text().append(f"{workload.namespace}/{workload.name}  ", "bold")
    if workload.workload is not None:
        label.append(f"{workload.kind} of Workload {workload.workload}  ", words.DIM)
    label.append(words.headline(workload), words.verdict_style(workload.verdict))
    tree = Tree(label.append(f"  {workload.elapsed_ms:g} ms", words.DIM), guide_style=words.DIM)
    for unit in workload.units:
        _add_unit(tree, workload, unit)
    return tree


def _add_unit(tree: Tree, workload: WorkloadReport, unit: UnitReport) -> None:
    label = Text("✓ " if unit.admitted else "✗ ", words.GOOD if unit.admitted else words.BAD)
    label.append(f"unit {unit.index}").append(f"  {words.domains(unit.placement)}", words.DIM)
    branch = tree.add(label)
    for number, role in enumerate(unit.roles):
        _add_role(branch, role, unit, number)
    for wish in unit.preferred:
        mark, style = ("✓", words.GOOD) if wish.achieved else ("○", "yellow")
        reached = "" if wish.achieved else f", reached {wish.reached or 'nothing'}"
        branch.add(Text(f"{mark} ", style).append(f"{wish.scope} prefers one {wish.level}{reached}", words.DIM))
    for message in dict.fromkeys(reason.message for reason in workload.reasons if reason.unit == unit.index):
        branch.add(Text(message, words.BAD))


def _add_role(branch: Tree, role: RoleReport, unit: UnitReport, number: int) -> None:
    label = Text(role.name, f"bold {bright(number)}").append(f"  {role.admitted}/{role.replicas}")
    inner = branch.add(label.append(f"  minimum {role.min_replicas}", words.DIM))
    for instance in role.instances:
        inner.add(_instance(instance, unit, number))


def _instance(instance: InstanceReport, unit: UnitReport, number: int) -> Text:
    label = Text("● " if instance.minimum else "○ ", bright(number, instance.replica))
    label.append(f"replica {instance.replica}  ")
    nodes = list(dict.fromkeys(pod.node for pod in instance.pods))
    named = ", ".join(nodes[:_NODES]) + (f" and {len(nodes) - _NODES} more" if len(nodes) > _NODES else "")
    where = words.domains(instance.placement, unit.placement)
    return label.append(f"{where}  " if where else "").append(named, words.DIM)
