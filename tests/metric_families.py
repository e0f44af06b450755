"""What the two processes can show, and which names a PromQL expression asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from covey.observability import reference
from covey.observability.families import REGISTRY, Family

#: Suffixes of the series of a histogram.
_PARTS: Final = ("_bucket", "_sum", "_count")
_STRING: Final = re.compile(r"\"[^\"]*\"|'[^']*'")
#: A name that something of ours could have; what follows a colon or precedes it is a recording rule's.
_NAME: Final = re.compile(r"(?<![\w:$])(?:covey|leader_election|process|python)[\w:]*")


def families() -> dict[str, Family]:
    """Every metric of Covey's own."""
    return {family.name: family for family in reference.families()}


def series_of(family: Family) -> set[str]:
    """The names of a metric's series."""
    return {family.name + part for part in _PARTS} if family.type == "histogram" else {family.name}


def known_series() -> set[str]:
    """Every name that a query may ask for: Covey's, and those that prometheus_client has of the process."""
    of_process = {sample.name for family in REGISTRY.collect() for sample in family.samples}
    return of_process.union(*map(series_of, families().values()))


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
