"""The rules that the chart ships: they parse, name what exists, and fire when they should and only then."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from covey.observability.families import Family
from install.chart import Helm, HelmError
from localcluster.binaries import ensure_tool
from metric_families import expressions, families, known_series, names_in, series_of

ROOT = Path(__file__).parents[2]
RULES = ROOT / "helm/covey/files/rules.yaml"
TESTS = Path(__file__).parent / "alerts.yaml"
RUNBOOKS = ROOT / "docs/operations/alerts.md"


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}


def promtool(*arguments: str | Path) -> None:
    done = subprocess.run([ensure_tool("promtool"), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def checks() -> Iterator[dict[str, Any]]:
    for story in yaml.safe_load(TESTS.read_text())["tests"]:
        yield from story["alert_rule_test"]


def test_promtool_accepts_them() -> None:
    promtool("check", "rules", "--lint-fatal", RULES)


def test_every_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    document = yaml.safe_load(TESTS.read_text())
    document["rule_files"] = [str(RULES)]
    for story in document["tests"]:
        for check in story["alert_rule_test"]:
            for alert in check["exp_alerts"]:
                description = ALERTS[check["alertname"]]["annotations"]["description"]
                alert["exp_annotations"]["description"] = description
    written = tmp_path / "alerts.yaml"
    written.write_text(yaml.safe_dump(document))
    promtool("test", "rules", written)


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_is_tested_both_ways(name: str) -> None:
    assert {bool(check["exp_alerts"]) for check in checks() if check["alertname"] == name} == {True, False}


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_says_how_bad_it_is_and_what_to_do(name: str) -> None:
    alert = ALERTS[name]
    assert alert["labels"].keys() == {"severity"}
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert alert["for"]
    assert alert["annotations"].keys() == {"summary", "description"}
    # It is compared word for word, so nothing in it may depend on the series.
    assert "{{" not in alert["annotations"]["description"]
    assert all(text.endswith((".", ".)")) for text in alert["annotations"].values())


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    """Sections are headings of the second level; the site makes their anchors in small letters, as the chart does."""
    parts = re.split(r"^## (.+)$", RUNBOOKS.read_text(), flags=re.MULTILINE)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    assert list(sections) == list(ALERTS), "in the order of the rules"
    for name, text in sections.items():
        told = re.findall(r"^\*\*(.+?)\*\* ", text, re.MULTILINE)
        assert told == ["What it means.", "How to look.", "What to do.", "What made it fire."], name
        assert f"`{ALERTS[name]['labels']['severity']}`" in text, name
        assert ALERTS[name]["for"] in text, name
        assert "```" in text, f"{name} has a command to look with"


def test_alerts_link_to_their_runbooks_if_there_is_an_address(offline: Helm) -> None:
    def links(address: str) -> dict[str, str | None]:
        values = {"metrics": {"rules": {"enabled": True, "runbookUrl": address}}}
        [found] = [each for each in offline.render(values) if each["kind"] == "PrometheusRule"]
        alerts = [rule for group in found["spec"]["groups"] for rule in group["rules"] if "alert" in rule]
        for rule in alerts:
            kept = {key: text for key, text in rule["annotations"].items() if key != "runbook_url"}
            assert {**rule, "annotations": kept} == ALERTS[rule["alert"]]
        return {rule["alert"]: rule["annotations"].get("runbook_url") for rule in alerts}

    assert links("") == dict.fromkeys(ALERTS)
    base = "https://docs.example.com/operations/alerts/"
    assert links(base) == {name: f"{base}#{name.lower()}" for name in ALERTS}
    with pytest.raises(HelmError, match="runbookUrl"):
        links("alerts.md")


def test_what_the_rules_name_exists() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    named = set().union(*(names_in(expression) for expression in expressions(rules())))
    assert named <= known_series() | recorded
    assert recorded <= named | names_in((ROOT / "helm/covey/files/dashboards/covey.json").read_text()), "one is unused"


def test_the_first_of_what_an_alert_counts_is_seen() -> None:
    """A series that begins with 5 has no increase; it is there from the beginning, but where labels are anything's."""
    unbounded = {"covey_kube_requests_total", "covey_watch_failures_total"}  # by resource; both go on while it is so
    counted = {name for each in ALERTS.values() for name in re.findall(r"increase\((\w+)", each["expr"])}
    program = "from covey.observability import metrics, reference; print(metrics.render().decode())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    shown = set(re.findall(r"^(\w+)\{.*\} 0\.0$", done.stdout, re.MULTILINE))
    assert counted - shown == unbounded


def test_the_stories_are_told_in_series_that_exist() -> None:
    """A misspelt label in a story would make an alert silent for the wrong reason."""
    ours = families()
    by_series = {series: family for family in ours.values() for series in series_of(family)}
    by_series["up"] = Family("up", "gauge", ("job",), "Of Prometheus itself.")
    expiration = "certmanager_certificate_expiration_timestamp_seconds"
    by_series[expiration] = Family(expiration, "gauge", ("name", "issuer_name"), "Of cert-manager.")
    for story in yaml.safe_load(TESTS.read_text())["tests"]:
        for each in story["input_series"]:
            name, _, labels = each["series"].rstrip("}").partition("{")
            given = {pair.split("=")[0].strip() for pair in labels.split('",') if pair}
            assert given - {"pod", "instance", "namespace", "le"} <= set(by_series[name].labels), each["series"]


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ('sum by (verb) (rate(covey_a_total{code="covey_b"}[5m])) / covey:c:d', {"covey_a_total", "covey:c:d"}),
        (
            "leader_election_master_status == 0 or process_open_fds > $__interval",
            {"leader_election_master_status", "process_open_fds"},
        ),
    ],
)
def test_names_are_found(expression: str, names: set[str]) -> None:
    assert names_in(expression) == names
