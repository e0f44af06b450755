"""Writes the groups' status: whole, by server-side apply on ``/status``, and only when it differs.

One worker takes a unit at a time and waits a moment after a change, so that the many events of one gang become one
write: of the root, whose status speaks for the whole unit and is what the operator, the command line and a restarted
scheduler process read. What passes by itself (a new unit that waits, pins that are about to be bound) is written only
when it lasts. The groups below the root say the same in detail, for people who look at one; theirs follows a few
seconds later, a bounded number a second. The UID goes along, so that a status never lands on a successor of the name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial
from typing import Any, Final

from covey.admission import podstate
from covey.admission.status import Decision, observed, statuses
from covey.admission.tree import Key, Unit
from covey.api import core
from covey.api.constants import MANAGER_SCHEDULER, REASON_WAITING, SCHEDULING_API
from covey.api.times import rfc3339
from covey.kube.client import Client, Ignored
from covey.kube.errors import Conflict, NotFound
from covey.kube.queue import WorkQueue, run_workers
from covey.kube.resources import COMPOSITE_POD_GROUPS, POD_GROUPS
from covey.placement.cluster.inventory import NO_TOPOLOGY
from covey.scheduler.cache import Cache, Listener
from covey.scheduler.lives import Lives

#: Seconds that a unit's events are gathered before its status is computed. A status write costs the API server more
#: than a Binding, so a gang that is admitted and bound at once should cost it one for each group, not four.
GATHER: Final = 0.5
#: Seconds that a state must last which is expected to pass: a new unit waits to be planned, pins wait to be bound.
SETTLE: Final = 3.0
#: With more units than this on their way both become longer in proportion: a busy API server has better to do.
CROWD: Final = 8
#: How many times longer at most.
PATIENCE: Final = 10.0
WORKERS: Final = 8
#: Seconds after the root's status until that of the groups below it.
DETAIL: Final = 3.0
#: Seconds between two of those writes: a unit of 100 replicas has 100 of them.
DETAIL_PAUSE: Final = 0.05


class Passing(Enum):
    """A state that passes by itself when all goes well."""

    WAITING = "no place yet, and nothing speaks against one"
    PINNED = "to be bound"


def passing(unit: Unit, decision: Decision) -> Passing | None:
    """The passing state that a unit is in, if any."""
    if any(podstate.pinned(pod) for pod in unit.pods()):
        return Passing.PINNED
    news = decision.reason not in {None, REASON_WAITING} or unit.minimum_met(podstate.bound)
    return Passing.WAITING if not news and any(unit.pods()) else None


class StatusWriter:
    """Keeps the status of all groups as ``decision`` and the cache say."""

    def __init__(
        self,
        cache: Cache,
        client: Client,
        decision: Callable[[Key], Decision],
        lives: Lives,
        *,
        leads: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._cache = cache
        self._lives = lives
        self._leads = leads
        self._sleep = sleep
        self._client = client
        self._decision = decision
        self._clock = clock
        self._wall = wall
        self._queue: WorkQueue[Key] = WorkQueue("status")
        self._details: WorkQueue[Key] = WorkQueue("status-details")
        self._written: dict[Key, dict[str, dict[str, Any]]] = {}
        #: Units in a state that is expected to pass, since when; and those in which it has lasted.
        self._passing: dict[Key, tuple[Passing, float]] = {}
        self._lasting: dict[Key, Passing] = {}
        self._running = False
        cache.subscribe(Listener(unit=self.changed, status=self.changed))

    def changed(self, root: Key) -> None:
        """Something about a unit, or the decision about it, has changed."""
        if self._running:
            self._queue.add_after(root, GATHER * self._rush())

    async def run(self) -> None:
        """Write for ever."""
        self._running = True
        for root in self._cache.index.roots():
            self._queue.add(root)
        async with asyncio.TaskGroup() as group:
            group.create_task(run_workers(self._queue, self._write, WORKERS))
            group.create_task(run_workers(self._details, self._write_details, 1))

    async def _write(self, root: Key) -> None:
        unit = self._cache.index.unit(root)
        if unit is None:
            self._written.pop(root, None)
            self._lives.forget(root)
            self._settled(root)
            return
        decision = self._decision(root)
        left = self._left(root, passing(unit, decision))
        if left > 0:
            self._queue.add_after(root, left)
            return
        if not unit.root.status.conditions and not any(unit.pods()):
            return  # groups without pods: there is nothing to decide yet
        wanted = self._wanted(unit, decision)
        groups = {group.metadata.uid for group, _ in wanted}
        self._written[root] = {uid: each for uid, each in self._written.get(root, {}).items() if uid in groups}
        (group, status), *details = wanted
        self._lives.before(unit.root)
        if await self._apply(root, group, status):
            self._lives.written(unit, status)
        if any(not self._is_written(root, *each) for each in details):
            self._details.add_after(root, DETAIL * self._rush())

    async def _write_details(self, root: Key) -> None:
        """The groups below a root, as they are by now."""
        unit = self._cache.index.unit(root)
        if unit is None:
            return
        for group, status in self._wanted(unit, self._decision(root))[1:]:
            if not self._is_written(root, group, status):
                await self._apply(root, group, status)
                await self._sleep(DETAIL_PAUSE)

    def _wanted(self, unit: Unit, decision: Decision) -> list[tuple[core.Group, dict[str, Any]]]:
        path_of = partial(self._cache.path, decision.topology or NO_TOPOLOGY)
        return statuses(unit, decision, path_of, rfc3339(self._wall()), self._cache.volumes.settled)

    def _rush(self) -> float:
        """How many times longer than usual everything may take."""
        return min(max(1.0, len(self._passing) / CROWD), PATIENCE)

    def _left(self, root: Key, state: Passing | None) -> float:
        """Seconds for which a unit's state is still expected to pass."""
        if state is None:
            self._settled(root)
            return 0.0
        if self._lasting.get(root) is state:
            return 0.0
        now = self._clock()
        known, since = self._passing.get(root, (None, now))
        if known is not state:
            since = now
            self._settled(root)
            self._passing[root] = (state, since)
        left = since + SETTLE * self._rush() - now
        if left <= 0:
            self._settled(root)
            self._lasting[root] = state
        return left

    def _settled(self, root: Key) -> None:
        self._passing.pop(root, None)
        self._lasting.pop(root, None)

    def _is_written(self, root: Key, group: core.Group, status: dict[str, Any]) -> bool:
        """The group has this status, or will have it as soon as the watch shows what was written."""
        written, uid = self._written.setdefault(root, {}), group.metadata.uid
        if status == observed(group):
            written.pop(uid, None)
            return True
        return written.get(uid) == _timeless(status)

    async def _apply(self, root: Key, group: core.Group, status: dict[str, Any]) -> bool:
        """Write a group's status unless it is there; False when the group is gone, or the lease is lost."""
        if self._is_written(root, group, status):
            return True
        written, uid = self._written.setdefault(root, {}), group.metadata.uid
        resource = COMPOSITE_POD_GROUPS if group.kind == "CompositePodGroup" else POD_GROUPS
        meta = group.metadata
        body = {
            "apiVersion": SCHEDULING_API,
            "kind": group.kind,
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": uid},
            "status": status,
        }
        if not self._leads():
            return False
        try:
            await self._client.apply(resource, body, manager=MANAGER_SCHEDULER, subresource="status", type=Ignored)
        except (NotFound, Conflict):
            written.pop(uid, None)
            return False  # the group is gone, or has a successor
        written[uid] = _timeless(status)
        return True


def _timeless(status: dict[str, Any]) -> dict[str, Any]:
    """A status without the times of its conditions, which differ while the watch is behind."""
    conditions = [
        {key: value for key, value in each.items() if key != "lastTransitionTime"} for each in status["conditions"]
    ]
    return {**status, "conditions": conditions}
