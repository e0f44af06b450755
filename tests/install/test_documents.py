"""What describes the metrics agrees with them: the reference page's tables, and the dashboard."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from covey.observability import reference
from covey.observability.families import Family
from install.test_rules import ROOT, promtool, rules
from metric_families import expressions, families, known_series, names_in

DASHBOARD = ROOT / "helm/covey/files/dashboards/covey.json"
_ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<type>\w+) \| (?P<labels>[^|]*)\| (?P<meaning>[^|]+) \|$", re.MULTILINE)
#: What Grafana puts in for its variables, as far as they stand outside of strings.
_VARIABLES = re.compile(r"\$__rate_interval\b")


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


PANELS = {panel["title"]: panel for panel in dashboard()["panels"]}


def test_the_tables_of_metrics() -> None:
    """Every metric has a row of its own, which Markdown reads as four cells, and the page takes the tables in."""
    rows = list(_ROW.finditer(reference.tables()))
    described = {row["name"]: (row["type"], set(re.findall(r"\w+", row["labels"]))) for row in rows}
    assert described == {family.name: (family.type, set(family.labels)) for family in families().values()}
    assert len(rows) == len(described), "one is described twice"
    page = (ROOT / "docs/reference/metrics.md").read_text()
    assert page.count("<!-- generated: metrics -->") == 1
    assert not _ROW.search(page), "what is generated is not written down as well"


@pytest.mark.parametrize("family", families().values(), ids=list(families()))
def test_names_and_labels_keep_the_conventions(family: Family) -> None:
    """What promtool does not look at."""
    # Prometheus adds these to every series, and renames ours when they are the same.
    assert not {"job", "instance", "pod", "container", "endpoint", "le", "quantile"} & set(family.labels)
    named = family.name.startswith("covey_workload_")
    assert ("namespace" in family.labels) <= named
    assert family.name.endswith("_seconds") == (family.type == "histogram") or family.type == "gauge"


def test_what_the_dashboard_names_exists() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    queries = [variable["definition"] for variable in dashboard()["templating"]["list"] if "definition" in variable]
    for expression in (*expressions(dashboard()), *queries):
        named = names_in(expression)
        assert named, expression
        assert named <= known_series() | recorded, expression


def test_prometheus_can_read_every_query_of_the_dashboard(tmp_path: Path) -> None:
    queries = [_VARIABLES.sub("5m", each) for each in expressions(dashboard())]
    written = tmp_path / "queries.yaml"
    records = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    written.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": records}]}))
    promtool("check", "rules", "--lint=none", written)


def test_the_dashboard_is_whole() -> None:
    found = dashboard()
    variables = {variable["name"] for variable in found["templating"]["list"]}
    assert variables == {"datasource", "namespace", "name"}
    assert set(re.findall(r"\$\{?([a-z]\w*)", DASHBOARD.read_text())) == variables
    assert len(PANELS) == len(found["panels"]) == len({panel["id"] for panel in found["panels"]})
    for panel in found["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


@pytest.mark.parametrize("title", PANELS)
def test_no_panel_covers_another(title: str) -> None:
    def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        return {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}

    assert not any(cells(PANELS[title]) & cells(other) for other in PANELS.values() if other["title"] != title)
