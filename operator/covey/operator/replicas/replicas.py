"""The fate of a replica, the room it frees, and its turn when not all pods can be created.

The fate of one replica after failures of its pods.

The room that a replica, or a unit, frees when it goes: whole domains are worth more than single places.

Where a pod lies is what Covey's scheduler has written on it with the pin (``podstate.domains``); pods of other
schedulers say nothing, and then nothing is said here. The one that leaves fewest pods of the resource behind in its
domains goes first, the finest level counting most: one that is alone in a domain frees it. Of several such domains that
of the highest number is emptied first, so that those that go together come from the same one.

The order in which pods are created, for the case that not all of them can be.

=================  ==================================================================================================
precedence         pods of
=================  ==================================================================================================
running minimum    replicas that a unit lacks of its minimum, some of its pods being bound
minimum            replicas that any other unit lacks of its minimum, one unit after another
replacement        replicas beyond the minimum that have lost a pod
surplus            replicas that a role grows by, up to as many as are wanted
surge              replicas beyond those that are wanted: successors in a rollout or an evacuation
=================  ==================================================================================================

A role's minimum is made of the replicas that are whole, then of those that have lost a pod, then of new ones, of lower
number first. So a replica that is lost while enough others are there is no minimum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from covey.api import core
from covey.compile import Scale, Slot, Tree
from covey.compile.pods import NO_PAST, Past
from covey.operator.model import podstate
from covey.operator.model.actions import CreatePod, Precedence
from covey.operator.model.observed import Observed


@dataclass(frozen=True, slots=True)
class Fate:
    """Decisions of the restart policy about a replica.

    ``whole``: a pod that is lost takes the others with it. ``broken``: it is given up now, whatever its pods say.
    ``failed``: UIDs of live pods that have failed. ``kept``: places where nothing is replaced for now. ``pasts``: what
    the successors of failed pods carry; ``least`` what any new pod of it carries at least.
    """

    whole: bool = False
    broken: bool = False
    failed: Collection[str] = ()
    kept: Collection[Slot] = ()
    pasts: Mapping[Slot, Past] = field(default_factory=dict)
    least: Past = NO_PAST


NO_FATE = Fate()


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
        for number, pod in numbered:
            pods.setdefault(number, []).append(pod)
        footprints = {number: _footprint(found, self._levels) for number, found in pods.items()}
        tops: Tops = [{} for _ in self._levels]
        for number, found in footprints.items():
            for top, counts in zip(tops, found, strict=True):
                for domain in counts:
                    top[domain] = max(number, top.get(domain, number))
        return {number: _remaining_rank(found, self._everybody, tops) for number, found in footprints.items()}


def _levels(pods: Iterable[core.Pod]) -> tuple[str, ...]:
    """The levels that pods name, from broad to narrow: a broader one has fewer domains."""
    domains: dict[str, set[str]] = {}
    for pod in pods:
        for level, value in podstate.domains(pod).items():
            domains.setdefault(level, set()).add(value)
    return tuple(sorted(domains, key=lambda level: (len(domains[level]), level)))


def _footprint(pods: Iterable[core.Pod], levels: Sequence[str]) -> Footprint:
    """Count the pods in each domain."""
    found: Footprint = tuple(Counter() for _ in levels)
    for pod in pods:
        path: tuple[str, ...] = ()
        domains = podstate.domains(pod)
        for level, counts in zip(levels, found, strict=True):
            value = domains.get(level)
            if value is not None:
                path = (*path, value)
                counts[path] += 1
    return found


def _remaining_rank(found: Footprint, everybody: Footprint, tops: Tops) -> Kept:
    rest = [
        sum(total[domain] - count for domain, count in counts.items())
        for counts, total in zip(found, everybody, strict=True)
    ]
    highest = [max((top[domain] for domain in counts), default=-1) for counts, top in zip(found, tops, strict=True)]
    return (*reversed(rest), *(-number for number in highest))


#: Unit, role and number.
Replica = tuple[int, str, int]


def replica_of(slot: Slot) -> Replica:
    """The replica that a place belongs to."""
    return slot.unit, slot.role, slot.replica


def order_creations(items: Sequence[CreatePod], tree: Tree, scale: Scale, observed: Observed) -> tuple[CreatePod, ...]:
    """Put pods in the order in which they are to be created, each with its precedence.

    Args:
        items: the pods of whole replicas.
        tree: what is wanted.
        scale: how many replicas are wanted, and how many are the minimum.
        observed: the snapshot.
    """
    if not items:
        return ()
    found = dict(_precedences(items, tree, tree.layout.scale or scale, observed))
    ranked = (replace(item, precedence=found[replica_of(item.slot)]) for item in items)
    # Sorting is stable: within one precedence it goes by unit, role and number.
    return tuple(sorted(ranked, key=lambda item: item.precedence))


def _precedences(
    items: Iterable[CreatePod], tree: Tree, scale: Scale, observed: Observed
) -> Iterator[tuple[Replica, Precedence]]:
    torn: dict[Replica, bool] = {}
    for item in items:
        replica = replica_of(item.slot)
        torn[replica] = torn.get(replica, False) or item.replaces
    units = {unit for unit, _, _ in torn}
    run = {slot.unit for slot, pod in observed.current.items() if slot.unit in units and podstate.is_bound(pod)}
    for (unit, role), replicas in _roles(tree, units).items():
        if all(replica not in torn for replica in replicas):
            continue
        count = scale.count(unit, role)
        lost = {replica: torn[replica] or _has_pods(tree, replica, observed) for replica in replicas if replica in torn}
        ranked = sorted(replicas, key=lambda replica: (replica in torn, not lost.get(replica, True), replica))
        for position, replica in enumerate(ranked):
            if replica not in torn:
                continue
            if position < count.minimum:
                yield replica, Precedence.RUNNING_MINIMUM if unit in run else Precedence.MINIMUM
            elif lost[replica]:
                yield replica, Precedence.REPLACEMENT
            else:
                yield replica, Precedence.SURPLUS if position < count.replicas else Precedence.SURGE


def _roles(tree: Tree, units: Iterable[int]) -> Mapping[tuple[int, str], list[Replica]]:
    """The replicas of each role of these units."""
    return {
        (unit, role): [(unit, role, number) for number in replicas]
        for unit in sorted(units)
        for role, replicas in tree.layout.units.get(unit, {}).items()
    }


def _has_pods(tree: Tree, replica: Replica, observed: Observed) -> bool:
    return any(slot in observed.current for slot in tree.replicas.get(replica, ()))
