"""What the two processes can show, and which names a PromQL expression asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.metrics import MetricWrapperBase

from covey.observability import metrics
from covey.operator.tell.gauges import WorkloadGauges

#: Suffixes of the series of a histogram.
_PARTS: Final = ("_bucket", "_sum", "_count")
_STRING: Final = re.compile(r"\"[^\"]*\"|'[^']*'")
#: A name that something of ours could have; what follows a colon or precedes it is a recording rule's.
_NAME: Final = re.compile(r"(?<![\w:$])(?:covey|leader_election|process|python)[\w:]*")


@dataclass(frozen=True)
class Family:
    """One metric."""

    name: str
    type: str
    labels: tuple[str, ...]

    @property
    def series(self) -> set[str]:
        return {self.name + part for part in _PARTS} if self.type == "histogram" else {self.name}


def families() -> dict[str, Family]:
    """Every metric of Covey's own."""
    ours = (Family(_full(each), each._type, each._labelnames) for each in vars(metrics).values() if _is_metric(each))
    gauges = (Family(each.name, each.type, each._labelnames) for each in WorkloadGauges(1).describe())
    return {family.name: family for family in (*ours, *gauges)}


def known_series() -> set[str]:
    """Every name that a query may ask for: Covey's, and those that prometheus_client has of the process."""
    of_process = {sample.name for family in metrics.REGISTRY.collect() for sample in family.samples}
    return of_process.union(*(family.series for family in families().values()))


def names_in(expression: str) -> set[str]:
    """The metrics and recording rules that an expression names."""
    return set(_NAME.findall(_STRING.sub('""', expression)))


def expressions(value: Any) -> Iterator[str]:
    """Every ``expr`` in a document."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            if key == "expr":
                yield each
            else:
                yield from expressions(each)
    elif isinstance(value, list):
        for each in value:
            yield from expressions(each)


def _is_metric(value: object) -> bool:
    return isinstance(value, MetricWrapperBase)


def _full(metric: MetricWrapperBase) -> str:
    return metric._name + ("_total" if metric._type == "counter" else "")
