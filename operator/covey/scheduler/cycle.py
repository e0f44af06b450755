"""The scheduling cycle: which unit is next, where it may start, and what it gets if it may not.

The loop sleeps until something has happened that can help: a unit changed, a node has more free, topologies or priorities
changed, a deadline came. Then it goes step by step: what has happened meanwhile is taken in (units that changed are
assessed anew, refused ones that a changed node can help are active again, ``queue``), and whoever is first among the
active gets one cycle. There is no polling.

A plan is made in a thread on an inventory that stands still. Afterwards it is held against the present: it is dropped
if a pod or a node has changed under it, and put aside while somebody who ranks higher wants nodes. A decision holds what
it takes at once and is carried out beside the loop (``commit``). Only the holder of the lease runs this.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Final

from covey.admission import obstacles
from covey.admission.entitlement import FIRST, Lane
from covey.admission.entry import Entry, QueueStage, assess, with_refusal
from covey.admission.hints import ANYTHING, QueueingHint, hint_for_minimum, hint_for_surplus
from covey.admission.nodes import Key
from covey.admission.spare import count_spare
from covey.admission.status import Decision
from covey.admission.succession import explain_surplus
from covey.api import core
from covey.api.constants import (
    REASON_DENIED,
    REASON_FAILED,
    REASON_INFEASIBLE,
    REASON_UNKNOWN,
)
from covey.model import podstate
from covey.observability import scheduler_metrics as metrics
from covey.observability.logging import get_logger
from covey.placement.cluster.inventory import NO_TOPOLOGY, Inventory, domains_of
from covey.placement.cluster.node_filters import NOT_READY, state_cause
from covey.placement.model import Gang, Plan, Refusal, Verdict
from covey.placement.planner import is_small, plan_minimum, plan_surplus
from covey.placement.question.demands import place
from covey.scheduler.cache import Listener
from covey.scheduler.commit import Placement
from covey.scheduler.context import Context
from covey.scheduler.decisions_in_flight import Commits
from covey.scheduler.moves import Moves
from covey.scheduler.plan_backoff import Misses
from covey.scheduler.plugin import CycleState, Nomination, Plugin, Rejection, at
from covey.scheduler.queue import EquivalenceClass, SchedulingQueue
from covey.scheduler.ranks import rank_of
from covey.scheduler.surroundings import Queueing

log = get_logger(__name__)

#: Seconds in which events are gathered before a pass.
GATHER: Final = 0.01
#: Plans of one unit that the world may have changed under before others get their turn.
ATTEMPTS: Final = 3
#: Why a node is shut to a plan while others were not tried; no refusal shows it.
TRIED: Final = "tried before"
#: Seconds between two looks at whether a refusal is too old, and between two ticks of plugins.
PAUSE: Final = 1.0
TICK: Final = 60.0
#: What a unit's status says when the planner itself failed on it.
FAILED: Final = "the planner failed on this gang; the scheduler's log has the details"


@dataclass(frozen=True, slots=True)
class _PutAside:
    """A plan that waits while somebody who ranks higher is asked first, and what it was made of."""

    stage: QueueStage
    gang: Gang
    closed: frozenset[str]
    plan: Plan


class Scheduler:
    """The queue, the plugins, and the cycle."""

    def __init__(
        self,
        context: Context,
        queueing: Queueing,
        plugins: Iterable[Plugin],
    ) -> None:
        self._cache = cache = context.cache
        self._capacity = cache.capacity
        self._surroundings = queueing
        self._admission_times = context.admission_times
        self.fair_loop = context.fair_loop
        self._turns = context.writer.turns
        self._misses = Misses()
        #: Plans that wait in this pass.
        self._put_aside: dict[Key, _PutAside] = {}
        #: Every unit has been looked at.
        self.settled = asyncio.Event()
        self.queue = queue = SchedulingQueue(context.clock)
        queue.tier, queue.spare, queue.deadlines = self._tier_of, self._count_spare, self._deadlines
        self._turns.on_relief(queue.wake)
        self.commits = Commits(context, queue, denied=self._note_denied)
        self._moves = Moves(self._snapshot)
        self.plugins: list[Plugin] = []
        self.register(*plugins)
        cache.subscribe(
            Listener(
                unit=queue.requeue,
                status=self._note_status_write,
                claim=queue.note_claim,
                room=queue.note_freed,
                node=lambda _name: queue.note_relabelled(),
                world=self._requeue_all,
            )
        )

    def register(self, *plugins: Plugin) -> None:
        """Let plugins take part, before those that do already."""
        self.plugins = [*plugins, *self.plugins]
        points = [name for name in vars(Plugin) if not name.startswith("_")]
        self._at = {point: at(self.plugins, point) for point in points}
        for plugin in plugins:
            plugin.attach(self)

    async def run(self) -> None:
        """Schedule for ever."""
        self.begin()
        ticking = asyncio.get_running_loop().create_task(self._tick())
        try:
            while True:
                await self.queue.news.wait()
                await asyncio.sleep(GATHER)
                self.queue.news.clear()
                await self.run_pass()
                self.settled.set()
        finally:
            ticking.cancel()
            self.queue.end()
            self.commits.cancel()

    def begin(self) -> None:
        """Look at everything; until then nothing that happens is noted, for a replica that only stands by."""
        self.queue.begin()
        for reason in (REASON_INFEASIBLE, REASON_UNKNOWN):
            metrics.GANG_REFUSALS.labels(reason).inc(0)
        self._requeue_all()

    def reject(self, root: Key, message: str, *, untried: bool = False) -> None:
        """kube-scheduler refused a node of a unit, in these words; ``untried``: one that it had not refused before."""
        why = f"kube-scheduler does not take the nodes of its plans: {message}"
        self.queue.note_rejection(root, why, untried=untried)

    # The pass

    async def run_pass(self) -> None:
        """Go step by step, until nobody is left who may get nodes now."""
        attempts: dict[Key, int] = {}
        while True:
            await self._take_in()
            root = await self._pop()
            if self.queue.changed:
                continue  # something has happened meanwhile
            if root is None:
                for plugin in self._at["idle"]:
                    if await plugin.idle():
                        break
                else:
                    break
                continue
            entry = self.queue[root]
            if self._turns.is_crowded(rank_of(_gang_of(entry), surplus=entry.stage is QueueStage.SURPLUS)):
                # What is decided now would be old before it is sent, and stand before who comes later and ranks higher.
                self.queue.news.clear()
                await self.queue.news.wait()
                await asyncio.sleep(GATHER)
                continue
            attempts[root] = attempts.get(root, 0) + 1
            with self._alone(root):
                await self._schedule(root, last=attempts[root] >= ATTEMPTS)
            await self.fair_loop.share()
        self._put_aside.clear()
        self.queue.rest()

    async def _pop(self) -> Key | None:
        """The unit whose turn it is: after an edit of a queue many tiers are looked at before that is known."""
        steps = self.queue.find_next(asyncio.get_running_loop().time())
        while True:
            try:
                next(steps)
            except StopIteration as done:
                root: Key | None = done.value
                return root
            await self.fair_loop.share()

    async def _take_in(self) -> None:
        """Everything that has happened until now; half of a list is no news."""
        await self._cache.steady()
        queue = self.queue
        while queue.has_news:
            if queue.relabelled:
                queue.relabelled = False
                queue.changed.update(root for root, entry in queue.entries() if self._surroundings.is_misjudged(entry))
            while queue.changed:
                root = queue.changed.pop()
                with self._alone(root):
                    self.assess(root)
                    for plugin in self._at["note_assessed"]:
                        plugin.note_assessed(root)
                await self.fair_loop.share()
            if queue.opened:
                queue.opened = False
                for equivalence in queue.unschedulable():
                    if equivalence.closed or equivalence.hint.key is None:
                        self._activate(equivalence)
            nodes, queue.freed = queue.freed, set()
            queue.note_changed_nodes(self._capacity.take_changed_nodes())
            if nodes:
                for plugin in self._at["wake_for_nodes"]:
                    await plugin.wake_for_nodes(nodes)
                for equivalence in queue.unschedulable():
                    if queue.can_help(equivalence, nodes, self._capacity.planned):
                        self._activate(equivalence)
                    await self.fair_loop.share()
            for plugin in self._at["wake"]:
                await plugin.wake()

    def _activate(self, equivalence: EquivalenceClass) -> None:
        """Something may have helped a class; of a unit in back-off it is noted for later."""
        members = [] if equivalence.hint.key is not None else [*equivalence.members]
        if resting := [root for root in members if self.queue.backoff(root)]:
            for root in resting:
                self.queue.note_change(root)
            return
        self.queue.activate(equivalence)
        for plugin in self._at["nominated"]:
            for root in plugin.nominated():
                if root in equivalence.members and root != equivalence.active:
                    self.queue.requeue(root)

    def assess(self, root: Key) -> None:
        """Look at a unit as it is now."""
        unit, before = self._cache.index.unit(root), self.queue.get(root)
        if unit is None or (unit.root.is_native and not any(unit.pods())):
            self._forget(root)
            return
        self._admission_times.look(unit)
        for plugin in self._at["observe"]:
            plugin.observe(unit)
        backoff = self.queue.backoff(root)
        if backoff is not None:
            self.queue.note_change(root)
            if backoff.reason == REASON_FAILED:
                return  # it may be what was about to be done here that fails
        kept, topology, around = self._surroundings.around(unit)
        if before is not None:
            kept = replace(kept, claim=before.decision.claim)  # its status may not be written yet
        assumed = self._capacity.assumed
        if not any(podstate.pinned_node(pod) or pod.metadata.uid in assumed for pod in unit.pods()):
            self.queue.note_unpinned(root)
        now = asyncio.get_running_loop().time()
        entry = assess(unit, topology, around, self._capacity.shape, before, kept, now)
        for plugin in self._at["assess"]:
            entry = plugin.assess(entry, before)
        if backoff is not None and entry.stage in {QueueStage.MINIMUM, QueueStage.SURPLUS}:
            decision = replace(entry.decision, reason=backoff.reason, message=backoff.message, succession=None)
            self._add_unschedulable(root, replace(entry, decision=decision, refused=True), ANYTHING)
        else:
            self._update(root, entry)
        self.queue.set_deadline(root)

    def _forget(self, root: Key) -> None:
        self.queue.forget(root)
        self._capacity.note_outstanding(root, None)
        self._surroundings.forget(root)
        for plugin in self._at["forget"]:
            plugin.forget(root)

    @contextmanager
    def _alone(self, root: Key) -> Iterator[None]:
        """One odd unit does not keep the others from their turn: it is as good as refused, and says so."""
        try:
            yield
        except Exception:
            log.exception("planning failed", namespace=root.namespace, root=root.name)
            unit = self._cache.index.unit(root)
            entry = self.queue.get(root) or (Entry(unit, QueueStage.NOTHING, Decision()) if unit else None)
            if entry is not None:
                self._back_off(root, entry, REASON_FAILED, FAILED)

    # The cycle

    async def _schedule(self, root: Key, *, last: bool) -> None:
        """One cycle: a unit gets nodes, or a refusal.

        Args:
            root: the unit.
            last: if the world has changed under its plan again, others get their turn.
        """
        # 1. Pre-filter: what of it may be planned now, and without which nodes.
        entry = self.queue[root]
        state = CycleState(root, entry, self._surroundings.gang_beside_siblings(entry))
        for plugin in self._at["pre_filter"]:
            if (rejection := plugin.pre_filter(state)) is not None:
                await self._reject(state, rejection)
                return
        # 2. What is known already: the plan that was put aside, or the refusal of its equivalence class.
        answer: Plan | Refusal | None = None
        aside = self._put_aside.pop(root, None)
        same = aside is not None and (aside.stage, aside.gang, aside.closed) == (entry.stage, state.gang, state.closed)
        # A domain is ranked by the surplus that others lack there, so it is chosen anew while those that came first lack some.
        is_ranked = entry.stage is QueueStage.MINIMUM and state.gang.required is not None
        if aside is not None and same and not (is_ranked and self._capacity.planned.outstanding):
            answer = aside.plan
        if answer is None:
            if entry.stage is QueueStage.MINIMUM and self._shares_refusal(root):
                hint = hint_for_minimum(state.gang, self._capacity.planned)
                before = self.queue.decision(root)
                if self.queue.join_class(root, entry, hint, state.closed):
                    self._note_entry(root)
                    self.queue.set_deadline(root)
                    self._log_refusal(root, before)
                    await self._post_filter(state)
                    return
            # 3. Plan, on a snapshot.
            plugins = self._at["parts"] if entry.stage is QueueStage.SURPLUS else ()
            for part in next((parts for plugin in plugins if (parts := plugin.parts(state))), (state.gang,)):
                answer = await self._plan_untried(root, part, entry.stage)
                if _has_nodes(answer):
                    break
        assert answer is not None, "there is one part at least"
        if answer.verdict is not Verdict.UNKNOWN:
            self.queue.note_answer(root)
        # 4. A refusal: it waits for what can help it, and post-filters may nominate it.
        if isinstance(answer, Refusal):
            await self._refuse(state, answer)
            return
        if not answer.assignments:
            await self._refuse_surplus(state)
            return
        # 5. Reserve, unless it or somebody before it has changed while the plan was made.
        await self._take_in()
        current = self.queue.get(root)
        same = current is not None and (current.stage, current.gang) == (entry.stage, entry.gang)
        same = (
            same
            and current is not None
            and all(plugin.still_allows(state, current) for plugin in self._at["still_allows"])
        )
        if same and self.queue.next(asyncio.get_running_loop().time()) != root:
            self._put_aside[root] = _PutAside(entry.stage, state.gang, state.closed, answer)
            return
        placements = self._reserve(root, current, answer) if current is not None and same else None
        if placements is None or current is None:
            if current is None:
                self._misses.forget(root)
            elif last:
                self.queue.skip(root)
                asyncio.get_running_loop().call_later(self._misses.back_off(root), self.queue.requeue, root)
            return
        # 6. Commit, beside the loop.
        self._commit(root, current, entry, placements)

    async def _reject(self, state: CycleState, rejection: Rejection) -> None:
        """A pre-filter refuses a unit: it is left out until something about it changes."""
        root, entry, claim = state.root, state.entry, state.entry.decision.claim
        before = self.queue.decision(root)
        decision = replace(entry.decision, reason=rejection.reason, message=rejection.message)
        if rejection.passes:
            self._update(root, replace(entry, decision=decision))
            self.queue.skip(root)
            return
        decision = replace(decision, claim=claim if claim is not None and claim.purpose else None, move="")
        self._update(root, replace(entry, decision=decision, refused=True))
        self.queue.skip(root)
        self.queue.set_deadline(root)
        if entry.stage is QueueStage.MINIMUM:
            metrics.GANG_REFUSALS.labels(rejection.reason).inc()
            self._log_refusal(root, before)
        state.rejected = True
        await self._post_filter(state)

    def _shares_refusal(self, root: Key) -> bool:
        return all(plugin.shares_refusal(root) for plugin in self._at["shares_refusal"])

    async def _plan_untried(self, root: Key, gang: Gang, stage: QueueStage) -> Plan | Refusal:
        """Plan a unit off the nodes where it has failed; where that gives no plan, with as few of them as do.

        The planner is always of the same mind: it would come back to the first nodes while others were never tried.
        """
        tried = self._surroundings.find_tried(root)

        async def plan(allowed: int) -> Plan | Refusal:
            shut = {**dict.fromkeys(tried[allowed:], TRIED), **gang.excluded_nodes}
            return await self._plan(root, replace(gang, excluded_nodes=shut) if tried[allowed:] else gang, stage)

        answer = await plan(0)
        if not tried or _has_nodes(answer):
            return answer
        answer = await plan(len(tried))
        few, enough = 0, len(tried) if _has_nodes(answer) else 0
        while enough - few > 1:
            middle = (few + enough) // 2
            with_fewer = await plan(middle)
            if _has_nodes(with_fewer):
                answer, enough = with_fewer, middle
            else:
                few = middle
        return answer

    async def _plan(self, root: Key, gang: Gang, stage: QueueStage) -> Plan | Refusal:
        started = time.perf_counter()
        planner = plan_minimum if stage is QueueStage.MINIMUM else plan_surplus
        with self._snapshot(root) as inventory:
            if is_small(gang, inventory):
                answer: Plan | Refusal = planner(gang, inventory)
            else:
                answer = await asyncio.to_thread(planner, gang, inventory)
        metrics.PLAN_DURATION.labels(answer.verdict.value).observe(time.perf_counter() - started)
        return answer

    @contextmanager
    def _snapshot(self, root: Key) -> Iterator[Inventory]:
        """The inventory as it is for one unit; it stands still meanwhile."""
        with self._capacity.planning() as inventory, ExitStack() as overlays:
            for plugin in self._at["snapshot"]:
                overlays.enter_context(plugin.snapshot(root, inventory))
            yield inventory

    # A refusal

    async def _refuse(self, state: CycleState, answer: Refusal) -> None:
        root, entry, state.refusal = state.root, state.entry, answer
        refused = with_refusal(entry, answer)
        if answer.verdict is Verdict.INFEASIBLE:
            move = await self._moves.find(entry.unit, state.gang)
            refused = replace(refused, decision=replace(refused.decision, move=move))
        before = self.queue.decision(root)
        hint = await self._count_fits(root, hint_for_minimum(state.gang, self._capacity.planned))
        if answer.verdict is Verdict.UNKNOWN:
            self._back_off(root, refused, REASON_UNKNOWN, refused.decision.message, hint)
        else:
            self._add_unschedulable(root, refused, hint, state.closed)
            self.queue.set_deadline(root)
        metrics.GANG_REFUSALS.labels(refused.decision.reason).inc()
        self._log_refusal(root, before)
        await self._post_filter(state)
        # Pins of an earlier plan that the rest cannot be planned around any more hold room for nothing. But while a
        # predecessor of the rest still ends, its room is what the rest waits for; the pins' own time goes on.
        stuck = [pod for pod in entry.unit.pods() if podstate.pinned_node(pod)]
        if stuck and not any(self._ends(pod) for pod in self._cache.index.members(root)):
            self.commits.give_up(stuck)

    async def _refuse_surplus(self, state: CycleState) -> None:
        root, entry = state.root, state.entry
        hint = hint_for_surplus(state.gang, self._capacity.planned)
        with self._snapshot(root) as inventory:
            refusal = await asyncio.to_thread(explain_surplus, state.gang, inventory)
        state.refusal = refusal
        hint = await self._count_fits(root, hint)
        refused = with_refusal(entry, refusal) if refusal is not None else replace(entry, refused=True)
        self._add_unschedulable(root, refused, hint, state.closed)
        await self._post_filter(state)

    async def _count_fits(self, root: Key, hint: QueueingHint) -> QueueingHint:
        """What can help a refused unit: anything where it sees more than others do, which is free to nobody else."""
        hint = hint if self._shares_refusal(root) else ANYTHING
        changed = self._capacity.take_changed_nodes()
        await self.queue.count_fits(hint, self._capacity.planned, changed, self.fair_loop.share)
        return hint

    async def _post_filter(self, state: CycleState) -> None:
        """Nominate a refused unit: the first plugin that has something for it decides."""
        root, entry = state.root, self.queue[state.root]
        if entry.unit.root.is_native:
            return  # its status has no field for what it would get
        for plugin in self._at["post_filter"]:
            nomination = await plugin.post_filter(state, entry)
            if self.queue.get(root) is not entry:
                return
            if nomination is not None:
                self.nominate(root, nomination)
                if not nomination.open:
                    return
                entry = self.queue[root]

    def nominate(self, root: Key, nomination: Nomination) -> None:
        """Give a refused unit its claim, or none, and the answer about its successors, where there is a new one."""
        entry = self.queue[root]
        succession = nomination.succession or entry.decision.succession
        if (nomination.claim, succession) == (entry.decision.claim, entry.decision.succession):
            return
        decision = replace(entry.decision, claim=nomination.claim, succession=succession)
        self.queue.amend(root, replace(entry, decision=decision))
        self._note_entry(root)
        self.queue.set_deadline(root)
        for plugin in self._at["note_nomination"]:
            plugin.note_nomination(root)

    def _ends(self, pod: core.Pod) -> bool:
        """A member that stands for no place any more, but still has room that comes free: not that of a dead node."""
        leaf, name = self._cache.index.leaf_of(pod), self._cache.index.holding(pod)
        if leaf is None or name is None or not podstate.is_member(pod, leaf) or podstate.counts(pod):
            return False
        node = self._cache.node(name)
        return node is not None and state_cause(node) != NOT_READY

    # Nodes for a unit

    def _reserve(self, root: Key, entry: Entry, plan: Plan) -> list[Placement] | None:
        """Hold what a plan takes, unless something it was made from has changed while it was made."""
        topology = entry.decision.topology
        assert topology is not None, "it was planned in one"
        held: list[Placement] = []
        with ExitStack() as moment:
            for plugin in self._at["place"]:
                moment.enter_context(plugin.place(root))
            for assignment in plan.assignments:
                pod = self._cache.index.member(assignment.pod)
                good = pod is not None and podstate.counts(pod) and obstacles.obstacle(pod) is None
                if pod is None or not good or self._capacity.refusal(pod, assignment.node):
                    for placement in held:
                        self._cache.unassume(placement.pod.metadata.uid)
                    return None
                held.append(Placement(pod, assignment.node, domains_of(topology, assignment.path)))
                self.commits.committer.assume(held[-1:])
        return held

    def _commit(self, root: Key, entry: Entry, planned: Entry, placements: list[Placement]) -> None:
        """Carry out what was reserved, unless a plugin does so later."""
        self._misses.forget(root)
        permits = (plugin.permit(entry, placements) for plugin in self._at["permit"])
        wait = next((permit for permit in permits if permit is not None), None)
        claim = entry.decision.claim if planned.stage is QueueStage.SURPLUS else None
        decision = replace(entry.decision, reason=None, message="", claim=claim, succession=None)
        if wait is not None:
            decision = replace(decision, reason=wait.reason, message=wait.message)
        placed = place(_gang_of(planned), {placement.pod.metadata.uid: placement.node for placement in placements})
        self._update(
            root, replace(entry, stage=QueueStage.NOTHING, decision=decision, gang=placed, since=None, refused=False)
        )
        for plugin in self._at["reserve"]:
            plugin.reserve(entry, [placement.node for placement in placements])
        topology = entry.decision.topology
        assert topology is not None, "it was planned in one"
        self._surroundings.topologies.keep(entry.unit, topology)
        if wait is not None:
            for plugin in self._at["note_assessed"]:
                plugin.note_assessed(root)
            return
        rank = rank_of(_gang_of(planned), surplus=planned.stage is QueueStage.SURPLUS)
        self.commits.admit(root, topology.name, placements, planned.stage, rank)

    def _note_denied(self, root: Key, why: str) -> None:
        if (entry := self.queue.get(root)) is not None:
            self._back_off(root, entry, REASON_DENIED, why)

    # The queue's changes, as plugins are told of them

    def _update(self, root: Key, entry: Entry) -> None:
        self.queue.update(root, entry)
        self._note_entry(root)

    def _add_unschedulable(
        self, root: Key, entry: Entry, hint: QueueingHint, closed: frozenset[str] = frozenset()
    ) -> None:
        for plugin in self._at["note_unschedulable"]:
            plugin.note_unschedulable(root)
        self.queue.add_unschedulable(root, entry, hint, closed, self._version)
        self._note_entry(root)

    def _back_off(self, root: Key, entry: Entry, reason: str, message: str, hint: QueueingHint = ANYTHING) -> None:
        """Leave a unit alone for a while, and say why."""
        self.queue.note_failure(root, reason, message)
        decision = replace(entry.decision, reason=reason, message=message, succession=None)
        refused = replace(entry, decision=decision, refused=True)
        self._add_unschedulable(root, refused, replace(hint, key=None))
        self.queue.set_deadline(root)

    @property
    def _version(self) -> int:
        """Grows with every change of the inventory."""
        return self._capacity.planned.trees[NO_TOPOLOGY.name].root.version

    def _note_entry(self, root: Key) -> None:
        entry = self.queue[root]
        self._capacity.note_outstanding(root, None if entry.refused else entry.gang)
        for plugin in self._at["note_entry"]:
            plugin.note_entry(root, entry)

    def _log_refusal(self, root: Key, before: Decision) -> None:
        """A unit was refused, for the first time or for another reason: say so in the log."""
        decision = self.queue[root].decision
        if before.reason != decision.reason:
            log.info("gang refused", namespace=root.namespace, root=root.name, why=decision.message)

    # What the queue asks, and what it tells

    def _tier_of(self, entry: Entry) -> Lane:
        for plugin in self._at["tier"]:
            return plugin.tier(entry)
        return FIRST

    def _count_spare(self, coming: Sequence[Entry], most: int) -> int:
        """Count pods of surplus that take nothing from these minimums; 0 where more than free nodes decides about them."""
        if any(plugin.bounds_minimums(coming) for plugin in self._at["bounds_minimums"]):
            return 0
        gangs = [(entry.unit, entry.gang) for entry in coming if entry.gang is not None]
        return count_spare(gangs, self._capacity.planned, most)

    def _deadlines(self, entry: Entry) -> Iterator[float]:
        yield from self._surroundings.deadlines(entry)
        for plugin in self._at["deadlines"]:
            yield from plugin.deadlines(entry)

    def _note_status_write(self, root: Key) -> None:
        """The status was written: how long a refused unit has waited is known from now on."""
        entry = self.queue.get(root)
        if entry is not None and entry.refused:
            self.queue.set_deadline(root)

    def _requeue_all(self) -> None:
        self.queue.requeue_all(self._cache.index.roots())

    def refresh(self, now: float) -> None:
        """Ask once more for the oldest refusal, if its numbers may be out of date (event loop's clock)."""
        outdated = self.queue.find_outdated(now, self._version)
        if outdated is not None:
            self._activate(outdated)
            self.queue.news.set()

    async def _tick(self) -> None:
        """Keep the numbers of refusals from getting too old, and tell all members of a class what is new."""
        loop = asyncio.get_running_loop()
        while True:
            for _ in range(int(TICK / PAUSE)):
                await asyncio.sleep(PAUSE)
                self.refresh(loop.time())
            for root in self.queue.take_refreshed():
                self.queue.announce(root)
                await self.fair_loop.share()
            for plugin in self._at["tick"]:
                await plugin.tick()


def _has_nodes(answer: Plan | Refusal) -> bool:
    return isinstance(answer, Plan) and bool(answer.assignments)


def _gang_of(entry: Entry) -> Gang:
    assert entry.gang is not None
    return entry.gang
