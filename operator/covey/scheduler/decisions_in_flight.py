"""Decisions under way: carried out next to the loop, with their outcome in logs, Events and metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence

from covey.admission.entry import QueueStage
from covey.admission.nodes import Key
from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import ADMITTED, REASON_DENIED, RELEASE_CONFLICT
from covey.kube.errors import KubeError
from covey.kube.event_series import ObjectRef
from covey.kube.turns import Rank
from covey.observability import scheduler_metrics as metrics
from covey.observability.logging import get_logger
from covey.scheduler.commit import Committer, Placement
from covey.scheduler.context import Context
from covey.scheduler.queue import SchedulingQueue
from covey.scheduler.topologies import write_topology
from covey.scheduler.writer import Pinned

log = get_logger(__name__)


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
