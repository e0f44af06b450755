"""Answers whether a unit can have other numbers of replicas, those that give way to others among them.

The operator puts the question on a root (``api.exchange``). A yes is a claim on the replicas that give way, and on the
nodes where those that come would lie; the answer is written once the claim is seen in the root's status, so that nobody
acts on an answer without one. The claim stands as long as the question does, and no longer than the question lets it: the
operator takes the question away when all have their places. A refused question leaves the claim of the one before it, of
which something may be half carried out.

Admission asks here for work when nobody waits to be planned, as for head-room.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from covey.admission.exchange import LIMIT_MET, Judgement, Terms, judge_exchange
from covey.admission.gangs import UnplannableError
from covey.admission.growth import template
from covey.admission.reservation import scarce
from covey.admission.tree import Key, Unit
from covey.api import core
from covey.api.constants import ANNOTATION_EXCHANGE, LABEL_INFERENCE, MANAGER_SCHEDULER_EXCHANGE, SCHEDULING_API
from covey.api.exchange import ExchangeQuestion, describe_vector, read_question
from covey.kube.client import Ignored
from covey.kube.errors import Conflict, Invalid, KubeError, NotFound
from covey.kube.resources import COMPOSITE_POD_GROUPS, POD_GROUPS
from covey.observability.logging import get_logger
from covey.placement.cluster import resources
from covey.placement.model import ReplicaRequest
from covey.scheduler.cache import Listener
from covey.scheduler.context import Context
from covey.scheduler.queue import Queueing
from covey.scheduler.reservations import EXCHANGE, Reservations
from covey.scheduler.sites import Sites

log = get_logger(__name__)

#: Seconds after which a plan is broken off when somebody waits for a place, doubled at each try; and the tries.
PATIENCE: Final = 0.2
TRIES: Final = 5
#: After a step it rests so many times as long as the step took.
REST: Final = 4.0
RETRY: Final = 5.0
FAILED: Final = "the planner failed on it; the scheduler's log has the details"
_COST: Final = "controller.kubernetes.io/pod-deletion-cost"


class _BrokenOff(Exception):  # noqa: N818 - no error: somebody else is first
    """Somebody waits for a place."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """A judgement, and the resource that those that come are most likely to lack."""

    judgement: Judgement
    resource: str = ""


@dataclass(frozen=True, slots=True)
class _Answer:
    uid: str
    asked: str
    body: dict[str, Any]
    claim: core.Claim | None


class Exchanges:
    """The questions for exchanges, and the claims that stand for them.

    Args:
        context: of the process.
        queueing: what surrounds a unit.
        reservations: what is kept for whom; it asks here for the claims.
        busy: whether there is something for admission to do.
        stir: lets admission look whether there is something to do here.
        mark: lets admission look at a unit again.
    """

    def __init__(
        self,
        context: Context,
        queueing: Queueing,
        reservations: Reservations,
        *,
        busy: Callable[[], bool] = lambda: False,
        stir: Callable[[], None] = lambda: None,
        mark: Callable[[Key], None] = lambda _root: None,
    ) -> None:
        self._context = context
        self._cache = context.cache
        self._clock = context.clock
        self._queueing = queueing
        self._sites = Sites(context.cache, queueing, reservations)
        self._busy, self._stir, self._mark = busy, stir, mark
        self._open: OrderedDict[Key, tuple[ExchangeQuestion, int]] = OrderedDict()
        #: Claims that stand, and until when in seconds since the epoch; None where none is needed any more.
        self._claims: dict[Key, tuple[core.Claim | None, float]] = {}
        #: Answers that wait for their claim to be seen, or to be written.
        self._answers: dict[Key, _Answer] = {}
        self._said: dict[Key, tuple[str, str]] = {}
        self._news = asyncio.Event()
        self._due = 0.0
        self._running = False
        reservations.exchanged = self.find_claim
        self._cache.subscribe(Listener(unit=self._look, status=self._look))

    def find_claim(self, root: Key) -> core.Claim | None:
        """Find the claim that stands for a unit; before this process has decided anything, the one that is stored."""
        found = self._claims.get(root)
        if found is not None:
            return found[0] if found[1] > self._clock.wall() else None
        group = self._cache.index.root(root)
        stored = group.status.claim if group is not None else None
        if group is None or stored is None or stored.purpose != EXCHANGE:
            return None
        question = read_question(group.metadata.annotation(ANNOTATION_EXCHANGE))
        until = (core.seconds(stored.since) or 0.0) + (question.seconds if question is not None else 0.0)
        return stored if until > self._clock.wall() else None

    async def run(self, settled: Callable[[], Any]) -> None:
        """Take questions, and write answers, for ever; ``settled`` returns when every unit has been looked at once."""
        await settled()
        self._running = True
        for root in self._cache.index.roots():
            self._look(root)
        while True:
            await self._news.wait()
            self._news.clear()
            for root, answer in list(self._answers.items()):
                if self._sees_claim(root, answer):
                    del self._answers[root]
                    if not await self._write(root, answer):
                        self._said.pop(root, None)
                        asyncio.get_running_loop().call_later(RETRY, self._look, root)

    async def step(self) -> bool:
        """Judge one unit, if one is asked and it is time; False where there is nothing to do."""
        now = self._clock.monotonic()
        if not self._open:
            return False
        if now < self._due:
            asyncio.get_running_loop().call_later(self._due - now, self._stir)
            return False
        root, (question, tries) = next(iter(self._open.items()))
        self._open.move_to_end(root)
        unit = self._cache.index.unit(root)
        if unit is None:
            del self._open[root]
            return True
        try:
            judged = await self._judge(unit, question, tries)
        except _BrokenOff:
            self._open[root] = (question, tries + 1)
        except Exception:
            log.exception("exchange not judged", namespace=root.namespace, root=root.name)
            self._conclude(unit, question, _Judged(Judgement(feasible=False, message=FAILED)))
        else:
            self._conclude(unit, question, judged)
        ended = self._clock.monotonic()
        self._due = ended + REST * (ended - now)
        return True

    def _look(self, root: Key) -> None:
        """A root may ask something, or nothing any more."""
        if not self._running:
            return
        group = self._cache.index.root(root)
        question = read_question(group.metadata.annotation(ANNOTATION_EXCHANGE)) if group is not None else None
        if group is None or question is None:
            self._open.pop(root, None)
            self._answers.pop(root, None)
            self._said.pop(root, None)
            stored = group.status.claim if group is not None else None
            if self._claims.pop(root, None) is not None or (stored is not None and stored.purpose == EXCHANGE):
                self._mark(root)
            return
        if root in self._answers:
            self._news.set()
        written = group.status.exchange
        told = (group.metadata.uid, question.asked)
        if (written is None or written.asked != question.asked) and self._said.get(root) != told:
            if self._open.get(root, (None, 0))[0] != question:
                self._open[root] = (question, 0)
            self._stir()

    async def _judge(self, unit: Unit, question: ExchangeQuestion, tries: int) -> _Judged:
        if tries >= TRIES:
            return _Judged(Judgement(feasible=False, message=LIMIT_MET))
        try:
            sites = {site.gang.uid: site for site in self._sites.of(self._sites.units_of(unit.root))}
        except UnplannableError as error:
            return _Judged(Judgement(feasible=False, message=error.message))
        site = sites[unit.root.metadata.uid]
        models = {
            name: template([role for each in sites.values() if (role := each.request(name))], self._sites.shape)
            for name in question.roles
        }
        until = self._clock.monotonic() + PATIENCE * 2**tries

        def pause() -> None:
            if self._busy() and self._clock.monotonic() >= until:
                raise _BrokenOff

        known = {name: model for name, model in models.items() if model is not None}
        terms = Terms(known, self._rank, pause)
        with self._cache.capacity.planning() as inventory:
            found = await asyncio.to_thread(partial(judge_exchange, site, question.roles, inventory, terms))
        models_of = {name: [pod.shape for pod in model.pods] for name, model in known.items()}
        gone = {key for donor in found.donors for key in donor.pods}
        refuse = self._queueing.quotas.refuse_exchange
        if found.feasible and (why := refuse(unit.key, question.roles, models_of, gone)):
            return _Judged(Judgement(feasible=False, message=why))
        scarcest = (scarce(pod.shape) for model in known.values() for pod in model.pods)
        return _Judged(found, min(scarcest, key=resources.rank, default=""))

    def _rank(self, replica: ReplicaRequest) -> tuple[float, ...]:
        """Sort replicas as the operator scales them in: not Ready first, then the lowest deletion cost."""
        pods = [pod for each in replica.pods if (pod := self._cache.index.pod(each.key)) is not None]
        costs = [pod.metadata.annotation(_COST) or "0" for pod in pods]
        return float(bool(pods) and all(map(_is_ready, pods))), sum(int(each) for each in costs if _is_number(each))

    def _conclude(self, unit: Unit, question: ExchangeQuestion, judged: _Judged) -> None:
        root, meta, judgement = unit.key, unit.root.metadata, judged.judgement
        claim = _make_claim(unit, judged, core.rfc3339(self._clock.wall())) if judgement.feasible else None
        body = dump_judgement(question.asked, core.rfc3339(self._clock.wall()), judgement)
        if judgement.feasible:
            self._claims[root] = (claim, self._clock.wall() + question.seconds)
            asyncio.get_running_loop().call_later(question.seconds, self._mark, root)
        self._open.pop(root, None)
        self._said[root] = (meta.uid, question.asked)
        self._answers[root] = _Answer(meta.uid, question.asked, body, claim)
        self._mark(root)
        self._news.set()

    def _sees_claim(self, root: Key, answer: _Answer) -> bool:
        group = self._cache.index.root(root)
        stored = group.status.claim if group is not None else None
        return group is None or answer.claim is None or (stored is not None and stored.victims == answer.claim.victims)

    async def _write(self, root: Key, answer: _Answer) -> bool:
        """Write an answer; False when that has to be tried again."""
        group = self._cache.index.root(root)
        if not self._context.leads() or group is None or group.metadata.uid != answer.uid:
            return True
        version = group.metadata.resource_version
        body = {
            "apiVersion": SCHEDULING_API,
            "kind": root.kind,
            # A namesake must not get this answer: in the status of a custom resource the API server heeds no UID.
            "metadata": {"name": root.name, "namespace": root.namespace, "resourceVersion": version},
            "status": {"exchange": answer.body},
        }
        kind = COMPOSITE_POD_GROUPS if root.kind == "CompositePodGroup" else POD_GROUPS
        try:
            await self._context.client.apply(
                kind, body, manager=MANAGER_SCHEDULER_EXCHANGE, subresource="status", type=Ignored
            )
        except NotFound:
            return True
        except Conflict:
            return False
        except KubeError as error:
            log.warning("exchange not written", namespace=root.namespace, root=root.name, error=str(error))
            return isinstance(error, Invalid)
        log.info("exchange told", namespace=root.namespace, root=root.name, feasible=answer.body["feasible"])
        return True


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


def _make_claim(unit: Unit, judged: _Judged, now: str) -> core.Claim | None:
    """The claim on those that give way, and on the nodes of those that come; None where there is neither."""
    judgement = judged.judgement
    if not judgement.donors and not judgement.nodes:
        return None
    meta = unit.root.metadata
    name = meta.label(LABEL_INFERENCE) or meta.name
    victims = tuple(
        core.Victim("Replica", meta.namespace, name, unit.index, each.role, each.replica, each.pods)
        for each in judgement.donors
    )
    told = ", ".join(f"{each.role}/{each.replica}" for each in judgement.donors)
    message = f"{told} of unit {unit.index} give way to replicas of other roles" if told else "room for more replicas"
    pods = sum(len(each.pods) for each in judgement.donors)
    nodes = tuple(sorted(judgement.nodes))
    return core.Claim((), now, "", judged.resource, nodes, pods, purpose=EXCHANGE, victims=victims, message=message)


def _is_number(text: str) -> bool:
    return text.lstrip("+-").isdecimal()
