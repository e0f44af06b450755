"""The dashboard as a document: Grafana can take it in, and its queries name what exists.

What its queries return is asked in test_panels.py.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from install.panels.dashboard import DASHBOARD, fill, panels, read, variables
from install.panels.load import SCENES
from install.test_rules import ROOT, promtool, rules
from metric_families import expressions, known_series, names_in

VARIABLES: Final = ("datasource", "cluster", "namespace", "name")
ROWS: Final = (
    "Overview",
    "Gangs and waiting",
    "Placement quality and head-room",
    "Rollouts, evacuations, failures",
    "Scheduler process and extender",
    "Operator and API requests",
    "Caches and leases",
)
#: Identifiers of units as Grafana has them; another one would be shown as a suffix.
UNITS: Final = {"short", "s", "bytes", "percentunit", "ops", "reqps"}
#: Names of Grafana's own colours, as far as they are used.
COLORS: Final = {"green", "orange", "red", "text"}
#: The visualizations that there are, and the options without which each shows something else than is meant.
KINDS: Final = {
    "stat": {"reduceOptions", "colorMode", "graphMode"},
    "bargauge": {"reduceOptions", "orientation", "displayMode", "showUnfilled"},
    "timeseries": {"legend", "tooltip"},
    "state-timeline": {"legend", "showValue"},
    "heatmap": {"calculate", "yAxis", "color"},
    "table": {"showHeader"},
}
#: Grafana has opened schemas of this version without a migration since 10.0.
SCHEMA: Final = 39

DOCUMENT = read()
ALL = DOCUMENT["panels"]
SHOWN = {panel["title"]: panel for panel in ALL if panel["type"] != "row"}


def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
    place = panel["gridPos"]
    return {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}


def members(value: Any, key: str) -> Iterator[Any]:
    """Every value of that key, at any depth."""
    if isinstance(value, dict):
        for name, each in value.items():
            if name == key:
                yield each
            yield from members(each, key)
    elif isinstance(value, list):
        for each in value:
            yield from members(each, key)


def test_what_grafana_needs_to_import_it() -> None:
    assert {"uid", "title", "schemaVersion", "version", "panels", "templating", "time", "tags"} <= DOCUMENT.keys()
    # With an id, an import would look for a dashboard of that number.
    assert "id" not in DOCUMENT
    assert DOCUMENT["schemaVersion"] == SCHEMA
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", DOCUMENT["uid"])


def test_numbers_and_titles_are_unique() -> None:
    assert len({panel["id"] for panel in ALL}) == len(ALL)
    assert len({panel["title"] for panel in ALL}) == len(ALL)
    assert len({panel.slug for panel in panels(DOCUMENT)}) == len(SHOWN), "two pictures would have one name"


def test_it_is_ordered_in_rows() -> None:
    assert tuple(panel["title"] for panel in ALL if panel["type"] == "row") == ROWS
    places = [(panel["gridPos"]["y"], panel["gridPos"]["x"]) for panel in ALL]
    assert places == sorted(places), "it is read as it is written"
    for panel in ALL:
        if panel["type"] == "row":
            assert (panel["gridPos"]["w"], panel["gridPos"]["h"], panel["collapsed"], panel["panels"]) == (
                24,
                1,
                False,
                [],
            )


def test_no_panel_covers_another_and_none_leaves_a_gap() -> None:
    for one, other in itertools.combinations(ALL, 2):
        assert not cells(one) & cells(other), (one["title"], other["title"])
    for panel in ALL:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
    taken = set().union(*map(cells, ALL))
    # Grafana moves panels up into what is free; so nothing is, but for the ends of rows.
    for x, y in taken:
        assert x == 0 or (x - 1, y) in taken, (x, y)


def test_its_variables() -> None:
    found = {variable["name"]: variable for variable in DOCUMENT["templating"]["list"]}
    assert tuple(found) == VARIABLES
    assert set(re.findall(r"\$\{?([a-z]\w*)", DASHBOARD.read_text())) == set(VARIABLES)
    assert found.pop("datasource")["query"] == "prometheus"
    for variable in found.values():
        assert variable["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert variable["query"] == {"query": variable["definition"], "refId": variable["name"]}
        assert names_in(variable["definition"]) <= known_series()
        # A series without the label is of any cluster: `.*` takes it in, `.+` would not.
        assert (variable["multi"], variable["includeAll"], variable["allValue"]) == (True, True, ".*")


@pytest.mark.parametrize("title", SHOWN)
def test_a_panel_is_whole(title: str) -> None:
    panel = SHOWN[title]
    assert panel["description"].endswith(".")
    assert KINDS[panel["type"]] <= panel["options"].keys()
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    for source in members(panel, "datasource"):
        assert source == {"type": "prometheus", "uid": "${datasource}"}
    targets = panel["targets"]
    assert targets
    assert [target["refId"] for target in targets] == list("ABCDEFGHIJ"[: len(targets)])
    assert all(target["datasource"] == panel["datasource"] for target in targets)
    for target in targets:
        wanted = {"table": "table", "heatmap": "heatmap"}.get(panel["type"])
        assert target.get("format") == wanted
        assert target.get("instant", False) == (panel["type"] in {"table", "bargauge"})
    for color in members(panel["fieldConfig"], "color"):
        assert color == {"mode": "thresholds"} or color in COLORS
    for steps in members(panel["fieldConfig"], "steps"):
        assert steps[0]["value"] is None
        assert [each["value"] for each in steps[1:]] == sorted(each["value"] for each in steps[1:])


@pytest.mark.parametrize("title", SHOWN)
def test_a_panel_shows_the_cluster_that_is_chosen(title: str) -> None:
    for expression in expressions(SHOWN[title]):
        selectors = re.findall(
            r"(?:covey|leader_election|process)[\w:]*(\{[^}]*\})?", re.sub(r'"[^"]*"', '""', expression)
        )
        if not title.startswith("Alerts"):
            assert any("cluster=~" in selector for selector in selectors), expression
        if "covey_workload_" in expression:
            assert 'namespace=~"$namespace",name=~"$name"' in expression


def test_what_it_names_exists() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for expression in expressions(DOCUMENT):
        named = names_in(expression)
        assert named or expression.count("ALERTS") == 1, expression
        assert named <= known_series() | recorded, expression


def test_prometheus_can_read_every_query(tmp_path: Path) -> None:
    values = variables(DOCUMENT)
    queries = [fill(each, values, span=3600, step=30, scrape=30) for each in expressions(DOCUMENT)]
    written = tmp_path / "queries.yaml"
    records = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    written.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": records}]}))
    promtool("check", "rules", "--lint=none", written)


def test_the_documentation_has_every_row_and_tells_every_scene() -> None:
    page = (ROOT / "docs/operations/monitoring.md").read_text()
    assert re.findall(r"^### (.+)$", page, re.MULTILINE) == list(ROWS)
    told = re.findall(r"^(\d+)\. (.+)$", page, re.MULTILINE)
    assert told == [(str(number), scene.__doc__) for number, scene in enumerate(SCENES, 1)]


def test_variables_are_filled_as_grafana_does() -> None:
    query = 'rate(a{cluster=~"$cluster",name=~"${name}"}[$__rate_interval])'
    assert fill(query, {"cluster": ".*", "name": "(a|b)"}, span=600, step=60, scrape=30) == (
        'rate(a{cluster=~".*",name=~"(a|b)"}[120s])'
    )
    assert fill("[$__rate_interval:$__range]", {}, span=3600, step=300, scrape=30) == "[330s:3600s]"
    with pytest.raises(KeyError):
        fill("$missing", {}, span=1, step=1, scrape=1)
