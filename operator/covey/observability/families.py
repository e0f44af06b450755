"""Metric families: every metric's name, help and labels, written once, where the metric is made.

The same sentence is the HELP text of ``/metrics`` and the row of the reference page (``reference``). Names follow the
Prometheus practices; where controller-runtime has a metric of the same meaning, its words are kept, so that dashboards
know them.

Labels take few values by construction: verbs, results, reasons, resources, levels; never the name of an object. What
names an object, or what somebody else writes on a node, is bounded where it is made (``operator/status/gauges.py``,
``scheduler/devices.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily

# A `_created` series for every counter and histogram doubles the text and is read by nobody here.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call] # it has no annotations

REGISTRY: Final = CollectorRegistry(auto_describe=True)

FAST: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SLOW: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
#: A gang can wait for days; the API's times are whole seconds.
LIFE: Final = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0, 86400.0)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric as it is described. ``name`` is the full one; ``meaning`` has values of labels in backticks."""

    name: str
    type: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def help(self) -> str:
        """The meaning as plain text."""
        return self.meaning.replace("`", "")

    def gauges(self) -> GaugeMetricFamily:
        """The metric without series, for a collector to add them."""
        return GaugeMetricFamily(self.name, self.help, labels=self.labels)


class Families:
    """The metrics of one part of Covey, in the order of the reference page; ``title`` is its section there."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._described: list[Family] = []

    def __iter__(self) -> Iterator[Family]:
        return iter(self._described)

    def counter(self, name: str, meaning: str, *labels: str, values: Iterable[str | tuple[str, ...]] = ()) -> Counter:
        """A number that only grows while the process lives; the name ends in ``_total``.

        ``values`` of its one label, or of all its labels, are shown from the beginning, as 0: Prometheus sees no
        increase in a series that begins with 1, so the first of a kind would never be seen.
        """
        family = self._describe(name, "counter", meaning, labels)
        counter = Counter(name, family.help, labels, registry=REGISTRY)
        for label in values:
            counter.labels(*((label,) if isinstance(label, str) else label))
        return counter

    def gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        """A number as it is now."""
        family = self._describe(name, "gauge", meaning, labels)
        return Gauge(name, family.help, labels, registry=REGISTRY)

    def histogram(self, name: str, meaning: str, *labels: str, buckets: tuple[float, ...] = FAST) -> Histogram:
        """Durations in seconds; ``buckets`` are their upper bounds."""
        family = self._describe(name, "histogram", meaning, labels)
        return Histogram(name, family.help, labels, registry=REGISTRY, buckets=buckets)

    def collected_gauge(self, name: str, meaning: str, *labels: str) -> Family:
        """A gauge whose series a collector makes at each scrape."""
        return self._describe(name, "gauge", meaning, labels)

    def _describe(self, name: str, kind: str, meaning: str, labels: tuple[str, ...]) -> Family:
        family = Family(name, kind, labels, meaning)
        self._described.append(family)
        return family
