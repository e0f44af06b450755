"""What a scrape shows of each resource: of a bounded number, whole, and gone with it."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from covey.api import reasons
from covey.operator.model.phase import Phase
from covey.operator.status.gauges import WorkloadGauges
from covey.operator.status.units import UnitSummary
from scrapes import Scrape

UNITS = (
    UnitSummary(0, Phase.READY, "", ""),
    UnitSummary(1, Phase.ADMITTED, "", ""),
    UnitSummary(2, Phase.PENDING, "", ""),
)


def status(*roles: str, degraded: str = "False", ready: int = 1) -> dict[str, Any]:
    counts = {"replicas": 4, "minReplicas": 2, "admitted": 3, "scheduled": 2, "ready": ready, "restarts": 7}
    return {
        "conditions": [
            {"type": "Degraded", "status": degraded},
            {"type": "Available", "status": "Unknown"},
            {"type": "SomebodyElsesOwn", "status": "True"},
        ],
        "roles": [{"name": role, **counts} for role in roles],
    }


class Shown:
    def __init__(self, limit: int = 10) -> None:
        self.gauges = WorkloadGauges(limit)
        self._registry = CollectorRegistry()
        self._registry.register(self.gauges)

    def scrape(self) -> Scrape:
        return Scrape.parse(generate_latest(self._registry).decode())

    def names(self) -> set[str]:
        return set(self.scrape().by("name", "covey_workload_units_desired"))


def test_no_namespace_crowds_out_the_trouble_of_another() -> None:
    shown = Shown(limit=4)
    for name in ("a", "b", "c", "d", "e", "f"):
        shown.gauges.update(("many", name), status("decode", degraded="True"), UNITS, 3)
    shown.gauges.update(("team", "llm"), status("decode", degraded="True"), UNITS, 3)
    assert shown.names() == {"a", "b", "c", "llm"}
    assert shown.scrape()("covey_workload_condition", namespace="team", name="llm", condition="Degraded") == 1


def test_what_is_in_trouble_has_its_series_first() -> None:
    shown = Shown(limit=2)
    for name in ("a", "b", "c"):
        shown.gauges.update(("team", name), status("decode"), UNITS, 3)
    assert shown.names() == {"a", "b"}
    shown.gauges.update(("team", "c"), status("decode", degraded="True"), UNITS, 3)
    assert shown.names() == {"a", "c"}


def unready(reason: str) -> dict[str, Any]:
    return {"conditions": [{"type": "Ready", "status": "False", "reason": reason}]}


def test_resources_that_are_not_ready_are_counted_by_reason() -> None:
    shown = Shown(limit=1)
    for name, reason in (("a", "Infeasible"), ("b", "Infeasible"), ("c", "SomebodyElsesWord")):
        shown.gauges.update(("team", name), unready(reason), (), 1)
    counts = shown.scrape().by("reason", "covey_workloads_unready")
    assert {reason: count for reason, count in counts.items() if count} == {"Infeasible": 2, "Other": 1}
    ready = {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}]}
    shown.gauges.update(("team", "a"), ready, (), 1)
    shown.gauges.update(("team", "b"), unready("SurplusWaiting"), (), 1)
    shown.gauges.drop(("team", "c"))
    counts = shown.scrape().by("reason", "covey_workloads_unready")
    assert {reason: count for reason, count in counts.items() if count} == {"SurplusWaiting": 1}
    assert shown.scrape()("covey_workloads", condition="Ready") == 1


def test_every_condition_that_there_is_has_a_gauge() -> None:
    """A condition that only troubled resources have is gone from the metrics when it is gone from the status."""
    shown = Shown()
    kinds = [*reasons.GOOD, *reasons.BAD]
    shown.gauges.update(("team", "llm"), {"conditions": [{"type": kind, "status": "True"} for kind in kinds]}, (), 1)
    assert shown.scrape().by("condition", "covey_workload_condition") == dict.fromkeys(kinds, 1)
    assert shown.scrape().by("condition", "covey_workloads") == dict.fromkeys(kinds, 1)
    shown.gauges.update(("team", "llm"), {"conditions": []}, (), 1)
    assert shown.scrape().by("condition", "covey_workload_condition") == {}
