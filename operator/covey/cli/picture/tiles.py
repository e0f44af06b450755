"""Tiles and colours of a picture.

Tiles: things of a known size that can be drawn anywhere on an SVG sheet, alone or laid out with others.

The colours of roles and replicas, for the terminal and for SVG.

One hue for each role, told apart also by people who do not see red and green alike; three shades of it for
neighbouring replicas, each with enough contrast on white and on black, and dark enough for white text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

_SHADES: Final[tuple[tuple[str, str, str], ...]] = (
    ("#2563eb", "#4f83f1", "#1e48b8"),  # blue
    ("#c2560c", "#dd7425", "#96420a"),  # orange
    ("#0d8059", "#2aa57b", "#0b6b4c"),  # green
    ("#9333c9", "#ab5bd9", "#7423a3"),  # purple
    ("#c0265f", "#d64f80", "#951b49"),  # raspberry
    ("#0d7f96", "#2b9bb1", "#096273"),  # teal
    ("#8a6d0b", "#a4862a", "#6b5408"),  # ochre
    ("#5b5bd6", "#7c7ce3", "#4343ab"),  # indigo
)


#: The same hues for characters on a terminal, whose background is not known: none of them dark.
_BRIGHT: Final[tuple[tuple[str, str, str], ...]] = (
    ("#4c86f5", "#86aefa", "#2f6fe8"),
    ("#e07a2b", "#f0a060", "#c7651b"),
    ("#21a97c", "#5fc8a4", "#17906a"),
    ("#b065e0", "#cb96ec", "#9a48d0"),
    ("#dd5585", "#ea8bab", "#c83a6e"),
    ("#2aa3bb", "#6cc3d4", "#1c8ba1"),
    ("#b29438", "#cfb76c", "#997c22"),
    ("#7f7fe8", "#a5a5f2", "#6666d9"),
)


def shade(ink: int, replica: int) -> str:
    """The colour of a replica of the role with this number; colours come round again after eight roles."""
    return _SHADES[ink % len(_SHADES)][replica % 3]


def hue(ink: int) -> str:
    """The colour of a role as a whole."""
    return _SHADES[ink % len(_SHADES)][0]


def bright(ink: int, replica: int = 0) -> str:
    """The colour of a replica on a terminal."""
    return _BRIGHT[ink % len(_BRIGHT)][replica % 3]


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
