"""Has members created again whose bindings an attached kube-scheduler would not ask for.

A kube-scheduler of the user's asks for the bindings of marked pods only (``obstacles.is_marked``), so that all others
are bound while Covey is away. Pods that an older release made have no mark, and a container's resources cannot be
changed: bound one by one they would tear their gang. So they are not planned (``obstacles.obstacle``), the guard refuses
those that are pinned already, and this asks for their successors, which the operator marks.

Of pods whose controller is not Covey's operator only pins are undone: nobody would mark their successors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from covey.admission import obstacles
from covey.api import core
from covey.api.constants import (
    INFERENCE_GROUP,
    RELEASE_UNMARKED,
)
from covey.kube.clock import Clock
from covey.kube.queue import WorkQueue, run_workers
from covey.model import podstate
from covey.scheduler.cache import Cache, Listener
from covey.scheduler.fair_loop import FairLoop
from covey.scheduler.releases import WORKERS
from covey.scheduler.writer import PodWriter

#: Age at which a pod that is not pinned is created again. An operator of the older release, which ends meanwhile, makes
#: another one without a mark: it costs no more than this often.
PATIENCE: Final = 60.0


class Unmarked:
    """Releases unmarked members.

    Args:
        cache: the pods.
        writer: releases them.
        clock: the time.
        fair_loop: shared with other long work.
    """

    def __init__(
        self,
        cache: Cache,
        writer: PodWriter,
        clock: Clock,
        *,
        fair_loop: FairLoop | None = None,
    ) -> None:
        self._cache = cache
        self._writer = writer
        self._fair_loop = fair_loop or FairLoop()
        self._wall = clock.wall
        self._queue: WorkQueue[str] = WorkQueue("unmarked", clock=clock.monotonic)
        self._running = False
        cache.subscribe(Listener(pod=self._look))

    async def run(self, decided: Callable[[], Awaitable[object]]) -> None:
        """Release for ever; ``decided`` returns when every unit has been looked at for the first time."""
        await decided()
        self._running = True
        for pod in list(self._cache.index.pods()):
            self._look(pod)
            await self._fair_loop.share()
        await run_workers(self._queue, self._work, WORKERS)

    def _look(self, pod: core.Pod) -> None:
        due = seconds_left(pod, self._wall()) if self._running else None
        if due is not None:
            self._queue.add_after(pod.metadata.uid, due)

    async def _work(self, uid: str) -> None:
        pod = self._cache.index.pod(uid)
        due = seconds_left(pod, self._wall()) if pod is not None else None
        if pod is None or due is None:
            return
        if due > 0:
            self._queue.add_after(uid, due)
            return
        await self._writer.release(pod, RELEASE_UNMARKED)


def seconds_left(pod: core.Pod, now: float) -> float | None:
    """Seconds until a member is to be created again for want of a mark; None for one that is not."""
    if (
        not podstate.claims_membership(pod)
        or podstate.occupies_node(pod)
        or not podstate.counts(pod)
        or obstacles.is_marked(pod)
    ):
        return None
    if podstate.pinned_node(pod) is not None:
        return 0.0
    owner = pod.metadata.controller
    if owner is None or not owner.api_version.startswith(f"{INFERENCE_GROUP}/") or not podstate.is_gated(pod):
        return None
    made = core.seconds(pod.metadata.creation_timestamp)
    return max(0.0, (now if made is None else made) + PATIENCE - now)
