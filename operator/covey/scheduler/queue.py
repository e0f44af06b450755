"""The scheduling queue: every unit, its stage, and what makes it worth planning again.

As in kube-scheduler there are three parts. Active units want nodes now (``order.ActiveQueue`` says who is next).
Unschedulable ones were refused: those that ask the planner the same question are one equivalence class, which shares one
refusal; when a change can help the class (``QueueingHint``), the first of its members is active for all, and a new refusal
is the answer for all. Units in back-off failed for a reason that no plan mends: the planner raised an exception or met its
limit, the API server denied a pin, kube-scheduler refused a node for something that is not modelled. They are left alone,
each time twice as long; this is in memory only, and a restart begins with the shortest time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from typing import Final

from covey.admission.entitlement import FIRST, Lane
from covey.admission.entry import SETTLE, Entry, QueueStage, is_news, waiting_since
from covey.admission.fit_counts import FitCounts
from covey.admission.hints import QueueingHint
from covey.admission.nodes import Key
from covey.admission.order import PATIENCE, ActiveQueue, Order, SortedQueue
from covey.admission.status import Decision
from covey.api.constants import REASON_DENIED, REASON_UNKNOWN, REASON_UNSCHEDULABLE, REASON_WAITING
from covey.kube.clock import Clock
from covey.observability import scheduler_metrics as metrics
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang
from covey.scheduler.waiting_gangs import Waiting

#: Seconds of back-off after the first failure; doubled at each further one.
INITIAL_BACKOFF: Final = 2.0
MAX_BACKOFF: Final = 600.0
#: The same where kube-scheduler refused a node that was not tried before: there may be others.
MAX_BACKOFF_UNTRIED: Final = 5.0
#: Seconds after which a node that has come or changed lets a unit be tried again that kube-scheduler refused.
SHORTENED_BACKOFF: Final = 60.0
#: Seconds for which the numbers that a status gives as the reason of a refusal may be old before they are computed anew.
REFRESH: Final = 60.0
#: The place of a unit that could not be shown to the planner.
NO_ORDER: Final[Order] = (0, "", "", "", 0, "")
#: Units of one class that are asked whether others may be nominated before them.
_PASSED: Final = 64
_PLANNED: Final = frozenset({QueueStage.MINIMUM, QueueStage.SURPLUS})
_WAITING: Final = frozenset({QueueStage.PODS, QueueStage.SETTLED, QueueStage.MINIMUM})


@dataclass(frozen=True, slots=True)
class UnitBackoff:
    """The back-off of a unit: its reason, since when, and until when (seconds of the clock).

    ``failures``: in a row. ``changed``: something about the unit, or a node that could take it, has changed since.
    ``retried``: it was given nodes again since kube-scheduler refused them.
    """

    reason: str
    message: str
    since: float
    until: float
    failures: int
    changed: bool = False
    retried: bool = False


@dataclass(slots=True)
class EquivalenceClass:
    """Refused units that ask the planner the same question, and the refusal that all of them share.

    ``closed`` has the gangs (UIDs) whose nodes were closed to the gang that was planned. ``active`` is the member that is
    active for all. ``asked`` is when the refusal was computed (event loop's clock), ``version`` that of the inventory then.
    """

    hint: QueueingHint
    refusal: Decision
    closed: frozenset[str]
    members: SortedQueue[Key] = field(default_factory=SortedQueue)
    active: Key | None = None
    asked: float = 0.0
    version: int = 0


@dataclass(slots=True)
class QueuedUnit:
    """What the queue keeps of a unit. ``entry`` is None until it was assessed for the first time."""

    entry: Entry | None = None
    equivalence: EquivalenceClass | None = None
    backoff: UnitBackoff | None = None
    deadline: asyncio.TimerHandle | None = None


class SchedulingQueue:
    """Every unit, in its part of the queue.

    Args:
        clock: of the process.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock.monotonic
        self._units: dict[Key, QueuedUnit] = {}
        #: Those whose minimum has no nodes.
        self._waiting: dict[Key, Entry] = {}
        self._active: ActiveQueue[Key] = ActiveQueue()
        self._active.spare = lambda roots, most: self.spare([self[root] for root in roots], most)
        self._classes: dict[Hashable, EquivalenceClass] = {}
        #: The first key by which active units are ordered.
        self.tier: Callable[[Entry], Lane] = lambda _entry: FIRST
        #: The pods that may take nodes and keep none of these minimums from its own, counted up to a number.
        self.spare: Callable[[Sequence[Entry], int], int] = lambda _coming, _most: 0
        #: Seconds until time alone changes something for a unit, for whatever reason the queue does not know.
        self.deadlines: Callable[[Entry], Iterable[float]] = lambda _entry: ()
        self._on_decision: list[Callable[[Key], None]] = []
        self._leads = False
        #: Is set when there may be work.
        self.news = asyncio.Event()
        #: What has happened since the last step: units to be assessed anew, nodes that may have more free, topologies or
        #: priorities that have changed, nodes that are closed to others no longer.
        self.changed: set[Key] = set()
        self.freed: set[str] = set()
        self.relabelled = False
        self.opened = False
        self.gangs_waiting = Waiting(clock.wall)
        self._fits = FitCounts()
        #: Classes whose refusal has changed since their members were told.
        self._refreshed: list[EquivalenceClass] = []

    # Events

    def begin(self) -> None:
        """Take notice of events from now on: this process leads."""
        self._leads = True
        self.gangs_waiting.begin()

    def end(self) -> None:
        """Take notice of no further events."""
        self._leads = False

    def requeue(self, root: Key) -> None:
        """Assess a unit anew."""
        if self._leads:
            self.changed.add(root)
            self.news.set()

    def requeue_all(self, roots: Iterable[Key]) -> None:
        """Assess every unit anew, and these."""
        if self._leads:
            self.changed.update(roots)
            self.changed.update(self._units)
            self.news.set()

    def wake(self) -> None:
        """Wake whoever waits for news: there may be something to do."""
        if self._leads:
            self.news.set()

    def note_freed(self, node: str) -> None:
        """A node may have more free than before."""
        if self._leads:
            self.freed.add(node)
            self.news.set()

    def note_claim(self, root: Key) -> None:
        """A ResourceClaim of a unit has changed: kube-scheduler may have waited for that."""
        if self._leads:
            self.shorten_backoff([root])

    def note_relabelled(self) -> None:
        """A node has come, has gone or has other labels: what kube-scheduler refused may be tried sooner."""
        self.relabelled = True
        self.news.set()
        if self._leads:
            self.shorten_backoff()

    def note_opened(self) -> None:
        """Nodes are closed to others no longer."""
        self.opened = True
        self.news.set()

    @property
    def has_news(self) -> bool:
        """Something has happened that is not taken in yet."""
        return bool(self.changed or self.freed or self.relabelled or self.opened)

    # Units

    def __getitem__(self, root: Key) -> Entry:
        """The entry of a unit that was assessed.

        Raises:
            KeyError: it was not, or is gone.
        """
        entry = self._units[root].entry
        if entry is None:
            raise KeyError(root)
        return entry

    def get(self, root: Key) -> Entry | None:
        """The entry of a unit; None for one that was not assessed, or is gone."""
        queued = self._units.get(root)
        return queued.entry if queued is not None else None

    def entries(self) -> Iterator[tuple[Key, Entry]]:
        """All units that were assessed."""
        return ((root, queued.entry) for root, queued in self._units.items() if queued.entry is not None)

    def decision(self, root: Key) -> Decision:
        """The last decision about a unit; of a refused one the refusal of its class."""
        queued = self._units.get(root)
        if queued is None or queued.entry is None:
            return Decision()
        decision, equivalence = queued.entry.decision, queued.equivalence
        if equivalence is None or equivalence.hint.key is None:
            return decision
        return replace(decision, reason=equivalence.refusal.reason, message=equivalence.refusal.message)

    def update(self, root: Key, entry: Entry) -> None:
        """A unit as it is now: active if it wants nodes."""
        before = self.decision(root)
        self._leave_class(root)
        self._set(root, entry)
        if entry.stage in _PLANNED:
            self._activate_unit(root, entry)
        self._report(root, before)

    def amend(self, root: Key, entry: Entry) -> None:
        """Something that a unit keeps has changed; it stays in its part of the queue."""
        before = self.decision(root)
        self._units[root].entry = entry
        if root in self._waiting:
            self._waiting[root] = entry
        self._report(root, before)

    def add_unschedulable(
        self, root: Key, entry: Entry, hint: QueueingHint, closed: frozenset[str], version: int
    ) -> None:
        """A unit was refused: it waits among those of its class, whose refusal this is as well.

        Args:
            root: its key.
            entry: with the refusal.
            hint: what can help it.
            closed: gangs (UIDs) whose nodes were closed to it.
            version: of the inventory that it was planned on.
        """
        former = None if hint.key is None else self._classes.get(hint.key)
        former_message = former.refusal.message if former is not None else None
        equivalence = self._add_to_class(root, entry, hint, closed)
        equivalence.asked, equivalence.version = asyncio.get_running_loop().time(), version
        if former_message is not None and former_message != equivalence.refusal.message:
            self._refreshed.append(equivalence)

    def _add_to_class(self, root: Key, entry: Entry, hint: QueueingHint, closed: frozenset[str]) -> EquivalenceClass:
        before = self.decision(root)
        self._leave_class(root)
        self._set(root, entry)
        key: Hashable = (root,) if hint.key is None else hint.key
        equivalence = self._classes.get(key)
        if equivalence is None:
            equivalence = self._classes[key] = EquivalenceClass(hint, entry.decision, closed)
        elif closed <= equivalence.closed:
            equivalence.refusal, equivalence.closed = entry.decision, closed
        if equivalence.active is not None and _order_of(entry) < self[equivalence.active].order:
            self._active.drop(equivalence.active)  # to it at least as much is closed
            equivalence.active = None
        equivalence.members.add(root, _order_of(entry))
        self._units[root].equivalence = equivalence
        self._report(root, before)
        return equivalence

    def join_class(self, root: Key, entry: Entry, hint: QueueingHint, closed: frozenset[str]) -> bool:
        """Let a unit share the refusal of its class, if there is one: what is free is the same, and no less is closed to it.

        Returns whether there was such a refusal.
        """
        equivalence = None if hint.key is None else self._classes.get(hint.key)
        if equivalence is None or equivalence.active is not None or not equivalence.closed <= closed:
            return False
        shared = equivalence.refusal
        decision = replace(entry.decision, reason=shared.reason, message=shared.message)
        self._add_to_class(root, replace(entry, decision=decision, refused=True), hint, equivalence.closed)
        return True

    def skip(self, root: Key) -> None:
        """Leave a unit out until something about it changes."""
        self._active.drop(root)

    def forget(self, root: Key) -> None:
        """The unit is gone."""
        self._leave_class(root)
        queued = self._units.pop(root, None)
        if queued is not None and queued.deadline is not None:
            queued.deadline.cancel()
        self._waiting.pop(root, None)
        self.gangs_waiting.drop(root)

    def _set(self, root: Key, entry: Entry) -> None:
        self._units.setdefault(root, QueuedUnit()).entry = entry
        if entry.stage in _WAITING:
            self._waiting[root] = entry
        else:
            self._waiting.pop(root, None)
        if entry.stage in _WAITING and not entry.refused and entry.since is not None and entry.gang is not None:
            self._active.expect(root, entry.gang.priority, entry.since + SETTLE, entry.asks)

    def _leave_class(self, root: Key) -> None:
        """Take a unit out of the part that it is in; another member is asked for its class."""
        self._active.drop(root)
        self._active.forget(root)
        queued = self._units.get(root)
        if queued is None or queued.equivalence is None:
            return
        equivalence, queued.equivalence = queued.equivalence, None
        equivalence.members.drop(root)
        if not equivalence.members:
            del self._classes[(root,) if equivalence.hint.key is None else equivalence.hint.key]
        elif equivalence.active == root:
            equivalence.active = None
            self.activate(equivalence)

    def _report(self, root: Key, before: Decision) -> None:
        """Tell metrics and statuses what is new about a unit."""
        entry, now = self[root], self.decision(root)
        if entry.stage in _WAITING:
            self.gangs_waiting.update(root, now.reason, waiting_since(entry.unit.root))
        else:
            self.gangs_waiting.drop(root)
        if is_news(before, now):
            self.announce(root)

    def on_decision(self, callback: Callable[[Key], None]) -> None:
        """Call back with each unit of which something new can be said."""
        self._on_decision.append(callback)

    def announce(self, root: Key) -> None:
        """Have what is said of a unit written."""
        for callback in self._on_decision:
            callback(root)

    # Active

    def next(self, now: float) -> Key | None:
        """The unit whose turn it is (event loop's clock); None when nobody may be planned now."""
        return self._active.next(now, lambda root: self.tier(self[root]))

    def find_next(self, now: float) -> Generator[None, None, Key | None]:
        """The same with pauses (``ActiveQueue.find_next``)."""
        return self._active.find_next(now, lambda root: self.tier(self[root]))

    def renew_tiers(self) -> None:
        """Tiers may have become better."""
        self._active.renew()

    def _activate_unit(self, root: Key, entry: Entry) -> None:
        if entry.stage is QueueStage.SURPLUS and entry.since is not None:
            pods = _count_waiting(entry.gang)
            self._active.add(root, entry.order, surplus=True, since=entry.since, takes=entry.asks, pods=pods)
        else:
            self._active.add(root, entry.order, surplus=entry.stage is QueueStage.SURPLUS)

    # Unschedulable

    def activate(self, equivalence: EquivalenceClass) -> None:
        """Ask the first of a class again: something may have helped."""
        first = equivalence.members.first()
        entry = self[first[1]] if first is not None else None
        if equivalence.active is None and first is not None and entry is not None and entry.stage in _PLANNED:
            equivalence.active = first[1]
            self._activate_unit(equivalence.active, entry)

    def unschedulable(self) -> list[EquivalenceClass]:
        """The classes that wait for a change."""
        return [equivalence for equivalence in self._classes.values() if equivalence.active is None]

    def find_refused(self, accepts: Callable[[Entry], bool]) -> list[tuple[Key, Entry]]:
        """Find units whose minimum was refused and that are accepted, in the order of the queue."""
        waiting = (queued for queued in self._waiting.items() if queued[1].refused and queued[1].gang is not None)
        return sorted(
            (queued for queued in waiting if accepts(queued[1])), key=lambda queued: (queued[1].order, queued[0])
        )

    def is_first(
        self, root: Key, queue_of: Callable[[Key], str | None], is_passed: Callable[[Key], bool] = lambda _root: False
    ) -> bool:
        """Tell whether a refused unit is the first of its class among those of its queue.

        Native groups come before nobody: nothing is kept for them. Neither do those that are passed; of them no more than
        some are asked, so that it may be told of more than one that it is the first.
        """
        queued, queue = self._units[root], queue_of(root)
        members = queued.equivalence.members if queued.equivalence is not None else ()
        own = (member for member in members if queue_of(member) == queue and not self[member].unit.root.is_native)
        before = islice(takewhile(lambda member: member != root, own), _PASSED)
        return all(map(is_passed, before)) and root in members

    async def count_fits(
        self, hint: QueueingHint, inventory: Inventory, changed: Iterable[str], pause: Callable[[], Awaitable[None]]
    ) -> None:
        """Count what fits where for a hint, in steps, so that the answer is at hand when a node changes."""
        self._fits.note_changes(changed)
        for shape in hint.shapes():
            for _ in self._fits.prepare(shape, inventory):
                await pause()

    def note_changed_nodes(self, nodes: Iterable[str]) -> None:
        """Count these nodes anew before the next answer."""
        self._fits.note_changes(nodes)

    def can_help(self, equivalence: EquivalenceClass, nodes: Iterable[str], inventory: Inventory) -> bool:
        """Tell whether a change of one of these nodes can help a class."""
        states = (inventory.nodes.get(name) for name in nodes)
        return any(state is not None and equivalence.hint.can_help(state, inventory, self._fits) for state in states)

    def rest(self) -> None:
        """Nobody can be planned now: count nothing where nobody waits for a node."""
        if not self._classes:
            self._fits.clear()

    # Refusals that are old

    def find_outdated(self, now: float, version: int) -> EquivalenceClass | None:
        """Find the class whose refusal is the oldest, if it is too old and anything has changed since."""
        classes = self._classes.values()
        due = [known.asked for known in classes if known.active is not None or known.version != version]
        metrics.REFUSALS_UNCHECKED.set(max(0.0, now - min(due, default=now)))
        old = [known for known in self.unschedulable() if known.asked + REFRESH <= now and known.version != version]
        return min(old, key=lambda equivalence: equivalence.asked, default=None)

    def take_refreshed(self) -> Iterator[Key]:
        """The members of classes whose refusal has changed since this was last asked."""
        refreshed, self._refreshed = self._refreshed, []
        for equivalence in {id(equivalence): equivalence for equivalence in refreshed}.values():
            yield from list(equivalence.members)

    # Back-off

    def note_failure(self, root: Key, reason: str, message: str, *, untried: bool = False) -> None:
        """Begin a back-off, or a longer one; a node that was not tried before makes no later one longer."""
        queued = self._units.setdefault(root, QueuedUnit())
        failures = queued.backoff.failures if queued.backoff is not None else 0
        now = self._clock()
        rest = min(INITIAL_BACKOFF * 2.0 ** min(failures, 16), MAX_BACKOFF_UNTRIED if untried else MAX_BACKOFF)
        queued.backoff = UnitBackoff(reason, message, now, now + rest, failures if untried else failures + 1)

    def note_rejection(self, root: Key, message: str, *, untried: bool) -> None:
        """kube-scheduler refused a pod of a unit; all that it refuses of one attempt is one failure.

        ``untried``: it had not refused that node before.
        """
        queued = self._units.setdefault(root, QueuedUnit())
        before = queued.backoff
        if before is None or before.reason != REASON_UNSCHEDULABLE or before.retried:
            self.note_failure(root, REASON_UNSCHEDULABLE, message, untried=untried)
        elif untried:
            queued.backoff = replace(before, until=min(before.until, before.since + MAX_BACKOFF_UNTRIED))
        self.requeue(root)

    def shorten_backoff(self, roots: Iterable[Key] | None = None) -> None:
        """Try units sooner that kube-scheduler refused: a claim of these has changed, or without them a node."""
        now = self._clock()
        for root in [*self._units] if roots is None else roots:
            queued = self._units.get(root)
            backoff = queued.backoff if queued is not None else None
            if queued is None or backoff is None or backoff.reason != REASON_UNSCHEDULABLE:
                continue
            until = now if roots is not None else max(now, backoff.since + SHORTENED_BACKOFF)
            if until < backoff.until:
                queued.backoff = replace(backoff, until=until)
                if queued.entry is not None:
                    self.set_deadline(root)

    def backoff(self, root: Key) -> UnitBackoff | None:
        """The back-off of a unit that must not be tried now; None when it may be."""
        queued = self._units.get(root)
        backoff = queued.backoff if queued is not None else None
        return backoff if backoff is not None and self._clock() < backoff.until else None

    def note_change(self, root: Key) -> None:
        """Something has changed that may help a unit in back-off."""
        queued = self._units.get(root)
        if queued is not None and queued.backoff is not None:
            queued.backoff = replace(queued.backoff, changed=True)

    def note_answer(self, root: Key) -> None:
        """The planner gave an answer: only what others refused, or did not do, counts on."""
        queued, by_others = self._units[root], {REASON_DENIED, REASON_UNSCHEDULABLE, REASON_WAITING}
        if queued.backoff is not None and queued.backoff.reason not in by_others:
            queued.backoff = None

    def note_pinned(self, root: Key) -> None:
        """The unit's pins were accepted. Whether kube-scheduler takes them this time is still to be seen."""
        queued = self._units.get(root)
        if queued is not None and queued.backoff is not None:
            is_open = queued.backoff.reason == REASON_UNSCHEDULABLE
            queued.backoff = replace(queued.backoff, retried=True) if is_open else None

    def note_unpinned(self, root: Key) -> None:
        """Nothing of the unit is pinned: if it was tried again, it was not refused again."""
        queued = self._units.get(root)
        if queued is not None and queued.backoff is not None and queued.backoff.retried:
            queued.backoff = None

    def was_denied(self, root: Key) -> bool:
        """The unit's last pins were denied, and none were accepted since."""
        queued = self._units.get(root)
        return queued is not None and queued.backoff is not None and queued.backoff.reason == REASON_DENIED

    # Deadlines

    def set_deadline(self, root: Key) -> None:
        """Assess a unit anew when time alone can change something for it: a wait or its back-off ends."""
        queued, entry, now = self._units[root], self[root], asyncio.get_running_loop().time()
        if queued.deadline is not None:
            queued.deadline.cancel()
            queued.deadline = None
        delays = [*self.deadlines(entry)]
        if entry.since is not None and entry.settling(now):
            delays.append(entry.since + SETTLE - now)
        if entry.stage is QueueStage.SURPLUS and entry.since is not None and not entry.refused:
            delays += [entry.since + PATIENCE - now] if entry.since + PATIENCE > now else []
        backoff = self.backoff(root)
        rest = backoff.until - self._clock() if backoff is not None else None
        if rest is not None:
            delays.append(rest)
        if delays:
            due = min(delays)
            end = self._end_backoff if due == rest else self.requeue
            queued.deadline = asyncio.get_running_loop().call_later(max(0.0, due) + 0.01, end, root)

    def _end_backoff(self, root: Key) -> None:
        """End the back-off of a unit. Where it met the planner's limit and nothing has changed, the same would be said again."""
        queued = self._units[root]
        backoff = queued.backoff
        exhausted = backoff is not None and backoff.reason == REASON_UNKNOWN and not backoff.changed
        if exhausted and queued.entry is not None:
            self.set_deadline(root)  # refused like any other from now on: more room helps, and other deadlines
        else:
            self.requeue(root)


def _count_waiting(gang: Gang | None) -> int:
    replicas = (replica for role in gang.roles for replica in role.replicas) if gang is not None else ()
    return sum(pod.node is None for replica in replicas for pod in replica.pods)


def _order_of(entry: Entry) -> Order:
    """The place of a unit, also of one that could not be shown to the planner."""
    return entry.gang.order if entry.gang is not None else NO_ORDER
