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
_STEPS: Final = ((86400.0, " d"), (3600.0, " h"), (60.0, " min"), (1.0, " s"), (1e-3, " ms"), (1e-6, " µs"))
_BYTES: Final = ((2.0**30, " GiB"), (2.0**20, " MiB"), (2.0**10, " KiB"), (1.0, " B"))
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
        with mpl.rc_context():
            for key, value in self._settings().items():
                mpl.rcParams[key] = value  # type: ignore[index] # its stubs list every key as a literal
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
    named={
        "blue": "#0072b2",
        "green": "#007a5a",
        "orange": "#b85c00",
        "purple": "#6b5b95",
        "red": "#c0392b",
        "text": "#c3c8d1",
        "yellow": "#e6b800",
    },
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
    named={
        "blue": "#56b4e9",
        "green": "#2ec4a0",
        "orange": "#ffb454",
        "purple": "#c3b1e1",
        "red": "#ff7b72",
        "text": "#4a505e",
        "yellow": "#f2e14e",
    },
    heat="viridis",
)
THEMES: Final = (LIGHT, DARK)


def inches(units: int, size: int) -> float:
    """The size of a picture that is so many units of the grid wide or high."""
    return units * size / _INCH


def scale(value: float, unit: str) -> tuple[float, str]:
    """In what values up to this one are told: the size of one, and its name."""
    match unit:
        case "s":
            return next((each for each in _STEPS if value >= each[0] * (2 if each[0] > 1 else 1)), _STEPS[-1])
        case "bytes":
            return next((each for each in _BYTES if value >= each[0]), _BYTES[-1])
        case "percentunit":
            return 0.01, " %"
        case _:
            return 1.0, ""


def told(value: float, unit: str) -> str:
    """A value with its unit, short."""
    size, name = scale(value, unit)
    if not value:
        return "0"
    scaled = value / size
    return f"{scaled:,.0f}{name}" if scaled == round(scaled) or scaled >= 100 else f"{scaled:.3g}{name}"
