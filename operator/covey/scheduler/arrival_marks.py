"""Marks on pods whose bind call is held here, for the leader, who may be another replica.

Without them the leader would release such a pod while it still says ``Unschedulable``, for kube-scheduler does not take
that word back when it finds a place. A mark is written again while the call is held; one that is not was left by a
barrier that has died.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from covey.api import core
from covey.model import podstate
from covey.scheduler.background_tasks import Tasks
from covey.scheduler.index import Index
from covey.scheduler.writer import ARRIVED, LEFT, RENEW, PodWriter, says_arrived


class ArrivalMarks:
    """Writes the marks.

    Args:
        index: the pods as they are.
        writer: annotates them.
        held: whether a call for the pod of a UID is held.
    """

    def __init__(self, index: Index, writer: PodWriter, held: Callable[[str], bool]) -> None:
        self._index = index
        self._writer = writer
        self._held = held
        self._tasks = Tasks()
        #: UIDs of held pods whose mark is to be written again.
        self._renewals: dict[str, asyncio.TimerHandle] = {}

    def tell(self, pod: core.Pod | None) -> None:
        """A call for this pod is held."""
        if pod is None or not podstate.counts(pod) or not podstate.scheduling_failure(pod):
            return
        uid = pod.metadata.uid
        if says_arrived(pod) and uid in self._renewals:
            return
        if uid not in self._renewals:
            self._renewals[uid] = asyncio.get_running_loop().call_later(RENEW, self._renew, uid)
        self._tasks.start(self._writer.wake(pod, f"{pod.metadata.resource_version}{ARRIVED}"))

    def end(self, uid: str, *, failed: bool) -> None:
        """No call for this pod is held any more.

        A mark that stays behind keeps the leader's doubts away, not the pin's time-out.
        """
        if (renewal := self._renewals.pop(uid, None)) is not None:
            renewal.cancel()
        pod = self._index.pod(uid)
        gone = pod is None or not podstate.counts(pod) or pod.spec.node_name is not None
        if failed and pod is not None and not gone and says_arrived(pod):
            self._tasks.start(self._writer.wake(pod, f"{pod.metadata.resource_version}{LEFT}"))

    def _renew(self, uid: str) -> None:
        del self._renewals[uid]
        if self._held(uid):
            self.tell(self._index.pod(uid))
