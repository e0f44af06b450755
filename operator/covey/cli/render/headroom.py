"""Head-room as a table."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from covey.cli.render.table import columns, show
from covey.cli.render.words import DIM
from covey.planning.headroom import HeadroomReport, RoleReport


def print_headroom(report: HeadroomReport, console: Console, *, heads: bool = True, named: bool = False) -> None:
    """A line for each role; ``named``: below the resource's name, where there may be several."""
    if heads and named:
        console.print(Text(f"{report.namespace}/{report.name}", DIM), soft_wrap=True)
    table = columns("ROLE", "REPLICAS", "ADMITTED", "MAX FEASIBLE", "MORE")
    for column in table.columns[1:]:
        column.justify = "right"
    for each in report.roles:
        table.add_row(each.name, f"{each.replicas:,}", f"{each.admitted:,}", *_numbers(each))
    show(table, console, heads=heads)
    if heads and report.observed_at:
        console.print(Text(f"as of {report.observed_at}", DIM), soft_wrap=True)
    if report.message:
        console.print(Text(report.message), soft_wrap=True)


def _numbers(role: RoleReport) -> tuple[str, str]:
    if role.max_feasible is None:
        return "unknown", ""
    return f"{role.max_feasible:,}", f"{max(0, role.max_feasible - role.admitted):,}"
