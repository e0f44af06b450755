"""The floor as one self-contained SVG: no script, no font, no reference to anything outside.

It brings its own background, so it reads on any page, and follows the reader's dark mode. All text is text, every
pod and node has a tooltip. Domains that take no part are drawn small: 5,000 nodes are still a page.

Everything is a *tile*: a size, and how to draw it at a place. Tiles are laid out in rows that wrap, a domain is a
frame around such a layout; so there is no second pass and no absolute position anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from html import escape
from textwrap import wrap
from typing import Final

from covey.cli.picture.tiles import GAP, Sheet, Tile, flow, hue, shade, side_by_side, stack
from covey.picture.floor import Box, Floor, Mark, NodeBox, Run, short_names

_STYLE: Final = """
text{font-family:ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",Helvetica,Arial,sans-serif;
font-size:11px;fill:#1f2733}
.page{fill:#ffffff;stroke:#d5dae1}.domain{fill:#f3f5f8;stroke:#dfe3e8}.rack{fill:#ffffff;stroke:#cbd2da}
.rack.mine{stroke:#8d99a8;stroke-width:1.4}
.h1{font-size:17px;font-weight:600}.h2{font-size:13px;font-weight:600}.h3{font-weight:600}
.dim{fill:#66717f}.node{font-size:9.5px;fill:#7b8694}.node.mine{fill:#1f2733}
.free{fill:none;stroke:#c6cdd6}.other{fill:#b9c1cb}.closed{fill:url(#closed);stroke:#c6cdd6}.hatch{stroke:#b9c1cb}
.label{font-size:9.5px;font-weight:600;fill:#ffffff;text-anchor:middle}.right{text-anchor:end}.bad{fill:#b42318}
.notch{stroke:#ffffff;stroke-opacity:.35}.swatch{fill:none}
.chosen{stroke:#0f7a3d;stroke-width:2.5}.nearest{stroke:#b42318;stroke-width:2.5;stroke-dasharray:7 4}
@media (prefers-color-scheme:dark){
text{fill:#e6e9ee}.page{fill:#14181e;stroke:#2b323b}.domain{fill:#1c2128;stroke:#2e353f}.rack{fill:#14181e;stroke:#38414c}
.rack.mine{stroke:#7d8997}.dim,.node{fill:#98a3b1}.node.mine{fill:#e6e9ee}.free{stroke:#414b57}.other{fill:#56616e}
.closed{stroke:#414b57}.hatch{stroke:#56616e}.label{fill:#ffffff}.bad{fill:#ff8a80}
.chosen{stroke:#4ccb82}.nearest{stroke:#ff8a80}}
""".replace("\n", "")

#: Widths that a page may have, and the height that it should have at most, as a share of its width.
_WIDTHS: Final = (480, 600, 750, 940, 1160, 1450, 1820, 2270)
_SHAPE: Final = 0.8
#: What a mark means, in the legend.
_MEANING: Final = {
    Mark.CHOSEN: "chosen: holds a whole unit",
    Mark.NEAREST: "nearest: the best there is, but short of room",
}
_PAD: Final = 12
_INSET: Final = 8
_CELL: Final = 14
_LINE: Final = 19
_HEAD: Final = 27
_CHAR: Final = 5.7  # of a node's name, on average
_NOTE: Final = 6.1  # a character of a note
_NAME: Final = 24  # characters of a node's name, and of a rack's that takes no part
_TITLE: Final = 16
_BAR: Final = 46
_BAR_LINE: Final = 6
_SQUARE: Final = 13
_MOST_SQUARES: Final = 40


def render_svg(floor: Floor, notes: Sequence[str] = (), remarks: Sequence[str] = ()) -> str:
    """The whole picture; ``notes`` (why something has no place) stand under the title, in red, ``remarks`` in grey."""
    page = _page(floor, [*((note, "bad") for note in notes), *((remark, "dim") for remark in remarks)])
    width, height = max(page.width, 420) + 2 * _PAD, page.height + 2 * _PAD
    sheet = Sheet()
    sheet.rect(0.5, 0.5, (width - 1, height - 1), "page", radius=8)
    page.draw(sheet, _PAD, _PAD)
    title = f"{floor.title}: {floor.subtitle}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}"'
        f' viewBox="0 0 {width:g} {height:g}" role="img">\n<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n'
        '<defs><pattern id="closed" width="5" height="5" patternUnits="userSpaceOnUse"'
        ' patternTransform="rotate(45)"><path d="M0 0V5" class="hatch"/></pattern></defs>\n'
        + "\n".join(sheet.parts)
        + "\n</svg>\n"
    )


def _page(floor: Floor, notes: Sequence[tuple[str, str]]) -> Tile:
    """Lay out a page as narrow as it may be without getting tall, so that its size follows the number of racks."""
    pen = _Pen(floor)
    page = stack(())
    for width in _WIDTHS:
        lines = [_note(line, look) for note, look in notes for line in wrap(note, int(width / _NOTE))]
        page = stack(
            [
                _heading(floor),
                *[stack(lines, 2)] * bool(lines),
                _legend(floor, width),
                *_domains(pen, floor.boxes, width),
            ]
        )
        if page.height <= page.width * _SHAPE:
            break
    return page


class _Pen:
    """The measures of this picture: how wide a name and a node's cells are."""

    def __init__(self, floor: Floor) -> None:
        self.floor = floor
        drawn = [node for leaf in _leaves(floor.boxes) if leaf.focus for node in leaf.nodes]
        self.cells = max([node.cells for node in drawn] + [1])
        self.names = short_names((node.name for node in drawn), _NAME)
        self.titles = short_names((leaf.title for leaf in _leaves(floor.boxes)), _TITLE)
        self.name = max([len(name) for name in self.names.values()] + [4]) * _CHAR + 8
        chips = max([sum(_chip(run) + 3 for run in node.runs if not run.cells) for node in drawn] + [0])
        self.rack = 2 * 8 + self.name + self.cells * _CELL + (chips + 3 if chips else 0)

    def free(self, box: Box) -> str:
        scale = self.floor.scale
        return f"{box.free * scale:,} of {box.cells * scale:,} {self.floor.device} {'left' if box.ours else 'free'}"


def _leaves(boxes: Sequence[Box]) -> list[Box]:
    return [leaf for box in boxes for leaf in (_leaves(box.boxes) if box.boxes else [box])]


def _all(boxes: Sequence[Box]) -> list[Box]:
    return [each for box in boxes for each in (box, *_all(box.boxes))]


# Frames


def _frame(inner: Tile, name: str, note: str, look: str, tip: str = "") -> Tile:
    """A frame with the domain's name above on the left, what is free on the right."""
    width = max(inner.width + 2 * _INSET, _header(name, note))

    def draw(sheet: Sheet, x: float, y: float) -> None:
        sheet.rect(x, y, (width, inner.height + _HEAD + 8), look, radius=6, tip=tip)
        sheet.text(x + 9, y + 18, name, "h3" if look.startswith("rack") else "h2")
        sheet.text(x + width - 9, y + 18, note, "dim right")
        inner.draw(sheet, x + 8, y + _HEAD)

    return Tile(width, inner.height + _HEAD + 8, draw)


def _header(name: str, note: str) -> float:
    """The width that a domain's name and note need."""
    return len(name) * 7 + len(note) * 6 + 30


# Domains


def _domains(pen: _Pen, boxes: Sequence[Box], width: float) -> list[Tile]:
    """Domains of one level: those that take part drawn whole, the others small."""
    whole, idle = [box for box in boxes if box.focus], [box for box in boxes if not box.focus]
    if boxes and not boxes[0].boxes:
        return _racks(pen, whole, idle, width)
    framed = [
        _frame(
            stack(_domains(pen, box.boxes, width - 2 * _INSET)),
            box.title,
            _marked_note(box, pen.free(box)),
            f"domain {_look(box)}",
        )
        for box in whole
    ]
    wide = max([len(box.title) for box in idle] + [0])
    return [flow(framed, width)] * bool(framed) + [stack([_idle(pen, box, wide) for box in idle], 4)] * bool(idle)


def _racks(pen: _Pen, whole: Sequence[Box], idle: Sequence[Box], width: float) -> list[Tile]:
    """Small racks stand beside the whole ones where there is room for some, else below them."""
    drawn = flow([_rack(pen, box) for box in whole], width)
    notes = [f"{box.free * pen.floor.scale:,}" for box in idle]
    inner = max(
        [_BAR, *(_header(pen.titles[box.title], note) - 2 * _INSET for box, note in zip(idle, notes, strict=True))]
    )
    small = [_small_rack(pen, box, note, inner) for box, note in zip(idle, notes, strict=True)]
    left = width - drawn.width - GAP
    if whole and small and left >= 3 * (small[0].width + GAP):
        return [side_by_side([drawn, flow(small, left)])]
    return [tile for tile in (drawn, flow(small, width)) if tile.width]


def _rack(pen: _Pen, box: Box) -> Tile:
    nodes = stack([Tile(pen.rack - 16, _LINE - 4, partial(_draw_node, pen, node)) for node in box.nodes], 4)
    note = f"{box.free * pen.floor.scale:,} {'left' if box.ours else 'free'}"
    mine = " mine" if box.ours or any(node.runs for node in box.nodes) else ""
    return _frame(nodes, box.title, _marked_note(box, note), f"rack{mine} {_look(box)}")


def _marked_note(box: Box, note: str) -> str:
    """The note of a domain: the words of the verdict, then what is free."""
    return f"{box.mark} · {note}" if box.mark else note


def _look(box: Box) -> str:
    return box.mark.value if box.mark else ""


def _draw_node(pen: _Pen, node: NodeBox, sheet: Sheet, x: float, y: float) -> None:
    sheet.text(x, y + 11, pen.names[node.name], "node mine" if node.runs else "node")
    x += pen.name
    for run in node.runs:
        if run.cells:
            _draw_run(sheet, x, y, run)
            x += run.cells * _CELL
    for _ in range(node.others):
        sheet.rect(x + 1, y + 1, (_CELL - 2, _CELL - 1), "other", radius=2, tip=f"{node.name}: other pods")
        x += _CELL
    look, tip = ("closed", f"{node.name}: {node.closed}") if node.closed else ("free", f"{node.name}: free")
    for _ in range(node.free):
        sheet.rect(x + 1.5, y + 1.5, (_CELL - 3, _CELL - 2), look, radius=2, tip=tip)
        x += _CELL
    x += 3
    for run in node.runs:
        if not run.cells:
            sheet.rect(x, y, (_chip(run), _CELL + 1), shade(run.owner.ink, run.spot.replica), radius=7, tip=_tip(run))
            sheet.text(x + _chip(run) / 2, y + 11, run.tag, "label")
            x += _chip(run) + 3


def _chip(run: Run) -> float:
    """The width of the mark of a pod without a device."""
    return len(run.tag) * 6.2 + 10


def _draw_run(sheet: Sheet, x: float, y: float, run: Run) -> None:
    """One pod: a bar over its devices, notched between them."""
    width = run.cells * _CELL - 2
    sheet.rect(x + 1, y, (width, _CELL + 1), shade(run.owner.ink, run.spot.replica), tip=_tip(run))
    label = f"{run.tag} · {run.spot.index}" if run.cells > 3 else run.tag
    clear = len(label) * 5.6 / 2 + 3
    middle = x + 1 + width / 2
    cuts = [x + cell * _CELL for cell in range(1, run.cells)]
    sheet.path([f"M{cut:g} {y + 2:g}V{y + _CELL - 1:g}" for cut in cuts if abs(cut - middle) > clear], "notch")
    if run.cells > 1 or len(label) < 3:
        sheet.text(middle, y + 11, label, "label")


def _tip(run: Run) -> str:
    spot = run.spot
    return f"{spot.pod} on {spot.node}\n{spot.workload} unit {spot.unit}, {spot.role} replica {spot.replica}, pod {spot.index}"


def _small_rack(pen: _Pen, box: Box, note: str, width: float) -> Tile:
    """A rack that takes no part: a slim bar for each node, filled as far as it is used."""

    def draw(sheet: Sheet, x: float, y: float) -> None:
        for number, node in enumerate(box.nodes):
            top = y + number * _BAR_LINE
            tip = f"{node.name}: {node.closed or f'{node.free} of {node.cells} free'}"
            sheet.rect(
                x + 0.5, top + 0.5, (width - 1, _BAR_LINE - 2), "closed" if node.closed else "free", radius=1, tip=tip
            )
            used = node.others / node.cells * width if node.cells else 0
            if used:
                sheet.rect(x, top, (used, _BAR_LINE - 1), "other", radius=1)

    bars = Tile(width, len(box.nodes) * _BAR_LINE, draw)
    return _frame(bars, pen.titles[box.title], note, "rack", f"{box.title}: {pen.free(box)}")


def _idle(pen: _Pen, box: Box, wide: int) -> Tile:
    """A domain that takes no part: one line, a square for each domain in it, filled as far as it is used."""
    parts = _leaves(box.boxes)
    shown = parts[:_MOST_SQUARES]
    start = wide * 7.0 + 14
    end = start + len(shown) * _SQUARE + 8

    def draw(sheet: Sheet, x: float, y: float) -> None:
        sheet.text(x + 9, y + 11, box.title, "h3")
        for number, part in enumerate(shown):
            left = x + start + number * _SQUARE
            sheet.rect(left + 0.5, y + 1.5, (_SQUARE - 3, 11), "free", radius=2, tip=f"{part.name}: {pen.free(part)}")
            used = (part.cells - part.free) / part.cells * 12 if part.cells else 0
            if used:
                sheet.rect(left, y + 13 - used, (_SQUARE - 2, used), "other", radius=2)
        more = f"+{len(parts) - len(shown)} more · " if len(parts) > len(shown) else ""
        many = f" · {len(parts):,} {parts[0].level}s · {len(box.all_nodes()):,} nodes"
        sheet.text(x + end, y + 11, f"{more}{pen.free(box)}{many}", "dim")

    return Tile(end + 260, 16, draw)


# Title, notes, legend


def _heading(floor: Floor) -> Tile:
    def draw(sheet: Sheet, x: float, y: float) -> None:
        sheet.text(x + 2, y + 16, floor.title, "h1")
        sheet.text(x + 2, y + 33, floor.subtitle, "dim")

    return Tile(max(len(floor.title) * 10.0, len(floor.subtitle) * 6.2), 36, draw)


def _note(note: str, look: str) -> Tile:
    return Tile(len(note) * _NOTE, 14, lambda sheet, x, y: sheet.text(x + 2, y + 11, note, look))


def _legend(floor: Floor, width: float) -> Tile:
    several = len({owner.workload for owner in floor.owners}) > 1
    tiles = [
        _entry(hue(owner.ink), f"{f'{owner.workload} ' if several else ''}{owner.role} {owner.letter}")
        for owner in floor.owners
    ]
    amount = f"{floor.scale} {floor.resource}" if floor.scale > 1 else f"one {floor.device}"
    tiles += [_entry("other", "other pods"), _entry("free", "free"), _entry("closed", "closed")]
    marks = {box.mark for box in _all(floor.boxes) if box.mark}
    tiles += [_entry(f"swatch {mark.value}", _MEANING[mark]) for mark in Mark if mark in marks]
    several_units = any("." in run.tag for run in floor.runs)
    key = f" · labels: role{' unit.' if several_units else ' '}replica · pod" if floor.runs else ""
    words = f"a cell is {amount}{key}"
    tiles.append(Tile(len(words) * 5.9, 14, lambda sheet, x, y: sheet.text(x, y + 11, words, "dim")))
    return flow(tiles, width, 14)


def _entry(look: str, words: str) -> Tile:
    def draw(sheet: Sheet, x: float, y: float) -> None:
        sheet.rect(x + 2, y + 1, (12, 12), look, radius=2)
        sheet.text(x + 19, y + 11, words)

    return Tile(22 + len(words) * 6.0, 14, draw)
