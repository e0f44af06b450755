"""The room that a replica, or a unit, frees when it goes: whole domains are worth more than single places.

Where a pod lies is what Covey's scheduler has written on it with the pin (``recorded_domains``); pods of other
schedulers say nothing, and then nothing is said here. The one that leaves fewest pods of the resource behind in its
domains goes first, the finest level counting most: one that is alone in a domain frees it. Of several such domains that
of the highest number is emptied first, so that those that go together come from the same one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from covey.admission.topologies import recorded_domains
from covey.api import core
from covey.compile.identity import Slot

#: Pods by domain, for each level from broad to narrow. A domain is the path of label values that leads to it.
Footprint = tuple[Counter[tuple[str, ...]], ...]


#: Compared as a whole; the one with less goes first.
Kept = tuple[float, ...]


#: The highest number in each domain, by level.
Tops = list[dict[tuple[str, ...], int]]


class Rooms:
    """The room that one resource takes; ``live`` has the pods that fill places now."""

    def __init__(self, live: Iterable[tuple[Slot, core.Pod]]) -> None:
        self._live = tuple(live)
        self._levels = _levels(pod for _, pod in self._live)
        self._everybody = _footprint((pod for _, pod in self._live), self._levels)

    def of_replicas(self, unit: int, role: str) -> dict[int, Kept]:
        """Worth of the room of each replica of a role; the one with less goes first."""
        return self._rank_footprints(
            (slot.replica, pod) for slot, pod in self._live if (slot.unit, slot.role) == (unit, role)
        )

    def of_units(self) -> dict[int, Kept]:
        """Worth of the room of each unit; the one with less goes first."""
        return self._rank_footprints((slot.unit, pod) for slot, pod in self._live)

    def _rank_footprints(self, numbered: Iterable[tuple[int, core.Pod]]) -> dict[int, Kept]:
        pods: dict[int, list[core.Pod]] = {}
        for rank, pod in numbered:
            pods.setdefault(rank, []).append(pod)
        footprints = {rank: _footprint(rank_pods, self._levels) for rank, rank_pods in pods.items()}
        tops: Tops = [{} for _ in self._levels]
        for rank, footprint in footprints.items():
            for top, counts in zip(tops, footprint, strict=True):
                for domain in counts:
                    top[domain] = max(rank, top.get(domain, rank))
        return {rank: _remaining_rank(footprint, self._everybody, tops) for rank, footprint in footprints.items()}


def _levels(pods: Iterable[core.Pod]) -> tuple[str, ...]:
    """The levels that pods name, from broad to narrow: a broader one has fewer domains."""
    domains: dict[str, set[str]] = {}
    for pod in pods:
        for level, value in recorded_domains(pod).items():
            domains.setdefault(level, set()).add(value)
    return tuple(sorted(domains, key=lambda level: (len(domains[level]), level)))


def _footprint(pods: Iterable[core.Pod], levels: Sequence[str]) -> Footprint:
    """Count the pods in each domain."""
    footprint: Footprint = tuple(Counter() for _ in levels)
    for pod in pods:
        path: tuple[str, ...] = ()
        domains = recorded_domains(pod)
        for level, counts in zip(levels, footprint, strict=True):
            value = domains.get(level)
            if value is not None:
                path = (*path, value)
                counts[path] += 1
    return footprint


def _remaining_rank(footprint: Footprint, everybody: Footprint, tops: Tops) -> Kept:
    rest = [
        sum(total[domain] - count for domain, count in counts.items())
        for counts, total in zip(footprint, everybody, strict=True)
    ]
    highest = [max((top[domain] for domain in counts), default=-1) for counts, top in zip(footprint, tops, strict=True)]
    return (*reversed(rest), *(-number for number in highest))
