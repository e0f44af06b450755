"""The loop that decides: which units may start, and where.

It sleeps until something happened that can help: a unit changed, a node has more room, topologies or priorities
changed, or a deadline came. Then it goes step by step: what has happened meanwhile is taken in (units that changed are
assessed anew, refused ones that a changed node can help are woken), and whoever ranks highest among those that may get
a place now is planned (``order``). Every decision holds its room at once and is then carried out beside the loop
(``commits``). There is no polling: a unit that found no room sleeps until a change can help it (``shelf``, ``asks``).

A plan is made in a thread on an inventory that stands still. Afterwards it is held against the present: it is dropped
if a pod or a node has changed under it, and put aside while somebody who ranks higher wants a place.

Only the holder of the lease runs this.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from covey.admission import entries, podstate
from covey.admission.asks import ANYTHING, Ask, ask_for_minimum, ask_for_surplus
from covey.admission.entries import SETTLE, Entry, Want, assess
from covey.admission.shelf import Alike, Shelf
from covey.admission.slots import Slots
from covey.admission.status import Decision
from covey.admission.tree import Key
from covey.api import core
from covey.api.constants import REASON_DENIED, REASON_FAILED, REASON_INFEASIBLE, REASON_UNKNOWN
from covey.kube.events import EventRecorder
from covey.observability import metrics
from covey.observability.logging import get_logger
from covey.placement.model import Assignment, Gang, Path, Plan, Refusal, Topology, Verdict
from covey.placement.planner import plan_minimum, plan_surplus
from covey.scheduler.breath import Breath
from covey.scheduler.cache import Cache, Listener
from covey.scheduler.commit import Committer, Placement
from covey.scheduler.commits import Commits
from covey.scheduler.lives import Lives
from covey.scheduler.parking import Parking
from covey.scheduler.queueing import Queueing
from covey.scheduler.reservations import Reservations
from covey.scheduler.waiting import Waiting
from covey.scheduler.writer import PodWriter

log = get_logger(__name__)

#: Seconds in which events are gathered before a pass.
GATHER: Final = 0.01
#: Fewer nodes than this are planned on the loop itself: a thread would cost more than it saves.
INLINE_NODES: Final = 200
#: Seconds for which the numbers that a status gives as the reason of a refusal may be old before it is looked at.
RETELL: Final = 60.0
#: Plans of one unit that the world may have changed under before others get their turn.
ATTEMPTS: Final = 3
#: What a unit's status says when the planner itself failed on it.
FAILED: Final = "the planner failed on this gang; the scheduler's log has the details"


@dataclass(frozen=True, slots=True)
class _Aside:
    """A plan that waits while somebody who ranks higher is asked first."""

    want: Want
    gang: Gang
    asked: Gang
    closed: Sequence[Path]
    plan: Plan


class Admission:
    """The decisions of the lease's holder."""

    def __init__(
        self,
        cache: Cache,
        committer: Committer,
        writer: PodWriter,
        queueing: Queueing,
        reservations: Reservations,
        recorder: EventRecorder,
        lives: Lives,
        *,
        decided: Callable[[Key], None],
        parking: Parking | None = None,
        breath: Breath | None = None,
    ) -> None:
        self._cache = cache
        self._committer = committer
        self._queueing = queueing
        self._reservations = reservations
        self._lives = lives
        self._waiting = Waiting()
        self._parking = parking or Parking()
        self._decided = decided
        self._commits = Commits(
            *(cache, committer, writer, recorder, lives, self._parking), mark=self.mark, denied=self._deny
        )
        self._shelf = Shelf()
        self._slots = Slots()
        self._dirty: set[Key] = set()
        self._rooms: set[str] = set()
        #: What may help units that were refused: nodes changed, or room is no longer kept for somebody.
        self._relabelled = False
        self._unkept = False
        self._aside: dict[Key, _Aside] = {}
        #: Questions whose answer has changed since their units were told.
        self._retold: list[Alike] = []
        self._wake = asyncio.Event()
        #: Every unit has been looked at.
        self.settled = asyncio.Event()
        self._leads = False
        self._breath = breath or Breath()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        cache.subscribe(
            Listener(unit=self.mark, status=self._written, room=self._room, node=self._node, world=self._everything)
        )

    def decision(self, root: Key) -> Decision:
        """What was last decided about a unit."""
        return self._shelf.decision(root)

    def mark(self, root: Key) -> None:
        """Look at a unit again."""
        if self._leads:
            self._dirty.add(root)
            self._wake.set()

    async def run(self) -> None:
        """Decide for ever."""
        self.begin()
        retelling = asyncio.get_running_loop().create_task(self._retell())
        try:
            while True:
                await self._wake.wait()
                await asyncio.sleep(GATHER)
                self._wake.clear()
                await self._pass()
                self.settled.set()
        finally:
            retelling.cancel()
            self._leads = False
            self._commits.cancel()

    def begin(self) -> None:
        """Look at everything; until then nothing that happens is noted, for a replica that only stands by."""
        self._leads = True
        self._waiting.begin()
        for reason in (REASON_INFEASIBLE, REASON_UNKNOWN):
            metrics.GANG_REFUSALS.labels(reason).inc(0)
        self._everything()

    def _room(self, node: str) -> None:
        if self._leads:
            self._rooms.add(node)
            self._wake.set()

    def _node(self, _name: str) -> None:
        self._relabelled = True
        self._wake.set()

    def _written(self, root: Key) -> None:
        """The status was written: how long a refused unit has waited is known from now on."""
        entry = self._shelf.entries.get(root)
        if entry is not None and entry.refused:
            self._alarm(root, entry)

    def _everything(self) -> None:
        if not self._leads:
            return
        self._dirty.update(self._cache.index.roots())
        self._dirty.update(self._shelf.entries)
        self._wake.set()

    async def _pass(self) -> None:
        """Step by step, until nobody is left who may get a place now."""
        attempts: dict[Key, int] = {}
        self._breath.begin()
        while True:
            await self._take_in()
            root = self._shelf.next(asyncio.get_running_loop().time())
            if root is None:
                break
            attempts[root] = attempts.get(root, 0) + 1
            with self._alone(root):
                await self._plan(root, last=attempts[root] >= ATTEMPTS)
            await self._breath.take()
        self._aside.clear()
        if self._shelf.quiet:
            self._slots.clear()

    async def _take_in(self) -> None:
        """Everything that has happened until now."""
        while self._dirty or self._rooms or self._relabelled or self._unkept:
            if self._relabelled:
                self._relabelled = False
                self._dirty.update(r for r, entry in self._shelf.entries.items() if self._queueing.misjudged(entry))
            while self._dirty:
                root = self._dirty.pop()
                with self._alone(root):
                    self._assess(root)
                await self._breath.take()
            if self._unkept:
                self._unkept = False
                for alike in self._shelf.sleeping():
                    if alike.answer.closed or alike.ask.key is None:
                        self._rouse(alike)
            rooms, self._rooms = self._rooms, set()
            self._slots.changed(self._cache.capacity.touched())
            if rooms:
                await self._help(rooms)

    async def _help(self, rooms: Collection[str]) -> None:
        """Wake refused units that a changed node can help."""
        for alike in self._shelf.sleeping():
            inventory = self._cache.capacity.planned
            nodes = (inventory.nodes.get(name) for name in rooms)
            if any(node is not None and alike.ask.helped(node, inventory, self._slots) for node in nodes):
                self._rouse(alike)
            await self._breath.take()

    def _rouse(self, alike: Alike) -> None:
        parked = [] if alike.ask.key is not None else [r for r in alike.members if self._parking.holding(r)]
        for root in parked:
            self._parking.stir(root)
        if not parked:
            self._shelf.wake(alike)

    async def _retell(self) -> None:
        """Tell the units of a question now and then that the numbers of its answer have changed."""
        while True:
            await asyncio.sleep(RETELL)
            retold, self._retold = self._retold, []
            for alike in {id(each): each for each in retold}.values():
                for root in list(alike.members):
                    self._decided(root)
                    await self._breath.take()

    @contextmanager
    def _alone(self, root: Key) -> Iterator[None]:
        """One odd unit does not keep the others from their turn: it is as good as refused, and says so."""
        try:
            yield
        except Exception:
            log.exception("planning failed", namespace=root.namespace, root=root.name)
            self._fail(root)

    def _fail(self, root: Key) -> None:
        unit = self._cache.index.unit(root)
        entry = self._shelf.entries.get(root) or (Entry(unit, Want.NOTHING, Decision()) if unit else None)
        if entry is not None:
            self._park(root, entry, REASON_FAILED, FAILED)

    def _park(self, root: Key, entry: Entry, reason: str, message: str, ask: Ask = ANYTHING) -> None:
        """Leave a unit alone for a while, and say why."""
        self._parking.park(root, reason, message)
        parked = replace(entry, decision=replace(entry.decision, reason=reason, message=message), refused=True)
        self._sleep(root, parked, replace(ask, key=None))
        self._alarm(root, parked)

    def _deny(self, root: Key, why: str) -> None:
        entry = self._shelf.entries.get(root)
        if entry is not None:
            self._park(root, entry, REASON_DENIED, why)

    def _assess(self, root: Key) -> None:
        unit = self._cache.index.unit(root)
        before = self._shelf.entries.get(root)
        if unit is None:
            self._forget(root)
            return
        self._lives.look(unit)
        parked = self._parking.holding(root)
        if parked is not None:
            self._parking.stir(root)
            if parked.reason == REASON_FAILED:
                return  # it may be what was about to be done here that fails
        loop = asyncio.get_running_loop()
        kept, topology, around = self._queueing.around(unit)
        if before is not None and kept.reservation is None and self._reservations.keeps(root):
            kept = replace(kept, reservation=before.decision.reservation)  # its status is not written yet
        entry = assess(unit, topology, around, self._cache.capacity.shape, before, kept, loop.time())
        if parked is not None and entry.want in {Want.MINIMUM, Want.SURPLUS}:
            said = replace(entry.decision, reason=parked.reason, message=parked.message)
            entry = replace(entry, decision=said, refused=True)
            self._sleep(root, entry, ANYTHING)
        else:
            self._enter(root, entry)
        self._alarm(root, entry)

    def _forget(self, root: Key) -> None:
        self._unkept |= self._reservations.file(root, None)
        self._shelf.drop(root)
        self._waiting.drop(root)
        self._queueing.forget(root)
        self._parking.forget(root)
        if timer := self._timers.pop(root, None):
            timer.cancel()

    def _enter(self, root: Key, entry: Entry) -> None:
        """A unit as it is now."""
        before = self._shelf.decision(root)
        self._shelf.put(root, entry)
        self._entered(root, entry, before)

    def _sleep(self, root: Key, entry: Entry, ask: Ask, closed: Sequence[Path] = ()) -> None:
        """A unit was refused."""
        before, said = self._shelf.decision(root), self._shelf.said(ask)
        alike = self._shelf.lay_to_sleep(root, entry, ask, closed)
        self._entered(root, entry, before)
        if said is not None and said != alike.answer.decision.message:
            self._retold.append(alike)

    def _entered(self, root: Key, entry: Entry, before: Decision) -> None:
        if self._reservations.file(root, entry):
            self._unkept = True
            self._wake.set()
        if entry.want is not Want.NOTHING and entry.want is not Want.SURPLUS:
            reason = self._shelf.decision(root).reason
            self._waiting.put(root, reason, entries.waiting_since(entry.unit.root))
        else:
            self._waiting.drop(root)
        if _news(before, self._shelf.decision(root)):
            self._decided(root)

    def _alarm(self, root: Key, entry: Entry) -> None:
        """Look again when time alone can change something: a wait ends, an exclusion runs out, a wait was too long."""
        if timer := self._timers.pop(root, None):
            timer.cancel()
        delays = [*self._queueing.deadlines(entry)]
        if entry.since is not None and entry.settling(asyncio.get_running_loop().time()):
            delays.append(entry.since + SETTLE - asyncio.get_running_loop().time())
        rest = self._parking.left(root)
        if rest is not None:
            delays.append(rest)
        if delays:
            due = min(delays)
            then = self._resume if due == rest else self.mark
            self._timers[root] = asyncio.get_running_loop().call_later(max(0.0, due) + 0.01, then, root)

    def _resume(self, root: Key) -> None:
        """A unit was parked for long enough."""
        entry = self._shelf.entries.get(root)
        if entry is not None and self._parking.exhausted(root):
            self._alarm(root, entry)  # refused like any other from now on: more room helps, and other deadlines
        else:
            self.mark(root)

    async def _plan(self, root: Key, *, last: bool) -> None:
        entry = self._shelf.entries[root]
        want = entry.want
        asked, closed = self._reservations.confine(self._queueing.beside(entry), surplus=want is Want.SURPLUS)
        answer: Plan | Refusal | None = self._taken_up(root, want, asked, closed)
        if answer is None:
            if want is Want.MINIMUM and self._take_over(root, entry, asked, closed):
                await self._reserve(root, asked, closed)
                return
            answer = await self._ask(asked, want, closed)
        if answer.verdict is not Verdict.UNKNOWN:
            self._parking.planned(root)
        if isinstance(answer, Refusal):
            await self._refuse(root, entry, answer, asked, closed)
        elif not answer.assignments:
            ask = ask_for_surplus(asked, self._cache.capacity.planned)
            await self._count(ask)
            self._sleep(root, replace(entry, refused=True), ask, closed)
        else:
            await self._give(root, _Aside(want, _asked(entry), asked, closed, answer), last=last)

    def _taken_up(self, root: Key, want: Want, asked: Gang, closed: Sequence[Path]) -> Plan | None:
        """The plan that was put aside for a unit, if the question is still the same."""
        aside = self._aside.pop(root, None)
        same = aside is not None and (aside.want, aside.asked, aside.closed) == (want, asked, closed)
        return aside.plan if aside is not None and same else None

    def _take_over(self, root: Key, entry: Entry, asked: Gang, closed: Sequence[Path]) -> bool:
        """Let a unit be refused as another one of the same question was."""
        before = self._shelf.decision(root)
        if not self._shelf.join(root, entry, ask_for_minimum(asked, self._cache.capacity.planned), closed):
            return False
        joined = self._shelf.entries[root]
        self._entered(root, joined, before)
        self._alarm(root, joined)
        self._refused(joined, before)
        return True

    async def _ask(self, gang: Gang, want: Want, closed: Sequence[Path]) -> Plan | Refusal:
        started = time.perf_counter()
        planner = partial(plan_minimum if want is Want.MINIMUM else plan_surplus, forbidden=closed)
        with self._cache.capacity.planning() as inventory:
            if len(inventory.nodes) < INLINE_NODES:
                answer: Plan | Refusal = planner(gang, inventory)
            else:
                answer = await asyncio.to_thread(planner, gang, inventory)
        self._breath.begin()
        metrics.PLAN_DURATION.labels(answer.verdict.value).observe(time.perf_counter() - started)
        return answer

    async def _refuse(self, root: Key, entry: Entry, answer: Refusal, asked: Gang, closed: Sequence[Path]) -> None:
        refused = entries.refusal(entry, answer)
        before = self._shelf.decision(root)
        ask = ask_for_minimum(asked, self._cache.capacity.planned)
        await self._count(ask)
        if answer.verdict is Verdict.UNKNOWN:
            self._park(root, refused, REASON_UNKNOWN, refused.decision.message, ask)
        else:
            self._sleep(root, refused, ask, closed)
            self._alarm(root, refused)
        metrics.GANG_REFUSALS.labels(refused.decision.reason).inc()
        self._refused(refused, before)
        await self._reserve(root, asked, closed)
        # Pins of an earlier plan that the rest cannot be planned around any more hold room for nothing. But while a
        # predecessor of the rest still ends, its room is what the rest waits for; the pins' own time goes on.
        stuck = [pod for pod in entry.unit.pods() if podstate.pinned(pod)]
        if stuck and not any(self._ends(pod) for pod in self._cache.index.members(root)):
            self._commits.give_up(stuck)

    async def _reserve(self, root: Key, asked: Gang, closed: Sequence[Path]) -> None:
        """Keep a domain for a unit that has waited too long; of those that ask the same for the first alone."""
        entry = self._shelf.entries[root]
        if self._shelf.leads(root) is None or not self._reservations.due(entry):
            return
        ask = ask_for_minimum(asked, self._cache.capacity.planned)
        found = await self._reservations.choose(entry, ask, closed, self._breath.take)
        if self._shelf.entries.get(root) is not entry or found == entry.decision.reservation:
            return
        before = self._shelf.decision(root)
        amended = replace(entry, decision=replace(entry.decision, reservation=found))
        self._shelf.amend(root, amended)
        self._entered(root, amended, before)
        self._alarm(root, amended)

    def _refused(self, entry: Entry, before: Decision) -> None:
        decision, root = entry.decision, entry.unit.key
        if before.reason != decision.reason:
            log.info("gang refused", namespace=root.namespace, root=root.name, why=decision.message)

    async def _count(self, ask: Ask) -> None:
        """Count the room for what a unit waits for, in steps, so that the answer is at hand when a node changes."""
        self._slots.changed(self._cache.capacity.touched())
        for shape in ask.shapes():
            for _ in self._slots.prepare(shape, self._cache.capacity.planned):
                await self._breath.take()

    def _ends(self, pod: core.Pod) -> bool:
        """A member that stands for no place any more, but still has its room."""
        leaf = self._cache.index.leaf_of(pod)
        member = leaf is not None and podstate.is_member(pod, leaf)
        return member and not podstate.counts(pod) and self._cache.index.holding(pod) is not None

    async def _give(self, root: Key, aside: _Aside, *, last: bool) -> None:
        """Give a unit its places, unless it or somebody before it has changed while the plan was made."""
        await self._take_in()
        entry = self._shelf.entries.get(root)
        loop = asyncio.get_running_loop()
        same = entry is not None and (entry.want, entry.gang) == (aside.want, aside.gang)
        if same and self._shelf.next(loop.time()) != root:
            self._aside[root] = aside
            return
        placements = self._still_good(entry, aside.plan) if entry is not None and same else None
        if entry is None or placements is None:
            if last:  # others get their turn
                self._shelf.rest(root)
                loop.call_later(GATHER, self.mark, root)
            return
        decision = replace(entry.decision, reason=None, message="", reservation=None)
        self._enter(root, replace(entry, want=Want.NOTHING, decision=decision, since=None, refused=False))
        self._commits.admit(root, placements, aside.want)

    def _still_good(self, entry: Entry, plan: Plan) -> list[Placement] | None:
        """Hold the plan's room, unless something it was made from has changed while it was made."""
        topology = entry.decision.topology
        assert topology is not None
        held: list[Placement] = []
        for each in plan.assignments:
            pod = self._cache.index.pod(each.pod)
            good = pod is not None and podstate.counts(pod) and podstate.obstacle(pod) is None
            if pod is None or not good or self._cache.capacity.refusal(pod, each.node):
                for other in held:
                    self._cache.unassume(other.pod.metadata.uid)
                return None
            placement = Placement(pod, each.node, domains(topology, each))
            self._committer.assume([placement])
            held.append(placement)
        return held


def _news(before: Decision, after: Decision) -> bool:
    """Something is said of a unit now that was not; that its topology is known by now is no news."""
    return before != after and (before.topology is not None or replace(before, topology=after.topology) != after)


def _asked(entry: Entry) -> Gang:
    assert entry.gang is not None
    return entry.gang


def domains(topology: Topology, assignment: Assignment) -> dict[str, str]:
    """Level → domain value, for the levels that the node has."""
    pairs = zip(topology.levels, assignment.path, strict=False)
    return {level.name: value for level, value in pairs if value is not None}
