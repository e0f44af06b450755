"""What a table shows, as Grafana's transformations make it of the series: ``merge`` and ``organize``."""

from __future__ import annotations

from collections.abc import Sequence

from panels.dashboard import Panel
from panels.series import Series
from panels.style import told


def cells(panel: Panel, series: Sequence[Series]) -> tuple[list[str], list[list[str]]]:
    """The header and the rows, sorted."""
    refs = [target.ref for target in panel.targets]
    merged: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for each in series:
        row = merged.setdefault(tuple(sorted(each.labels.items())), dict(each.labels))
        value = "Value" if len(refs) == 1 else f"Value #{each.ref}"
        row[value] = told(each.points[-1][1], panel.defaults["unit"])
    organized = next(each["options"] for each in panel.transformations if each["id"] == "organize")
    index, names, hidden = (organized.get(key, {}) for key in ("indexByName", "renameByName", "excludeByName"))
    columns = sorted({key for row in merged.values() for key in row if not hidden.get(key)}, key=lambda key: index[key])
    rows = sorted([row.get(column, "") for column in columns] for row in merged.values())
    return [names.get(column, column) for column in columns], rows
