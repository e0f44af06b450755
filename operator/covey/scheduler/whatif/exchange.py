"""Answers whether a unit can have other numbers of replicas, those that give way to others among them.

The operator puts the question on a root (``api.exchange``). A yes is a claim on the replicas that give way, and on the
nodes where those that come would lie; the answer is written once the claim is seen in the root's status, so that nobody
acts on an answer without one. The claim stands as long as the question does, and no longer than the question lets it: the
operator takes the question away when all are assigned nodes. A refused question leaves the claim of the one before it, of
which something may be half carried out.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from covey.admission.entry import Entry, QueueStage
from covey.admission.exchange import LIMIT_MET, ExchangeTerms, Judgement, judge_exchange
from covey.admission.gangs import UnplannableError
from covey.admission.growth import template
from covey.admission.nodes import Key
from covey.admission.reservation import scarce
from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import ANNOTATION_EXCHANGE, LABEL_INFERENCE, MANAGER_SCHEDULER_EXCHANGE, PURPOSE_EXCHANGE
from covey.api.exchange import ExchangeQuestion, describe_vector, read_question
from covey.observability.logging import get_logger
from covey.placement.cluster import resources
from covey.placement.model import ReplicaRequest
from covey.scheduler.context import Context
from covey.scheduler.plugin import CycleState, Nomination
from covey.scheduler.quotas import Quotas, Swap
from covey.scheduler.reservations import Reservations
from covey.scheduler.surroundings import Queueing
from covey.scheduler.whatif.requests import FAILED, TRIES, BrokenOff, OpenRequest, WhatIfRequests

log = get_logger(__name__)

_COST: Final = "controller.kubernetes.io/pod-deletion-cost"


class Exchanges(WhatIfRequests[ExchangeQuestion]):
    """The questions for exchanges, and the claims that stand for them."""

    field = "exchange"
    manager = MANAGER_SCHEDULER_EXCHANGE
    rest = 4.0
    patience = 0.2

    def __init__(self, context: Context, queueing: Queueing, quotas: Quotas, reservations: Reservations) -> None:
        super().__init__(context, queueing, quotas, reservations)
        #: Claims that stand, and until when in seconds since the epoch; None where none is needed any more.
        self._claims: dict[Key, tuple[core.Claim | None, float]] = {}

    def assess(self, entry: Entry, before: Entry | None) -> Entry:  # noqa: ARG002 - as every plugin
        """Give a unit that serves the claim of its exchange, and take it from any other."""
        current, serves = entry.decision.claim, entry.stage in {QueueStage.NOTHING, QueueStage.SURPLUS}
        claim = self.find_claim(entry.unit.key) if serves else None
        if claim is None and (current is None or current.purpose != PURPOSE_EXCHANGE):
            return entry
        return replace(entry, decision=replace(entry.decision, claim=claim))

    async def post_filter(self, state: CycleState, entry: Entry) -> Nomination | None:  # noqa: ARG002 - as every plugin
        """Let the claim of an exchange stand, whatever is refused of its unit."""
        claim = entry.decision.claim
        return Nomination(claim) if claim is not None and claim.purpose == PURPOSE_EXCHANGE else None

    def find_claim(self, root: Key) -> core.Claim | None:
        """Find the claim that stands for a unit; before this process has decided anything, the one that is stored."""
        found = self._claims.get(root)
        if found is not None:
            return found[0] if found[1] > self._clock.wall() else None
        group = self._cache.index.root(root)
        stored = group.status.claim if group is not None else None
        if group is None or stored is None or stored.purpose != PURPOSE_EXCHANGE:
            return None
        question = self.read(group)
        until = (core.seconds(stored.since) or 0.0) + (question.seconds if question is not None else 0.0)
        return stored if until > self._clock.wall() else None

    @staticmethod
    def read(root: core.Group) -> ExchangeQuestion | None:
        """Read the question of a root; None where it asks nothing."""
        return read_question(root.metadata.annotation(ANNOTATION_EXCHANGE))

    async def _answer(self, root: core.Group, asked: OpenRequest[ExchangeQuestion]) -> dict[str, Any] | None:
        """Judge the unit; a yes is a claim."""
        key, question, resource = Key(root.kind, root.metadata.namespace, root.metadata.name), asked.question, ""
        try:
            judgement, resource = await self._judge(root, question, asked.tries)
        except BrokenOff:
            raise
        except UnplannableError as error:
            judgement = Judgement(feasible=False, message=error.message)
        except Exception:
            log.exception("exchange not judged", namespace=key.namespace, root=key.name)
            judgement = Judgement(feasible=False, message=FAILED)
        now = self._clock.wall()
        unit = self._cache.index.unit(key)
        if judgement.feasible and unit is not None and self._asks(key, asked):
            self._claims[key] = (_make_claim(unit, judgement, resource, core.rfc3339(now)), now + question.seconds)
            asyncio.get_running_loop().call_later(question.seconds, self.handle.queue.requeue, key)
            self.handle.queue.requeue(key)
        return dump_judgement(question.asked, core.rfc3339(now), judgement)

    async def _judge(self, root: core.Group, question: ExchangeQuestion, tries: int) -> tuple[Judgement, str]:
        """A judgement, and the resource that those that come are most likely to lack."""
        if tries >= TRIES:
            return Judgement(feasible=False, message=LIMIT_MET), ""
        sites = {site.gang.uid: site for site in self._sites(self._units_of(root))}
        models = {
            name: template([role for each in sites.values() if (role := each.request(name))], self._shape)
            for name in question.roles
        }
        known = {name: model for name, model in models.items() if model is not None}
        terms = ExchangeTerms(known, self._rank, self._pause(tries))
        with self._cache.capacity.planning() as inventory:
            ask = partial(judge_exchange, sites[root.metadata.uid], question.roles, inventory, terms)
            found = await asyncio.to_thread(ask)
        models_of = {name: [pod.shape for pod in model.pods] for name, model in known.items()}
        gone = {key for donor in found.donors for key in donor.pods}
        key = Key(root.kind, root.metadata.namespace, root.metadata.name)
        swaps = [*self._find_promised(root), (key, question.roles, gone)]
        if found.feasible and (why := self._quotas.refuse_exchange(swaps, models_of)):
            return Judgement(feasible=False, message=why), ""
        scarcest = (scarce(pod.shape) for model in known.values() for pod in model.pods)
        return found, min(scarcest, key=resources.rank, default="")

    def _find_promised(self, root: core.Group) -> Iterator[Swap]:
        """Promises to other units of the resource: the answer to their question is a yes, and its time is not over."""
        for unit in self._units_of(root):
            told, question = unit.root.status.exchange, self.read(unit.root)
            if question is None or unit.root.metadata.uid == root.metadata.uid:
                continue
            stored = told is not None and told.feasible and told.asked == question.asked
            since = (core.seconds(told.observed_at) or 0.0) if told is not None and stored else -math.inf
            _, until = self._claims.get(unit.key, (None, since + question.seconds))
            if until > self._clock.wall():
                claim = self.find_claim(unit.key)
                victims = claim.victims if claim is not None else ()
                yield unit.key, question.roles, {uid for victim in victims for uid in victim.pods}

    def _forget(self, root: Key, group: core.Group | None) -> None:
        super()._forget(root, group)
        stored = group.status.claim if group is not None else None
        if self._claims.pop(root, None) is not None or (stored is not None and stored.purpose == PURPOSE_EXCHANGE):
            self.handle.queue.requeue(root)

    def _may_write(self, root: Key, body: dict[str, Any]) -> bool:
        """Tell whether the watch has shown the claim of an answer."""
        group, (claim, _) = self._cache.index.root(root), self._claims.get(root, (None, 0.0))
        if group is None or claim is None or not body["feasible"]:
            return True
        return group.status.claim is not None and group.status.claim.victims == claim.victims

    def _rank(self, replica: ReplicaRequest) -> tuple[float, ...]:
        """Sort replicas as the operator scales them in: not Ready first, then the lowest deletion cost."""
        pods = [pod for each in replica.pods if (pod := self._cache.index.pod(each.key)) is not None]
        costs = [pod.metadata.annotation(_COST) or "0" for pod in pods]
        return float(bool(pods) and all(map(_is_ready, pods))), sum(int(each) for each in costs if _is_number(each))


def dump_judgement(asked: str, now: str, judgement: Judgement) -> dict[str, Any]:
    """The value of ``status.exchange``; ``now`` is RFC 3339."""
    return {
        "asked": asked,
        "observedAt": now,
        "feasible": judgement.feasible,
        "message": judgement.message,
        "nearest": [describe_vector(each) for each in judgement.nearest],
    }


def _is_ready(pod: core.Pod) -> bool:
    found = core.condition(pod.status.conditions, "Ready")
    return found is not None and found.status == "True"


def _make_claim(unit: Unit, judgement: Judgement, resource: str, now: str) -> core.Claim | None:
    """The claim on those that give way, and on the nodes of those that come; None where there is neither."""
    if not judgement.donors and not judgement.nodes:
        return None
    meta = unit.root.metadata
    name = meta.label(LABEL_INFERENCE) or meta.name
    victims = tuple(
        core.Victim("Replica", meta.namespace, name, unit.index, each.role, each.replica, each.pods)
        for each in judgement.donors
    )
    told = ", ".join(f"{each.role}/{each.replica}" for each in judgement.donors)
    message = (
        f"{told} of unit {unit.index} give way to replicas of other roles" if told else "capacity for more replicas"
    )
    pods = sum(len(each.pods) for each in judgement.donors)
    nodes = tuple(sorted(judgement.nodes))
    return core.Claim((), now, "", resource, nodes, pods, purpose=PURPOSE_EXCHANGE, victims=victims, message=message)


def _is_number(text: str) -> bool:
    return text.lstrip("+-").isdecimal()
