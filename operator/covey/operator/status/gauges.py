"""Gauges of each DisaggregatedInference.

They are of a bounded number, and gone with the resource. They show the status that was computed last, so only the
operator that leads shows any. A resource costs about six series for each role and a dozen besides. Beyond the limit
those in trouble have theirs first, and namespaces take turns, so that no namespace hides what alerts on another's would
show; the rest is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from covey.api import constants as names
from covey.api.reasons import BAD, GATES, GOOD, REASONS
from covey.observability import operator_metrics as metrics
from covey.operator.status.units import UnitSummary

Key = tuple[str, str]

#: What the label ``condition`` can be: every condition that there is.
CONDITIONS: Final = (*GOOD, *BAD)
#: The reason of one that is not Ready for a reason that is not Covey's own: a word of the backend's scheduler.
OTHER: Final = "Other"
_TRUTH: Final = {"True": 1.0, "False": 0.0}


@dataclass(frozen=True, slots=True)
class _Row:
    """The values of one resource.

    ``roles`` has for each role a tuple in the order of ``WORKLOAD_ROLES``, ``units`` one in that of ``WORKLOAD_UNITS``.
    ``reason`` is why it is not Ready; empty where it is. ``gate`` is the one that its rollout waits at; None without a
    rollout, empty where it does not wait. ``avoided``: the nodes that its new pods keep off.
    """

    roles: Mapping[str, Sequence[float | None]]
    units: Sequence[float]
    conditions: Mapping[str, float]
    reason: str = ""
    gate: str | None = None
    avoided: Collection[str] = ()
    #: Reason of ``CapacityAsked``; empty without it.
    asked: str = ""


class WorkloadGauges(Collector):
    """Gauges that a scrape shows of each resource.

    Args:
        limit: resources that are shown, at most.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: dict[Key, _Row] = {}
        #: Resources by condition that is True, and by the reason for which they are not Ready.
        self._true: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()

    def update(
        self,
        key: Key,
        status: Mapping[str, Any],
        units: Sequence[UnitSummary],
        wanted: int,
        avoided: Collection[str] = (),
    ) -> None:
        """Take the status of a resource.

        Args:
            key: its namespace and name.
            status: as it is written.
            units: those that are laid out; the status does not list them all.
            wanted: units that there shall be.
            avoided: nodes that its new pods keep off.
        """
        conditions = {condition["type"]: _TRUTH.get(condition["status"], -1.0) for condition in status["conditions"]}
        admitted, ready = sum(unit.is_admitted for unit in units), sum(unit.is_available for unit in units)
        row = _Row(
            {role["name"]: tuple(map(role.get, metrics.WORKLOAD_ROLES)) for role in status.get("roles", ())},
            (wanted, admitted, ready),
            {kind: conditions[kind] for kind in CONDITIONS if kind in conditions},
            _reason(status["conditions"]),
            _gate(status),
            avoided,
            next(
                (
                    condition.get("reason", "")
                    for condition in status["conditions"]
                    if condition["type"] == names.CAPACITY_ASKED
                ),
                "",
            ),
        )
        self._count(self._rows.get(key), -1)
        self._rows[key] = row
        self._count(row, 1)

    def drop(self, key: Key) -> None:
        """Forget a resource that is gone."""
        self._count(self._rows.pop(key, None), -1)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The metrics without their values; the registry asks before there are any."""
        yield from _Families().every()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The metrics now. Runs in a thread while resources come and go: it works on a copy."""
        families, rows = _Families(), list(self._rows.items())
        for key, row in _by_rank(rows)[: self._limit]:
            families.add(key, row)
        families.dropped.add_metric((), max(0, len(rows) - self._limit))
        for kind in CONDITIONS:
            families.true.add_metric((kind,), self._true[kind])
        for reason in (*REASONS, OTHER):
            families.unready.add_metric((reason,), self._reasons[reason])
        gates = Counter(row.gate for _, row in rows if row.gate is not None)
        families.rollouts.add_metric((), gates.total())
        for gate in GATES:
            families.held.add_metric((gate,), gates[gate])
            if gate in metrics.FORMER:
                families.held.add_metric((metrics.FORMER[gate],), gates[gate])
        asked = Counter(row.asked for _, row in rows)
        for reason in metrics.CAPACITY_REASONS:
            families.asked.add_metric((reason,), asked[reason])
        families.avoided.add_metric((), len({node for _, row in rows for node in row.avoided}))
        yield from families.every()

    def _count(self, row: _Row | None, step: int) -> None:
        for kind, value in row.conditions.items() if row else ():
            self._true[kind] += step * (value == 1.0)
        if row is not None and row.reason:
            self._reasons[row.reason] += step


def _by_rank(rows: Sequence[tuple[Key, _Row]]) -> list[tuple[Key, _Row]]:
    """Order resources by trouble, then by turns of their namespaces, then by the time they have been known."""
    turns: Counter[tuple[str, bool]] = Counter()
    ranked: list[tuple[bool, int, tuple[Key, _Row]]] = []
    for entry in rows:
        (namespace, _), row = entry
        healthy = not row.reason and all(row.conditions.get(kind) != 1.0 for kind in BAD)
        ranked.append((healthy, turns[namespace, healthy], entry))
        turns[namespace, healthy] += 1
    return [entry for *_, entry in sorted(ranked, key=lambda rank: rank[:2])]


def _reason(conditions: Sequence[Mapping[str, Any]]) -> str:
    """Reason for which a resource is not Ready, empty where it is; ``Other`` for a word that is not Covey's."""
    ready = next((condition for condition in conditions if condition["type"] == names.READY), None)
    if ready is None or ready["status"] == "True":
        return ""
    return ready["reason"] if ready["reason"] in REASONS else OTHER


def _gate(status: Mapping[str, Any]) -> str | None:
    """Gate that the rollout on its way waits at; empty where it does not wait, None without a rollout."""
    rollout = status.get("rollout")
    if not rollout:
        return None
    hold = rollout.get("hold")
    return str(hold["gate"]) if hold else ""


class _Families:
    """The metrics of one scrape."""

    def __init__(self) -> None:
        self.roles = [family.gauges() for family in metrics.WORKLOAD_ROLES.values()]
        self.units = [family.gauges() for family in metrics.WORKLOAD_UNITS]
        self.conditions = metrics.WORKLOAD_CONDITION.gauges()
        self.true = metrics.WORKLOADS.gauges()
        self.unready = metrics.WORKLOADS_UNREADY.gauges()
        self.dropped = metrics.WORKLOAD_SERIES_DROPPED.gauges()
        self.rollouts = metrics.ROLLOUTS.gauges()
        self.held = metrics.ROLLOUTS_HELD.gauges()
        self.avoided = metrics.NODES_AVOIDED.gauges()
        self.asked = metrics.CAPACITY_ASKED.gauges()

    def add(self, key: Key, row: _Row) -> None:
        for role, values in row.roles.items():
            for family, value in zip(self.roles, values, strict=True):
                if value is not None:
                    family.add_metric((*key, role), value)
        for family, value in zip(self.units, row.units, strict=True):
            family.add_metric(key, value)
        for kind, value in row.conditions.items():
            self.conditions.add_metric((*key, kind), value)

    def every(self) -> Iterator[GaugeMetricFamily]:
        yield from self.roles
        yield from self.units
        yield from (
            self.conditions,
            self.true,
            self.unready,
            self.dropped,
            self.rollouts,
            self.held,
            self.avoided,
            self.asked,
        )
