"""The panels as pictures, each as its kind of visualization asks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.ticker import FuncFormatter, MaxNLocator

from panels.dashboard import Panel
from panels.series import Kept, Series
from panels.style import GRID_HEIGHT, GRID_WIDTH, UNITS, Theme, inches, scale, told
from panels.table import cells

#: Entries of a legend; the largest series are named, the others are drawn.
_NAMED: Final = 12
#: Rows of a table that are drawn.
_ROWS: Final = 12
#: Dots that a character of a legend takes, and what stands before each entry.
_CHARACTER: Final = 6
_HANDLE: Final = 38
#: Kinds that have no axes.
_FREE: Final = frozenset({"stat", "table"})
Points = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def draw(panel: Panel, kept: Kept, theme: Theme, path: Path) -> None:
    """Write one panel's picture.

    Raises:
        KeyError: for a kind of visualization that nobody draws here.
    """
    with theme.applied():
        size = (inches(panel.width, GRID_WIDTH), inches(panel.height, GRID_HEIGHT))
        figure = Figure(figsize=size, layout=None if panel.type in _FREE else "constrained")
        _KINDS[panel.type](figure, panel, kept, theme)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def _stat(figure: Figure, panel: Panel, kept: Kept, theme: Theme) -> None:
    [series] = kept.series[panel.id]
    at, values = _broken(series, kept)
    last = values[np.isfinite(values)][-1]
    color = _threshold(last, panel.defaults, theme)
    axes = figure.add_axes((0.0, 0.0, 1.0, 0.38))
    axes.set_axis_off()
    axes.plot(at, values, color=color, linewidth=1.2)
    axes.fill_between(at, values, color=color, alpha=0.18, linewidth=0)
    axes.set(xlim=(kept.start, kept.end), ylim=(0, max(np.nanmax(values), 1) * 1.15))
    figure.text(0.05, 0.84, panel.title, weight="bold", size=9)
    figure.text(0.05, 0.47, told(last, panel.defaults["unit"]), weight="bold", size=21, color=color)


def _timeseries(figure: Figure, panel: Panel, kept: Kept, theme: Theme) -> None:
    axes = _axes(figure, panel, kept, theme)
    found = _by_size(kept.series[panel.id])
    colors = [_color(panel, each, number, theme) for number, each in enumerate(found)]
    if panel.defaults.get("custom", {}).get("stacking", {}).get("mode") == "normal":
        _stack(axes, found, kept, colors)
    else:
        for number, each in enumerate(found):
            at, values = _broken(each, kept)
            style = ("-", (0, (4, 1.5)), (0, (1.2, 1.2)))[number // len(theme.series) % 3]
            single = np.isfinite(values).sum() == 1
            axes.plot(
                *_minutes(at, values, kept),
                color=colors[number],
                linestyle=style,
                label=each.legend,
                marker="o" if single else "",
                markersize=3,
            )
    if "min" in panel.defaults:
        axes.set_ylim(bottom=panel.defaults["min"])
    if not any(value for each in found for _, value in each.points if math.isfinite(value)):
        axes.set_ylim(top=1)
    _values(axes, panel.defaults["unit"])
    _legend(figure, axes, panel)


def _stack(axes: Axes, found: Sequence[Series], kept: Kept, colors: Sequence[str]) -> None:
    times = np.arange(kept.start, kept.end + kept.step / 2, kept.step)
    rows = np.full((len(found), len(times)), np.nan)
    for row, each in zip(rows, found, strict=True):
        for at, value in each.points:
            row[round((at - kept.start) / kept.step)] = value if math.isfinite(value) else math.nan
    # What one series lacks is none of it; what all lack is not known.
    rows[np.isnan(rows) & ~np.isnan(rows).all(axis=0)] = 0.0
    labels = [each.legend for each in found]
    axes.stackplot((times - kept.start) / 60, rows, labels=labels, colors=colors, alpha=0.75, linewidth=0)


def _heatmap(figure: Figure, panel: Panel, kept: Kept, theme: Theme) -> None:
    axes = _axes(figure, panel, kept, theme)
    found = sorted(kept.series[panel.id], key=lambda each: float(each.labels["le"]))
    times = sorted({at for each in found for at, _ in each.points})
    cumulative = np.array([[dict(each.points).get(at, 0.0) for at in times] for each in found])
    counts = np.diff(np.nan_to_num(cumulative), axis=0, prepend=0)
    used = max(np.flatnonzero(counts.sum(axis=1) > 0), default=0) + 2
    counts = counts[:used].clip(min=0)
    edges = [(at - kept.start) / 60 for at in (*times, times[-1] + kept.step)]
    shown = np.ma.masked_less_equal(counts, 0.01)
    mesh = axes.pcolormesh(
        edges, range(len(counts) + 1), shown, cmap=mpl.colormaps[theme.heat], vmin=-0.3 * counts.max()
    )
    names = [told(float(each.labels["le"]), "s") if each.labels["le"] != "+Inf" else "more" for each in found[:used]]
    axes.set_yticks([number + 0.5 for number in range(len(names))], [f"≤ {name}" for name in names], size=7.5)
    axes.grid(visible=False)
    bar = figure.colorbar(mesh, ax=axes, pad=0.02, aspect=18)
    bar.outline.set_visible(False)
    bar.ax.set_ylim(bottom=0)
    bar.set_label("gangs", color=theme.faint)
    bar.ax.tick_params(size=0)


def _bars(figure: Figure, panel: Panel, kept: Kept, theme: Theme) -> None:
    axes = figure.add_subplot()
    figure.suptitle(panel.title, x=0.012, ha="left", weight="bold", size=10)
    found = sorted(kept.series[panel.id], key=lambda each: each.legend, reverse=True)
    values = [each.points[-1][1] for each in found]
    places = range(len(found))
    axes.barh(places, values, height=0.62, color=theme.color(0))
    axes.set_yticks(places, [each.legend for each in found], color=theme.ink)
    most = max(*values, 1)
    for place, value in zip(places, values, strict=True):
        axes.text(value + most * 0.012, place, told(value, panel.defaults["unit"]), va="center", size=8)
    axes.set_xlim(0, most * 1.1)
    # Few bars are as thick as many.
    axes.set_ylim(min(-0.6, len(found) - 6.4), len(found) - 0.4)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _timeline(figure: Figure, panel: Panel, kept: Kept, theme: Theme) -> None:
    axes = _axes(figure, panel, kept, theme)
    found = sorted(kept.series[panel.id], key=lambda each: each.legend, reverse=True)
    options = panel.defaults["mappings"][0]["options"]
    for value, look in options.items():
        label = look["text"]
        for place, each in enumerate(found):
            spans = [((at - kept.start) / 60, kept.step / 60) for at, known in each.points if known == float(value)]
            if spans:
                color = theme.named[look["color"]]
                axes.broken_barh(spans, (place - 0.32, 0.64), color=color, linewidth=0.4, label=label)
                label = "_"
    axes.set_yticks(range(len(found)), [each.legend for each in found], color=theme.ink)
    axes.set_ylim(-0.6, len(found) - 0.4)
    axes.grid(visible=False, axis="y")
    _legend(figure, axes, panel)


def _table(figure: Figure, panel: Panel, kept: Kept, theme: Theme) -> None:
    header, rows = cells(panel, kept.series[panel.id])
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_axis_off()
    figure.text(0.012, 0.93, panel.title, weight="bold", size=10)
    shown = rows[:_ROWS]
    widths = [max(len(row[number]) for row in (header, *shown)) + 3 for number in range(len(header))]
    ends = np.cumsum(widths) / sum(widths) * 0.96 + 0.02
    starts = [0.02, *ends[:-1]]
    height = 0.86 / (_ROWS + 1.5)
    for line, row in enumerate((header, *shown)):
        y = 0.86 - line * height
        for number, text in enumerate(row):
            right = line >= 0 and _is_number(rows, number)
            x = ends[number] - 0.02 if right else starts[number]
            look: dict[str, Any] = {"color": theme.faint, "weight": "bold"} if not line else {"color": theme.ink}
            axes.text(x, y, text, ha="right" if right else "left", va="center", size=8, **look)
        axes.plot((0.02, 0.98), (y - height / 2, y - height / 2), color=theme.grid, linewidth=0.8)
    if len(rows) > len(shown):
        axes.text(0.02, 0.03, f"and {len(rows) - len(shown)} more", color=theme.faint, size=8)


def _is_number(rows: Sequence[Sequence[str]], column: int) -> bool:
    return all(row[column].replace(",", "").replace(".", "").isdigit() or not row[column] for row in rows)


def _axes(figure: Figure, panel: Panel, kept: Kept, theme: Theme) -> Axes:
    axes = figure.add_subplot()
    figure.suptitle(panel.title, x=0.012, ha="left", weight="bold", size=10)
    axes.set_xlim(0, (kept.end - kept.start) / 60)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} min"))
    axes.grid(visible=False, axis="x")
    for number, (at, _) in enumerate(kept.marks, 1):
        minute = (at - kept.start) / 60
        axes.axvline(minute, color=theme.faint, linewidth=0.6, linestyle=(0, (1.5, 2.5)), alpha=0.7, zorder=0.5)
        axes.annotate(
            str(number), (minute, 1), (0, 2), xycoords=("data", "axes fraction"), textcoords="offset points",
            ha="center", va="bottom", size=6.5, color=theme.faint, annotation_clip=False,
        )  # fmt: skip
    return axes


def _values(axes: Axes, unit: str) -> None:
    most = axes.get_ylim()[1]
    size, name = scale(most, unit)
    whole = unit == "short" and most > 3
    ticks = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=whole).tick_values(0, most / size)
    axes.set_yticks([tick * size for tick in ticks if tick * size <= most * 1.001], minor=False)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / size:g}{name if value else ''}"))
    axes.set_ylabel(UNITS.get(unit, ""))


def _legend(figure: Figure, axes: Axes, panel: Panel) -> None:
    handles, labels = axes.get_legend_handles_labels()
    more = len(labels) - _NAMED
    if more > 0:
        handles, labels = handles[:_NAMED], labels[:_NAMED]
    if not labels or labels == [""]:
        return
    room = panel.width * GRID_WIDTH // (max(map(len, labels)) * _CHARACTER + _HANDLE)
    found = figure.legend(handles, labels, loc="outside lower left", ncols=max(1, min(len(labels), room)))
    if more > 0:
        found.set_title(f"and {more} more, smaller ones", FontProperties(size=7.5))
        found.set_alignment("left")


def _color(panel: Panel, series: Series, number: int, theme: Theme) -> str:
    name = panel.colors.get(series.legend)
    return theme.named[name] if name else theme.color(number)


def _by_size(found: Sequence[Series]) -> list[Series]:
    """As the dashboard has them; where there are too many for the legend, the largest first."""
    if len(found) <= _NAMED:
        return list(found)
    return sorted(found, key=lambda each: -max((v for _, v in each.points if math.isfinite(v)), default=0.0))


def _broken(series: Series, kept: Kept) -> Points:
    """Times and values, with a gap where there was none."""
    gap = 1.5 * kept.step
    at: list[float] = []
    values: list[float] = []
    for time, value in series.points:
        if at and time - at[-1] > gap:
            at.append(time - 0.001)
            values.append(math.nan)
        at.append(time)
        values.append(value if math.isfinite(value) else math.nan)
    return np.array(at), np.array(values)


def _minutes(at: np.ndarray[Any, Any], values: np.ndarray[Any, Any], kept: Kept) -> Points:
    return (at - kept.start) / 60, values


def _threshold(value: float, defaults: Mapping[str, Any], theme: Theme) -> str:
    steps = defaults.get("thresholds", {}).get("steps", ())
    reached = [each["color"] for each in steps if each["value"] is None or value >= each["value"]]
    return theme.named[reached[-1]] if reached else theme.color(0)


_KINDS: Final[Mapping[str, Callable[[Figure, Panel, Kept, Theme], None]]] = {
    "stat": _stat,
    "timeseries": _timeseries,
    "heatmap": _heatmap,
    "bargauge": _bars,
    "state-timeline": _timeline,
    "table": _table,
}
