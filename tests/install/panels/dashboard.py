"""The panels of the dashboard that the chart ships, and their queries as Grafana would send them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[3]
DASHBOARD: Final = ROOT / "helm" / "covey" / "files" / "dashboards" / "covey.json"
RULES: Final = ROOT / "helm" / "covey" / "files" / "rules.yaml"
_VARIABLE: Final = re.compile(r"\$\{?(\w+)\}?")


@dataclass(frozen=True)
class Target:
    """One query of a panel."""

    ref: str
    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel. ``defaults`` and ``colors`` (of series, by their legend) are its field configuration."""

    id: int
    title: str
    type: str
    width: int
    height: int
    targets: tuple[Target, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    colors: Mapping[str, str] = field(default_factory=dict)
    transformations: tuple[Mapping[str, Any], ...] = ()

    @property
    def slug(self) -> str:
        """Its title as the name of a file."""
        return "-".join(re.findall(r"[a-z0-9]+", self.title.lower()))


def read(path: Path = DASHBOARD) -> dict[str, Any]:
    """The dashboard as it stands."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def panels(document: Mapping[str, Any]) -> Iterator[Panel]:
    """All panels in their order, without the rows that hold them."""
    for each in document["panels"]:
        if each["type"] != "row":
            yield _panel(each)


def variables(document: Mapping[str, Any]) -> dict[str, str]:
    """What stands for each variable when nothing is chosen: Grafana puts in ``allValue`` for All."""
    return {each["name"]: each.get("allValue", "") for each in document["templating"]["list"]}


def fill(expression: str, values: Mapping[str, str], *, span: float, step: float, scrape: float) -> str:
    """A query as it is sent.

    Args:
        expression: as the dashboard has it.
        values: of the variables.
        span: seconds of the time range.
        step: seconds from one point to the next.
        scrape: seconds between two scrapes, as the data source is told. Grafana derives ``$__rate_interval`` from both.

    Raises:
        KeyError: when it names a variable that there is not.
    """
    rate = max(step + scrape, 4 * scrape)
    built_in = {"__rate_interval": f"{rate:g}s", "__interval": f"{step:g}s", "__range": f"{math.ceil(span)}s"}
    return _VARIABLE.sub(lambda found: {**built_in, **values}[found[1]], expression)


def _panel(found: Mapping[str, Any]) -> Panel:
    config = found["fieldConfig"]
    return Panel(
        found["id"],
        found["title"],
        found["type"],
        found["gridPos"]["w"],
        found["gridPos"]["h"],
        tuple(Target(each["refId"], each["expr"], each.get("legendFormat", "")) for each in found["targets"]),
        config["defaults"],
        {
            each["matcher"]["options"]: setting["value"]["fixedColor"]
            for each in config["overrides"]
            for setting in each["properties"]
        },
        tuple(found.get("transformations", ())),
    )
