"""Writes the Preemption of each claim to which others give way, from before anybody is touched until an hour after its end.

The holder of the lease alone does so. One is created before the claim is stored that the operator obeys, and ended before
the end of that claim is stored, so whoever leads next knows of both. Victims' states follow from what their pods say;
changes of a second are one write. What is said of a claim is computed anew each time (``admission.preemption_life``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from operator import attrgetter
from typing import Any, Final

import msgspec

from covey.admission import preemption_life as life
from covey.admission.nodes import Key
from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import MANAGER_SCHEDULER, SCHEDULING_API
from covey.api.core.preemption import MOST_ENDED
from covey.kube.errors import AlreadyExists, ApiError, NotFound
from covey.kube.queue import WorkQueue, run_workers
from covey.kube.resources import PREEMPTIONS
from covey.kube.watch import DELETED, EventType
from covey.observability import scheduler_metrics as metrics
from covey.observability.logging import get_logger
from covey.scheduler.cache import Listener
from covey.scheduler.context import Context
from covey.scheduler.queue import SchedulingQueue
from covey.scheduler.reservations import Reservations

log = get_logger(__name__)

#: Seconds in which changes of one root's victims are gathered.
GATHER: Final = 1.0
WORKERS: Final = 2


class PreemptionWriter:
    """Keeps the Preemptions of all roots as their claims and the pods of their victims say."""

    def __init__(self, context: Context, queue: SchedulingQueue, reservations: Reservations) -> None:
        clock = context.clock
        self._cache = context.cache
        self._client = context.client
        self._leads = context.leads
        self._clock = clock.wall
        self._scheduling_queue = queue
        self._reservations = reservations
        self._queue: WorkQueue[Key] = WorkQueue("preemptions", clock=clock.monotonic, share_of=attrgetter("namespace"))
        #: The root that each pod gives way to, by UID; and the pods of each root's claim.
        self._roots: dict[str, Key] = {}
        self._victims: dict[Key, frozenset[str]] = {}
        #: What was written and the watch may not have shown yet.
        self._written: dict[tuple[str, str], core.Preemption] = {}
        self._running = False
        self._cache.subscribe(Listener(pod=self._note_pod, gone=self._note_pod))
        for reflector in self._cache.preemptions:
            reflector.subscribe(self._note_preemption)
            reflector.on_served(self._note_served)
        queue.on_decision(self._note_decision)

    async def run(self, settled: Callable[[], Awaitable[object]]) -> None:
        """Write for ever; ``settled`` returns when every unit has been looked at for the first time."""
        self._note_served()
        await settled()
        self._running = True
        for root, entry in self._scheduling_queue.entries():
            if life.takes(entry.decision.claim):
                self._queue.add(root)
        for preemption in self._stored():
            self._queue.add(_root_of(preemption))
        await run_workers(self._queue, self.write, WORKERS)

    async def prepare(self, unit: Unit) -> None:
        """Write what has to be known before the claim of a unit is stored, or its end; a refusal keeps no claim back."""
        stored, claim = unit.root.status.claim, self._scheduling_queue.decision(unit.key).claim
        before, now = (each.victims if each is not None and life.takes(each) else () for each in (stored, claim))
        if before == now:
            return
        try:
            await self.write(unit.key)
        except ApiError as error:
            metrics.PREEMPTION_FAILURES.inc()
            log.warning("preemption not written", namespace=unit.key.namespace, root=unit.key.name, error=str(error))
            self._queue.add_after(unit.key, GATHER)

    async def write(self, root: Key) -> None:
        """Bring the Preemptions of a root up to date.

        Raises:
            KubeError: that failed; it has to be tried again.
        """
        group, claim = self._cache.index.root(root), self._scheduling_queue.decision(root).claim
        is_taking = claim is not None and life.takes(claim)
        self._watch_pods(root, claim if is_taking else None)
        if group is None or group.is_native or not self._leads() or not self._is_served():
            return
        known = [each for each in self._of(group) if life.is_root(each, group)]
        # 1. The one of the claim that stands.
        current = None
        if claim is not None and is_taking:
            current = max((each for each in known if life.is_of(each, claim)), key=_age, default=None)
            if current is None:
                await self._create(group, claim)  # what its victims do by then is told with the first status
                self._look_at(root)
            else:
                deadline = self._reservations.deadline(claim)
                await self._apply(current, life.follow(current, claim, self._cache.index.pod, deadline))
        # 2. Those whose claims are over.
        entry, aside = self._scheduling_queue.get(root), self._reservations.claims.left_aside(root)
        for preemption in known:
            if not life.is_over(preemption) and preemption is not current:
                status = life.end(
                    preemption,
                    stage=entry.stage if entry is not None else None,
                    replaced=is_taking,
                    aside=aside,
                    find_pod=self._cache.index.pod,
                    now=self._clock(),
                )
                await self._apply(preemption, status)
        # 3. Those that ended long ago.
        known = [each for each in self._of(group) if life.is_root(each, group)]
        surplus, now = life.find_surplus(known, MOST_ENDED), self._clock()
        for preemption in filter(life.is_over, known):
            if preemption in surplus or life.expires(preemption) <= now:
                await self._delete(preemption)
            else:
                self._queue.add_after(root, life.expires(preemption) - now)

    async def _create(self, root: core.Group, claim: core.Claim) -> None:
        meta = root.metadata

        def is_taken(name: str) -> bool:
            key = (meta.namespace, name)
            return key in self._written or any(key in reflector.store for reflector in self._cache.preemptions)

        name = life.name_of(root, claim, is_taken)
        owner = {
            "apiVersion": SCHEDULING_API,
            "kind": root.kind,
            "name": meta.name,
            "uid": meta.uid,
            "controller": True,
        }
        body = {
            "apiVersion": PREEMPTIONS.api_version,
            "kind": PREEMPTIONS.kind,
            "metadata": {"name": name, "namespace": meta.namespace, "ownerReferences": [owner]},
            "spec": msgspec.to_builtins(life.describe(root, claim, self._cache.index.pod)),
        }
        try:
            made = await self._client.create(PREEMPTIONS, body, type=core.Preemption)
        except AlreadyExists:
            return  # the watch has not shown yet that it is there
        self._written[made.metadata.key] = made

    async def _apply(self, preemption: core.Preemption, status: core.PreemptionStatus) -> None:
        if not life.differs(preemption.status, status, self._clock()):
            return
        meta = preemption.metadata
        body: dict[str, Any] = {
            "apiVersion": PREEMPTIONS.api_version,
            "kind": PREEMPTIONS.kind,
            "metadata": {"name": meta.name, "namespace": meta.namespace},
            "status": msgspec.to_builtins(status),
        }
        try:
            written = await self._client.apply(
                PREEMPTIONS, body, manager=MANAGER_SCHEDULER, subresource="status", type=core.Preemption
            )
        except NotFound:
            self._written.pop(meta.key, None)
            return
        self._written[meta.key] = written
        if life.is_over(written):
            log.info("preemption ended", namespace=meta.namespace, preemption=meta.name, outcome=status.outcome)

    async def _delete(self, preemption: core.Preemption) -> None:
        meta = preemption.metadata
        self._written.pop(meta.key, None)
        try:
            await self._client.delete(PREEMPTIONS, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            return

    def _of(self, root: core.Group) -> list[core.Preemption]:
        """The Preemptions of a root as they are known: as they were written where the watch is behind."""
        stored = {each.metadata.key: each for each in self._cache.preemptions_of(root.metadata.uid)}
        return list((stored | {key: each for key, each in self._written.items() if life.is_root(each, root)}).values())

    def _stored(self) -> Iterable[core.Preemption]:
        return [each for reflector in self._cache.preemptions for each in reflector.store.values()]

    def _is_served(self) -> bool:
        return all(reflector.served for reflector in self._cache.preemptions)

    def _watch_pods(self, root: Key, claim: core.Claim | None) -> None:
        """Have a root looked at when a pod changes that gives way to it."""
        uids = frozenset(uid for victim in claim.victims for uid in victim.pods) if claim is not None else frozenset()
        for uid in self._victims.pop(root, frozenset()) - uids:
            self._roots.pop(uid, None)
        if uids:
            self._victims[root] = uids
            self._roots.update(dict.fromkeys(uids, root))

    def _note_pod(self, pod: core.Pod) -> None:
        if (root := self._roots.get(pod.metadata.uid)) is not None:
            self._look_at(root)

    def _note_decision(self, root: Key) -> None:
        if root in self._victims or life.takes(self._scheduling_queue.decision(root).claim):
            self._look_at(root)

    def _note_preemption(self, kind: EventType, preemption: core.Preemption, _before: core.Preemption | None) -> None:
        """What others write of it, or delete, is put right."""
        written = self._written.get(preemption.metadata.key)
        if written is not None and (kind == DELETED or not preemption.metadata.is_before(written.metadata)):
            del self._written[preemption.metadata.key]
        self._look_at(_root_of(preemption))

    def _look_at(self, root: Key) -> None:
        if self._running:
            self._queue.add_after(root, GATHER)

    def _note_served(self) -> None:
        served = self._is_served()
        metrics.PREEMPTIONS_SERVED.set(int(served))
        for root in self._victims if served else ():
            self._look_at(root)
        if not served:
            log.warning(
                "no Preemptions: the API server does not know the kind; nobody is told of them until its CRD is applied"
            )


def _age(preemption: core.Preemption) -> tuple[str, str]:
    return preemption.metadata.creation_timestamp, preemption.metadata.name


def _root_of(preemption: core.Preemption) -> Key:
    beneficiary = preemption.spec.beneficiary
    return Key(beneficiary.kind, preemption.metadata.namespace, beneficiary.name)
