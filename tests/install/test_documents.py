"""The reference page's tables of the metrics, and their names."""

from __future__ import annotations

import re

import pytest

from covey.observability import reference
from covey.observability.families import Family
from install.test_rules import ROOT
from metric_families import families

_ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<type>\w+) \| (?P<labels>[^|]*)\| (?P<meaning>[^|]+) \|$", re.MULTILINE)


def test_the_tables_of_metrics() -> None:
    """Every metric has a row of its own, which Markdown reads as four cells, and the page takes the tables in."""
    rows = list(_ROW.finditer(reference.tables()))
    described = {row["name"]: (row["type"], set(re.findall(r"\w+", row["labels"]))) for row in rows}
    assert described == {family.name: (family.type, set(family.labels)) for family in families().values()}
    assert len(rows) == len(described), "one is described twice"
    page = (ROOT / "docs/reference/metrics.md").read_text()
    before, _, rest = page.partition("<!-- generated: metrics -->")
    made, _, after = rest.partition("<!-- end of generated -->")
    assert made.strip() == reference.tables().strip()
    assert not _ROW.search(before + after), "what is generated is not written by hand as well"


@pytest.mark.parametrize("family", families().values(), ids=list(families()))
def test_names_and_labels_keep_the_conventions(family: Family) -> None:
    """What promtool does not look at."""
    # Prometheus adds these to every series, and renames ours when they are the same.
    assert not {"job", "instance", "pod", "container", "endpoint", "le", "quantile"} & set(family.labels)
    named = family.name.startswith("covey_workload_")
    assert ("namespace" in family.labels) <= named
    assert family.name.endswith("_seconds") == (family.type == "histogram") or family.type == "gauge"
