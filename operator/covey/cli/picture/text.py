"""The floor drawn in characters: a box for each rack that takes part, a line for each node, a cell for each device.

What takes no part is drawn small: a rack as one bar for each node, a block as one bar for each rack. With colours a
replica has its shade; without them its role's letter stands in every cell, so that a log file tells as much.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest

from rich.console import Console
from rich.text import Text

from covey.cli.console import page_width
from covey.cli.picture.colors import bright
from covey.picture.floor import Box, CellRun, Floor, NodeBox
from covey.picture.short_names import short_names

_BARS = "·▁▂▃▄▅▆▇█"
_OTHER, _FREE, _CLOSED, _MARK = "▒", "□", "╳", "■"  # noqa: RUF001 - drawn, not read
_DIM = "bright_black"
_NAME = 16
#: More nodes to be drawn whole than this get one cell each instead of one line.
_MANY = 240
#: Bars of one line at most.
_PARTS = 48


def print_picture(floor: Floor, console: Console) -> None:
    """Print the floor, as wide as the console allows."""
    leaves = _leaves(floor.boxes)
    pen = _Pen(
        floor,
        console.color_system is not None and not console.no_color,
        short_names((node.name for leaf in leaves if leaf.focus for node in leaf.nodes), _NAME),
        short_names((leaf.title for leaf in leaves), _NAME),
    )
    console.print(Text(floor.title, "bold"), Text(f"  {floor.subtitle}", _DIM), sep="", soft_wrap=True)
    width = page_width(console)
    drawn = sum(len(box.nodes) for box in leaves if box.focus)
    small = drawn > _MANY or width < pen.rack_width()
    for line in _domains(pen, floor.boxes, width, small=small):
        console.print(line, soft_wrap=True)
    console.print()
    console.print(_legend(pen), soft_wrap=True)


def _leaves(boxes: Iterable[Box]) -> list[Box]:
    return [leaf for box in boxes for leaf in (_leaves(box.boxes) if box.boxes else [box])]


@dataclass(frozen=True, slots=True)
class _Pen:
    """The look of cells in this picture; the names of nodes and the titles of racks as they are drawn."""

    floor: Floor
    colour: bool
    names: Mapping[str, str]
    titles: Mapping[str, str]

    def run(self, run: CellRun, cells: int) -> Text:
        mark = _MARK if self.colour else run.owner.letter
        return Text(mark * cells, bright(run.owner.ink, run.spot.replica))

    def tags(self, node: NodeBox) -> Text:
        seen = dict.fromkeys((run.tag, bright(run.owner.ink, run.spot.replica)) for run in node.runs)
        return Text(" ").join(Text(tag, f"bold {colour}") for tag, colour in seen)

    def cells(self, node: NodeBox) -> Text:
        line = Text()
        for run in node.runs:
            line.append_text(self.run(run, run.cells))
        line.append(_OTHER * node.others, _DIM)
        line.append((_CLOSED if node.closed else _FREE) * node.free, _DIM)
        return line

    def one_cell(self, node: NodeBox) -> Text:
        """A node as one character: whose it is, or how full."""
        if node.runs:
            return self.run(max(node.runs, key=lambda run: run.cells), 1)
        if node.closed:
            return Text(_CLOSED, _DIM)
        return Text(_bar(node.others, node.cells), _DIM)

    def name_width(self) -> int:
        return max(map(len, self.names.values()), default=1)

    def edge(self, rack: Box) -> tuple[str, str]:
        """The upper edge of a rack: its title, and what is free there."""
        return f"{self.titles[rack.title]}{_mark_text(rack)}", f" {rack.free * self.floor.scale:,} free ╮"

    def rack_width(self) -> int:
        drawn = [leaf for leaf in _leaves(self.floor.boxes) if leaf.focus]
        nodes = [node for leaf in drawn for node in leaf.nodes]
        cells = max((node.cells for node in nodes), default=0)
        tags = max((self.tags(node).cell_len for node in nodes), default=0)
        heads = max((sum(map(len, self.edge(leaf))) for leaf in drawn), default=0)
        return max(self.name_width() + cells + tags + 6, heads + 5)


def _bar(used: int, cells: int) -> str:
    return _BARS[-(-used * (len(_BARS) - 1) // cells)] if cells else " "


def _mark_text(box: Box) -> str:
    return f" ◀ {box.mark}" if box.mark else ""


def _free_of(pen: _Pen, box: Box) -> str:
    after = " left" if box.ours else " free"
    return f"{box.free * pen.floor.scale:,} of {box.cells * pen.floor.scale:,} {pen.floor.device}{after}"


def _domains(pen: _Pen, boxes: Sequence[Box], width: int, *, small: bool) -> list[Text]:
    """Domains of one level: those that take part drawn whole, each run of the others as a table of small ones."""
    if boxes and not boxes[0].boxes:
        drawn = _row(pen, [box for box in boxes if box.focus], width, small=small)
        return drawn + _small_racks(pen, [box for box in boxes if not box.focus])
    lines: list[Text] = []
    for focus, group in groupby(boxes, key=lambda box: box.focus):
        if not focus:
            lines += [Text(), *_summaries(pen, list(group))]
            continue
        for box in group:
            heading = Text().append(box.title, "bold").append(f"  {_free_of(pen, box)}{_mark_text(box)}", _DIM)
            lines += [Text(), heading, *_domains(pen, box.boxes, width, small=small)]
    return lines


def _row(pen: _Pen, racks: Sequence[Box], width: int, *, small: bool) -> list[Text]:
    if small:
        return _small_racks(pen, racks)
    rack_width = pen.rack_width()
    fit = max(1, (width + 1) // (rack_width + 1))
    lines: list[Text] = []
    for start in range(0, len(racks), fit):
        columns = [_rack(pen, rack, rack_width) for rack in racks[start : start + fit]]
        tall = max(len(column) for column in columns)
        padded = [[*column[:-1], *[_padding(rack_width)] * (tall - len(column)), column[-1]] for column in columns]
        lines += [Text(" ").join(part for part in parts if part) for parts in zip_longest(*padded)]
    return lines


def _rack(pen: _Pen, rack: Box, width: int) -> list[Text]:
    name, right = pen.edge(rack)
    edge = "─" * (width - len(name) - len(right) - 3)
    lines = [Text("╭ ", _DIM).append(name, "bold").append(f" {edge}{right}", _DIM)]
    names = pen.name_width()
    for node in rack.nodes:
        line = Text("│ ", _DIM).append(pen.names[node.name].ljust(names), "" if node.runs else _DIM).append(" ")
        line.append_text(pen.cells(node)).append(" ").append_text(pen.tags(node))
        line.append(" " * (width - 1 - line.cell_len)).append("│", _DIM)
        lines.append(line)
    return [*lines, Text(f"╰{'─' * (width - 2)}╯", _DIM)]


def _padding(width: int) -> Text:
    return Text(f"│{' ' * (width - 2)}│", _DIM)


def _small_racks(pen: _Pen, racks: Sequence[Box]) -> list[Text]:
    """A line for each rack, a character for each node."""
    wide = max((len(pen.titles[rack.title]) for rack in racks), default=0)
    lines = []
    for rack in racks:
        line = Text().append(f"  {pen.titles[rack.title].ljust(wide)} ", "bold" if rack.ours else _DIM)
        for node in rack.nodes:
            line.append_text(pen.one_cell(node))
        lines.append(line.append(f"  {_free_of(pen, rack)}{_mark_text(rack)}", _DIM))
    return lines


def _summaries(pen: _Pen, boxes: Sequence[Box]) -> list[Text]:
    """Domains that take no part: a line for each, a bar for each domain in it."""
    wide = max(len(box.title) for box in boxes)
    lines = []
    for box in boxes:
        parts = _leaves(box.boxes)
        bars = "".join(_bar(part.cells - part.free, part.cells) for part in parts[:_PARTS])
        line = Text().append(box.title.ljust(wide), "bold").append(f"  {bars}", _DIM)
        of = f"{len(parts):,} {parts[0].level}s, {len(box.all_nodes()):,} nodes" if parts[0].level else ""
        lines.append(line.append(f"  {_free_of(pen, box)}  {of}", _DIM))
    return lines


def _legend(pen: _Pen) -> Text:
    line = Text()
    several = len({owner.workload for owner in pen.floor.owners}) > 1
    for owner in pen.floor.owners:
        name = f"{owner.workload} {owner.role}" if several else owner.role
        line.append(f"{_MARK} " if pen.colour else "", bright(owner.ink))
        line.append(owner.letter, f"bold {bright(owner.ink)}").append(f" {name}   ")
    line.append(f"{_OTHER} others   {_FREE} free   {_CLOSED} closed", _DIM)
    unit = f"{pen.floor.scale} {pen.floor.resource}" if pen.floor.scale > 1 else pen.floor.device
    return line.append(f"   a cell is one {unit}" if pen.floor.scale == 1 else f"   a cell is {unit}", _DIM)
