"""Writes the groups' status: whole, by server-side apply on ``/status``, and only when it differs.

One worker takes a unit at a time and waits a moment after a change, so that the many events of one gang become one
write: of the root, whose status speaks for the whole unit and is what the operator, the command line and a restarted
scheduler process read. What passes by itself (a new unit that waits, pins that are about to be bound) is written only
when it lasts. A group below the root gets a status only once something of it has waited for longer than that: the
operator reads there which replica of a rollout or an evacuation has no nodes, and people which one is stuck. It follows
a few seconds later, a bounded number a second, and is kept true from then on. Refusals are told at a bounded pace
(``pacing``). The UID goes along, so that a status never lands on a successor of the name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial
from operator import attrgetter
from typing import Any, Final

from covey.admission.native import keep_conditions
from covey.admission.nodes import Key
from covey.admission.preferred_levels import preferences
from covey.admission.status import Decision, observed_status, statuses
from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import MANAGER_SCHEDULER, REASON_WAITING
from covey.api.core import rfc3339
from covey.kube.client import Ignored
from covey.kube.errors import Conflict, NotFound
from covey.kube.queue import WorkQueue, run_workers
from covey.kube.resources import COMPOSITE_POD_GROUPS, NATIVE_GROUPS, POD_GROUPS
from covey.model import podstate
from covey.observability import scheduler_metrics as metrics
from covey.placement.cluster.inventory import NO_TOPOLOGY
from covey.scheduler.cache import Listener
from covey.scheduler.context import Context
from covey.scheduler.pacing import RATE, Bucket, Lane, Pacer, lane
from covey.scheduler.refused_pods import RefusedPod, find_refused_pods

#: A preferred level that the topology does not have: upstream groups name label keys, which anybody can make up.
_OTHER_LEVEL: Final = "Other"
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
#: Units whose status is looked at in one go when a process begins to lead, and the seconds between two such steps.
STEP: Final = 16
STEP_PAUSE: Final = 0.02
#: Seconds after the root's status until that of the groups below it.
DETAIL: Final = 3.0
#: Seconds between two of those writes: a unit of 100 replicas has 100 of them.
DETAIL_PAUSE: Final = 0.05
_OWN: Final = {each.kind: each for each in (COMPOSITE_POD_GROUPS, POD_GROUPS)}
_NATIVE: Final = {(each.kind, each.api_version): each for each in NATIVE_GROUPS}


class Passing(Enum):
    """A state that passes by itself when all goes well."""

    WAITING = "no nodes yet, and nothing speaks against some"
    PLACING = "to be bound, or surplus without nodes against which nothing speaks"


def passing(unit: Unit, decision: Decision) -> Passing | None:
    """The passing state that a unit is in, if any."""
    if any(podstate.pinned_node(pod) for pod in unit.pods()):
        return Passing.PLACING
    if decision.reason not in {None, REASON_WAITING} or not any(unit.pods()):
        return None
    if not unit.minimum_met(podstate.occupies_node):
        return Passing.WAITING
    return None if unit.all_there() and all(map(podstate.occupies_node, unit.pods())) else Passing.PLACING


class StatusWriter:
    """Keeps the status of all groups as ``decision`` and the cache say."""

    def __init__(
        self,
        context: Context,
        decision: Callable[[Key], Decision],
        *,
        announce: Callable[[Unit, Decision], None] = lambda _unit, _decision: None,
        announce_pod: Callable[[RefusedPod], None] = lambda _refused: None,
        prepare: Callable[[Unit], Awaitable[None]] | None = None,
    ) -> None:
        clock = context.clock
        self._cache = context.cache
        self._admission_times = context.admission_times
        self._leads = context.leads
        self._announce = announce
        self._announce_pod = announce_pod
        #: Writes what has to be known before the status of a root is.
        self._prepare = prepare
        self._bucket = Bucket(RATE, clock=clock.monotonic, sleep=clock.sleep)
        self._pacer = Pacer(self._write_refusal, self._bucket, clock=clock.monotonic)
        self._fair_loop = context.fair_loop
        self._client = context.client
        self._decision = decision
        self._clock = clock
        self._queue: WorkQueue[Key] = WorkQueue("status", clock=clock.monotonic, share_of=attrgetter("namespace"))
        self._details: WorkQueue[Key] = WorkQueue(
            "status-details", clock=clock.monotonic, share_of=attrgetter("namespace")
        )
        self._written: dict[Key, dict[str, dict[str, Any]]] = {}
        #: Units in a state that is expected to pass, since when; and those in which it has lasted.
        self._passing: dict[Key, tuple[Passing, float]] = {}
        self._lasting: dict[Key, Passing] = {}
        self._running = False
        self._cache.subscribe(Listener(unit=self.note_change, status=self.note_change))

    def note_change(self, root: Key) -> None:
        """Something about a unit, or the decision about it, has changed."""
        if self._running:
            self._queue.add_after(root, GATHER * self._rush())

    async def run(self, decided: Callable[[], Awaitable[object]] | None = None) -> None:
        """Write for ever; ``decided`` returns when every unit has been looked at for the first time."""
        self._running = True
        if decided is not None:
            await decided()
        async with asyncio.TaskGroup() as group:
            group.create_task(run_workers(self._queue, self._write, WORKERS))
            group.create_task(run_workers(self._details, self._write_details, 1))
            group.create_task(self._pacer.run())
            # Nearly all of them say already what they shall: that is found out when there is time.
            for number, root in enumerate(self._cache.index.roots()):
                self._queue.add(root)
                if number % STEP == STEP - 1:
                    await self._clock.sleep(STEP_PAUSE)

    async def _write(self, root: Key) -> None:
        await self._fair_loop.share()
        unit = self._cache.index.unit(root)
        if unit is None:
            self._written.pop(root, None)
            self._admission_times.forget(root)
            self._note_written(root)
            self._pacer.drop(root)
            return
        decision = self._decision(root)
        left = self._left(root, passing(unit, decision))
        if left > 0:
            self._queue.add_after(root, left)
            return
        silent = decision.reason in {None, REASON_WAITING}
        if ((not unit.root.status.conditions and silent) or unit.root.is_native) and not any(unit.pods()):
            self._pacer.drop(root)
            return  # groups without pods: there is nothing to decide yet; of Kubernetes' own, or any more
        wanted = self._wanted_statuses(unit, decision)
        (group, status), *_ = wanted
        where = None if self._is_written(root, group, status) else lane(group, status)
        if where is not None:
            self._pacer.add(root, where)
            return
        self._pacer.drop(root)
        await self._write_all(root, unit, wanted)

    async def _write_refusal(self, root: Key, where: Lane) -> None:
        """A refused unit's turn has come; it may have changed since it was put in line."""
        unit = self._cache.index.unit(root)
        if unit is None:
            return
        decision = self._decision(root)
        wanted = self._wanted_statuses(unit, decision)
        fresh = not self._is_written(root, *wanted[0])
        if await self._write_all(root, unit, wanted) and fresh and where is Lane.VERDICT and decision.reason:
            self._announce(unit, decision)

    async def _write_all(self, root: Key, unit: Unit, wanted: list[tuple[core.Group, dict[str, Any]]]) -> bool:
        """Write the root's status, and have those of the groups below it written later."""
        groups = {group.metadata.uid for group, _ in wanted}
        self._written[root] = {uid: each for uid, each in self._written.get(root, {}).items() if uid in groups}
        (group, status), *details = wanted[:1] + [each for each in wanted[1:] if _is_due(*each)]
        self._admission_times.before(unit.root)
        fresh = not self._is_written(root, group, status)
        before = self._written[root].get(group.metadata.uid) or observed_status(group)
        if fresh and self._prepare is not None:
            await self._prepare(unit)
        done = await self._apply(root, group, status)
        for refused in find_refused_pods(unit, before, status) if done and fresh else ():
            self._announce_pod(refused)
        if done and self._admission_times.observe_status(unit, status):
            self._count_levels(unit)
        if any(not self._is_written(root, *each) for each in details):
            self._details.add_after(root, DETAIL * self._rush())
        return done

    def _count_levels(self, unit: Unit) -> None:
        """The unit's minimum was admitted: how near to each other its pods are."""
        topology = self._decision(unit.key).topology
        if topology is not None:
            levels = {level.name for level in topology.levels}
            for preference in preferences(unit, topology, partial(self._cache.path, topology)):
                level = preference.level if preference.level in levels else _OTHER_LEVEL
                met = str(preference.is_met(topology)).lower()
                reached = preference.reached_level(topology)
                metrics.PREFERRED_LEVELS.labels(preference.scope, level, reached, met).inc()

    async def _write_details(self, root: Key) -> None:
        """The groups below a root, as they are by now."""
        unit = self._cache.index.unit(root)
        if unit is None:
            return
        (top, said), *details = self._wanted_statuses(unit, self._decision(root))
        refused = lane(top, said) is not None
        for group, status in details:
            if _is_due(group, status) and not self._is_written(root, group, status):
                if refused:
                    while not self._pacer.idle:
                        await self._clock.sleep(DETAIL_PAUSE)
                    await self._bucket.take()
                await self._apply(root, group, status)
                await self._clock.sleep(DETAIL_PAUSE)

    def _wanted_statuses(self, unit: Unit, decision: Decision) -> list[tuple[core.Group, dict[str, Any]]]:
        path_of = partial(self._cache.path, decision.topology or NO_TOPOLOGY)
        now = rfc3339(self._clock.wall())
        found = statuses(unit, decision, path_of, now, self._cache.volumes.are_claims_bound)
        return [(group, keep_conditions(status)) for group, status in found] if unit.root.is_native else found

    def _rush(self) -> float:
        """The factor by which delays are stretched under load."""
        return min(max(1.0, len(self._passing) / CROWD), PATIENCE)

    def _left(self, root: Key, state: Passing | None) -> float:
        """Seconds for which a unit's state is still expected to pass."""
        if state is None:
            self._note_written(root)
            return 0.0
        if self._lasting.get(root) is state:
            return 0.0
        now = self._clock.monotonic()
        known, since = self._passing.get(root, (None, now))
        if known is not state:
            since = now
            self._note_written(root)
            self._passing[root] = (state, since)
        left = since + SETTLE * self._rush() - now
        if left <= 0:
            self._note_written(root)
            self._lasting[root] = state
        return left

    def _note_written(self, root: Key) -> None:
        self._passing.pop(root, None)
        self._lasting.pop(root, None)

    def _is_written(self, root: Key, group: core.Group, status: dict[str, Any]) -> bool:
        """The group has this status, or will have it as soon as the watch shows what was written."""
        written, uid = self._written.setdefault(root, {}), group.metadata.uid
        if status == observed_status(group):
            written.pop(uid, None)
            return True
        return written.get(uid) == _timeless(status)

    async def _apply(self, root: Key, group: core.Group, status: dict[str, Any]) -> bool:
        """Write a group's status unless it is there; False when the group is gone, or the lease is lost."""
        if self._is_written(root, group, status):
            return True
        written, uid = self._written.setdefault(root, {}), group.metadata.uid
        if isinstance(group, core.NativeGroup):
            resource, name = _NATIVE[group.kind, group.api_version], group.original
        else:
            resource, name = _OWN[group.kind], group.metadata.name
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            # A namesake that came just now may get this, until it is seen here and its own follows: the API server
            # heeds no UID in the status of a custom resource.
            "metadata": {"name": name, "namespace": group.metadata.namespace},
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


def _is_due(group: core.Group, status: dict[str, Any]) -> bool:
    """A group below a root has something to say beside it: not all of it is bound, or it has once said so."""
    wanted = group.spec.desired_count or 0
    bound = all(each["status"] == "True" for each in status["conditions"]) and status.get("scheduled", 0) >= wanted
    return not bound or bool(group.status.conditions)


def _timeless(status: dict[str, Any]) -> dict[str, Any]:
    """A status without the times of its conditions, which differ while the watch is behind."""
    conditions = [
        {key: value for key, value in each.items() if key != "lastTransitionTime"} for each in status["conditions"]
    ]
    return {**status, "conditions": conditions}
