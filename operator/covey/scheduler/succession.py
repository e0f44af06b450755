"""Answers which replicas of a unit have to go for others of it, and keeps places for these (``admission.succession``).

The operator puts the question on a root (``api.succession``). It is answered when the unit's surplus is refused, again
each time as long as it stands, and the answer goes into the root's status together with a claim on the nodes where the
successors would lie: what comes free there is theirs, also before other surplus of the unit itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from covey.admission.entry import Entry, QueueStage
from covey.admission.growth import is_draining
from covey.admission.preemption import MOST_NODES
from covey.admission.reservation import OF_SERVING
from covey.admission.succession import (
    Ending,
    Proof,
    Succession,
    find_succession,
    order_predecessors,
    split_surplus,
    within_bounds,
)
from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import (
    ANNOTATION_SUCCESSION,
    LABEL_INFERENCE,
    PURPOSE_SUCCESSION,
    REASON_DENIED,
    REASON_OVER_QUOTA,
    REASON_WAITING,
)
from covey.api.succession import SuccessionQuestion, Successor, read_question
from covey.model import podstate
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, ReplicaRequest
from covey.scheduler.claims import scarcest
from covey.scheduler.context import Context
from covey.scheduler.plugin import CycleState, Nomination, Plugin
from covey.scheduler.quotas import Quotas
from covey.scheduler.ranks import rank_of
from covey.scheduler.reservations import Reservations
from covey.scheduler.surroundings import Queueing
from covey.scheduler.writer import Pinned

#: Replicas that the sentence of a claim names.
_NAMED = 8
#: Replicas (role and number) that may go, of a set of successors; and why there is no quota for it.
_Spent = tuple[Mapping[Successor, Sequence[tuple[str, int]]], Mapping[Successor, str]]


class Successors(Plugin):
    """The questions about successors.

    Args:
        context: of the process.
        queueing: what surrounds a unit.
        quotas: of queues.
        reservations: what is kept for whom.
    """

    def __init__(self, context: Context, queueing: Queueing, quotas: Quotas, reservations: Reservations) -> None:
        self._cache = context.cache
        self._clock = context.clock
        self._writer = context.writer
        self._queueing = queueing
        self._quotas = quotas
        self._reservations = reservations

    def question_of(self, entry: Entry) -> SuccessionQuestion | None:
        """Read the question of a unit that serves; None where it asks nothing."""
        root = self._cache.index.root(entry.unit.key) or entry.unit.root
        asks = entry.stage is QueueStage.SURPLUS and entry.gang is not None
        return read_question(root.metadata.annotation(ANNOTATION_SUCCESSION)) if asks else None

    def assess(self, entry: Entry, before: Entry | None) -> Entry:
        """Keep the last answer of a unit as long as it asks the same."""
        told = before.decision.succession if before is not None else None
        question = self.question_of(entry) if told is not None else None
        if told is None or question is None or question.asked != told.asked:
            return entry
        return replace(entry, decision=replace(entry.decision, succession=told))

    def parts(self, state: CycleState) -> tuple[Gang, ...]:
        """The surplus of a unit in the parts that are planned: successors first, and for them what is kept."""
        claim, question = state.entry.decision.claim, self.question_of(state.entry)
        if question is None:
            return ()
        return split_surplus(
            state.gang, question, claim.nodes if claim is not None and claim.purpose in OF_SERVING else ()
        )

    async def post_filter(self, state: CycleState, entry: Entry) -> Nomination | None:  # noqa: ARG002 - as every plugin
        """Answer the question of a unit whose successors found no nodes, or no quota; those behind are asked without a claim."""
        if (question := self.question_of(entry)) is None:
            return None
        succession, claim = await self.answer(entry, question)
        return Nomination(claim or entry.decision.claim, succession, open=claim is None)

    async def answer(
        self, entry: Entry, question: SuccessionQuestion
    ) -> tuple[core.GroupSuccession, core.Claim | None]:
        """Find which replicas have to go for others of their unit to have places, and the claim to these places.

        Args:
            entry: the unit, of which surplus found no room, or no quota.
            question: which replicas wait, and which may go for them.
        """
        unit = entry.unit
        beside = self._queueing.gang_beside_siblings(entry)
        gang, _ = self._reservations.confine(beside, surplus=True, unit=unit)
        unrefused = self._queueing.with_refused_nodes(unit, beside)
        if unrefused is not None:
            unrefused, _ = self._reservations.confine(unrefused, surplus=True, unit=unit)
        spent, short = self._find_spent(unit, gang, question)
        members = {pod.metadata.uid for pod in self._cache.index.members(unit.key)}

        def ask(gang: Gang, inventory: Inventory, *, freeing: frozenset[str]) -> Succession:
            ending = Ending(freeing & members, freeing - members)
            return find_succession(gang, question, inventory, ending, spent, unrefused)

        found = await self._reservations.claims.ask(unit, ask, gang)
        if (denied := await self._find_denied(gang, found)) is not None:
            found = denied
        status = partial(_status_of, unit, short)
        succession = core.GroupSuccession(question.asked, tuple(map(status, found.proofs)))
        # While replicas drain, room is kept for their successors by the claim of an evacuation.
        drains = any(podstate.drains_until(pod) is not None for pod in self._cache.index.members(unit.key))
        keeps = question.predecessors and (not drains or any(proof.victims for proof in found.proofs))
        if not keeps or not 0 < len(found.nodes) <= MOST_NODES:
            return succession, None
        return succession, self._make_claim(entry, gang, found)

    async def _find_denied(self, gang: Gang, found: Succession) -> Succession | None:
        """Ask the API server whether it takes the pins for which something is to go; None where it does.

        What it denies gives up nothing, nor does any set that was planned after it.
        """
        rank = rank_of(gang, surplus=True)
        for number, proof in enumerate(found.proofs):
            for uid, node in proof.places.items() if proof.victims else ():
                pod = self._cache.index.pod(uid)
                result = await self._writer.pin(pod, node, {}, rank=rank, dry_run=True) if pod is not None else None
                if pod is None or result is None or result.outcome is Pinned.DONE:
                    continue
                words = f"the API server denies the pin of pod {pod.metadata.name} to node {node}: {result.said}"
                reason = REASON_DENIED if result.outcome is Pinned.DENIED else REASON_WAITING
                later = (Proof(each.first, reason=REASON_WAITING) for each in found.proofs[number + 1 :])
                return Succession((*found.proofs[:number], Proof(proof.first, reason=reason, message=words), *later))
        return None

    def _make_claim(self, entry: Entry, gang: Gang, found: Succession) -> core.Claim:
        current, now = entry.decision.claim, core.rfc3339(self._clock.wall())
        since = current.since if current is not None and current.purpose == PURPOSE_SUCCESSION else now
        victims = [f"{role}/{each.replica}" for proof in found.proofs for role, each in proof.victims]
        named = ", ".join(islice(victims, _NAMED)) or "what ends"
        message = f"{named} of unit {entry.unit.index} leave their capacity to their successors"
        nodes, count = tuple(sorted(found.nodes)), len(victims)
        return core.Claim((), since, "", scarcest(gang), nodes, count, purpose=PURPOSE_SUCCESSION, message=message)

    def _find_spent(self, unit: Unit, gang: Gang, question: SuccessionQuestion) -> _Spent:
        """Find which replicas must go for others of their unit for the quota of its queue alone.

        Returns:
            By the first of each set the fewest that go first; and why there is no quota for it, whatever goes.
        """
        spent: dict[Successor, Sequence[tuple[str, int]]] = {}
        short: dict[Successor, str] = {}
        if self._quotas.queue_of(unit.key) is None:
            return spent, short
        requests = {(role.name, each.replica): each for role in gang.roles for each in role.replicas}
        coming: list[Successor] = []
        given: list[tuple[str, int]] = []
        for members in question.sets:
            if any(member[:2] not in requests for member in members):
                continue
            order = [old for old in order_predecessors(question, members) if old in requests and old not in given]
            why = ""
            for count in range(len(order := within_bounds(question, order)) + 1):
                gone = [*given, *order[:count]]
                why = self._refuse(unit, requests, [*coming, *members], gone)
                if not why:
                    coming, given = [*coming, *members], gone
                    spent[members[0]] = order[:count]
                    break
            else:
                short[members[0]] = why
        return spent, short

    def _refuse(
        self,
        unit: Unit,
        requests: Mapping[tuple[str, int], ReplicaRequest],
        coming: Sequence[Successor],
        gone: Sequence[tuple[str, int]],
    ) -> str:
        """Say why the queue has no quota for successors once others are gone; empty where it has."""
        uids = {pod.key for old in gone for pod in requests[old].pods}
        models = {member.role: [pod.shape for pod in requests[member[:2]].pods] for member in coming}
        wanted = Counter(member.role for member in coming if not requests[member[:2]].placed)
        for (role, _), each in requests.items():
            stays = each.placed and not is_draining(each)
            wanted[role] += stays and uids.isdisjoint(pod.key for pod in each.pods)
        return self._quotas.refuse_exchange([(unit.key, wanted, uids)], models)


def _status_of(unit: Unit, short: Mapping[Successor, str], proof: Proof) -> core.SuccessorStatus:
    if (why := short.get(proof.first)) is not None:
        return core.SuccessorStatus(proof.first.role, proof.first.replica, REASON_OVER_QUOTA, why)
    meta = unit.root.metadata
    name = meta.label(LABEL_INFERENCE) or meta.name
    victims = (
        core.Victim(
            "Replica", meta.namespace, name, unit.index, role, each.replica, tuple(pod.key for pod in each.pods)
        )
        for role, each in proof.victims
    )
    return core.SuccessorStatus(proof.first.role, proof.first.replica, proof.reason, proof.message, tuple(victims))
