"""The plan as kubectl-like columns: a line for each role, or (wide) for each pod."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from covey.cli.planning.report import Report, WorkloadReport
from covey.cli.render import words


def print_table(report: Report, console: Console) -> None:
    """A line for each role of each unit; under it why a unit has no place."""
    _head(report, console)
    table = columns("WORKLOAD", "UNIT", "ROLE", "ADMITTED", "MINIMUM", "VERDICT", "PLACEMENT")
    for workload in report.workloads:
        for unit in workload.units:
            for role in unit.roles:
                verdict = "Admitted" if unit.admitted else _refused(workload)
                wheres = (words.domains(unit.placement), words.finest(role.instances, unit.placement))
                table.add_row(
                    f"{workload.namespace}/{workload.name}",
                    str(unit.index),
                    role.name,
                    f"{role.admitted}/{role.replicas}",
                    str(role.min_replicas),
                    Text(verdict, words.verdict_style(verdict)),
                    ", ".join(filter(None, wheres)),
                )
    console.print(table)
    print_reasons(report.workloads, console)


def print_wide(report: Report, console: Console) -> None:
    """A line for each placed pod."""
    _head(report, console)
    levels = [level.name for level in report.topology.levels if level.name != "host"]
    table = columns("WORKLOAD", "UNIT", "ROLE", "REPLICA", "INDEX", "MINIMUM", "POD", "NODE", *map(str.upper, levels))
    for workload in report.workloads:
        for unit in workload.units:
            for role in unit.roles:
                for instance in role.instances:
                    at = {each.level: str(each.domain) for each in instance.placement}
                    for pod in instance.pods:
                        table.add_row(
                            f"{workload.namespace}/{workload.name}",
                            str(unit.index),
                            role.name,
                            str(instance.replica),
                            str(pod.index),
                            "yes" if instance.minimum else "",
                            pod.name,
                            pod.node,
                            *(at.get(level, "") for level in levels),
                        )
    console.print(table)
    print_reasons(report.workloads, console)


def print_reasons(workloads: Iterable[WorkloadReport], console: Console) -> None:
    """Why something has no place, a sentence for each."""
    for workload in workloads:
        for message in dict.fromkeys((reason.unit, reason.message) for reason in workload.reasons):
            unit = f" unit {message[0]}" if len(workload.units) > 1 else ""
            line = Text(f"\n{workload.verdict}: ", words.verdict_style(workload.verdict))
            console.print(line.append(f"{workload.namespace}/{workload.name}{unit}: {message[1]}", ""), soft_wrap=True)


def columns(*names: str) -> Table:
    """A table as kubectl prints them: no lines, upper-case heads."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for name in names:
        table.add_column(name, no_wrap=name != "PLACEMENT", overflow="fold")
    return table


def _head(report: Report, console: Console) -> None:
    console.print(Text(words.topology_words(report.topology), words.DIM), soft_wrap=True)


def _refused(workload: WorkloadReport) -> str:
    return workload.verdict if workload.verdict != "Admitted" else "Infeasible"
