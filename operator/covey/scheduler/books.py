"""The state of every unit between two steps of admission: in line, refused, backing off, and what would wake it.

All of it follows from the API objects and from the last answer of the planner. The pass (``admission``) asks whose turn
it is and plans; what comes of it is entered here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

from covey.admission import queue
from covey.admission.entitlement import FIRST, Entitlement, QueueError
from covey.admission.order import PATIENCE
from covey.admission.queue import NO_ORDER, SETTLE, Alike, Entry, Shelf, Want, assess
from covey.admission.reservation import BY_NEED
from covey.admission.spare import count_spare
from covey.admission.status import Decision
from covey.admission.tree import Key
from covey.admission.wake import ANYTHING, Ask, Slots, ask_for_minimum, room_for
from covey.api import core
from covey.api.constants import (
    PURPOSE_EVACUATION,
    PURPOSE_EXCHANGE,
    REASON_FAILED,
    REASON_OVER_QUOTA,
)
from covey.model import podstate
from covey.observability import scheduler_metrics as metrics
from covey.observability.logging import get_logger
from covey.placement.cluster.inventory import NO_TOPOLOGY
from covey.placement.model import Gang
from covey.scheduler.blocked import BlockedGangs
from covey.scheduler.context import Context
from covey.scheduler.pacing import Waiting
from covey.scheduler.queue import Parking, Queueing
from covey.scheduler.reservations import Reservations
from covey.scheduler.succession import Successors

log = get_logger(__name__)

#: Seconds for which the numbers that a status gives as the reason of a refusal may be old before it is looked at.
RETELL: Final = 60.0
#: Seconds between two questions that are asked again only for the numbers in their answers.
PAUSE: Final = 1.0


class Books:
    """Every unit, and what it waits for.

    ``decided`` is told of a unit of which something new can be said, ``mark`` of one that is to be assessed again, and
    ``stir`` that there is work for the pass.
    """

    def __init__(
        self,
        context: Context,
        queueing: Queueing,
        reservations: Reservations,
        *,
        decided: Callable[[Key], None],
        mark: Callable[[Key], None],
        stir: Callable[[], None],
    ) -> None:
        self._cache = context.cache
        self._queueing = queueing
        self._admission_times = context.admission_times
        self._breath = context.breath
        self._decided = decided
        self._mark = mark
        self._stir = stir
        self.reservations = reservations
        self.claims, self.arrivals = reservations.claims, reservations.arrivals
        self.successors = Successors(context, queueing, reservations)
        self.parking = Parking(context.clock.monotonic)
        self.waiting = Waiting(context.clock.wall)
        self.shelf = Shelf()
        self.quotas = queueing.quotas
        self.shelf.lane = self.quotas.lane
        self.shelf.spare = self._count_spare
        self.slots = Slots()
        #: Room is no longer kept for somebody, which may help those that were refused for it.
        self.unkept = False
        #: Questions whose answer has changed since their units were told.
        self._retold: list[Alike] = []
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self.blocked = BlockedGangs(mark)

    def _count_spare(self, coming: Sequence[Entry], most: int) -> int:
        """Count pods of surplus that take nothing from these minimums (``count_spare``).

        0 where a Queue says what a minimum may have, or nodes are kept for somebody.
        """
        gangs = [(entry.unit, entry.gang) for entry in coming if entry.gang is not None]
        if any(self.reservations.keepers()) or any(self.quotas.queue_of(entry.unit.key) for entry in coming):
            return 0
        return count_spare(gangs, self._cache.capacity.planned, most)

    def assess(self, root: Key) -> None:
        """Look at a unit as it is now."""
        unit = self._cache.index.unit(root)
        before = self.shelf.entries.get(root)
        if unit is None or (unit.root.is_native and not any(unit.pods())):
            self.forget(root)
            return
        self._admission_times.look(unit)
        self.reservations.note(unit)
        self.quotas.note(unit)
        parked = self.parking.holding(root)
        if parked is not None:
            self.parking.stir(root)
            if parked.reason == REASON_FAILED:
                return  # it may be what was about to be done here that fails
        loop = asyncio.get_running_loop()
        kept, topology, around = self._queueing.around(unit)
        if before is not None:
            kept = replace(kept, claim=before.decision.claim)  # its status may not be written yet
        if not any(
            podstate.pinned_node(pod) or pod.metadata.uid in self._cache.capacity.assumed for pod in unit.pods()
        ):
            self.parking.settle(root)
        entry = assess(unit, topology, around, self._cache.capacity.shape, before, kept, loop.time())
        entry = self.successors.with_answer(self.reservations.with_exchange(entry), before)
        entry = self.blocked.note(root, entry, loop.time())
        problem = self.quotas.problem(root)
        if problem is not None and entry.want is Want.NOTHING:
            entry = replace(entry, decision=replace(entry.decision, reason=problem.reason, message=problem.message))
        if parked is not None and entry.want in {Want.MINIMUM, Want.SURPLUS}:
            said = replace(entry.decision, reason=parked.reason, message=parked.message, succession=None)
            entry = replace(entry, decision=said, refused=True)
            self.sleep(root, entry, ANYTHING)
        else:
            self.enter(root, entry)
        self.alarm(root, entry)

    def forget(self, root: Key) -> None:
        """A unit is gone."""
        self.shelf.drop(root)
        if self.reservations.forget(root):
            self.unkept = True
            self._let_next()
        self.waiting.drop(root)
        self._cache.capacity.note_outstanding(root, None)
        self.claims.forget(root)
        self.quotas.forget(root)
        self.blocked.forget(root)
        self._queueing.forget(root)
        self.parking.forget(root)
        if timer := self._timers.pop(root, None):
            timer.cancel()

    def enter(self, root: Key, entry: Entry) -> None:
        """A unit as it is now."""
        before = self.shelf.decision(root)
        self.shelf.update(root, entry)
        self._note_entry(root, entry, before)

    def sleep(self, root: Key, entry: Entry, ask: Ask, closed: frozenset[str] = frozenset()) -> None:
        """A unit was refused."""
        before, said = self.shelf.decision(root), self.shelf.last_answer(ask)
        self.quotas.note_unplaced(root)
        alike = self.shelf.lay_to_sleep(root, entry, ask, closed)
        alike.asked, alike.version = asyncio.get_running_loop().time(), self._version()
        self._note_entry(root, entry, before)
        if said is not None and said != alike.answer.decision.message:
            self._retold.append(alike)

    def _note_entry(self, root: Key, entry: Entry, before: Decision) -> None:
        self.quotas.note_wish(root, entry)
        self._cache.capacity.note_outstanding(root, None if entry.refused else entry.gang)
        if self.reservations.file(root, entry):
            self.unkept = True
            self._let_next()
            self._stir()
        if entry.want is not Want.NOTHING and entry.want is not Want.SURPLUS:
            reason = self.shelf.decision(root).reason
            self.waiting.update(root, reason, queue.waiting_since(entry.unit.root))
        else:
            self.waiting.drop(root)
        if queue.is_news(before, self.shelf.decision(root)):
            self._decided(root)

    def alarm(self, root: Key, entry: Entry) -> None:
        """Look again when time alone can change something: a wait ends, an exclusion runs out, a wait was too long."""
        if timer := self._timers.pop(root, None):
            timer.cancel()
        delays = [*self._queueing.deadlines(entry)]
        wait = self._wait_for_claim(entry) if entry.refused and entry.gang is not None else None
        delays += [wait] if wait else []
        if entry.since is not None and entry.settling(asyncio.get_running_loop().time()):
            delays.append(entry.since + SETTLE - asyncio.get_running_loop().time())
        if entry.want is Want.SURPLUS and entry.since is not None and not entry.refused:
            patience = entry.since + PATIENCE - asyncio.get_running_loop().time()
            delays += [patience] if patience > 0 else []
        rest = self.parking.left(root)
        if rest is not None:
            delays.append(rest)
        blocked = self.blocked.left(root, asyncio.get_running_loop().time())
        if blocked is not None:
            delays.append(blocked)
        if delays:
            due = min(delays)
            then = self.resume if due == rest else self._mark
            self._timers[root] = asyncio.get_running_loop().call_later(max(0.0, due) + 0.01, then, root)

    def park(self, root: Key, entry: Entry, reason: str, message: str, ask: Ask = ANYTHING) -> None:
        """Leave a unit alone for a while, and say why."""
        self.parking.park(root, reason, message)
        decision = replace(entry.decision, reason=reason, message=message, succession=None)
        parked = replace(entry, decision=decision, refused=True)
        self.sleep(root, parked, replace(ask, key=None))
        self.alarm(root, parked)

    def reject(self, root: Key, said: str, *, untried: bool) -> None:
        """kube-scheduler refused a place of a unit: leave it alone for a while, and say why (``Parking.reject``)."""
        self.parking.reject(root, f"kube-scheduler does not take the nodes of its plans: {said}", untried=untried)
        self._mark(root)

    def hasten(self, roots: Collection[Key] | None = None) -> None:
        """Try units sooner that kube-scheduler refused (``Parking.hasten``)."""
        for root in self.parking.hasten(roots):
            entry = self.shelf.entries.get(root)
            if entry is not None:
                self.alarm(root, entry)

    def confine(
        self, entry: Entry, entitled: Entitlement | None, *, takes: bool = False
    ) -> tuple[Gang, frozenset[str]]:
        """A unit's gang as it may be planned now, and the gangs (UIDs) whose nodes are closed to it.

        Args:
            entry: the unit.
            entitled: to what its queue lets it have; None for all.
            takes: whether others are to give way to it, as to those that have a claim.
        """
        gang = self.quotas.confine(entry, self._queueing.gang_beside_siblings(entry), entitled)
        borrows = entitled is not None and not entitled.inside
        claim, surplus = entry.decision.claim, entry.want is Want.SURPLUS
        takes = takes or (claim is not None and bool(claim.victims))
        return self.reservations.confine(gang, surplus=surplus, unit=entry.unit, borrows=borrows, takes=takes)

    def _wait_for_claim(self, entry: Entry) -> float | None:
        return self.claims.wait(entry, right=self.quotas.has_right(entry))

    async def refuse_by_quota(self, root: Key, entry: Entry, why: QueueError) -> None:
        """A unit's queue has no room for it: it stands aside until there is, and may reclaim what it has a right to."""
        before, claim = self.shelf.decision(root), entry.decision.claim
        kept = claim if claim is not None and claim.purpose else None
        decision = replace(entry.decision, reason=why.reason, message=why.message, claim=kept, move="")
        refused = replace(entry, decision=decision, refused=True)
        self.enter(root, refused)
        self.shelf.rest(root)
        self.alarm(root, refused)
        if entry.want is Want.MINIMUM:
            metrics.GANG_REFUSALS.labels(why.reason).inc()
            self.log_refusal(refused, before)
        takes = self.quotas.has_lower(refused) and self._wait_for_claim(refused) == 0.0
        if entry.want is Want.SURPLUS or kept is not None or takes or self.quotas.has_right(refused):
            asked, _ = self.confine(refused, None)
            await self.reserve(root, asked)

    async def refuse_surplus(self, root: Key, entry: Entry, asked: Gang, ask: Ask, closed: frozenset[str]) -> None:
        """A unit's surplus found no room; what its replicas that go set free may be kept for it."""
        refusal = await self.successors.explain(entry, asked)
        self._breath.begin()
        await self.count(ask)
        refused = queue.refusal(entry, refusal) if refusal is not None else replace(entry, refused=True)
        self.sleep(root, refused, ask, closed)
        await self.reserve(root, asked)

    async def ease(self) -> None:
        """Look again at units that wait for quota, if there may be more of it."""
        if not self.quotas.take_eased():
            return
        self.shelf.renew()
        known = [(root, entry) for root in self.quotas.asleep() if (entry := self.shelf.entries.get(root)) is not None]
        known.sort(key=lambda pair: (pair[1].order if pair[1].gang is not None else NO_ORDER, pair[0]))
        # Chosen at once: while others have their turn, charges change.
        for root, entry in list(self.quotas.choose_woken(known)):
            if self.quotas.is_better_off(root, entry):
                self._mark(root)
            await self._breath.take()

    def _retell_quota(self, root: Key) -> None:
        entry = self.shelf.entries.get(root)
        words = self.quotas.words(root, entry) if entry is not None else ""
        if entry is not None and words and words != entry.decision.message:
            self.shelf.amend(root, replace(entry, decision=replace(entry.decision, message=words)))
            self._decided(root)

    def take_over(self, root: Key, entry: Entry, asked: Gang, closed: frozenset[str]) -> bool:
        """Let a unit be refused as another one of the same question was."""
        before = self.shelf.decision(root)
        if not self.shelf.join(root, entry, ask_for_minimum(asked, self._cache.capacity.planned), closed):
            return False
        joined = self.shelf.entries[root]
        self._note_entry(root, joined, before)
        self.alarm(root, joined)
        self.log_refusal(joined, before)
        return True

    def log_refusal(self, entry: Entry, before: Decision) -> None:
        """A unit was refused, for the first time or for another reason: say so in the log."""
        decision, root = entry.decision, entry.unit.key
        if before.reason != decision.reason:
            log.info("gang refused", namespace=root.namespace, root=root.name, why=decision.message)

    async def reserve(self, root: Key, asked: Gang) -> None:
        """Keep nodes for a unit that has waited for long, or that others give way to; of those alike for the first of each queue."""
        entry = self.shelf.entries[root]
        claim = entry.decision.claim
        if entry.unit.root.is_native or (claim is not None and claim.purpose == PURPOSE_EXCHANGE):
            return
        if (question := self.successors.question_of(entry)) is not None:
            succession, found = await self.successors.answer(entry, question)
            self._breath.begin()
            if self.shelf.entries.get(root) is not entry:
                return
            self._keep(root, entry, found or claim, succession)
            if found is not None:
                return
            entry = self.shelf.entries[root]
        gone = self.claims.note_gone(entry.unit)
        if gone and claim is not None and claim.purpose == PURPOSE_EVACUATION:
            self._mark(root)  # it is planned anew, and its room is kept until then
            return
        found = await self.claims.find_evacuation(entry, asked, self.reservations.kept_for_others(root))
        found = self.reservations.renew(root, found)
        ends = claim is not None and claim.purpose in BY_NEED
        takes, follows = self._wait_for_claim(entry) == 0.0, claim is not None and bool(claim.victims)
        waited = follows or takes or self.reservations.due(entry) or entry.asks_nodes
        if found is None and not ends and (self.reservations.rests(entry) or not waited):
            return
        leads = self.shelf.leads(root, self.quotas.queue_of) or self.quotas.is_asleep(root)
        first = leads or (takes and self.shelf.leads(root, self.quotas.queue_of, self._is_passed))
        if found is None and self.reservations.allows(root, entry, takes=follows or (takes and first)):
            found = await self._find_claim(entry, asked, takes=takes and first, leads=leads)
        if self.shelf.entries.get(root) is entry:
            self._keep(root, entry, found)

    def _keep(
        self, root: Key, entry: Entry, found: core.Claim | None, succession: core.GroupSuccession | None = None
    ) -> None:
        """Give a refused unit its claim, or none, and the answer about its successors, where there is a new one."""
        succession = succession or entry.decision.succession
        if (found, succession) == (entry.decision.claim, entry.decision.succession):
            return
        before = self.shelf.decision(root)
        amended = replace(entry, decision=replace(entry.decision, claim=found, succession=succession))
        self.shelf.amend(root, amended)
        self._note_entry(root, amended, before)
        self.alarm(root, amended)
        for other in self.reservations.find_superseded():
            self._mark(other)

    def _is_passed(self, root: Key) -> bool:
        """Tell whether others of the same question may claim before a refused unit: it may not now, or has a claim."""
        entry = self.shelf.entries[root]
        claim = entry.decision.claim
        return (claim is not None and bool(claim.victims)) or self._wait_for_claim(entry) != 0.0

    async def _find_claim(self, entry: Entry, asked: Gang, *, takes: bool, leads: bool) -> core.Claim | None:
        """The claim of a refused unit: the one that stands, one that others give way to, or one to wait with."""
        claim, found = entry.decision.claim, None
        if takes:
            is_over = entry.decision.reason == REASON_OVER_QUOTA
            taking, _ = self.confine(entry, None if is_over else self.quotas.judge(entry), takes=True)
        if claim is not None and claim.victims:
            standing = await self.claims.follow(entry, asked, claim, self.quotas)
            found = self.reservations.renew(entry.unit.key, standing)
            self._breath.begin()
        if found is None and takes:
            found = await self.claims.find(entry, taking, self.quotas, self._breath.take)
            self._breath.begin()
        borrows = self.quotas.lane(entry) != FIRST  # it must keep nothing from minimums within nominal
        if found is None and not borrows and entry.asks_nodes:
            found = self.arrivals.find_claim(entry, asked)
        waits = leads and not borrows and entry.decision.reason != REASON_OVER_QUOTA
        if found is None and waits and self.reservations.due(entry):
            ask = ask_for_minimum(asked, self._cache.capacity.planned)
            found = await self.reservations.choose(entry, ask, asked.excluded_nodes, self._breath.take)
        return found

    def _let_next(self) -> None:
        """Room is kept for somebody no longer: the next in line may have a domain."""
        for root, entry in self.shelf.find_refused(lambda entry: entry.decision.claim is None):
            if self.quotas.is_asleep(root) and not self.quotas.has_right(entry):
                continue
            takes = self._wait_for_claim(entry) == 0.0
            due = self.reservations.due(entry) or takes
            if due and self.reservations.allows(root, entry, takes=takes):
                self._mark(root)
                return

    async def count(self, ask: Ask) -> None:
        """Count the room for what a unit waits for, in steps, so that the answer is at hand when a node changes."""
        self.slots.note_changes(self._cache.capacity.take_changed_nodes())
        for shape in ask.shapes():
            for _ in self.slots.prepare(shape, self._cache.capacity.planned):
                await self._breath.take()

    async def help(self, rooms: Collection[str]) -> None:
        """Wake refused units that a changed node can help; first it is kept for those for whom it has come."""
        came = self.arrivals.find_recent(rooms)
        for root, entry in self.shelf.find_refused(lambda entry: entry.asks_nodes) if came else ():
            is_helped = self.shelf.entries.get(root) is entry and self.arrivals.awaits(entry, came)
            if is_helped and self.reservations.allows(root, entry) and self.quotas.lane(entry) == FIRST:
                found = self.arrivals.find_claim(entry, self.confine(entry, None)[0])
                self._keep(root, entry, found or entry.decision.claim)
            await self._breath.take()
        for root in self.reservations.takers():
            # Alone it may not suffice, but less would have to go beside it; and else whoever gave way would have it back.
            if self._can_take(self.shelf.entries.get(root), rooms):
                self._mark(root)
        for alike in self.shelf.sleeping():
            inventory = self._cache.capacity.planned
            nodes = (inventory.nodes.get(name) for name in rooms)
            if any(node is not None and alike.ask.can_help(node, inventory, self.slots) for node in nodes):
                self._rouse(alike)
            await self._breath.take()

    def _can_take(self, entry: Entry | None, rooms: Collection[str]) -> bool:
        """Tell whether one of these nodes has capacity for a pod that a refused unit waits with, on none that is kept for it."""
        if entry is None or entry.gang is None or not entry.refused or entry.decision.claim is None:
            return False
        shapes = {pod.shape for role in entry.gang.roles for each in role.replicas for pod in each.pods if not pod.node}
        nodes = (
            self._cache.capacity.planned.nodes.get(name) for name in rooms if name not in entry.decision.claim.nodes
        )
        return any(node is not None and any(room_for(node, shape) for shape in shapes) for node in nodes)

    def release(self) -> None:
        """Wake refused units from which room was kept that is not kept any more."""
        if not self.unkept:
            return
        self.unkept = False
        for alike in self.shelf.sleeping():
            if alike.answer.closed or alike.ask.key is None:
                self._rouse(alike)

    def _rouse(self, alike: Alike) -> None:
        parked = [] if alike.ask.key is not None else [r for r in alike.members if self.parking.holding(r)]
        for root in parked:
            self.parking.stir(root)
        if not parked:
            self.shelf.wake(alike)
            # Those for whom room is kept are asked themselves: it may be closed to the first.
            for root in self.reservations.keepers():
                if root in alike.members and root != alike.lead:
                    self._mark(root)

    def resume(self, root: Key) -> None:
        """A unit was parked for long enough."""
        entry = self.shelf.entries.get(root)
        if entry is not None and self.parking.is_exhausted(root):
            self.alarm(root, entry)  # refused like any other from now on: more room helps, and other deadlines
        else:
            self._mark(root)

    def _version(self) -> int:
        return self._cache.capacity.planned.trees[NO_TOPOLOGY.name].root.version

    def ask_again(self, now: float) -> None:
        """Wake the question whose answer is the oldest, if it is too old and anything has changed since."""
        version = self._version()
        due = [each.asked for each in self.shelf.questions() if each.lead is not None or each.version != version]
        metrics.REFUSALS_UNCHECKED.set(max(0.0, now - min(due, default=now)))
        old = [each for each in self.shelf.sleeping() if each.asked + RETELL <= now and each.version != version]
        if old:
            self._rouse(min(old, key=lambda each: each.asked))
            self._stir()

    async def refresh(self) -> None:
        """Keep the numbers of answers from getting too old: ask once more, and tell those who ask the same."""
        while True:
            for _ in range(int(RETELL / PAUSE)):
                await asyncio.sleep(PAUSE)
                self.ask_again(asyncio.get_running_loop().time())
            retold, self._retold = self._retold, []
            for alike in {id(each): each for each in retold}.values():
                for root in list(alike.members):
                    self._decided(root)
                    await self._breath.take()
            for root in self.quotas.asleep():
                self._retell_quota(root)
                await self._breath.take()
