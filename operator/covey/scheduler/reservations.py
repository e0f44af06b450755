"""A gang that has waited too long gets what comes free in one domain.

Gangs that do not fit block nobody behind them, so a large one could be starved by small ones for ever. After
``reserve_after`` seconds the nodes that can serve it soonest (``soonest``) are kept for it: gangs behind it in the
queue, and every surplus, are planned without them (``admission.reservation``), and ordinary pods that ask for the
resource it waits for are kept off (``capacity``). Few gangs have such nodes at a time, those first in the queue; one
that has come no nearer for long lets others have theirs (``Limits``). All of it is in the root's ``status.claim``, so
that a restart changes nothing.

Nodes that are kept for gangs which have waited too long, as the roots' status tells.

Every replica knows it, leading or not, for each answers its own kube-scheduler: ordinary pods that ask for the resource
such a gang waits for are kept off these nodes (``Capacity.reserved_away``), unless their priority is higher. Pods that
ask for no such resource are not touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from covey.admission import reservation
from covey.admission.entry import Entry, QueueStage, waiting_since
from covey.admission.gangs import wants_surplus
from covey.admission.growth import Footprint, footprint, without_growth
from covey.admission.hints import QueueingHint
from covey.admission.nodes import Key
from covey.admission.order import Order
from covey.admission.reservation import OF_SERVING, Ending, Kept, claims_room
from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import PURPOSE_CAPACITY, PURPOSE_RECLAIM
from covey.kube.clock import Clock
from covey.model import podstate
from covey.observability import scheduler_metrics as metrics
from covey.placement.cluster import resources
from covey.placement.model import Gang
from covey.placement.refusal.exclusions import RESERVED
from covey.scheduler.arrivals import Arrivals
from covey.scheduler.cache import Cache, Listener
from covey.scheduler.capacity import Keep
from covey.scheduler.claims import LATE, ClaimBounds, Claims
from covey.scheduler.defaults import MAX_RESERVATIONS, MAX_RESERVATIONS_PER_NAMESPACE, MAX_RESERVED_PERCENT
from covey.scheduler.holding import Holding
from covey.scheduler.surroundings import root_priority


class KeptNodes:
    """Keeps ``Capacity.kept`` up to date."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._claims: dict[Key, core.Claim] = {}
        cache.subscribe(Listener(unit=self._look, status=self._look, world=self._renew))

    def _look(self, root: Key) -> None:
        group = self._cache.index.root(root)
        claim = group.status.claim if group is not None and claims_room(group) else None
        if claim == self._claims.get(root):
            return
        if claim is None:
            del self._claims[root]
        else:
            self._claims[root] = claim
        self._renew()

    def _renew(self) -> None:
        before = self._cache.capacity.kept
        if not self._claims and not before and not self._cache.capacity.claimed:
            return
        kept: dict[str, list[Keep]] = {}
        self._cache.capacity.claimed = frozenset(
            uid for claim in self._claims.values() for victim in claim.victims for uid in victim.pods
        )
        for root, claim in self._claims.items():
            group = self._cache.index.root(root)
            if group is None or not resources.is_extended(claim.resource):
                continue
            # Whoever is refused may not see the gang's namespace.
            why = f"{claim.resource} is kept for a gang that has waited for long"
            keep = Keep(claim.resource, root_priority(self._cache, group) or 0, why)
            for node in claim.nodes:
                kept.setdefault(node, []).append(keep)
        self._cache.capacity.kept = kept
        for node in before:
            if before[node] != kept.get(node):
                self._cache.tell_room(node)


#: A gang that comes no nearer for this many times ``reserve_after`` goes to the back of the line, for as long.
STILL: Final = 3


class Limits(NamedTuple):
    """The number of gangs for which nodes may be kept, in the whole cluster and of one namespace.

    ``percent``: of all there is of a resource, what may be kept in all; the first in line is not bound by it, else in a
    small cluster nothing could be kept for anybody. ``claims``: bounds of those by which others give way.
    """

    cluster: int = MAX_RESERVATIONS
    namespace: int = MAX_RESERVATIONS_PER_NAMESPACE
    percent: int = MAX_RESERVED_PERCENT
    claims: ClaimBounds = ClaimBounds()


class Reservations:
    """The claims of waiting gangs: the nodes that are kept for each, as in the entries' decisions."""

    def __init__(
        self,
        cache: Cache,
        clock: Clock,
        *,
        reserve_after: float,
        limits: Limits | None = None,
        holding: Holding | None = None,
    ) -> None:
        self._cache = cache
        self._limits = limits = limits or Limits()
        #: Those by which others give way.
        self.claims = Claims(cache, holding or Holding(cache, clock), limits.claims, clock=clock.wall)
        #: Those to nodes that come from an autoscaler.
        self.arrivals = Arrivals(cache, clock.wall)
        self._reserve_after = reserve_after
        self._clock = clock.wall
        self._kept: reservation.Reservations[Key] = reservation.Reservations()
        #: The claim of each of these.
        self._claims: dict[Key, core.Claim] = {}
        #: What every unit has, and of those that have changed what they had when something began to be kept for a gang.
        self._has: dict[Key, Footprint] = {}
        self._had: dict[Key, dict[Key, Footprint]] = {}
        #: Victims of claims that are over since then: successors of those that go are growth still.
        self._over: dict[Key, set[core.Victim]] = {}
        #: Those that went already when something began to be kept for a gang: they are none of what the units had.
        self._before: dict[Key, frozenset[core.Victim]] = {}
        #: Is told of a unit to which others give way no longer though it has no nodes, and of the claim that it had.
        self.note_given_up: Callable[[Entry, core.Claim], None] = lambda _entry, _claim: None
        cache.subscribe(Listener(gone=self._note_loss))

    def note(self, unit: Unit) -> None:
        """Take notice of what a unit has."""
        has = footprint(unit)
        before, self._has[unit.key] = self._has.get(unit.key, has), has
        for had in self._had.values() if has != before else ():
            had.setdefault(unit.key, before)

    def forget(self, root: Key) -> bool:
        """A unit is gone; returns whether something is not kept any more."""
        self._has.pop(root, None)
        for had in self._had.values():
            had.pop(root, None)
        return self.file(root, None)

    def due(self, entry: Entry) -> bool:
        """A refused unit has waited long enough for a domain of its own."""
        unit = self._cache.index.unit(entry.unit.key) or entry.unit  # its status may be newer than the entry
        since = waiting_since(unit.root)
        return entry.stage is QueueStage.MINIMUM and since is not None and self._clock() >= since + self._reserve_after

    def allows(self, root: Key, entry: Entry, *, takes: bool = False) -> bool:
        """Few enough gangs before it have nodes kept for them; the status of a native group has no room for a claim.

        Where it ``takes`` room from others, no other gang's turn is in its way: such claims are bounded by how many are
        made in a minute (``ClaimBounds``), and what one has taken no other takes.
        """
        if entry.gang is None or entry.unit.root.is_native:
            return False
        if takes:
            return True
        before = self._find_before(root, entry.order)
        of_namespace = sum(each.gang.namespace == root.namespace for each in before)
        return len(before) < self._limits.cluster and of_namespace < self._limits.namespace

    def _find_before(self, root: Key, order: Order) -> list[Kept]:
        """The nodes that are kept for gangs which wait and are before one."""
        found = (kept for other, kept in self._kept.items() if other != root and not kept.serves and not kept.takes)
        return [kept for kept in found if kept.gang.order < order]

    def find_superseded(self) -> list[Key]:
        """Gangs that have nodes and should not have these: others before them have come."""
        found, named, taken = [], Counter[str](), set[str]()
        for root, kept in sorted(self._kept.items(), key=lambda each: each[1].rank):
            waits = not kept.serves and not kept.takes
            named[root.namespace] += waits
            many = named.total() > self._limits.cluster or named[root.namespace] > self._limits.namespace
            if (many and waits) or not taken.isdisjoint(kept.nodes):
                found.append(root)
            taken |= kept.nodes
        return found

    def rests(self, entry: Entry) -> bool:
        """A gang that came no nearer for long is at the back of the line."""
        claim = entry.decision.claim
        retry = core.seconds(claim.retry_time) if claim is not None else None
        return retry is not None and 0.0 < retry - self._clock() <= STILL * self._reserve_after

    def _is_too_much(self, root: Key, order: Order, choice: reservation.Choice) -> bool:
        """Tell whether more of a resource, of what others had, would be kept than may be, with that of gangs before it."""
        nodes = self._cache.capacity.planned.nodes
        others = [kept for kept in self._find_before(root, order) if not kept.came]

        def amount(names: Iterable[str]) -> int:
            return sum(nodes[name].allocatable.get(choice.resource, 0) for name in names if name in nodes)

        if not others:
            return False
        all_kept = {*choice.nodes, *(name for kept in others for name in kept.nodes)}
        return 100 * amount(all_kept) > self._limits.percent * amount(nodes)

    async def choose(
        self,
        entry: Entry,
        ask: QueueingHint,
        excluded: Container[str],
        pause: Callable[[], Awaitable[None]],
    ) -> core.Claim | None:
        """Choose where a unit can be served soonest; its claim stays where it is, unless elsewhere would be earlier."""
        current, topology = entry.decision.claim, entry.decision.topology
        if current is not None and current.retry_time is not None:
            current = None  # it begins anew
        now = self._clock()
        path = tuple(current.path) if current is not None else None
        inventory = self._cache.capacity.planned
        steps = reservation.choose(
            ask,
            inventory,
            lambda key: self._ending(key, now),
            path,
            excluded=excluded,
            before=current.nodes if current is not None else (),
        )
        while True:
            try:
                next(steps)
            except StopIteration as done:
                choice: reservation.Choice | None = done.value
                break
            await pause()
        if choice is None or topology is None:
            return None
        if self._is_too_much(entry.unit.key, entry.order, choice):
            return None
        level = topology.levels[len(choice.path) - 1].name
        return _renew_claim(current, choice, level, now, STILL * self._reserve_after)

    def renew(self, root: Key, claim: core.Claim | None) -> core.Claim | None:
        """A claim to room that others leave; one to nothing, for a while, where it came no nearer for long.

        Victims of one that is given up are left aside for the unit.
        """
        now = self._clock()
        if claim is None or claim.retry_time or now < self.deadline(claim):
            return claim
        self.claims.leave_aside(root, claim.victims)
        return replace(claim, nodes=(), victims=(), retry_time=core.rfc3339(now + STILL * self._reserve_after))

    def deadline(self, claim: core.Claim) -> float:
        """When a claim is given up that comes no nearer, in seconds since the epoch: while a victim drains it comes nearer."""
        pods = filter(None, (self._cache.index.pod(uid) for victim in claim.victims for uid in victim.pods))
        drained = ((podstate.drains_until(pod) or 0.0) + LATE for pod in pods)
        progress = core.seconds(claim.last_progress_time)
        return max((self._clock() if progress is None else progress) + STILL * self._reserve_after, *drained, 0.0)

    def _ending(self, uid: str, now: float) -> Ending:
        """The known end of a pod."""
        pod = self._cache.index.pod(uid)
        if pod is None:
            return Ending(None)
        began = core.seconds(pod.status.start_time or pod.metadata.creation_timestamp)
        ran = max(0.0, now - began) if began is not None else 0.0
        priority = pod.spec.priority or 0
        if (deleted := core.seconds(pod.metadata.deletion_timestamp)) is not None:
            return Ending(max(0.0, deleted - now), priority, ran)
        deadline = pod.spec.active_deadline_seconds
        if deadline is not None and began is not None:
            return Ending(max(0.0, began + deadline - now), priority, ran)
        return Ending(None, priority, ran)

    def file(self, root: Key, entry: Entry | None) -> bool:
        """Keep for a unit what its entry says; returns whether something is not kept any more."""
        kept, before = kept_for(entry) or self._kept_for_serving(entry), self._kept.get(root)
        named, was = (each.nodes if each is not None else frozenset() for each in (kept, before))
        for node in was - named:
            self._cache.tell_room(node)
        ended = self._kept.drop(root) if kept is None else self._kept.keep(root, kept)
        claim = entry.decision.claim if entry is not None else None
        former = self._claims.pop(root, None)
        if claim is not None:
            self._claims[root] = claim
        if former is not None and former.victims and kept is None and not (claim is not None and claim.victims):
            placed = entry is not None and entry.stage in {QueueStage.NOTHING, QueueStage.SURPLUS}
            metrics.CLAIMS.labels(former.purpose, "Placed" if placed else "GivenUp").inc()
            if not placed and entry is not None:
                self.note_given_up(entry, former)
        if claim != former:
            self._note_over(former.victims if former is not None else (), claim.victims if claim is not None else ())
        if kept is None:
            for noted in (self._had, self._over, self._before):
                noted.pop(root, None)
        elif root not in self._had:
            self._had[root], self._before[root] = {}, frozenset(self._going(self._victims()))
        metrics.DOMAINS_RESERVED.set(len(self._kept))
        return ended

    def _note_over(self, former: Collection[core.Victim], left: Collection[core.Victim]) -> None:
        """Note the victims that a claim names no longer: they have gone for it, may still go, or are pardoned."""
        self.claims.named = frozenset(uid for victim in self._victims() for uid in victim.pods)
        over = set(former).difference(left)
        for keeper in self._had if over else ():
            self._over.setdefault(keeper, set()).update(over)
        begun = frozenset(self._going(set(left).difference(former)))  # as a process that begins is told of claims
        for keeper in self._had if begun else ():
            self._before[keeper] |= begun - self._over.get(keeper, set())

    def _note_loss(self, pod: core.Pod) -> None:
        """A pod is gone: one without a mark was lost, and did not give way after all."""
        for over in self._over.values() if not podstate.gives_way(pod) else ():
            over.difference_update([each for each in over if pod.metadata.uid in each.pods])

    def _victims(self) -> Iterator[core.Victim]:
        """The victims of all claims."""
        return (victim for claim in self._claims.values() for victim in claim.victims)

    def _going(self, victims: Iterable[core.Victim]) -> Iterator[core.Victim]:
        """Those of some victims that are gone, or are marked to go."""
        for victim in victims:
            if all(pod is None or podstate.gives_way(pod) for pod in map(self._cache.index.pod, victim.pods)):
                yield victim

    def find_keepers(self, nodes: Collection[str]) -> list[Key]:
        """Units for which some of these nodes are kept."""
        return [root for root, kept in self._kept.items() if not kept.nodes.isdisjoint(nodes)]

    def _kept_for_serving(self, entry: Entry | None) -> Kept | None:
        claim = entry.decision.claim if entry is not None else None
        if entry is None or claim is None or claim.purpose not in OF_SERVING or not claim.nodes:
            return None
        meta, priority = entry.unit.root.metadata, root_priority(self._cache, entry.unit.root) or 0
        names, since = (meta.namespace, meta.name, entry.unit.index), meta.creation_timestamp
        gang = entry.gang or Gang(*names, (), priority=priority, created=since, uid=meta.uid)
        return Kept(gang, frozenset(claim.nodes), claim.resource, serves=True)

    def kept_for_others(self, root: Key) -> dict[str, str]:
        """The nodes that are kept for other units, as nodes that a gang leaves out."""
        return {node: RESERVED for other, kept in self._kept.items() if other != root for node in kept.nodes}

    def keepers(self) -> list[Key]:
        """The units for which nodes are kept."""
        return [root for root, _ in self._kept.items()]

    def takers(self) -> list[Key]:
        """The units to which others give way."""
        return [root for root, kept in self._kept.items() if kept.takes]

    def keeps(self, root: Key) -> bool:
        """Nodes are kept for a unit."""
        return self._kept.get(root) is not None

    def confine(
        self, gang: Gang, *, surplus: bool, unit: Unit | None = None, borrows: bool = False, takes: bool = False
    ) -> tuple[Gang, frozenset[str]]:
        """A gang as it may be planned, and the gangs (UIDs) whose nodes are closed to it.

        To what only replaces something (``growth``) nothing is closed; it is planned first, by itself.
        """
        taken = reservation.count_taken(self._victims(), unit.root) if unit is not None else Counter[str]()
        asked, closed = reservation.confine(
            gang, self._kept, surplus=surplus, borrows=borrows, gives_way=taken is None, takes=takes
        )
        if not surplus or unit is None or (not closed and asked is gang):
            return asked, closed
        had: Counter[str] = Counter()
        for keeper, footprints in self._had.items() if taken is not None else ():
            over = self._going(self._over.get(keeper, ()))
            went = reservation.count_taken({*self._victims(), *over} - self._before[keeper], unit.root)
            had |= (
                Counter(footprints.get(unit.key, self._has.get(unit.key, {}))) - Counter(went)
                if went is not None
                else Counter()
            )
        again = without_growth(gang, unit, had, self._leaves, self.claims.named, self._cache.capacity.assumed)
        return (again, frozenset()) if wants_surplus(again) else (asked, closed)

    def _leaves(self, node: str) -> bool:
        found = self._cache.node(node)
        return found is None or found.spec.unschedulable


def kept_for(entry: Entry | None) -> Kept | None:
    """The nodes that are kept for a unit now."""
    claim = entry.decision.claim if entry is not None else None
    if entry is None or entry.stage is not QueueStage.MINIMUM or entry.gang is None or claim is None or not claim.nodes:
        return None
    reclaims, came = claim.purpose == PURPOSE_RECLAIM, claim.purpose == PURPOSE_CAPACITY
    return Kept(entry.gang, frozenset(claim.nodes), claim.resource, reclaims, came=came, takes=bool(claim.victims))


def _renew_claim(
    current: core.Claim | None, choice: reservation.Choice, level: str, now: float, longest: float
) -> core.Claim:
    """A claim to what was chosen; after the longest time without progress, one to nothing for as long."""
    same = current if current is not None and current.path == choice.path else None
    since = same.since if same is not None else core.rfc3339(now)
    claim = core.Claim(choice.path, since, level, choice.resource, choice.nodes, choice.wait.pods, core.rfc3339(now))
    if same is None or choice.wait.pods < same.blocking_pods:
        return claim
    began = min(core.seconds(same.last_progress_time) or now, now)
    claim = replace(claim, blocking_pods=same.blocking_pods, last_progress_time=core.rfc3339(began))
    if now < began + longest:
        return claim
    return replace(claim, nodes=(), retry_time=core.rfc3339(now + longest))
