"""Answers of Prometheus to the queries of every panel."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from install.panels.dashboard import Panel, Target, fill, panels, variables
from install.panels.prometheus import Prometheus

_LEGEND: Final = re.compile(r"{{\s*(\w+)\s*}}")
#: Points of a line: Grafana asks for about as many as a panel has pixels.
_POINTS: Final = 300
_INSTANT: Final = frozenset({"table", "bargauge"})


@dataclass(frozen=True)
class Series:
    """One series of a panel: which query it is of, what the legend calls it, its labels, and times with values."""

    ref: str
    legend: str
    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Kept:
    """A whole run: from when to when, what was done at which time, and the series by the panels' numbers."""

    start: float
    end: float
    step: float
    marks: Sequence[tuple[float, str]]
    series: Mapping[int, Sequence[Series]]


def collect(
    document: Mapping[str, Any],
    prometheus: Prometheus,
    start: float,
    end: float,
    marks: Sequence[tuple[float, str]],
    *,
    scrape: float,
    chosen: Mapping[str, Sequence[str]] | None = None,
) -> Kept:
    """Send every query of every panel as Grafana would for this time range.

    Args:
        document: the dashboard.
        prometheus: the data source.
        start: of the time range, seconds since the epoch.
        end: of the time range.
        marks: kept with the series.
        scrape: seconds between two scrapes.
        chosen: values of variables, for those of which not all is shown.
    """
    step = max(scrape, math.ceil((end - start) / _POINTS))
    values = variables(document) | {name: f"({'|'.join(them)})" for name, them in (chosen or {}).items()}

    def ask(panel: Panel, target: Target) -> list[Series]:
        query = fill(target.expr, values, span=end - start, step=step, scrape=scrape)
        found = prometheus.ask(query, end) if panel.type in _INSTANT else prometheus.ask_range(query, start, end, step)
        return [_series(target, each) for each in found]

    series = {panel.id: [each for target in panel.targets for each in ask(panel, target)] for panel in panels(document)}
    return Kept(start, end, step, list(marks), series)


def _series(target: Target, found: Mapping[str, Any]) -> Series:
    labels = found["metric"]
    legend = _LEGEND.sub(lambda name: str(labels.get(name[1], "")), target.legend)
    points = found["values"] if "values" in found else [found["value"]]
    return Series(target.ref, legend, labels, [(float(at), float(value)) for at, value in points])
