"""What a refused unit gets instead of nodes: a claim to nodes that come free, come new, or that others give up.

A unit whose replicas drain gets nodes for their successors. One that may ask others to give way, that has waited for
long or for which nodes are made has, in this order, the claim that stands, one that others give way to, one to nodes that
have come for it, one to wait with. Of units that are alike only the first of each queue gets one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from covey.admission.entitlement import FIRST, Entitlement
from covey.admission.entry import Entry, QueueStage
from covey.admission.fit_counts import room_for
from covey.admission.hints import hint_for_minimum
from covey.admission.nodes import Key
from covey.admission.reservation import BY_NEED
from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import PURPOSE_EVACUATION, REASON_INFEASIBLE, REASON_OVER_QUOTA
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Plan
from covey.placement.overlay import overlay
from covey.placement.planner import plan_minimum
from covey.scheduler.context import Context
from covey.scheduler.decisions_in_flight import reference
from covey.scheduler.plugin import CycleState, Nomination, Plugin
from covey.scheduler.quotas import Quotas
from covey.scheduler.reservations import Reservations
from covey.scheduler.surroundings import Queueing


class Nominations(Plugin):
    """The claims of refused units.

    Args:
        context: of the process.
        queueing: what surrounds a unit.
        quotas: of queues.
        reservations: what is kept for whom.
    """

    def __init__(self, context: Context, queueing: Queueing, quotas: Quotas, reservations: Reservations) -> None:
        self._cache = context.cache
        self._queueing = queueing
        self._quotas = quotas
        self.reservations = reservations
        self.claims, self.arrivals = reservations.claims, reservations.arrivals
        self._recorder = context.recorder
        reservations.note_given_up = self._tell_given_up

    def observe(self, unit: Unit) -> None:
        """Take notice of what a unit has."""
        self.reservations.note(unit)
        self.claims.note_minimum(unit)

    def note_entry(self, root: Key, entry: Entry) -> None:
        """Keep for a unit what its entry says."""
        if self.reservations.file(root, entry):
            self.handle.queue.note_opened()
            self._requeue_next()

    def _tell_given_up(self, entry: Entry, former: core.Claim) -> None:
        """Others give way to a unit no longer, which has no nodes: an Event of its root says why."""
        claim = entry.decision.claim
        if claim is not None and claim.retry_time is not None:
            why = f"it came no nearer for long, and is looked for again from {claim.retry_time} on"
        else:
            why = entry.decision.message or "nobody has to give way any more"
        note = f"others give way to this gang no longer: {why}; until now: {former.message}"
        self._recorder.event(reference(entry.unit), "Warning", "ClaimGivenUp", note, "Preempt")

    def note_nomination(self, root: Key) -> None:  # noqa: ARG002 - as every plugin
        """Requeue those that should not have their claim any more."""
        for other in self.reservations.find_superseded():
            self.handle.queue.requeue(other)

    def forget(self, root: Key) -> None:
        """A unit is gone: keep nothing for it."""
        if self.reservations.forget(root):
            self.handle.queue.note_opened()
            self._requeue_next()
        self.claims.forget(root)

    def deadlines(self, entry: Entry) -> Iterator[float]:
        """Seconds until others may be asked to give way to a refused unit."""
        wait = self._wait(entry) if entry.refused and entry.gang is not None else None
        if wait:
            yield wait

    def bounds_minimums(self, coming: Sequence[Entry]) -> bool:  # noqa: ARG002 - as every plugin
        """Tell whether nodes are kept for anybody."""
        return any(self.reservations.keepers())

    def pre_filter(self, state: CycleState) -> None:
        """Plan a unit without the nodes that are kept for others."""
        entry, claim = state.entry, state.entry.decision.claim
        state.gang, state.closed = self.reservations.confine(
            state.gang,
            surplus=entry.stage is QueueStage.SURPLUS,
            unit=entry.unit,
            borrows=state.borrows,
            takes=claim is not None and bool(claim.victims),
        )

    def reserve(self, entry: Entry, nodes: Collection[str]) -> None:  # noqa: ARG002 - as every plugin
        """Requeue those for whom nodes are kept that are taken now: they need others, before anybody behind them takes those."""
        for other in self.reservations.find_keepers(nodes):
            self.handle.queue.requeue(other)

    def nominated(self) -> Collection[Key]:
        """The units for which nodes are kept."""
        return self.reservations.keepers()

    async def wake_for_nodes(self, nodes: Collection[str]) -> None:
        """Keep nodes that have come for those for whom they have come; requeue those to whom others give way."""
        came = self.arrivals.find_recent(nodes)
        for root, entry in self.handle.queue.find_refused(lambda entry: entry.asks_nodes) if came else ():
            is_helped = self.handle.queue.get(root) is entry and self.arrivals.awaits(entry, came)
            if is_helped and self.reservations.allows(root, entry) and self._quotas.tier(entry) == FIRST:
                claim = self.arrivals.find_claim(entry, self._confine(entry, None))
                self.handle.nominate(root, Nomination(claim or entry.decision.claim))
            await self.handle.fair_loop.share()
        for root in self.reservations.takers():
            # Alone it may not suffice, but less would have to go beside it; and else whoever gave way would have it back.
            if self._can_take(self.handle.queue.get(root), nodes):
                self.handle.queue.requeue(root)

    def _can_take(self, entry: Entry | None, nodes: Collection[str]) -> bool:
        """Tell whether one of these nodes has capacity for a pod that a refused unit waits with, on none that is kept for it."""
        if entry is None or entry.gang is None or not entry.refused or entry.decision.claim is None:
            return False
        replicas = [replica for role in entry.gang.roles for replica in role.replicas]
        shapes = {pod.shape for replica in replicas for pod in replica.pods if not pod.node}
        others = [name for name in nodes if name not in entry.decision.claim.nodes]
        states = map(self._cache.capacity.planned.nodes.get, others)
        return any(state is not None and any(room_for(state, shape) for shape in shapes) for state in states)

    async def post_filter(self, state: CycleState, entry: Entry) -> Nomination | None:
        """Find the claim of a refused unit; None leaves the one that it has."""
        root, current = state.root, entry.decision.claim
        takes, follows = self._wait(entry) == 0.0, current is not None and bool(current.victims)
        asked = state.gang
        if state.rejected:
            keeps = current is not None and bool(current.purpose)
            takes_here = self._quotas.has_lower(entry) and takes
            if not (entry.stage is QueueStage.SURPLUS or keeps or takes_here or self._quotas.has_right(entry)):
                return None
            asked = self._confine(entry, None)
        # 1. Nodes for the successors of replicas that drain.
        gone = self.claims.note_gone(entry.unit)
        if gone and current is not None and current.purpose == PURPOSE_EVACUATION:
            self.handle.queue.requeue(root)  # it is planned anew, and its room is kept until then
            return None
        claim = await self.claims.find_evacuation(entry, asked, self.reservations.kept_for_others(root))
        claim = self.reservations.renew(root, claim)
        takes = self._wait(entry) == 0.0
        waited = follows or takes or self.reservations.due(entry) or entry.asks_nodes
        ends = current is not None and current.purpose in BY_NEED
        if claim is None and not ends and (self.reservations.rests(entry) or not waited):
            return None
        if claim is not None:
            return Nomination(claim)
        # 2. Whether it is its turn.
        leads = self.handle.queue.is_first(root, self._quotas.queue_of) or self._quotas.is_asleep(root)
        first = leads or (takes and self.handle.queue.is_first(root, self._quotas.queue_of, self._is_passed))
        takes = takes and first
        if not self.reservations.allows(root, entry, takes=follows or takes):
            return Nomination(None)
        # 3. What others give up: as it stands, or anew.
        over_quota = entry.decision.reason == REASON_OVER_QUOTA
        if takes:
            wanted = self._confine(entry, None if over_quota else self._quotas.judge(entry), takes=True)
        if current is not None and follows:
            standing = await self.claims.follow(entry, asked, current, self._quotas)
            claim = self.reservations.renew(root, standing)
        if claim is None and takes and not await self._is_refused_elsewhere(entry):
            claim = await self.claims.find(entry, wanted, self._quotas, self.handle.fair_loop.share)
        # 4. What has come, or comes free, where it is its turn; who borrows must keep nothing from minimums within nominal.
        if claim is None and not self.reservations.allows(root, entry):
            return Nomination(None)
        borrows = self._quotas.tier(entry) != FIRST
        if claim is None and not borrows and entry.asks_nodes:
            claim = self.arrivals.find_claim(entry, asked)
        if claim is None and leads and not borrows and not over_quota and self.reservations.due(entry):
            hint = hint_for_minimum(asked, self._cache.capacity.planned)
            claim = await self.reservations.choose(entry, hint, asked.excluded_nodes, self.handle.fair_loop.share)
        return Nomination(claim)

    def _confine(self, entry: Entry, entitled: Entitlement | None, *, takes: bool = False) -> Gang:
        """A unit's gang as it may be planned now.

        Args:
            entry: the unit.
            entitled: to what its queue lets it have; None for all.
            takes: whether others are to give way to it, as to those that have a claim.
        """
        gang = self._quotas.confine(entry, self._queueing.gang_beside_siblings(entry), entitled)
        borrows = entitled is not None and not entitled.inside
        claim, surplus = entry.decision.claim, entry.stage is QueueStage.SURPLUS
        takes = takes or (claim is not None and bool(claim.victims))
        return self.reservations.confine(gang, surplus=surplus, unit=entry.unit, borrows=borrows, takes=takes)[0]

    async def _is_refused_elsewhere(self, entry: Entry) -> bool:
        """Tell whether a unit would have nodes had kube-scheduler not refused these: others would give way in vain."""
        beside = self._queueing.gang_beside_siblings(entry)
        unrefused = self._queueing.with_refused_nodes(entry.unit, beside)
        if unrefused is None or entry.decision.reason != REASON_INFEASIBLE:
            return False
        within_quota = self._quotas.confine(entry, unrefused, self._quotas.judge(entry))
        asked, _ = self.reservations.confine(within_quota, surplus=False, unit=entry.unit, takes=True)

        def fits(gang: Gang, inventory: Inventory, *, freeing: frozenset[str]) -> bool:
            with overlay(inventory) as changes:
                changes.remove(freeing)
                return isinstance(plan_minimum(gang, inventory), Plan)

        return await self.claims.ask(entry.unit, fits, asked)

    def _wait(self, entry: Entry) -> float | None:
        """Seconds until others may be asked to give way to a unit; None where nobody ever is."""
        return self.claims.wait(entry, right=self._quotas.has_right(entry))

    def _is_passed(self, root: Key) -> bool:
        """Tell whether others of its class may claim before a refused unit: it may not now, or has a claim."""
        entry = self.handle.queue[root]
        claim = entry.decision.claim
        return (claim is not None and bool(claim.victims)) or self._wait(entry) != 0.0

    def _requeue_next(self) -> None:
        """Nodes are kept for somebody no longer: the next in line may have a domain, and one before it may take room."""
        taker: Key | None = None
        for root, entry in self.handle.queue.find_refused(lambda entry: entry.decision.claim is None):
            if self._quotas.is_asleep(root) and not self._quotas.has_right(entry):
                continue
            if self.reservations.due(entry) and self.reservations.allows(root, entry):
                self.handle.queue.requeue(root)
                return
            if taker is None and self._wait(entry) == 0.0 and self.reservations.allows(root, entry, takes=True):
                taker = root
                self.handle.queue.requeue(root)
