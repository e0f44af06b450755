"""Decisions under way: carried out next to the loop, with their outcome in logs, Events and metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence

from covey.admission.entries import Want
from covey.admission.tree import Key, Unit
from covey.api import core
from covey.api.constants import ADMITTED, REASON_DENIED, RELEASE_CONFLICT
from covey.kube.events import EventRecorder, ObjectRef
from covey.observability import scheduler_metrics as metrics
from covey.observability.logging import get_logger
from covey.scheduler.cache import Cache
from covey.scheduler.commit import Committer, Placement
from covey.scheduler.lives import Lives
from covey.scheduler.parking import Parking
from covey.scheduler.turns import Rank
from covey.scheduler.writer import Pinned, PodWriter

log = get_logger(__name__)


class Commits:
    """The decisions that are being carried out.

    ``mark`` is told of each unit that is to be looked at again, ``denied`` of one whose pins the API server denied, and
    its words.
    """

    def __init__(
        self,
        cache: Cache,
        committer: Committer,
        writer: PodWriter,
        recorder: EventRecorder,
        lives: Lives,
        parking: Parking,
        *,
        mark: Callable[[Key], None],
        denied: Callable[[Key, str], None],
    ) -> None:
        self._cache = cache
        self._committer = committer
        self._writer = writer
        self._recorder = recorder
        self._lives = lives
        self._parking = parking
        self._mark = mark
        self._denied = denied
        self.tasks: set[asyncio.Task[None]] = set()

    def admit(self, root: Key, placements: Sequence[Placement], want: Want, rank: Rank) -> None:
        """Send the pins of a decision that was assumed."""
        self._start(self._commit(root, placements, want, rank))

    def give_up(self, pods: Sequence[core.Pod]) -> None:
        """Undo pins around which the rest of their gang cannot be planned."""
        self._start(self._give_up(pods))

    def cancel(self) -> None:
        """Drop what was not sent: this process does not lead any more."""
        for task in self.tasks:
            task.cancel()

    async def _commit(self, root: Key, placements: Sequence[Placement], want: Want, rank: Rank) -> None:
        started = time.perf_counter()
        committed = await self._committer.commit(placements, rank=rank, rehearse=self._was_denied(root))
        done = committed.outcomes.get(Pinned.DONE, 0)
        log.info(
            "gang admitted" if done == len(placements) else "gang partly admitted",
            namespace=root.namespace,
            root=root.name,
            kind=want.value,
            pods=done,
            of=len(placements),
            seconds=round(time.perf_counter() - started, 3),
        )
        if committed.denied:
            self._denied(root, committed.denied)
        if done == len(placements):
            self._done(root, want, [each.pod for each in placements])
        self._mark(root)

    def _done(self, root: Key, want: Want, pods: Sequence[core.Pod]) -> None:
        self._parking.accept(root)
        metrics.GANG_ADMISSIONS.labels(want.value).inc()
        unit = self._cache.index.unit(root)
        if unit is None:
            return
        if want is Want.MINIMUM:
            self._lives.admitted(unit, pods)
        controller = unit.root.metadata.controller
        # Of a resource's units the operator says so, on the resource.
        if controller is None or controller.kind != "DisaggregatedInference":
            note = f"{len(pods)} pods of the {want.value} have their places"
            self._recorder.event(reference(unit), "Normal", "Admitted", note, "Admit")

    def _was_denied(self, root: Key) -> bool:
        """The unit's last pins were denied, by what is remembered or, after a restart, by its status."""
        unit = self._cache.index.unit(root)
        said = core.condition(unit.root.status.conditions, ADMITTED) if unit else None
        return self._parking.denied(root) or (said is not None and said.reason == REASON_DENIED)

    async def _give_up(self, pods: Sequence[core.Pod]) -> None:
        await asyncio.gather(*(self._writer.release(pod, RELEASE_CONFLICT) for pod in pods))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


def reference(unit: Unit) -> ObjectRef:
    """A unit's root, as Events speak of it."""
    meta = unit.root.metadata
    return ObjectRef(unit.root.api_version, unit.root.kind, meta.name, meta.namespace, meta.uid)
