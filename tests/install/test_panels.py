"""Every query of the dashboard, sent to a real Prometheus that scraped a real run."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pytest

from install.panels.dashboard import Panel, panels, read, variables
from install.panels.fleet import Fleet
from install.panels.load import CHOSEN, CLUSTER, SCRAPE, run
from install.panels.prometheus import Prometheus
from install.panels.series import Kept, Series, collect
from install.test_rules import ALERTS

pytestmark = pytest.mark.timeout(1200)

PANELS: Final = {panel.title: panel for panel in panels(read())}
#: Queries that may rightly return nothing but zeros, by panel and query, and why the run does not change that.
QUIET: Final[Mapping[tuple[str, str], str]] = {
    ("Nodes left out", "B"): "kube-scheduler refuses no node that fits by all that Covey models of the run's pods",
    (
        "Calls that got no answer",
        "A",
    ): "kube-scheduler reaches Covey, or does not reach it at all: no call is counted then",
    **{
        (panel, query): "the run has no Queues"
        for panel, queries in {"Quota used": "AB", "Quota borrowed, lent and waited for": "ABC"}.items()
        for query in queries
    },
    ("Bind calls held", "A"): "the calls of a gang are held for less than the time between two scrapes",
    ("Statuses and Events behind", "A"): "statuses are behind for less than the time between two scrapes",
    ("Statuses and Events behind", "B"): "Events are dropped where the API server takes them too slowly, or not at all",
}
#: Alerts on what the run does. Most are pending for as long as it lasts: they wait longer than the run does.
RAISED: Final = {
    "CoveyEvacuationBlocked",
    "CoveyGangNotBound",
    "CoveyNobodyLeads",
    "CoveyRolloutHeld",
    "CoveyTargetDown",
    "CoveyWorkloadDegraded",
    "CoveyWorkloadStalled",
}
#: Seconds for which an alert is pending that will be raised.
LASTING: Final = 60.0
#: Alerts on what the run does not do: they would be false. Watches do fail while the API server restarts, which takes long
#: on a busy machine; that alert is pending then, and fires for no such run (``for`` of the rule).
FALSE: Final = {
    "CoveyApiForbidden",
    "CoveyExtenderFails",
    "CoveyExtenderUnreachable",
    "CoveyGangWaitsLong",
    "CoveyLeaseFlaps",
    "CoveyPinsDenied",
    "CoveyPinsReleased",
    "CoveyPlannerFailed",
    "CoveyQueueNominalWaits",
    "CoveyRefusalsStale",
    "CoveyReplicasFail",
    "CoveySearchLimitMet",
    "CoveyWatchStale",
    "CoveyWorkloadsUnseen",
}


@dataclass(frozen=True)
class Played:
    """The run, its end in seconds since the epoch, and what the panels show of it."""

    fleet: Fleet
    prometheus: Prometheus
    end: float
    kept: Kept


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with run(tmp_path_factory.mktemp("prometheus")) as (fleet, prometheus):
        end = time.time()
        kept = collect(read(), prometheus, fleet.began, end, fleet.marks, scrape=SCRAPE, chosen=CHOSEN)
        yield Played(fleet, prometheus, end, kept)


def queries() -> list[tuple[Panel, str]]:
    return [(panel, target.ref) for panel in PANELS.values() for target in panel.targets]


def values(found: list[Series]) -> list[float]:
    return [value for each in found for _, value in each.points if math.isfinite(value)]


@pytest.mark.parametrize(("panel", "ref"), queries(), ids=[f"{panel.slug}-{ref}" for panel, ref in queries()])
def test_every_query_returns_data(played: Played, panel: Panel, ref: str) -> None:
    found = [each for each in played.kept.series[panel.id] if each.ref == ref]
    assert values(found)
    assert any(values(found)) or (panel.title, ref) in QUIET
    # A label that the series do not have would leave a hole in the legend.
    assert all(each.legend or panel.type in {"stat", "table"} for each in found)
    [target] = [each for each in panel.targets if each.ref == ref]
    for label in re.findall(r"{{(\w+)}}", target.legend):
        assert all(label in each.labels for each in found), label


def test_the_list_of_quiet_queries_names_what_exists() -> None:
    assert QUIET.keys() <= {(panel.title, ref) for panel, ref in queries()}


def test_all_of_everything_is_what_is_shown_at_first(played: Played) -> None:
    """Without a choice a panel shows at least what it shows with one."""
    everything = collect(read(), played.prometheus, played.fleet.began, played.end, (), scrape=SCRAPE)
    for number, found in played.kept.series.items():
        assert len(everything.series[number]) >= len(found)


def test_the_variables_find_their_values(played: Played) -> None:
    """``label_values(query, label)`` is the distinct values of the label."""
    found = {each["name"]: each for each in read()["templating"]["list"] if each["type"] == "query"}
    assert found.keys() | {"datasource"} == variables(read()).keys()
    filled = {"$cluster": ".*", "$namespace": ".*"}
    offered = {}
    for name, each in found.items():
        query, label = re.fullmatch(r"label_values\((.+), (\w+)\)", each["definition"]).groups()  # type: ignore[union-attr]
        for variable, value in filled.items():
            query = query.replace(variable, value)
        step = (played.end - played.fleet.began) / 10
        series = played.prometheus.ask_range(query, played.fleet.began, played.end, step)
        offered[name] = {one["metric"][label] for one in series}
    assert offered["cluster"] == {CLUSTER}
    assert offered["namespace"] == {"chat", "code", "research"}
    assert {"llama", "giant"} <= offered["name"]


def test_alerts_saw_what_was_wrong_and_nothing_that_was_not(played: Played) -> None:
    found = played.prometheus.ask_range("ALERTS", played.fleet.began, played.end, SCRAPE)
    raised = {each["metric"]["alertname"] for each in found}
    assert raised >= RAISED
    # On a slow machine a reading may be late; what is wrong with a rule stays.
    lasting = {each["metric"]["alertname"] for each in found if len(each["values"]) * SCRAPE >= LASTING}
    assert not lasting & FALSE, str(sorted(lasting & FALSE))
    assert ALERTS.keys() >= RAISED | FALSE
    # Only what lasts fires, and it may not last long enough.
    firing = {each["metric"]["alertname"] for each in found if each["metric"]["alertstate"] == "firing"}
    assert firing <= {"CoveyRolloutHeld"}


def test_who_leads_next_begins_no_rollout_that_is_over(played: Played) -> None:
    """A standby sees every pod go that the leader takes away, and must not take them for lost when it leads."""
    span = math.ceil(played.end - played.fleet.began)
    [found] = played.prometheus.ask(f"sum(max_over_time(covey_rollouts_started_total[{span}s]))", played.end)
    assert float(found["value"][1]) == 2, "llama's and qwen's"
