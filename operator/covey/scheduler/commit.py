"""A plan becomes patches: all pods of a decision, or none that can still be stopped.

Room counts from the decision: every pod is assumed before the first patch is sent. When a pod turns out to be gone or
to conflict, or its node to take it no more by the time that its turn has come, patches that were not sent are dropped
and, once the others have come, their room is given back. Pods that were let go already are
facts: the rest is planned again around them (``admission``), and if that cannot be, their pins are undone
(``releases``).

Decisions under way: carried out next to the loop, with their outcome in logs, Events and metrics.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field

from covey.admission.entry import QueueStage
from covey.admission.tree import Key, Unit
from covey.api import core
from covey.api.constants import ADMITTED, REASON_DENIED, RELEASE_CONFLICT
from covey.kube.errors import KubeError
from covey.kube.events import ObjectRef
from covey.kube.turns import Rank
from covey.observability import scheduler_metrics as metrics
from covey.observability.logging import get_logger
from covey.scheduler.cache import Cache
from covey.scheduler.context import Context
from covey.scheduler.queue import SchedulingQueue
from covey.scheduler.topologies import write_topology
from covey.scheduler.writer import Pinned, PodWriter

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Placement:
    """A pod, its node, and the node's domain at each level that it has."""

    pod: core.Pod
    node: str
    domains: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Committed:
    """The outcome of a decision: counts of pods; ``denied`` has the pin that the API server denied, and its words."""

    outcomes: Mapping[Pinned, int]
    denied: str = ""


class Committer:
    """Carries out decisions."""

    def __init__(self, cache: Cache, writer: PodWriter) -> None:
        self._cache = cache
        self._writer = writer

    def assume(self, placements: Sequence[Placement]) -> None:
        """Reserve the room of a decision; synchronous, so that nothing can come between it and the plan."""
        for each in placements:
            self._cache.assume(each.pod, each.node)

    async def commit(self, placements: Sequence[Placement], *, rank: Rank = (), rehearse: bool = False) -> Committed:
        """Send the patches of a decision that was assumed.

        Args:
            placements: the decision.
            rank: its place among those that wait for a turn.
            rehearse: ask first whether the API server would take every patch (a dry run), and let no pod go unless
                it would: after a denial, so that its mates do not hold room again and again for nothing.
        """
        course = _Course(rank)
        try:
            if rehearse:
                tried = await asyncio.gather(*(self._send(each, course, dry_run=True) for each in placements))
                if course.broken:
                    return _sum_up(placements, [Pinned.DROPPED if one is Pinned.DONE else one for one in tried], course)
            return _sum_up(placements, await asyncio.gather(*(self._send(each, course) for each in placements)), course)
        finally:
            # Not one by one: others would take that room before the rest can be planned anew.
            for each in placements:
                if each.pod.metadata.uid not in course.pinned:
                    self._cache.unassume(each.pod.metadata.uid)

    async def _send(self, placement: Placement, course: _Course, *, dry_run: bool = False) -> Pinned:
        result = await self._writer.pin(
            placement.pod,
            placement.node,
            placement.domains,
            lambda: course.broken or self._is_spoilt(placement),
            rank=course.rank,
            dry_run=dry_run,
        )
        if result.outcome is not Pinned.DONE:
            course.broken = True
        elif not dry_run:
            course.pinned.add(placement.pod.metadata.uid)
        if result.outcome is Pinned.DENIED:
            course.said[placement.pod.metadata.uid] = result.said
        return result.outcome

    def _is_spoilt(self, placement: Placement) -> bool:
        """The node does not take the pod any more: a pin may wait for its turn long after the plan was made."""
        leaving = self._cache.leaving(placement.node)
        return self._cache.capacity.refusal_in_place(placement.pod, placement.node, leaving) is not None


@dataclass(slots=True)
class _Course:
    """The course of a decision's patches: ``broken`` once one failed; UIDs of pinned pods; the server's words by UID."""

    rank: Rank
    broken: bool = False
    pinned: set[str] = field(default_factory=set)
    said: dict[str, str] = field(default_factory=dict)


def _sum_up(placements: Sequence[Placement], outcomes: Sequence[Pinned], course: _Course) -> Committed:
    """The first denied pod in the plan's order speaks for all."""
    counts = {outcome: outcomes.count(outcome) for outcome in Pinned if outcome in outcomes}
    for each in placements:
        said = course.said.get(each.pod.metadata.uid)
        if said is not None:
            where = f"the pin of pod {each.pod.metadata.name} to node {each.node}"
            return Committed(counts, f"the API server denied {where}: {said}")
    return Committed(counts)


class Commits:
    """The decisions that are being carried out.

    ``denied`` is told of a unit whose pins the API server denied, and its words.
    """

    def __init__(
        self,
        context: Context,
        queue: SchedulingQueue,
        *,
        denied: Callable[[Key, str], None],
    ) -> None:
        self._cache = context.cache
        self._client = context.client
        self._leads = context.leads
        self.committer = Committer(context.cache, context.writer)
        self._writer = context.writer
        self._recorder = context.recorder
        self._admission_times = context.admission_times
        self._queue = queue
        self._denied = denied
        self.tasks: set[asyncio.Task[None]] = set()

    def admit(self, root: Key, topology: str, placements: Sequence[Placement], stage: QueueStage, rank: Rank) -> None:
        """Send the pins of a decision that was assumed, once the root tells in which topology it was made."""
        self._start(self._commit(root, topology, placements, stage, rank))

    def give_up(self, pods: Sequence[core.Pod], reason: str = RELEASE_CONFLICT) -> None:
        """Have pods replaced: pins around which the rest of their gang cannot be planned, or what keeps another from its pods."""
        self._start(self._give_up(pods, reason))

    def cancel(self) -> None:
        """Drop what was not sent: this process does not lead any more."""
        for task in self.tasks:
            task.cancel()

    async def _commit(
        self, root: Key, topology: str, placements: Sequence[Placement], stage: QueueStage, rank: Rank
    ) -> None:
        started = time.perf_counter()
        if not await self._write_topology(root, topology):
            for placement in placements:
                self._cache.unassume(placement.pod.metadata.uid)
            self._queue.requeue(root)
            return
        committed = await self.committer.commit(placements, rank=rank, rehearse=self._was_denied(root))
        done = committed.outcomes.get(Pinned.DONE, 0)
        log.info(
            "gang admitted" if done == len(placements) else "gang partly admitted",
            namespace=root.namespace,
            root=root.name,
            kind=stage.value,
            pods=done,
            of=len(placements),
            seconds=round(time.perf_counter() - started, 3),
        )
        if committed.denied:
            self._denied(root, committed.denied)
        if done == len(placements):
            self._done(root, stage, [each.pod for each in placements])
        self._queue.requeue(root)

    async def _write_topology(self, root: Key, topology: str) -> bool:
        """Have the root tell its topology before a pod does; False where the API server has not taken it."""
        group = self._cache.index.root(root)
        if group is None or not self._leads():
            return True  # no pin is sent either
        try:
            await write_topology(self._client, group, topology)
        except KubeError as error:
            self._denied(root, f"the API server denied the status of {group.kind} {group.metadata.name}: {error}")
            return False
        return True

    def _done(self, root: Key, stage: QueueStage, pods: Sequence[core.Pod]) -> None:
        self._queue.note_pinned(root)
        metrics.GANG_ADMISSIONS.labels(stage.value).inc()
        unit = self._cache.index.unit(root)
        if unit is None:
            return
        if stage is QueueStage.MINIMUM:
            self._admission_times.note_admission(unit, pods)
        controller = unit.root.metadata.controller
        # Of a resource's units the operator says so, on the resource.
        if controller is None or controller.kind != "DisaggregatedInference":
            note = f"{len(pods)} pods of the {stage.value} are assigned nodes"
            self._recorder.event(reference(unit), "Normal", "Admitted", note, "Admit")

    def _was_denied(self, root: Key) -> bool:
        """The unit's last pins were denied, by what is remembered or, after a restart, by its status."""
        unit = self._cache.index.unit(root)
        said = core.condition(unit.root.status.conditions, ADMITTED) if unit else None
        return self._queue.was_denied(root) or (said is not None and said.reason == REASON_DENIED)

    async def _give_up(self, pods: Sequence[core.Pod], reason: str) -> None:
        await asyncio.gather(*(self._writer.release(pod, reason) for pod in pods))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


def reference(unit: Unit) -> ObjectRef:
    """A unit's root, as Events speak of it."""
    meta = unit.root.metadata
    name = unit.root.original if isinstance(unit.root, core.NativeGroup) else meta.name
    return ObjectRef(unit.root.api_version, unit.root.kind, name, meta.namespace, meta.uid)
