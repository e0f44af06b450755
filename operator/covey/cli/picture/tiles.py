"""Tiles: things of a known size that can be drawn anywhere on an SVG sheet, alone or laid out with others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

GAP: Final = 10


class Sheet:
    """Collects SVG elements."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def rect(
        self, x: float, y: float, size: tuple[float, float], look: str, *, radius: float = 3, tip: str = ""
    ) -> None:
        """A rectangle; ``look`` is a colour or classes, ``tip`` what is shown when somebody points at it."""
        ink = f'fill="{look}"' if look.startswith("#") else f'class="{look}"'
        body = f'<rect x="{x:g}" y="{y:g}" width="{size[0]:g}" height="{size[1]:g}" rx="{radius:g}" {ink}'
        self.parts.append(f"{body}><title>{escape(tip)}</title></rect>" if tip else f"{body}/>")

    def text(self, x: float, y: float, words: str, look: str = "") -> None:
        """A line of text; ``y`` is its foot."""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" class="{look}">{escape(words)}</text>')

    def path(self, strokes: Sequence[str], look: str) -> None:
        """Strokes in SVG's own words."""
        if strokes:
            self.parts.append(f'<path d="{"".join(strokes)}" class="{look}"/>')


@dataclass(frozen=True, slots=True)
class Tile:
    """Something of a known size that can be drawn anywhere."""

    width: float
    height: float
    draw: Callable[[Sheet, float, float], None]


def stack(tiles: Sequence[Tile], gap: float = GAP) -> Tile:
    """One below the other."""

    def draw(sheet: Sheet, x: float, y: float) -> None:
        for tile in tiles:
            tile.draw(sheet, x, y)
            y += tile.height + gap

    height = sum(tile.height for tile in tiles) + gap * max(0, len(tiles) - 1)
    return Tile(max((tile.width for tile in tiles), default=0), height, draw)


def side_by_side(tiles: Sequence[Tile], gap: float = GAP) -> Tile:
    """One beside the other."""

    def draw(sheet: Sheet, x: float, y: float) -> None:
        for tile in tiles:
            tile.draw(sheet, x, y)
            x += tile.width + gap

    width = sum(tile.width for tile in tiles) + gap * max(0, len(tiles) - 1)
    return Tile(width, max((tile.height for tile in tiles), default=0), draw)


def flow(tiles: Sequence[Tile], width: float, gap: float = GAP) -> Tile:
    """Rows that wrap at a width."""
    rows: list[list[Tile]] = []
    left = -1.0
    for tile in tiles:
        left -= tile.width + gap
        if left < 0:
            rows.append([])
            left = width - tile.width
        rows[-1].append(tile)
    return stack([side_by_side(row, gap) for row in rows], gap)
