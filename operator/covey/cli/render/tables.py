"""Tables: the plan (a line for each role, or, wide, for each pod), usage by domain with bars, and head-room."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from covey.cli.picture.colors import bright
from covey.cli.render import objects
from covey.cli.render.objects import DIM
from covey.picture.floor import device_word
from covey.planning.additions import HeadroomReport, RoleHeadroomReport
from covey.planning.report import ChangeReport, PlanReport, WorkloadReport
from covey.watching.usage import Usage, UsageReport

_GAP: Final = 3
#: Columns whose words may wrap, and the width that they keep for it.
_PROSE: Final = frozenset({"PLACEMENT", "REASON"})
_LEAST_PROSE: Final = 24


def print_table(report: PlanReport, console: Console, *, wide: bool, heads: bool = True) -> None:
    """A line for each role of each unit, or (``wide``) for each placed pod; rows alone without ``heads``."""
    if heads:
        console.print(Text(objects.topology_words(report.topology), objects.DIM), soft_wrap=True)
    show(_pods(report) if wide else _roles(report), console, heads=heads)


def _roles(report: PlanReport) -> Table:
    roots = _roots(report)
    table = columns("WORKLOAD", *roots, "UNIT", "ROLE", "ADMITTED", "MINIMUM", "VERDICT", "PLACEMENT")
    for workload in report.workloads:
        for unit in workload.units:
            for role in unit.roles:
                verdict = "Admitted" if unit.admitted else _refusal_verdict(workload)
                wheres = (objects.domains(unit.placement), objects.finest(role.instances, unit.placement))
                table.add_row(
                    *_workload_columns(workload, roots),
                    str(unit.index),
                    role.name,
                    f"{role.admitted}/{role.replicas}",
                    str(role.min_replicas),
                    Text(verdict, objects.verdict_style(verdict)),
                    ", ".join(filter(None, wheres)),
                )
        for change in _changes_of(report, workload):
            for name in change.roles:
                pods = [
                    pod
                    for successor in change.successors
                    if successor.role == name
                    for pod in successor.pods
                    if not pod.index
                ]
                table.add_row(
                    *_workload_columns(workload, roots),
                    str(change.unit),
                    f"{name} (new)",
                    str(len(pods)),
                    "",
                    Text(change.verdict, objects.verdict_style(change.verdict)),
                    ", ".join(pod.node for pod in pods),
                )
    return table


def _changes_of(report: PlanReport, workload: WorkloadReport) -> Iterator[ChangeReport]:
    key = (workload.namespace, workload.name)
    return (change for change in report.changes if (change.namespace, change.name) == key)


def _pods(report: PlanReport) -> Table:
    levels = [level.name for level in report.topology.levels if level.name != "host"]
    roots = _roots(report)
    heads = ("UNIT", "ROLE", "REPLICA", "INDEX", "MINIMUM", "POD", "NODE")
    table = columns("WORKLOAD", *roots, *heads, *map(str.upper, levels))
    for workload in report.workloads:
        for unit in workload.units:
            for role in unit.roles:
                for instance in role.instances:
                    at = {domain.level: str(domain.domain) for domain in instance.placement}
                    for pod in instance.pods:
                        table.add_row(
                            *_workload_columns(workload, roots),
                            str(unit.index),
                            role.name,
                            str(instance.replica),
                            str(pod.index),
                            "yes" if instance.minimum else "",
                            pod.name,
                            pod.node,
                            *(at.get(level, "") for level in levels),
                        )
        for change in _changes_of(report, workload):
            for successor in change.successors:
                for pod in successor.pods:
                    cells = (f"{successor.role} (new)", str(successor.replica), str(pod.index), "", pod.name, pod.node)
                    table.add_row(*_workload_columns(workload, roots), str(change.unit), *cells, *[""] * len(levels))
    return table


def _roots(report: PlanReport) -> tuple[str, ...]:
    """The column of root groups, where ready trees belong to Workloads."""
    return ("ROOT",) if any(workload.workload for workload in report.workloads) else ()


def _workload_columns(workload: WorkloadReport, roots: tuple[str, ...]) -> tuple[str, ...]:
    """Its Workload, if it belongs to one, and its root group."""
    if not roots:
        return (f"{workload.namespace}/{workload.name}",)
    tree = workload.kind.endswith("PodGroup")
    return (f"{workload.namespace}/{workload.workload or workload.name}", workload.name if tree else "")


def print_reasons(workloads: Iterable[WorkloadReport], console: Console) -> None:
    """Print why something has no place, a sentence for each."""
    for workload in workloads:
        for message in dict.fromkeys((reason.unit, reason.message) for reason in workload.reasons):
            unit = f" unit {message[0]}" if len(workload.units) > 1 else ""
            root = f" ({workload.name})" if workload.workload else ""
            title = f"{workload.namespace}/{workload.workload or workload.name}{root}{unit}"
            line = Text(f"\n{workload.verdict}: ", objects.verdict_style(workload.verdict))
            console.print(line.append(f"{title}: {message[1]}", ""), soft_wrap=True)


def print_added(report: PlanReport, console: Console) -> None:
    """Print what became of the nodes that were added to try."""
    for node in report.added_nodes:
        console.print(Text("Added: ", objects.DIM).append(node.sentence, ""), soft_wrap=True)


def print_changes(report: PlanReport, console: Console) -> None:
    """Print the first step of each rollout that would begin."""
    for change in report.changes:
        if change.verdict == "Admitted":
            text = f"{change.namespace}/{change.name} unit {change.unit}: {change.message}"
            console.print(Text("Rollout: ", objects.DIM).append(text, ""), soft_wrap=True)


def print_preemptions(report: PlanReport, console: Console) -> None:
    """Print who would give way to what has no place."""
    for preemption in report.preemptions:
        doubt = "; some of it may be needless" if preemption.unproven else ""
        text = f"{preemption.namespace}/{preemption.name} unit {preemption.unit} {preemption.message}{doubt}"
        console.print(Text("Preemption: ", objects.DIM).append(text, ""), soft_wrap=True)


def print_moves(report: PlanReport, console: Console) -> None:
    """Print the moves of a consolidation, in their order, and what they lead to."""
    consolidation = report.consolidation
    for number, move in enumerate(consolidation.moves if consolidation is not None else (), start=1):
        kind = "surplus" if move.surplus else "of the minimum"
        text = f"{move.role}/{move.replica} of {move.namespace}/{move.name} unit {move.unit} ({kind}) from "
        text += f"{', '.join(move.source)} to {', '.join(move.target)}{', with all of its unit' * move.together}"
        console.print(Text(f"Move {number}: ", objects.DIM).append(text, ""), soft_wrap=True)
    if consolidation is not None:
        console.print(Text("Consolidation: ", objects.DIM).append(consolidation.message, ""), soft_wrap=True)


def columns(*names: str) -> Table:
    """A table as kubectl prints them: no lines, upper-case heads. Only words of a last PLACEMENT or REASON wrap."""
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name in names:
        table.add_column(name, no_wrap=name not in _PROSE, overflow="fold")
    return table


def show(table: Table, console: Console, *, heads: bool = True) -> None:
    """Print a table with every name whole: one that is too wide overflows the terminal, as kubectl's does."""
    table.show_header = heads
    width = console.width if least_width(table) <= console.width else _width(table, _whole)
    for line in console.render_lines(table, console.options.update_width(width), pad=False):
        text = Text.assemble(*((part.text, part.style or "") for part in line))
        text.rstrip()  # blanks that overflow would be empty lines
        console.print(text, soft_wrap=True)


def least_width(table: Table) -> int:
    """The columns of a terminal that show the table without cutting a name."""
    return _width(table, _least)


def _width(table: Table, measure: Callable[[Column], int]) -> int:
    return sum(map(measure, table.columns)) + _GAP * (len(table.columns) - 1)


def _whole(column: Column) -> int:
    return max(cell_len(str(text)) for text in (column.header, *column.cells))


def _least(column: Column) -> int:
    words = [word for text in (column.header, *column.cells) for word in str(text).split()]
    longest = max(map(cell_len, words), default=0)
    return _whole(column) if column.no_wrap else max(longest, min(_LEAST_PROSE, _whole(column)))


def _refusal_verdict(workload: WorkloadReport) -> str:
    return workload.verdict if workload.verdict != "Admitted" else "Infeasible"


_BAR = 24


def print_usage(report: UsageReport, console: Console, *, heads: bool = True) -> None:
    """A line for each domain, below the one it lies in; the bars go where the terminal is too narrow for them."""
    if heads:
        console.print(Text(f"topology {report.topology}, counting {report.resource}", DIM), soft_wrap=True)
    table = _table(report, bars=True)
    needed = least_width(table)
    if needed <= console.width:
        show(table, console, heads=heads)
        legend = "█ used   ▒ stranded (free beside other pods, or on closed nodes)   · free"
    else:
        show(_table(report, bars=False), console, heads=heads)
        legend = f"without bars: they need a terminal of {needed} columns"
    if heads:
        console.print(Text(legend, DIM), soft_wrap=True)


def _table(report: UsageReport, *, bars: bool) -> Table:
    table = columns("DOMAIN", "NODES", device_word(report.resource), "USED", "FREE", "STRANDED", *[""] * bars)
    for column in table.columns[1:6]:
        column.justify = "right"
    depths = {depth: place for place, depth in enumerate(sorted({len(domain.path) for domain in report.domains}))}
    for domain in report.domains:
        name = Text("  " * depths[len(domain.path)]).append(f"{domain.level} ", DIM).append(domain.domain)
        counts = (domain.nodes, domain.capacity, domain.used, domain.free, domain.stranded)
        table.add_row(name, *(f"{count:,}" for count in counts), *[_bar(domain)] * bars)
    return table


def _bar(usage: Usage) -> Text:
    if not usage.capacity:
        return Text("")
    used = round(usage.used / usage.capacity * _BAR)
    stranded = min(_BAR - used, round(usage.stranded / usage.capacity * _BAR))
    bar = Text("█" * used, bright(0)).append("▒" * stranded, bright(1))
    return bar.append("·" * (_BAR - used - stranded), DIM)


def print_headroom(report: HeadroomReport, console: Console, *, heads: bool = True, named: bool = False) -> None:
    """A line for each role; ``named``: below the resource's name, where there may be several."""
    if heads and named:
        console.print(Text(f"{report.namespace}/{report.name}", DIM), soft_wrap=True)
    table = columns("ROLE", "REPLICAS", "ADMITTED", "MAX FEASIBLE", "MORE")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in report.roles:
        table.add_row(row.name, f"{row.replicas:,}", f"{row.admitted:,}", *_numbers(row))
    show(table, console, heads=heads)
    if heads and report.observed_at:
        console.print(Text(f"as of {report.observed_at}", DIM), soft_wrap=True)
    if report.message:
        console.print(Text(report.message), soft_wrap=True)


def _numbers(role: RoleHeadroomReport) -> tuple[str, str]:
    if role.max_feasible is None:
        return "unknown", ""
    return f"{role.max_feasible:,}", f"{max(0, role.max_feasible - role.admitted):,}"
