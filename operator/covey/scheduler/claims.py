"""Claims: what gives way to a minimum that found no room, and what is still needed of it while it goes.

A gang that was refused for ``preemption.delaySeconds`` may take back what others have borrowed from its queue, or take
room from others of lower priority. What it takes is searched in a thread (``admission.reclaim``, ``.preemption``) and
becomes its claim: the operator reads it in the root's status and takes down what stands there, whole and gracefully, and
evicts ordinary pods within their budgets; this process deletes nothing. The nodes of the claim are kept like
those of any gang that waits (``reservations``). Each time the gang is refused again, what it does not need any more is
pardoned by leaving it out of the claim; where the claim does not suffice any more, another one is looked for.

Claims of a minute are bounded in number, and one that cannot be had is looked for again later and later.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, inf
from typing import Final, TypeVar

import msgspec

from covey.admission.entry import Entry, QueueStage, waiting_since
from covey.admission.growth import find_room_beside, with_surplus
from covey.admission.ledger import Charge
from covey.admission.nodes import Key
from covey.admission.ordinary import POD, OrdinaryPod, find_ordinary
from covey.admission.pardon import still_needed
from covey.admission.preemption import MOST_NODES, Nobody, Taking, can_name, search
from covey.admission.preemption_life import LONGEST_ASIDE, LeftAside, read_left_aside
from covey.admission.reclaim import reclaim
from covey.admission.reservation import scarce
from covey.admission.tree import Unit
from covey.admission.victims import Candidate, is_ours, measure_taking, sum_held
from covey.admission.victims import Terms as VictimTerms
from covey.api import core
from covey.api.annotations import LEFT_ALONE, read_refused
from covey.api.constants import (
    ANNOTATION_EVICTIONS_REFUSED,
    LABEL_REPLICA,
    LABEL_ROLE,
    PURPOSE_EVACUATION,
    PURPOSE_PREEMPTION,
    PURPOSE_RECLAIM,
    REASON_INFEASIBLE,
    REASON_OVER_QUOTA,
)
from covey.api.inference import PREEMPTION_DELAY_SECONDS
from covey.model import podstate
from covey.observability import scheduler_metrics as metrics
from covey.observability.logging import get_logger
from covey.placement.anti_affinity import pod_spread_of
from covey.placement.cluster import resources
from covey.placement.cluster.shape import unmodelled_constraints
from covey.placement.model import Gang, Verdict
from covey.scheduler.cache import Cache
from covey.scheduler.defaults import MAX_MIN_RUN, MAX_PREEMPTIONS_PER_MINUTE
from covey.scheduler.holding import Holding
from covey.scheduler.quotas import Quotas
from covey.scheduler.surroundings import root_priority

log = get_logger(__name__)

A = TypeVar("A")

#: Seconds after which a claim that could not be had is looked for again; doubled each time.
FIRST: Final = 30.0
LONGEST: Final = 600.0
#: Seconds for which what was refused, or came to no end, is not taken for the same unit; doubled each time.
ASIDE: Final = LEFT_ALONE
#: Seconds for which a pod may be late to end, and its room counts as coming free still.
LATE: Final = 60.0
_MINUTE: Final = 60.0
#: Roots that are looked at between two looks at the time.
_STEP: Final = 16
_NEVER: Final = "Never"
#: Replicas that the sentence of a claim names: a status has no room for thousands.
_TOLD: Final = 8


@dataclass(frozen=True, slots=True)
class ClaimBounds:
    """Bounds of claims: their number in a minute, and seconds of service after which anything may give way.

    ``ordinary_pods``: they may be claimed too.
    """

    per_minute: int = MAX_PREEMPTIONS_PER_MINUTE
    max_min_run: float = MAX_MIN_RUN
    ordinary_pods: bool = False


class Claims:
    """The claims of refused units."""

    def __init__(self, cache: Cache, holding: Holding, terms: ClaimBounds, *, clock: Callable[[], float]) -> None:
        self._cache = cache
        self._holding = holding
        self._terms = terms
        self._clock = clock
        #: UIDs of pods that claims name, as they were decided: their status may not be written yet.
        self.named: frozenset[str] = frozenset()
        #: When the claims of the last minute were made, and whether by right.
        self._made: deque[tuple[float, bool]] = deque()
        #: When a unit may look for a claim again, and how often it found none.
        self._again: dict[Key, tuple[float, int]] = {}
        #: Pods that are not taken for a unit, by UID, as far as its Preemptions may not say so yet.
        self._aside: dict[Key, dict[str, LeftAside]] = {}
        #: UIDs of the pods of each unit that drained when it was refused last.
        self._draining: dict[Key, frozenset[str]] = {}

    def wait(self, entry: Entry, *, right: bool = False) -> float | None:
        """Seconds until others may be asked to give way to a refused unit; None where nobody ever is.

        Args:
            entry: the unit.
            right: whether it may reclaim, whatever its priority and its class.
        """
        root = self._cache.index.root(entry.unit.key) or entry.unit.root
        since = waiting_since(root)
        if entry.stage is not QueueStage.MINIMUM or since is None or not self._terms.per_minute or root.is_native:
            return None
        owner = root.metadata.controller
        if owner is not None and owner.kind == "Job":
            return None  # the gang of a Job gives way to nobody, so it takes no room from others either
        if not right and not self._may_preempt(root):
            return None
        due = since + _delay_of(root)
        due = max(due, self._again.get(entry.unit.key, (due, 0))[0], self._next_turn(right=right))
        return max(0.0, due - self._clock())

    def note_minimum(self, unit: Unit) -> None:
        """Forget how often a unit found no claim, once its minimum has its nodes."""
        if unit.key in self._again and unit.minimum_met(podstate.occupies_node):
            del self._again[unit.key]

    def forget(self, root: Key) -> None:
        """A unit is gone."""
        self._again.pop(root, None)
        self._aside.pop(root, None)
        self._draining.pop(root, None)

    async def find(
        self, entry: Entry, asked: Gang, quotas: Quotas, take_turn: Callable[[], Awaitable[None]]
    ) -> core.Claim | None:
        """Find what has to give way to a refused unit: its claim; None where nothing would help.

        What goes for a claim that does not suffice any more goes on, and others beside it.

        Args:
            entry: the unit.
            asked: its gang, as it was planned.
            quotas: the queues of all roots, and their rights.
            take_turn: lets others have theirs, while all roots are looked at.
        """
        unit, now, found = entry.unit, self._clock(), None
        if entry.decision.reason not in {REASON_OVER_QUOTA, REASON_INFEASIBLE}:
            return None
        if any(unmodelled_constraints(pod) or pod_spread_of(pod) for pod in unit.pods()):
            return None  # where pods are spread, less elsewhere may be worse
        questions = await self._questions(entry, asked, quotas, take_turn)
        with metrics.CLAIM_SEARCH.time():
            if left := self._find_left(entry):
                going = frozenset(self._freeing(self._cache.index.ending(), self._patience(unit))).union(
                    *(each.pods for each in left)
                )
                for purpose, question in questions:
                    if entry.decision.claim is None or purpose != entry.decision.claim.purpose:
                        continue  # the right to what goes was another one
                    more = await self.ask(unit, question, asked, going)
                    beside = self._build(asked, more, purpose, left) if isinstance(more, Taking) else None
                    claim = beside and await self.follow(entry, asked, beside, quotas)
                    if claim is not None and can_name(claim.victims):
                        return self._note_made(unit, claim)
            for purpose, question in questions:
                found = await self.ask(unit, question, asked)
                if isinstance(found, Taking):
                    return self._note_made(unit, self._build(asked, found, purpose))
                if found.is_too_large:
                    metrics.CLAIMS.labels(purpose, "TooLarge").inc()
                    log.warning("claim too large to be stored", namespace=unit.key.namespace, root=unit.key.name)
        if not isinstance(found, Nobody) or found.verdict is not Verdict.ADMITTED:
            _, failures = self._again.get(unit.key, (0.0, 0))
            self._again[unit.key] = (now + min(FIRST * 2.0 ** min(failures, 16), LONGEST), failures + 1)
        return None

    async def _questions(
        self, entry: Entry, asked: Gang, quotas: Quotas, take_turn: Callable[[], Awaitable[None]]
    ) -> list[tuple[str, Callable[..., Taking | Nobody]]]:
        """Purposes and searches: what others have borrowed comes first; priority counts inside a queue only."""
        unit = entry.unit
        aside = self._not_taken(unit.key)
        claimed = self.named.union(self._cache.capacity.claimed, aside)
        terms = VictimTerms(self._clock(), self._terms.max_min_run, claimed)
        found: list[tuple[str, Callable[..., Taking | Nobody]]] = []
        for right in quotas.rights(entry):
            if order := await asyncio.to_thread(right.find_order):
                candidates, ordered = await self._borrowers(order, take_turn), replace(right, order=order)
                found.append((PURPOSE_RECLAIM, partial(reclaim, candidates=candidates, terms=terms, right=ordered)))
        if not self._may_preempt(self._cache.index.root(unit.key) or unit.root):
            return found
        if entry.decision.reason == REASON_OVER_QUOTA:
            # Nobody outside the queue helps: what has a lower priority in it gives its quota up as well.
            for right in quotas.claims_inside(entry):
                candidates = await self._borrowers(right.order, take_turn)
                found.append((PURPOSE_PREEMPTION, partial(reclaim, candidates=candidates, terms=terms, right=right)))
            return found
        candidates = await self._candidates(asked, partial(quotas.shares_queue, other=unit.key), take_turn)
        ordinary: list[OrdinaryPod] = []
        if self._terms.ordinary_pods:  # they are of no queue, so priority alone counts
            refused = aside | self._find_refused(unit.key).keys()
            with self._cache.capacity.planning() as inventory:
                lacked = measure_taking(asked, inventory)
                # All pods of the cluster are too many for one turn of the event loop.
                ordinary = await asyncio.to_thread(
                    find_ordinary,
                    list(self._cache.index.pods()),
                    asked.priority,
                    refused,
                    holds=lambda pod: sum_held((pod.metadata.uid,), inventory)[lacked] > 0,
                )
        if candidates or ordinary:
            found.append((PURPOSE_PREEMPTION, partial(search, candidates=candidates, terms=terms, ordinary=ordinary)))
        return found

    def _find_left(self, entry: Entry) -> tuple[core.Victim, ...]:
        """The victims of a unit's claim that are there still, and may go."""
        claim = entry.decision.claim
        if claim is None or not claim.victims:
            return ()
        refused = self._find_refused(entry.unit.key)
        return tuple(
            victim
            for victim in claim.victims
            if any(map(self._cache.index.pod, victim.pods)) and refused.keys().isdisjoint(victim.pods)
        )

    def _build(self, gang: Gang, taking: Taking, purpose: str, beside: tuple[core.Victim, ...] = ()) -> core.Claim:
        """Build the claim of a gang to what gives way, and to what goes for it already."""
        now = core.rfc3339(self._clock())
        return core.Claim(
            taking.path,
            now,
            taking.domain.level if taking.domain is not None else "",
            scarcest(gang),
            self._with_cliques(gang, taking.nodes),
            sum(len(step.keys) for step in taking.steps) + sum(len(victim.pods) for victim in beside),
            now,
            purpose=purpose,
            victims=(*beside, *(step.victim() for step in taking.steps)),
            message=taking.sentence + (", beside what goes for it already" if beside else ""),
            unproven=taking.unproven,
        )

    def _note_made(self, unit: Unit, claim: core.Claim) -> core.Claim:
        self._made.append((self._clock(), claim.purpose == PURPOSE_RECLAIM))
        metrics.CLAIMS.labels(claim.purpose, "Made").inc()
        log.info("claim made", namespace=unit.key.namespace, root=unit.key.name, what=claim.message)
        return claim

    async def _borrowers(self, order: Iterable[Charge], take_turn: Callable[[], Awaitable[None]]) -> list[Candidate]:
        """The units of these charges."""
        found = list[Candidate]()
        for number, (key, priority) in enumerate({charge.unit: charge.priority for charge in order}.items()):
            if number % _STEP == 0:
                await take_turn()
            unit = self._cache.index.unit(key)
            found += [Candidate(unit, priority)] if unit is not None else []
        return found

    async def follow(self, entry: Entry, asked: Gang, claim: core.Claim, quotas: Quotas) -> core.Claim | None:
        """The claim of a unit that was refused again, without what it does not need any more; None where it fails.

        Neither does it name any more whom it has no grounds to take from, and ordinary pods that are gone: replicas
        begin to go when there is none left.
        """
        refused = self._find_refused(entry.unit.key).keys()
        if late := [victim for victim in claim.victims if not refused.isdisjoint(victim.pods)]:
            self.leave_aside(entry.unit.key, late)
            return None
        by_quota = claim.purpose == PURPOSE_RECLAIM or entry.decision.reason == REASON_OVER_QUOTA
        right = quotas.right(entry, claim=claim) if by_quota else None
        ending = frozenset(pod.metadata.uid for pod in self._cache.index.ending())
        victims = self._find_grounded(entry, asked, claim, quotas)
        question = partial(still_needed, victims=victims, ending=ending, right=right)
        standing = await self.ask(entry.unit, question, asked)
        if not standing.feasible:
            return None
        left, now = sum(len(victim.pods) for victim in standing.needed), core.rfc3339(self._clock())
        return msgspec.structs.replace(
            claim,
            victims=tuple(victim for victim in victims if victim not in standing.pardoned),
            nodes=self._with_cliques(asked, standing.nodes),
            blocking_pods=left,
            last_progress_time=now if left < claim.blocking_pods else claim.last_progress_time,
            unproven=standing.unproven,
        )

    def _find_grounded(self, entry: Entry, asked: Gang, claim: core.Claim, quotas: Quotas) -> tuple[core.Victim, ...]:
        """The victims of a claim that may be taken still: of a lower priority, or what they have is borrowed.

        Replicas that their minimum needs since it was raised may not: the operator lets them serve. Those that are gone
        or going stay, but for ordinary pods.
        """
        index, borrowed, above = self._cache.index, frozenset[Key](), dict[tuple[Key, str], int]()
        if claim.purpose == PURPOSE_RECLAIM:
            borrowed = frozenset(charge.unit for right in quotas.rights(entry) for charge in right.find_order())

        def may_go(victim: core.Victim) -> bool:
            pods = [pod for pod in map(index.pod, victim.pods) if pod is not None]
            if victim.kind == POD:
                return any((pod.spec.priority or 0) < asked.priority for pod in pods)
            if all(map(podstate.is_terminating, pods)):
                return True  # nobody can let it serve any more
            root = index.root_of_pod(pods[0])
            unit = index.unit(root) if root is not None else None
            if root is None or unit is None:
                return True
            if claim.purpose == PURPOSE_RECLAIM:
                may_take = root in borrowed
            else:
                may_take = (root_priority(self._cache, unit.root) or 0) < asked.priority
            return may_take and is_above_minimum(victim, unit)

        def is_above_minimum(victim: core.Victim, unit: Unit) -> bool:
            role = next((role for role in unit.roles if role.name == victim.role), None)
            if role is None:
                return True
            # What is lost and comes back counts: it is not its minimum that has changed.
            left = above.get((unit.key, role.name), len(role.replicas) - role.minimum)
            above[unit.key, role.name] = left - 1
            return left > 0

        return tuple(filter(may_go, claim.victims))

    def leave_aside(self, root: Key, victims: Iterable[core.Victim]) -> None:
        """Take others for a unit than these, which were refused or came to no end: each time for longer."""
        now, refused = self._clock(), self._find_refused(root)
        known, aside = self.left_aside(root), self._aside.setdefault(root, {})
        for uid in (uid for victim in victims for uid in victim.pods):
            times = known[uid].attempts if uid in known else 0
            until = now + min(ASIDE * 2.0 ** min(times, 16), LONGEST_ASIDE)
            aside[uid] = LeftAside(until, times + 1, refused=uid in refused)

    def left_aside(self, root: Key) -> dict[str, LeftAside]:
        """The pods that were left aside for a unit, by UID: those of Preemptions that ended, and what they do not say yet."""
        group, index = self._cache.index.root(root), self._cache.index
        stored = read_left_aside(self._cache.preemptions_of(group.metadata.uid)) if group is not None else {}
        found = {**stored, **self._aside.pop(root, {})}
        aside = {uid: term for uid, term in found.items() if index.pod(uid) is not None}
        if aside:
            self._aside[root] = aside
        return aside

    def _not_taken(self, root: Key) -> frozenset[str]:
        """UIDs of the pods that are not taken for a unit now."""
        now = self._clock()
        return frozenset(
            uid for uid, aside in self.left_aside(root).items() if now < aside.until <= now + LONGEST_ASIDE
        )

    async def ask(self, unit: Unit, question: Callable[..., A], asked: Gang, going: frozenset[str] = frozenset()) -> A:
        """Ask a question of the inventory as the planner sees it, in a thread; only of pods that go where some are named."""
        freeing = going or frozenset(self._freeing(self._cache.index.ending(), self._patience(unit)))
        with self._cache.capacity.planning() as inventory, self._holding.snapshot(unit.key, inventory):
            return await asyncio.to_thread(partial(question, asked, inventory, freeing=freeing))

    def note_gone(self, unit: Unit) -> bool:
        """Tell whether a pod that drained is gone since the unit was refused last: the plan may be older than that."""
        members = {pod.metadata.uid: pod for pod in self._cache.index.members(unit.key)}
        gone = self._draining.pop(unit.key, frozenset()) - members.keys()
        draining = (uid for uid, pod in members.items() if podstate.drains_until(pod) is not None)
        if uids := frozenset(draining):
            self._draining[unit.key] = uids
        return bool(gone)

    async def find_evacuation(self, entry: Entry, asked: Gang, others: Mapping[str, str]) -> core.Claim | None:
        """Find where successors of replicas that drain will have room: the claim of their unit; None for no need of one.

        Args:
            entry: the unit, of which successors found no room.
            asked: its gang, as it was planned.
            others: nodes that are kept for others.
        """
        unit, members = entry.unit, self._cache.index.members(entry.unit.key)
        drains = (pod for pod in members if podstate.drains_until(pod) is not None)
        going = frozenset(self._freeing(drains, within=inf))
        if not going:
            return None
        labels = (pod.metadata.label for pod in members if pod.metadata.uid in going)
        places = {(label(LABEL_ROLE) or "", label(LABEL_REPLICA)) for label in labels}
        surplus = entry.stage is QueueStage.SURPLUS
        gang = with_surplus(asked, Counter(role for role, _ in places)) if surplus else asked
        gang = replace(gang, excluded_nodes={**others, **gang.excluded_nodes})

        current, now = entry.decision.claim, self._clock()
        retry = core.seconds(current.retry_time) if current is not None else None
        if current is None or current.purpose != PURPOSE_EVACUATION or (retry is not None and retry <= now):
            current = None
        elif retry is not None:
            return current
        nodes = await self.ask(unit, partial(find_room_beside, surplus=surplus), gang, going)
        if not nodes or len(nodes) > MOST_NODES:
            return None
        since = current.since if current is not None else core.rfc3339(now)
        came = current.last_progress_time if current is not None and len(going) >= current.blocking_pods else ""
        told = ", ".join(f"{role}/{replica}" for role, replica in sorted(places)[:_TOLD])
        told += f" and {len(places) - _TOLD} more" if len(places) > _TOLD else ""
        message = f"{told} of unit {unit.index} drain, and successors get their capacity"
        return core.Claim(
            (),
            since,
            "",
            scarcest(gang),
            tuple(sorted(nodes)),
            len(going),
            came or core.rfc3339(now),
            purpose=PURPOSE_EVACUATION,
            message=message,
        )

    def _with_cliques(self, gang: Gang, nodes: Collection[str]) -> tuple[str, ...]:
        """Nodes of a claim; with all of their cliques, if a claim can name so many, where the gang's interconnect shares none.

        Else others could join a clique while its pods leave.
        """
        waiting = (
            pod.shape for role in gang.roles for replica in role.replicas for pod in replica.pods if not pod.node
        )
        wider = self._cache.capacity.room.clique_mates(nodes) if any(each.exclusive_clique for each in waiting) else ()
        found = {*nodes, *wider}
        return tuple(sorted(nodes if len(found) > MOST_NODES else found))

    def _may_preempt(self, root: core.Group) -> bool:
        """Tell whether the class of a root lets it preempt (``preemptionPolicy``); of one that is gone nobody knows."""
        name = root.spec.priority_class_name
        found = self._cache.priority_classes.store.get(("", name or ""))
        return not name or (found is not None and found.preemption_policy != _NEVER)

    def _next_turn(self, *, right: bool) -> float:
        """Time at which another claim may be made, by the number of those of the last minute.

        A tenth of them, one at least, is for rights beside all others: who asks in vain again and again keeps no queue
        from what is its own.
        """
        now = self._clock()
        while self._made and self._made[0][0] <= now - _MINUTE:
            self._made.popleft()
        most = self._terms.per_minute
        others = [made for made, by_right in self._made if not by_right]
        if not right:
            return 0.0 if len(others) < most else others[0] + _MINUTE
        is_free = len(self._made) < most or len(self._made) - len(others) < ceil(most / 10)
        return 0.0 if is_free else self._made[0][0] + _MINUTE

    async def _candidates(
        self, gang: Gang, shares_queue: Callable[[Key], bool], take_turn: Callable[[], Awaitable[None]]
    ) -> list[Candidate]:
        """The units of lower priority in the same queue; what changes meanwhile is judged as it was."""
        index, found = self._cache.index, list[Candidate]()
        for number, key in enumerate(index.roots()):
            if number % _STEP == 0:
                await take_turn()
            root = index.root(key)
            if root is None or not is_ours(root):
                continue  # nothing of others' is ever taken, and their priority is that of their pods
            priority = root_priority(self._cache, root) or 0
            unit = index.unit(key) if priority < gang.priority and shares_queue(key) else None
            if unit is not None:
                found.append(Candidate(unit, priority))
        return found

    def _find_refused(self, key: Key) -> dict[str, float]:
        """Ordinary pods that could not be evicted for a unit lately, by UID, as the operator has noted on its root."""
        root = self._cache.index.root(key)
        text = root.metadata.annotation(ANNOTATION_EVICTIONS_REFUSED) if root is not None else None
        return read_refused(text, self._clock())

    def _freeing(self, ending: Iterable[core.Pod], within: float = LATE) -> Iterator[str]:
        """UIDs of pods whose room comes free by itself, for whoever waits: of those marked for a claim that is over none.

        Args:
            ending: pods that are being deleted, or drain.
            within: seconds by which those that drain have to be over.
        """
        now = self._clock()
        for pod in ending:
            deleted = core.seconds(pod.metadata.deletion_timestamp)
            drained = podstate.drains_until(pod)
            if deleted is not None:
                goes = now < deleted + LATE
            else:
                goes = drained is not None and drained <= now + within and not podstate.gives_way(pod)
            if goes and pod.metadata.uid not in self.named:
                yield pod.metadata.uid

    def _patience(self, unit: Unit) -> float:
        """Seconds for which a unit waits for room that comes free by itself, before others give way to it."""
        return max(LATE, _delay_of(self._cache.index.root(unit.key) or unit.root))


def _delay_of(root: core.Group) -> float:
    """Seconds for which a unit waits before others give way to it."""
    said = root.spec.preemption.delay_seconds if root.spec.preemption is not None else None
    return float(PREEMPTION_DELAY_SECONDS if said is None else said)


def scarcest(gang: Gang) -> str:
    """The resource that the pods without places are most likely to lack."""
    shapes = [pod.shape for role in gang.roles for replica in role.replicas for pod in replica.pods if pod.node is None]
    return min(map(scarce, shapes), key=resources.rank, default="")
