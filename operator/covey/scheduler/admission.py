"""The loop that decides: which units may start, and where.

It sleeps until something happened that can help: a unit changed, a node has more room, topologies or priorities
changed, or a deadline came. Then it goes step by step: what has happened meanwhile is taken in (units that changed are
assessed anew, refused ones that a changed node can help are woken), and whoever ranks highest among those that may get
a place now is planned (``order``). Every decision holds its room at once and is then carried out beside the loop
(``commit``). There is no polling: a unit that found no room sleeps until a change can help it (``queue``, ``wake``).

A plan is made in a thread on an inventory that stands still. Afterwards it is held against the present: it is dropped
if a pod or a node has changed under it, and put aside while somebody who ranks higher wants a place.

Only the holder of the lease runs this.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from covey.admission import obstacles, queue
from covey.admission.entitlement import Entitlement
from covey.admission.expected import is_expected
from covey.admission.queue import Entry, Want
from covey.admission.status import Decision
from covey.admission.tree import Key
from covey.admission.wake import ANYTHING, Ask, ask_for_minimum, ask_for_surplus
from covey.api import core
from covey.api.constants import (
    REASON_DENIED,
    REASON_FAILED,
    REASON_INFEASIBLE,
    REASON_RESERVED,
    REASON_UNKNOWN,
    REASON_WAITING,
    RELEASE_GIVEN_BACK,
)
from covey.model import podstate
from covey.observability import scheduler_metrics as metrics
from covey.observability.logging import get_logger
from covey.placement.cluster.inventory import domains_of
from covey.placement.cluster.shape import NOT_READY, state_cause
from covey.placement.model import Gang, Plan, Refusal, Verdict
from covey.placement.planner import is_small, plan_minimum, plan_surplus
from covey.placement.question.demands import place
from covey.scheduler.books import Books
from covey.scheduler.cache import Listener
from covey.scheduler.commit import Commits, Placement
from covey.scheduler.context import Context
from covey.scheduler.holding import Holding, Moves
from covey.scheduler.queue import Queueing
from covey.scheduler.reservations import Reservations
from covey.scheduler.turns import rank_of
from covey.scheduler.wake import Intake
from covey.scheduler.writer import Misses

log = get_logger(__name__)

#: Seconds in which events are gathered before a pass.
GATHER: Final = 0.01
#: Plans of one unit that the world may have changed under before others get their turn.
ATTEMPTS: Final = 3
#: Why a node is shut to a plan while others were not tried; no refusal shows it.
TRIED: Final = "tried before"
#: Seconds for which nodes are reserved for pods that are about to be created.
RESERVED: Final = 60.0
#: What a unit's status says when they were not.
NOT_CREATED: Final = f"the pods of its minimum were not created while nodes were reserved for them ({RESERVED:.0f} s)"
#: What a unit's status says when the planner itself failed on it.
FAILED: Final = "the planner failed on this gang; the scheduler's log has the details"


@dataclass(frozen=True, slots=True)
class _Aside:
    """A plan that waits while somebody who ranks higher is asked first."""

    want: Want
    gang: Gang
    asked: Gang
    closed: frozenset[str]
    plan: Plan
    entitled: Entitlement | None = None


class Admission:
    """The decisions of the lease's holder."""

    def __init__(
        self,
        context: Context,
        queueing: Queueing,
        reservations: Reservations,
        holding: Holding | None = None,
    ) -> None:
        self._cache = cache = context.cache
        self._idle: Callable[[], Awaitable[bool]] | None = None
        self._on_decision: list[Callable[[Key], None]] = []
        self._holding = holding or Holding(cache, context.clock)
        self._moves = Moves(cache, self._holding)
        self._intake = Intake(cache, self.mark)
        self._queueing = queueing
        self._wake = asyncio.Event()
        self._turns = context.writer.turns
        self._turns.on_relief(self.stir)
        #: Every unit has been looked at.
        self.settled = asyncio.Event()
        self._leads = False
        self._dirty: set[Key] = set()
        self._rooms: set[str] = set()
        self._relabelled = False
        self._aside: dict[Key, _Aside] = {}
        #: Units with nodes that are reserved for pods which do not exist yet, and the end of that.
        self._reserved: dict[Key, asyncio.TimerHandle] = {}
        self._misses = Misses()
        self._breath = context.breath
        self._books = Books(
            *(context, queueing, reservations), decided=self._announce, mark=self.mark, stir=self._wake.set
        )
        self._quotas = queueing.quotas
        self._quotas.follow(self._holding, self.mark)
        self._commits = Commits(context, self._books.parking, mark=self.mark, denied=self._deny)
        cache.subscribe(
            Listener(
                unit=self.mark,
                status=self._note_status_write,
                claim=self._claim,
                room=self._room,
                node=self._node,
                world=self._everything,
            )
        )

    def on_decision(self, callback: Callable[[Key], None]) -> None:
        """Call back with each unit of which something new can be said."""
        self._on_decision.append(callback)

    def on_idle(self, step: Callable[[], Awaitable[bool]]) -> None:
        """Call ``step`` when there is nothing to decide, again and again as long as it returns that it did something."""
        self._idle = step

    def decision(self, root: Key) -> Decision:
        """The last decision about a unit."""
        return self._books.shelf.decision(root)

    def mark(self, root: Key) -> None:
        """Look at a unit again."""
        if self._leads:
            self._dirty.add(root)
            self._wake.set()

    def stir(self) -> None:
        """Wake the loop: there may be something to do."""
        if self._leads:
            self._wake.set()

    def busy(self) -> bool:
        """Something has happened that nobody has looked at yet."""
        return self._wake.is_set()

    async def run(self) -> None:
        """Decide for ever."""
        self.begin()
        refreshing = asyncio.get_running_loop().create_task(self._books.refresh())
        try:
            while True:
                await self._wake.wait()
                await asyncio.sleep(GATHER)
                self._wake.clear()
                await self._pass()
                self.settled.set()
        finally:
            refreshing.cancel()
            self._leads = False
            self._commits.cancel()

    def begin(self) -> None:
        """Look at everything; until then nothing that happens is noted, for a replica that only stands by."""
        self._leads = True
        self._books.waiting.begin()
        for reason in (REASON_INFEASIBLE, REASON_UNKNOWN):
            metrics.GANG_REFUSALS.labels(reason).inc(0)
        self._everything()

    def reject(self, root: Key, said: str, *, untried: bool = False) -> None:
        """kube-scheduler refused a place of a unit, in these words; ``untried``: on a node where it had not before."""
        self._books.reject(root, said, untried=untried)

    def _announce(self, root: Key) -> None:
        for callback in self._on_decision:
            callback(root)

    def _claim(self, root: Key) -> None:
        if self._leads:
            self._books.hasten([root])

    def _room(self, node: str) -> None:
        if self._leads:
            self._rooms.add(node)
            self._wake.set()

    def _node(self, _name: str) -> None:
        self._relabelled = True
        self._wake.set()
        if self._leads:
            self._books.hasten()

    def _note_status_write(self, root: Key) -> None:
        """The status was written: how long a refused unit has waited is known from now on."""
        entry = self._books.shelf.entries.get(root)
        if entry is not None and entry.refused:
            self._books.alarm(root, entry)

    def _everything(self) -> None:
        if not self._leads:
            return
        self._dirty.update(self._cache.index.roots())
        self._dirty.update(self._books.shelf.entries)
        self._wake.set()

    async def _pass(self) -> None:
        """Step by step, until nobody is left who may get a place now."""
        attempts: dict[Key, int] = {}
        self._breath.begin()
        while True:
            await self._take_in()
            root = await self._next()
            if self._dirty:
                continue  # something has happened meanwhile
            if root is None and self._idle is not None and await self._idle():
                continue
            if root is None:
                break
            entry = self._books.shelf.entries[root]
            if self._turns.is_crowded(rank_of(_gang_of(entry), surplus=entry.want is Want.SURPLUS)):
                # What is decided now would be old before it is sent, and stand before who comes later and ranks higher.
                self._wake.clear()
                await self._wake.wait()
                await asyncio.sleep(GATHER)
                continue
            attempts[root] = attempts.get(root, 0) + 1
            with self._alone(root):
                await self._plan(root, last=attempts[root] >= ATTEMPTS)
            await self._breath.take()
        self._aside.clear()
        if self._books.shelf.quiet:
            self._books.slots.clear()

    async def _next(self) -> Key | None:
        """The unit whose turn it is: after an edit of a queue many lanes are looked at before that is known."""
        steps = self._books.shelf.find_next(asyncio.get_running_loop().time())
        while True:
            try:
                next(steps)
            except StopIteration as done:
                root: Key | None = done.value
                return root
            await self._breath.take()

    async def _take_in(self) -> None:
        """Everything that has happened until now; half of a list is no news."""
        await self._cache.steady()
        while self._dirty or self._rooms or self._relabelled or self._books.unkept:
            if self._relabelled:
                self._relabelled = False
                self._dirty.update(
                    r for r, entry in self._books.shelf.entries.items() if self._queueing.is_misjudged(entry)
                )
            while self._dirty:
                root = self._dirty.pop()
                with self._alone(root):
                    self._books.assess(root)
                    self._look_at_expected(root)
                    if pods := self._books.blocked.take_pods(root, asyncio.get_running_loop().time()):
                        self._commits.give_up(pods, RELEASE_GIVEN_BACK)
                await self._breath.take()
            self._books.release()
            rooms, self._rooms = self._rooms, set()
            self._books.slots.note_changes(self._cache.capacity.take_changed_nodes())
            if rooms:
                await self._books.help(rooms)
            await self._books.ease()

    @contextmanager
    def _alone(self, root: Key) -> Iterator[None]:
        """One odd unit does not keep the others from their turn: it is as good as refused, and says so."""
        try:
            yield
        except Exception:
            log.exception("planning failed", namespace=root.namespace, root=root.name)
            self._fail(root)

    def _deny(self, root: Key, why: str) -> None:
        if (entry := self._books.shelf.entries.get(root)) is not None:
            self._books.park(root, entry, REASON_DENIED, why)

    def _fail(self, root: Key) -> None:
        unit = self._cache.index.unit(root)
        entry = self._books.shelf.entries.get(root) or (Entry(unit, Want.NOTHING, Decision()) if unit else None)
        if entry is not None:
            self._books.park(root, entry, REASON_FAILED, FAILED)

    async def _plan(self, root: Key, *, last: bool) -> None:
        entry = self._books.shelf.entries[root]
        full = self._intake.refusal(entry)
        if full is not None:
            decision = replace(entry.decision, reason=REASON_WAITING, message=full)
            self._books.enter(root, replace(entry, decision=decision))
            self._books.shelf.rest(root)
            return
        want, entitled = entry.want, self._quotas.judge(entry)
        if why := self._quotas.refusal(entry, entitled):
            await self._books.refuse_by_quota(root, entry, why)
            return
        asked, closed = self._books.confine(entry, entitled)
        answer: Plan | Refusal | None = self._taken_up(root, want, asked, closed)
        if answer is None:
            # What is held for it makes its question one of its own.
            alike = want is Want.MINIMUM and not self._holding.of(root)
            if alike and self._books.take_over(root, entry, asked, closed):
                await self._books.reserve(root, asked)
                return
            parts = self._books.successors.split(entry, asked) if want is Want.SURPLUS else (asked,)
            for part in parts:
                answer = await self._ask_untried(root, part, want)
                if isinstance(answer, Plan) and answer.assignments:
                    break
        assert answer is not None, "there is one part at least"
        if answer.verdict is not Verdict.UNKNOWN:
            self._books.parking.note_answer(root)
        if isinstance(answer, Refusal):
            await self._refuse(root, entry, answer, asked, closed)
        elif not answer.assignments:
            ask = self._waits_for(root, ask_for_surplus(asked, self._cache.capacity.planned))
            await self._books.refuse_surplus(root, entry, asked, ask, closed)
        else:
            await self._give(root, _Aside(want, _gang_of(entry), asked, closed, answer, entitled), last=last)

    def _taken_up(self, root: Key, want: Want, asked: Gang, closed: frozenset[str]) -> Plan | None:
        """The plan that was put aside for a unit, if the question is still the same.

        Its domain was ranked by the surplus that others lacked there, and those that came first lack some, too.
        """
        aside = self._aside.pop(root, None)
        if want is Want.MINIMUM and asked.required is not None and self._cache.capacity.planned.outstanding:
            return None
        same = aside is not None and (aside.want, aside.asked, aside.closed) == (want, asked, closed)
        return aside.plan if aside is not None and same else None

    async def _ask_untried(self, root: Key, gang: Gang, want: Want) -> Plan | Refusal:
        """Plan a unit off the nodes where it has failed; where that gives no plan, with as few of them as do.

        The planner is always of the same mind: it would come back to the first nodes while others were never tried.
        """
        tried = self._queueing.find_tried(root)

        async def ask(allowed: int) -> Plan | Refusal:
            shut = {**dict.fromkeys(tried[allowed:], TRIED), **gang.excluded_nodes}
            return await self._ask(root, replace(gang, excluded_nodes=shut) if tried[allowed:] else gang, want)

        answer = await ask(0)
        if not tried or _has_places(answer):
            return answer
        answer = await ask(len(tried))
        few, enough = 0, len(tried) if _has_places(answer) else 0
        while enough - few > 1:
            middle = (few + enough) // 2
            found = await ask(middle)
            if _has_places(found):
                answer, enough = found, middle
            else:
                few = middle
        return answer

    async def _ask(self, root: Key, gang: Gang, want: Want) -> Plan | Refusal:
        started = time.perf_counter()
        planner = plan_minimum if want is Want.MINIMUM else plan_surplus
        with self._cache.capacity.planning() as inventory, self._holding.without_holds_of(root, inventory):
            if is_small(gang, inventory):
                answer: Plan | Refusal = planner(gang, inventory)
            else:
                answer = await asyncio.to_thread(planner, gang, inventory)
        self._breath.begin()
        metrics.PLAN_DURATION.labels(answer.verdict.value).observe(time.perf_counter() - started)
        return answer

    async def _refuse(self, root: Key, entry: Entry, answer: Refusal, asked: Gang, closed: frozenset[str]) -> None:
        refused = queue.refusal(entry, answer)
        if answer.verdict is Verdict.INFEASIBLE:
            move = await self._moves.find(entry.unit, asked)
            refused = replace(refused, decision=replace(refused.decision, move=move))
            self._breath.begin()
        before = self._books.shelf.decision(root)
        ask = self._waits_for(root, ask_for_minimum(asked, self._cache.capacity.planned))
        await self._books.count(ask)
        if answer.verdict is Verdict.UNKNOWN:
            self._books.park(root, refused, REASON_UNKNOWN, refused.decision.message, ask)
        else:
            self._books.sleep(root, refused, ask, closed)
            self._books.alarm(root, refused)
        metrics.GANG_REFUSALS.labels(refused.decision.reason).inc()
        self._books.log_refusal(refused, before)
        await self._books.reserve(root, asked)
        # Pins of an earlier plan that the rest cannot be planned around any more hold room for nothing. But while a
        # predecessor of the rest still ends, its room is what the rest waits for; the pins' own time goes on.
        stuck = [pod for pod in entry.unit.pods() if podstate.pinned_node(pod)]
        if stuck and not any(self._ends(pod) for pod in self._cache.index.members(root)):
            self._commits.give_up(stuck)

    def _waits_for(self, root: Key, ask: Ask) -> Ask:
        """The changes that can help a refused unit: any where room is held for it, which is no free room to others."""
        return ANYTHING if self._holding.of(root) else ask

    def _ends(self, pod: core.Pod) -> bool:
        """A member that stands for no place any more, but still has room that comes free: not that of a dead node."""
        leaf, place = self._cache.index.leaf_of(pod), self._cache.index.holding(pod)
        if leaf is None or place is None or not podstate.is_member(pod, leaf) or podstate.counts(pod):
            return False
        node = self._cache.node(place)
        return node is not None and state_cause(node) != NOT_READY

    async def _give(self, root: Key, aside: _Aside, *, last: bool) -> None:
        """Give a unit its places, unless it or somebody before it has changed while the plan was made."""
        await self._take_in()
        entry = self._books.shelf.entries.get(root)
        loop = asyncio.get_running_loop()
        same = entry is not None and (entry.want, entry.gang) == (aside.want, aside.gang)
        same = same and entry is not None and self._quotas.allows(entry, aside.entitled)
        if same and self._books.shelf.next(loop.time()) != root:
            self._aside[root] = aside
            return
        with self._holding.place_unit(root):
            placements = self._still_good(entry, aside.plan) if entry is not None and same else None
        if entry is None or placements is None:
            if entry is None:
                self._misses.forget(root)
            elif last:  # others get their turn
                self._books.shelf.rest(root)
                loop.call_later(self._misses.back_off(root), self.mark, root)
            return
        self._misses.forget(root)
        self._quotas.note(entry.unit)
        claim = entry.decision.claim if aside.want is Want.SURPLUS else None
        decision = replace(entry.decision, reason=None, message="", claim=claim, succession=None)
        waits = any(map(is_expected, entry.unit.pods()))
        if waits:
            decision = replace(decision, reason=REASON_RESERVED, message=queue.RESERVED)
        placed = place(aside.gang, {each.pod.metadata.uid: each.node for each in placements})
        self._books.enter(
            root, replace(entry, want=Want.NOTHING, decision=decision, gang=placed, since=None, refused=False)
        )
        for other in self._books.reservations.find_keepers([each.node for each in placements]):
            self.mark(other)  # it needs other room, before anybody behind it takes that
        topology = entry.decision.topology
        assert topology is not None, "it was planned in one"
        self._queueing.topologies.keep(entry.unit, topology)
        if waits:
            # Pinned are they all together, once the last one is there.
            self._cache.arrived.update(each.pod.metadata.uid for each in placements if not is_expected(each.pod))
            self._look_at_expected(root)
            return
        rank = rank_of(aside.gang, surplus=aside.want is Want.SURPLUS)
        self._commits.admit(root, topology.name, placements, aside.want, rank)

    def _look_at_expected(self, root: Key) -> None:
        """Reserve nodes for pods that are about to be created, for a while, and pin these there when all of them are."""
        entry = self._books.shelf.entries.get(root)
        capacity, pods = self._cache.capacity, [*entry.unit.pods()] if entry is not None else []
        expected = [pod for pod in pods if is_expected(pod)]
        if any(pod.metadata.uid in capacity.assumed for pod in expected):
            if root not in self._reserved:
                self._reserved[root] = asyncio.get_running_loop().call_later(RESERVED, self._end_reservation, root)
            return
        if (timer := self._reserved.pop(root, None)) is not None:
            timer.cancel()
        arrived = [pod for pod in pods if pod.metadata.uid in self._cache.arrived] if self._cache.arrived else []
        if entry is None or expected or not arrived:
            return
        topology = entry.decision.topology
        if topology is None or not entry.unit.minimum_met(
            lambda pod: podstate.place_of(pod, capacity.assumed) is not None
        ):
            for pod in arrived:
                self._cache.unassume(pod.metadata.uid)
            return
        self._cache.arrived.difference_update(pod.metadata.uid for pod in arrived)
        places = [(pod, capacity.assumed[pod.metadata.uid]) for pod in arrived]
        placements = [
            Placement(pod, node, domains_of(topology, self._cache.path(topology, node))) for pod, node in places
        ]
        self._commits.admit(root, topology.name, placements, Want.MINIMUM, rank_of(_gang_of(entry), surplus=False))

    def _end_reservation(self, root: Key) -> None:
        """Give up nodes that were reserved for pods which nobody has created."""
        del self._reserved[root]
        unit = self._cache.index.unit(root)
        self._books.parking.park(root, REASON_WAITING, NOT_CREATED)
        for pod in unit.pods() if unit is not None else ():
            if is_expected(pod) or pod.metadata.uid in self._cache.arrived:
                self._cache.unassume(pod.metadata.uid)
        self.mark(root)

    def _still_good(self, entry: Entry, plan: Plan) -> list[Placement] | None:
        """Hold the plan's room, unless something it was made from has changed while it was made."""
        topology = entry.decision.topology
        assert topology is not None
        held: list[Placement] = []
        for each in plan.assignments:
            pod = self._cache.index.member(each.pod)
            good = pod is not None and podstate.counts(pod) and obstacles.obstacle(pod) is None
            if pod is None or not good or self._cache.capacity.refusal(pod, each.node):
                for other in held:
                    self._cache.unassume(other.pod.metadata.uid)
                return None
            held.append(Placement(pod, each.node, domains_of(topology, each.path)))
            self._commits.committer.assume(held[-1:])
        return held


def _has_places(answer: Plan | Refusal) -> bool:
    return isinstance(answer, Plan) and bool(answer.assignments)


def _gang_of(entry: Entry) -> Gang:
    assert entry.gang is not None
    return entry.gang
