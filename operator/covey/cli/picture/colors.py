"""Colours of roles and replicas on a terminal.

One hue for each role, told apart also by people who do not see red and green alike; three shades of it for
neighbouring replicas. None of them is dark, for the terminal's background is not known.
"""

from __future__ import annotations

from typing import Final

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


def bright(ink: int, replica: int = 0) -> str:
    """The colour of a replica on a terminal."""
    return _BRIGHT[ink % len(_BRIGHT)][replica % 3]
