"""What a scrape says, as tests ask it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

Series = tuple[str, frozenset[tuple[str, str]]]
_NAMED: Final = ("namespace", "name")


@dataclass(frozen=True)
class Scrape:
    """The samples of one answer in the text format."""

    samples: Mapping[Series, float]

    @classmethod
    def parse(cls, text: str) -> Scrape:
        return cls(
            {
                (sample.name, frozenset(sample.labels.items())): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            }
        )

    def __call__(self, metric: str, **labels: str) -> float:
        """The sum of the series with these labels; 0 without any, as in a query."""
        wanted = frozenset(labels.items())
        return sum(value for (name, found), value in self.samples.items() if name == metric and wanted <= found)

    def by(self, label: str, metric: str, **labels: str) -> dict[str, float]:
        """The values of a metric other than 0, by one of its labels."""
        found: dict[str, float] = {}
        for (name, pairs), value in self.samples.items():
            if name == metric and frozenset(labels.items()) <= pairs and value:
                key = dict(pairs)[label]
                found[key] = found.get(key, 0) + value
        return found

    def naming(self, namespace: str, name: str) -> list[str]:
        """The metrics that have a series of this object."""
        pair = frozenset(zip(_NAMED, (namespace, name), strict=True))
        return sorted({metric for metric, labels in self.samples if pair <= labels})
