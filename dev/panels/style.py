"""How pictures look, in light and in dark: colours that the colour-blind can tell apart, units, one font."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import matplotlib as mpl

#: Picture elements for one unit of the dashboard's grid, and how many dots each has.
GRID_WIDTH: Final = 60
GRID_HEIGHT: Final = 38
DENSITY: Final = 2
_INCH: Final = 100
_STEPS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_BYTES: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
#: What a unit of Grafana's is called on an axis.
UNITS: Final[Mapping[str, str]] = {"ops": "per second", "reqps": "per second"}


@dataclass(frozen=True)
class Theme:
    """One look. ``series`` are told apart in order; ``named`` are those that a dashboard calls by name."""

    name: str
    paper: str
    ink: str
    faint: str
    grid: str
    series: tuple[str, ...]
    named: Mapping[str, str]
    heat: str

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Draw with it."""
        with mpl.rc_context(self._settings()):
            yield

    def color(self, number: int) -> str:
        """Of the series of this number."""
        return self.series[number % len(self.series)]

    def _settings(self) -> dict[str, Any]:
        return {
            "font.family": ["DejaVu Sans"],
            "font.size": 8.5,
            "axes.titlesize": 10,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "axes.titlecolor": self.ink,
            "axes.facecolor": self.paper,
            "axes.edgecolor": self.grid,
            "axes.labelcolor": self.faint,
            "axes.labelsize": 8,
            "axes.grid": True,
            "axes.axisbelow": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.spines.left": False,
            "grid.color": self.grid,
            "grid.linewidth": 0.6,
            "xtick.color": self.faint,
            "ytick.color": self.faint,
            "xtick.major.size": 0,
            "ytick.major.size": 0,
            "text.color": self.ink,
            "figure.facecolor": self.paper,
            "savefig.facecolor": self.paper,
            "figure.dpi": _INCH,
            "savefig.dpi": _INCH * DENSITY,
            "legend.frameon": False,
            "legend.fontsize": 8,
            "legend.labelcolor": self.ink,
            "legend.handlelength": 1.2,
            "legend.handletextpad": 0.5,
            "legend.columnspacing": 1.4,
            "lines.linewidth": 1.5,
            "lines.solid_capstyle": "round",
        }


LIGHT: Final = Theme(
    "light",
    paper="#ffffff",
    ink="#1f2430",
    faint="#5b6270",
    grid="#e3e6eb",
    series=(
        "#0072b2",
        "#d55e00",
        "#009e73",
        "#cc79a7",
        "#e69f00",
        "#56b4e9",
        "#6b5b95",
        "#7f7f7f",
        "#8c2d04",
        "#00441b",
    ),
    named={"green": "#007a5a", "orange": "#b85c00", "red": "#c0392b", "text": "#c3c8d1"},
    heat="Blues",
)
DARK: Final = Theme(
    "dark",
    paper="#1e2129",
    ink="#e6e8ec",
    faint="#a4abb8",
    grid="#363b47",
    series=(
        "#56b4e9",
        "#ff8c42",
        "#2ec4a0",
        "#e79bc6",
        "#f2c14e",
        "#8ea6ff",
        "#c3b1e1",
        "#b0b5bf",
        "#e07a5f",
        "#9bd770",
    ),
    named={"green": "#2ec4a0", "orange": "#ffb454", "red": "#ff7b72", "text": "#4a505e"},
    heat="viridis",
)
THEMES: Final = (LIGHT, DARK)


def inches(units: int, size: int) -> float:
    """The size of a picture that is so many units of the grid wide or high."""
    return units * size / _INCH


def told(value: float, unit: str) -> str:
    """A value with its unit, short."""
    match unit:
        case "s":
            return _scaled(value, _STEPS)
        case "bytes":
            return _scaled(value, _BYTES)
        case "percentunit":
            return f"{100 * value:.3g} %"
        case _:
            return f"{value:,.0f}" if value == round(value) or abs(value) >= 1000 else f"{value:.3g}"


def _scaled(value: float, steps: tuple[tuple[float, str], ...]) -> str:
    if not value:
        return "0"
    size, name = next((each for each in steps if abs(value) >= each[0]), steps[-1])
    return f"{value / size:.3g} {name}"
