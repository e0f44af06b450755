"""What surrounds a unit when it is planned: its priority, topology, siblings, and the nodes that are left out for it.

Derived from the API: the Workload's creation is the age (recreating a unit does not lose its place), the PriorityClass
gives the priority, the root's status keeps the nodes that failed. How often a node failed is remembered only to make
the next exclusion longer; a restart begins with the shortest again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from covey.admission import obstacles, victims
from covey.admission.avoided_nodes import avoided_nodes, avoided_now
from covey.admission.entry import Entry, QueueStage, excluded_now, waiting_since
from covey.admission.gangs import Surroundings, UnplannableError
from covey.admission.nodes import Key, key_of
from covey.admission.status import Decision
from covey.admission.tree import Unit
from covey.admission.unit_spread import with_occupied_domains
from covey.api import core
from covey.api.annotations import Avoided
from covey.api.constants import (
    ANNOTATION_AVOID,
    PURPOSE_EVACUATION,
    REASON_INVALID_TOPOLOGY,
)
from covey.kube.clock import Clock
from covey.observability import scheduler_metrics as metrics
from covey.observability.logging import get_logger
from covey.placement.model import Gang, Topology
from covey.scheduler.cache import Cache
from covey.scheduler.topologies import Topologies

log = get_logger(__name__)

#: Seconds that a node is left out after its first failure; doubled at each further one.
FIRST_EXCLUSION: Final = 60.0
LONGEST_EXCLUSION: Final = 3600.0
#: Nodes left out that the status lists; the API takes more, but an object is read by everybody who watches it.
WRITTEN: Final = 64
#: Seconds after which a gang that waits for a domain looks whether another one would serve it sooner.
RECONSIDER: Final = 60.0
#: Seconds after which a gang that others give way to looks whether it still needs all of them.
FOLLOW: Final = 5.0
#: Seconds after which a failure does not make the next exclusion longer any more.
FORGOTTEN: Final = 2 * LONGEST_EXCLUSION


@dataclass(frozen=True, slots=True)
class _Failures:
    """Failures of a node for a unit: their number, the last (monotonic seconds), and the exclusion that the status says."""

    count: int
    at: float
    seconds: float
    said: core.ExcludedNode


class Queueing:
    """Surroundings of units, from the cache."""

    def __init__(
        self,
        cache: Cache,
        topologies: Topologies,
        clock: Clock,
        *,
        reserve_after: float,
        obstacle: Callable[[core.Pod], str | None] = obstacles.obstacle,
    ) -> None:
        self._cache = cache
        self.topologies = topologies
        self._reserve_after = reserve_after
        self._obstacle = lambda pod: obstacle(pod) or cache.devices.obstacle(pod)
        self._clock = clock.wall
        self._monotonic = clock.monotonic
        self._failures: dict[Key, dict[str, _Failures]] = {}
        #: Roots that name a PriorityClass that does not exist, so that each is logged once.
        self._unknown: dict[Key, str] = {}

    def around(self, unit: Unit) -> tuple[Decision, Topology | UnplannableError, Surroundings]:
        """The part of its status that a unit must keep, its topology or the reason for none, and its surroundings.

        Where its siblings lie is asked when it is planned (``gang_beside_siblings``).
        """
        excluded = self._exclusions(unit)
        status = unit.root.status
        kept = Decision(excluded=self._worst(unit.key, excluded), claim=status.claim)
        try:
            topology = self.topologies.choose(unit)
        except LookupError as error:
            return kept, UnplannableError(REASON_INVALID_TOPOLOGY, str(error.args[0])), Surroundings()
        counts, avoid = self._cache.devices.counts, self._named_to_avoid(unit)
        around = Surroundings(
            priority=self.priority(unit.root),
            assumed=self._cache.capacity.assumed,
            excluded={
                **(avoided_nodes(avoid, topology, self._cache.nodes.store.values()) if avoid else {}),
                **{exclusion.node: exclusion.reason for exclusion in excluded},
            },
            obstacle=self._obstacle,
            refused=counts.problem if counts.classes.problems else None,
        )
        return kept, topology, around

    def is_misjudged(self, entry: Entry) -> bool:
        """The unit waits and would be planned in another topology, keeps nodes that are gone, or others that may be open."""
        claim = entry.decision.claim
        if entry.stage is QueueStage.NOTHING or entry.stage is QueueStage.SURPLUS:
            asks = entry.decision.succession is not None
            return asks or (claim is not None and claim.purpose == PURPOSE_EVACUATION)
        if claim is not None and any(self._cache.node(name) is None for name in claim.nodes):
            return True
        try:
            return self.topologies.choose(entry.unit) != entry.decision.topology
        except LookupError:
            return entry.decision.topology is not None

    def priority(self, root: core.Group) -> int:
        """The unit's priority (``root_priority``); 0 where nobody knows it."""
        priority = root_priority(self._cache, root)
        name = root.spec.priority_class_name or ""
        if priority is None and self._unknown.get(key_of(root)) != name:
            self._unknown[key_of(root)] = name
            log.warning("unknown priority class, taken as 0", priority_class=name)
        return priority or 0

    def exclude(self, unit: Unit, node: str, reason: str) -> bool:
        """Leave a node out for this unit for a while, longer each time; pods that fail there together are one failure.

        Returns whether it is the first failure there that is remembered.
        """
        if any(exclusion.node == node for exclusion in self._exclusions(unit)):
            return False
        now = self._monotonic()
        known = {name: each for name, each in self._failures.get(unit.key, {}).items() if now < each.at + FORGOTTEN}
        count = known[node].count if node in known else 0
        seconds = min(FIRST_EXCLUSION * 2 ** min(count, 16), LONGEST_EXCLUSION)
        said = core.ExcludedNode(node=node, reason=reason[:1000], until=core.rfc3339(self._clock() + seconds))
        self._failures[unit.key] = {**known, node: _Failures(count + 1, now, seconds, said)}
        metrics.NODE_EXCLUSIONS.inc()
        return count == 0

    def with_refused_nodes(self, unit: Unit, gang: Gang) -> Gang | None:
        """A unit's gang with the nodes that are left out since kube-scheduler refused them; None where it refused none."""
        refused = {exclusion.node for exclusion in self._exclusions(unit)} & gang.excluded_nodes.keys()
        left_out = {node: why for node, why in gang.excluded_nodes.items() if node not in refused}
        return replace(gang, excluded_nodes=left_out) if refused else None

    def find_tried(self, root: Key) -> list[str]:
        """Return the nodes where a unit has failed and that may be tried again: what failed least and longest ago first."""
        now = self._monotonic()
        tried = {
            name: failures
            for name, failures in self._failures.get(root, {}).items()
            if failures.at + failures.seconds <= now < failures.at + FORGOTTEN
        }
        return sorted(tried, key=lambda name: (tried[name].count, tried[name].at))

    def forget(self, root: Key) -> None:
        """The unit is gone."""
        self._failures.pop(root, None)
        self._unknown.pop(root, None)

    def deadlines(self, entry: Entry) -> Iterator[float]:
        """Seconds until time alone changes something for a unit: an exclusion ends, or its wait becomes too long."""
        now, monotonic = self._clock(), self._monotonic()
        own = self._failures.get(entry.unit.key, {})
        for exclusion in self._exclusions(entry.unit):
            known = own.get(exclusion.node)
            yield known.at + known.seconds - monotonic if known else (core.seconds(exclusion.until) or now) - now
        yield from (avoided.until - now for avoided in self._named_to_avoid(entry.unit))
        claim = entry.decision.claim
        if entry.refused and claim is not None:
            retry = core.seconds(claim.retry_time)
            soon = FOLLOW if claim.victims else RECONSIDER
            yield retry - now if retry is not None and retry > now else soon
        elif entry.refused and entry.decision.succession is not None:
            yield RECONSIDER  # room that was to come free may not have come
        elif entry.refused:
            unit = self._cache.index.unit(entry.unit.key) or entry.unit  # its status may be newer than the entry
            since = waiting_since(unit.root)
            if since is not None and since + self._reserve_after > now:
                yield since + self._reserve_after - now

    def _exclusions(self, unit: Unit) -> tuple[core.ExcludedNode, ...]:
        """The nodes that are excluded now: by this process's own clock, or until the time that another one wrote."""
        now = self._monotonic()
        own = self._failures.get(unit.key, {})
        listed = excluded_now(unit.root.status.excluded_nodes or (), self._clock(), LONGEST_EXCLUSION)
        found = {each.node: each for each in listed if each.node not in own}
        found |= {name: each.said for name, each in own.items() if now < each.at + each.seconds}
        return tuple(found[name] for name in sorted(found))

    def _worst(self, root: Key, excluded: Sequence[core.ExcludedNode]) -> tuple[core.ExcludedNode, ...]:
        """Those that the status lists: what failed most often, and then what failed last."""
        if len(excluded) <= WRITTEN:
            return tuple(excluded)
        own = self._failures.get(root, {})

        def badness(exclusion: core.ExcludedNode) -> tuple[int, float]:
            known = own.get(exclusion.node)
            return (known.count, known.at) if known else (0, 0.0)

        return tuple(sorted(sorted(excluded, key=badness)[-WRITTEN:], key=lambda exclusion: exclusion.node))

    def _named_to_avoid(self, unit: Unit) -> Sequence[Avoided]:
        root = unit.root
        return avoided_now(root, self._clock()) if root.metadata.annotation(ANNOTATION_AVOID) is not None else ()

    def gang_beside_siblings(self, entry: Entry) -> Gang:
        """A unit's gang, told where its siblings lie by now: one may have been placed since the unit was assessed."""
        gang, topology = entry.gang, entry.decision.topology
        assert gang is not None
        if topology is None or gang.spread is None:
            return gang
        path_of = partial(self._cache.path, topology)
        return with_occupied_domains(gang, topology, self._siblings(entry.unit), self._cache.capacity.assumed, path_of)

    def _siblings(self, unit: Unit) -> Iterator[Unit]:
        owner = unit.root.metadata.controller
        for root in self._cache.index.roots_of(owner.uid) if owner else ():
            other = self._cache.index.unit(root) if root != unit.key and root.namespace == unit.key.namespace else None
            if other is not None:
                yield other


def root_priority(cache: Cache, root: core.Group) -> int | None:
    """Find the priority of a root of the cache (``victims.root_priority``)."""
    classes = {known.metadata.name: known for known in cache.priority_classes.store.values()}
    return victims.root_priority(root, partial(cache.index.members, key_of(root)), classes)
