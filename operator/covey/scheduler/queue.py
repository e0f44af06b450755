"""The place of a gang in the queue, its siblings and excluded nodes, and units that back off.

Derived from the API: the Workload's creation is the age (recreating a unit does not lose its place), the PriorityClass
gives the priority, the root's status keeps the nodes that failed. How often a node failed is remembered only to make
the next exclusion longer; a restart begins with the shortest again.

Units back off whose last attempt failed for a reason that a plan cannot mend: the planner raised an exception or met
its limit, the API server denied a pin, or kube-scheduler refused the places for something that is not modelled: the
same attempt would fail in the same way, as fast as it can be made. So such a unit is parked, each time twice as long.
Kept in memory only: a restart begins with the shortest time again, and what people have to know is in the root's
condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from covey.admission import obstacles
from covey.admission.gangs import Surroundings, UnplannableError
from covey.admission.levels import avoided_nodes, avoided_now, with_occupied_domains
from covey.admission.order import priority_of
from covey.admission.queue import Entry, Want, excluded_now, waiting_since
from covey.admission.status import Decision
from covey.admission.tree import Key, Unit, key_of
from covey.admission.victims import is_ours
from covey.api import core
from covey.api.annotations import Avoided
from covey.api.constants import (
    ANNOTATION_AVOID,
    PURPOSE_EVACUATION,
    REASON_DENIED,
    REASON_INVALID_TOPOLOGY,
    REASON_UNKNOWN,
    REASON_UNSCHEDULABLE,
    REASON_WAITING,
)
from covey.kube.clock import Clock
from covey.observability import scheduler_metrics as metrics
from covey.observability.logging import get_logger
from covey.placement.model import Gang, Topology
from covey.scheduler.cache import Cache
from covey.scheduler.quotas import Quotas
from covey.scheduler.topologies import Topologies

#: Seconds for which a unit is parked after its first failure; doubled at each further one.
FIRST: Final = 2.0
LONGEST: Final = 600.0
#: The same where kube-scheduler refused a node that was not tried before: there may be others.
LONGEST_UNTRIED: Final = 5.0
#: Seconds after which a node that has come or changed lets a unit be tried again that kube-scheduler refused.
HASTE: Final = 60.0


@dataclass(frozen=True, slots=True)
class Parked:
    """The back-off of a unit: its reason, since when, and until when (seconds of the clock).

    ``times``: failures in a row. ``stirred``: something about the unit, or a node that could take it, has changed
    since.
    ``tried``: it has got its places again since kube-scheduler refused them.
    """

    reason: str
    message: str
    since: float
    until: float
    times: int
    stirred: bool = False
    tried: bool = False


class Parking:
    """The parked units.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._parked: dict[Key, Parked] = {}

    def park(self, root: Key, reason: str, message: str, *, untried: bool = False) -> None:
        """A unit has failed, once more; on a node that was not tried before that makes no later wait longer."""
        before = self._parked.get(root)
        times = before.times if before else 0
        now = self._clock()
        rest = min(FIRST * 2.0 ** min(times, 16), LONGEST_UNTRIED if untried else LONGEST)
        self._parked[root] = Parked(reason, message, now, now + rest, times if untried else times + 1)

    def reject(self, root: Key, message: str, *, untried: bool) -> None:
        """kube-scheduler refused a pod of a unit; all that it refuses of one attempt is one failure.

        ``untried``: it had not refused that node before.
        """
        before = self._parked.get(root)
        if before is None or before.reason != REASON_UNSCHEDULABLE or before.tried:
            self.park(root, REASON_UNSCHEDULABLE, message, untried=untried)
        elif untried:
            self._parked[root] = replace(before, until=min(before.until, before.since + LONGEST_UNTRIED))

    def hasten(self, roots: Iterable[Key] | None = None) -> list[Key]:
        """Something has changed that kube-scheduler may have waited for: a claim of these units, or without them a node.

        Returns the units that may be tried sooner.
        """
        now = self._clock()
        sooner: list[Key] = []
        for root in list(self._parked) if roots is None else roots:
            parked = self._parked.get(root)
            if parked is None or parked.reason != REASON_UNSCHEDULABLE:
                continue
            until = now if roots is not None else max(now, parked.since + HASTE)
            if until < parked.until:
                self._parked[root] = replace(parked, until=until)
                sooner.append(root)
        return sooner

    def holding(self, root: Key) -> Parked | None:
        """The back-off of a unit that must not be tried now; None when it may be."""
        parked = self._parked.get(root)
        return parked if parked is not None and self._clock() < parked.until else None

    def left(self, root: Key) -> float | None:
        """Seconds until a parked unit may be tried again."""
        parked = self.holding(root)
        return parked.until - self._clock() if parked else None

    def was_denied(self, root: Key) -> bool:
        """The unit's last pins were denied, and none were accepted since."""
        return self._is(root, REASON_DENIED)

    def stir(self, root: Key) -> None:
        """Something has changed that may help a parked unit."""
        if root in self._parked:
            self._parked[root] = replace(self._parked[root], stirred=True)

    def is_exhausted(self, root: Key) -> bool:
        """The unit met the planner's limit and nothing has changed since: trying again would tell nothing new."""
        return self._is(root, REASON_UNKNOWN) and not self._parked[root].stirred

    def note_answer(self, root: Key) -> None:
        """The planner gave an answer: only what others refused, or did not do, counts on."""
        if not any(self._is(root, reason) for reason in (REASON_DENIED, REASON_UNSCHEDULABLE, REASON_WAITING)):
            self.forget(root)

    def accept(self, root: Key) -> None:
        """The unit's pins were accepted. Whether kube-scheduler takes them this time is still to be seen."""
        if self._is(root, REASON_UNSCHEDULABLE):
            self._parked[root] = replace(self._parked[root], tried=True)
        else:
            self.forget(root)

    def settle(self, root: Key) -> None:
        """Settle a unit of which nothing is pinned: if it was tried again, it was not refused again."""
        if root in self._parked and self._parked[root].tried:
            self.forget(root)

    def forget(self, root: Key) -> None:
        """The unit is gone, or has what it wanted."""
        self._parked.pop(root, None)

    def _is(self, root: Key, reason: str) -> bool:
        parked = self._parked.get(root)
        return parked is not None and parked.reason == reason


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
        self.quotas = Quotas(cache, self.priority)

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
        counts = self._cache.devices.counts
        around = Surroundings(
            priority=self.priority(unit.root),
            assumed=self._cache.capacity.assumed,
            excluded={**self._avoided_nodes(unit, topology), **{each.node: each.reason for each in excluded}},
            obstacle=self._obstacle,
            refused=counts.problem if counts.classes.problems else None,
        )
        return kept, topology, around

    def is_misjudged(self, entry: Entry) -> bool:
        """The unit waits and would be planned in another topology, keeps nodes that are gone, or others that may be open."""
        claim = entry.decision.claim
        if entry.want is Want.NOTHING or entry.want is Want.SURPLUS:
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
        found = root_priority(self._cache, root)
        name = root.spec.priority_class_name or ""
        if found is None and self._unknown.get(key_of(root)) != name:
            self._unknown[key_of(root)] = name
            log.warning("unknown priority class, taken as 0", priority_class=name)
        return found or 0

    def exclude(self, unit: Unit, node: str, reason: str) -> bool:
        """Leave a node out for this unit for a while, longer each time; pods that fail there together are one failure.

        Returns whether it is the first failure there that is remembered.
        """
        if any(each.node == node for each in self._exclusions(unit)):
            return False
        now = self._monotonic()
        known = {name: each for name, each in self._failures.get(unit.key, {}).items() if now < each.at + FORGOTTEN}
        count = known[node].count if node in known else 0
        seconds = min(FIRST_EXCLUSION * 2 ** min(count, 16), LONGEST_EXCLUSION)
        said = core.ExcludedNode(node=node, reason=reason[:1000], until=core.rfc3339(self._clock() + seconds))
        self._failures[unit.key] = {**known, node: _Failures(count + 1, now, seconds, said)}
        metrics.NODE_EXCLUSIONS.inc()
        return count == 0

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
        for each in self._exclusions(entry.unit):
            known = own.get(each.node)
            yield known.at + known.seconds - monotonic if known else (core.seconds(each.until) or now) - now
        yield from (each.until - now for each in self._named_to_avoid(entry.unit))
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

        def badness(each: core.ExcludedNode) -> tuple[int, float]:
            known = own.get(each.node)
            return (known.count, known.at) if known else (0, 0.0)

        return tuple(sorted(sorted(excluded, key=badness)[-WRITTEN:], key=lambda each: each.node))

    def _avoided_nodes(self, unit: Unit, topology: Topology) -> dict[str, str]:
        """The nodes that the operator wants new pods of the unit to avoid."""
        told = self._named_to_avoid(unit)
        return avoided_nodes(told, topology, self._cache.nodes.store.values()) if told else {}

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
    """A root's priority; None when it names a class that does not exist, and has no pods yet.

    Where its class is gone it is the lowest of its pods, to whom the API server has given it: the value of a class is
    changed by making it anew, and meanwhile nobody may take what is below others for a moment.

    That of a group which Covey's operator has not made is never above the lowest of its pods: whoever may create groups
    names any class, and a ResourceQuota bounds those of pods.
    """
    classes = {each.metadata.name: each for each in cache.priority_classes.store.values()}
    priority = priority_of(root.spec.priority, root.spec.priority_class_name, classes)
    if priority is not None and is_ours(root):
        return priority
    stated = (priority, *(pod.spec.priority for pod in cache.index.members(key_of(root))))
    return min((each for each in stated if each is not None), default=None)
