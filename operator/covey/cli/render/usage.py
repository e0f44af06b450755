"""Usage by domain as a table with bars."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from covey.cli.picture.palette import bright
from covey.cli.render.table import columns, least_width, show
from covey.cli.render.words import DIM
from covey.picture.floor import device_word
from covey.watching.usage import Usage, UsageReport

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
    depths = {depth: place for place, depth in enumerate(sorted({len(each.path) for each in report.domains}))}
    for each in report.domains:
        name = Text("  " * depths[len(each.path)]).append(f"{each.level} ", DIM).append(each.domain)
        counts = (each.nodes, each.capacity, each.used, each.free, each.stranded)
        table.add_row(name, *(f"{count:,}" for count in counts), *[_bar(each)] * bars)
    return table


def _bar(usage: Usage) -> Text:
    if not usage.capacity:
        return Text("")
    used = round(usage.used / usage.capacity * _BAR)
    stranded = min(_BAR - used, round(usage.stranded / usage.capacity * _BAR))
    bar = Text("█" * used, bright(0)).append("▒" * stranded, bright(1))
    return bar.append("·" * (_BAR - used - stranded), DIM)
