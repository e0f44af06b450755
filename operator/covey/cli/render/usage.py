"""Usage by domain as a table with bars."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from covey.cli.render.floor import device_word
from covey.cli.render.palette import bright
from covey.cli.render.table import columns
from covey.cli.render.words import DIM
from covey.cli.watching.usage import Usage, UsageReport

_BAR = 24


def print_usage(report: UsageReport, console: Console) -> None:
    """A line for each domain, below the one it lies in."""
    console.print(Text(f"topology {report.topology}, counting {report.resource}", DIM), soft_wrap=True)
    table = columns("DOMAIN", "NODES", device_word(report.resource), "USED", "FREE", "STRANDED", "")
    for column in table.columns[1:-1]:
        column.justify = "right"
    depths = {depth: place for place, depth in enumerate(sorted({len(each.path) for each in report.domains}))}
    for each in report.domains:
        name = Text("  " * depths[len(each.path)]).append(f"{each.level} ", DIM).append(each.domain)
        counts = (each.nodes, each.capacity, each.used, each.free, each.stranded)
        table.add_row(name, *(f"{count:,}" for count in counts), _bar(each))
    console.print(table)
    console.print(
        Text("█ used   ▒ stranded (free beside other pods, or on closed nodes)   · free", DIM), soft_wrap=True
    )


def _bar(usage: Usage) -> Text:
    if not usage.capacity:
        return Text("")
    used = round(usage.used / usage.capacity * _BAR)
    stranded = min(_BAR - used, round(usage.stranded / usage.capacity * _BAR))
    bar = Text("█" * used, bright(0)).append("▒" * stranded, bright(1))
    return bar.append("·" * (_BAR - used - stranded), DIM)
