"""The loop that decides: which units may start, and where.

It sleeps until something happened that can help: a unit changed, a node has more room, topologies or priorities
changed, or a deadline came. Then one pass: units that changed are assessed anew (``entries``); those that want a place
and may get one now are planned by priority and age, all minimums of a priority before any surplus of it; every
decision holds its room at once and is then carried out beside the loop (``commit``). There is no polling: a unit that
found no room is looked at again when a node that one of its pods fits on has changed.

A plan is made in a thread on an inventory that stands still. Afterwards it is held against the present, and dropped
if a pod or a node has changed under it.

Only the holder of the lease runs this.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from covey.admission import entries, podstate
from covey.admission.entries import SETTLE, Entry, Want, assess
from covey.admission.status import Decision
from covey.admission.tree import Key, Unit
from covey.api import core
from covey.api.constants import (
    ADMITTED,
    REASON_DENIED,
    REASON_FAILED,
    REASON_INFEASIBLE,
    REASON_UNKNOWN,
    RELEASE_CONFLICT,
)
from covey.kube.events import EventRecorder, ObjectRef
from covey.observability import metrics
from covey.observability.logging import get_logger
from covey.placement.model import Assignment, Gang, Path, Plan, Refusal, Shape, Topology, Verdict
from covey.placement.planner import is_small, plan_minimum, plan_surplus
from covey.scheduler.cache import Cache, Listener
from covey.scheduler.commit import Committer, Placement
from covey.scheduler.lives import Lives
from covey.scheduler.parking import Parking
from covey.scheduler.queueing import Queueing
from covey.scheduler.reservations import Reservations, holds
from covey.scheduler.waiting import Waiting
from covey.scheduler.writer import Pinned, PodWriter

log = get_logger(__name__)

#: Seconds in which events are gathered before a pass.
GATHER: Final = 0.01
#: What a unit's status says when the planner itself failed on it.
FAILED: Final = "the planner failed on this gang; the scheduler's log has the details"


class Admission:
    """The decisions of the lease's holder."""

    def __init__(
        self,
        cache: Cache,
        committer: Committer,
        writer: PodWriter,
        queueing: Queueing,
        reservations: Reservations,
        recorder: EventRecorder,
        lives: Lives,
        *,
        decided: Callable[[Key], None],
        parking: Parking | None = None,
    ) -> None:
        self._cache = cache
        self._committer = committer
        self._writer = writer
        self._queueing = queueing
        self._reservations = reservations
        self._recorder = recorder
        self._lives = lives
        self._waiting = Waiting()
        self._parking = parking or Parking()
        self._decided = decided
        self._entries: dict[Key, Entry] = {}
        #: Of these: to be planned now, refused until something changes, and without their minimum. A pass looks at
        #: these only, for most units of a cluster run.
        self._open: dict[Key, Entry] = {}
        self._refused: dict[Key, Entry] = {}
        self._unplaced: dict[Key, Entry] = {}
        self._dirty: set[Key] = set()
        self._rooms: set[str] = set()
        #: What may help units that were refused: nodes changed, or room is no longer kept for somebody.
        self._relabelled = False
        self._unkept = False
        self._wake = asyncio.Event()
        self._leads = False
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._commits: set[asyncio.Task[None]] = set()
        cache.subscribe(
            Listener(unit=self.mark, status=self._written, room=self._room, node=self._node, world=self._everything)
        )

    def decision(self, root: Key) -> Decision:
        """What was last decided about a unit."""
        entry = self._entries.get(root)
        return entry.decision if entry else Decision()

    def mark(self, root: Key) -> None:
        """Look at a unit again."""
        if self._leads:
            self._dirty.add(root)
            self._wake.set()

    async def run(self) -> None:
        """Decide for ever."""
        self.begin()
        try:
            while True:
                await self._wake.wait()
                await asyncio.sleep(GATHER)
                self._wake.clear()
                await self._pass()
        finally:
            self._leads = False
            for task in self._commits:  # whoever does not lead any more decides nothing: what was not sent is dropped
                task.cancel()

    def begin(self) -> None:
        """Look at everything; until then nothing that happens is noted, for a replica that only stands by."""
        self._leads = True
        self._waiting.begin()
        for reason in (REASON_INFEASIBLE, REASON_UNKNOWN):
            metrics.GANG_REFUSALS.labels(reason).inc(0)
        self._everything()

    def _room(self, node: str) -> None:
        if self._leads:
            self._rooms.add(node)
            self._wake.set()

    def _node(self, _name: str) -> None:
        self._relabelled = True
        self._wake.set()

    def _written(self, root: Key) -> None:
        """The status was written: how long a refused unit has waited is known from now on."""
        entry = self._entries.get(root)
        if entry is not None and entry.refused:
            self._alarm(root, entry)

    def _everything(self) -> None:
        if not self._leads:
            return
        self._dirty.update(self._cache.index.roots())
        self._dirty.update(self._entries)
        self._wake.set()

    async def _pass(self) -> None:
        dirty, self._dirty = self._dirty, set()
        rooms, self._rooms = self._rooms, set()
        if self._relabelled:
            self._relabelled = False
            dirty.update(root for root, entry in self._entries.items() if self._queueing.misjudged(entry))
        for root in dirty:
            with self._alone(root):
                self._assess(root)
        helped = self._helped(rooms)
        if self._unkept:
            self._unkept = False
            helped = list(self._refused)
        self._retry(helped)
        for want, root in self._due():
            with self._alone(root):
                await self._plan(root, want)

    @contextmanager
    def _alone(self, root: Key) -> Iterator[None]:
        """One odd unit does not keep the others from their turn: it is as good as refused, and says so."""
        try:
            yield
        except Exception:
            log.exception("planning failed", namespace=root.namespace, root=root.name)
            self._fail(root)

    def _fail(self, root: Key) -> None:
        unit = self._cache.index.unit(root)
        entry = self._entries.get(root) or (Entry(unit, Want.NOTHING, Decision()) if unit else None)
        if entry is not None:
            self._park(root, entry, REASON_FAILED, FAILED)

    def _park(self, root: Key, entry: Entry, reason: str, message: str) -> None:
        """Leave a unit alone for a while, and say why."""
        self._parking.park(root, reason, message)
        self._enter(
            root, replace(entry, decision=replace(entry.decision, reason=reason, message=message), refused=True)
        )
        self._alarm(root, self._entries[root])

    def _assess(self, root: Key) -> None:
        unit = self._cache.index.unit(root)
        before = self._entries.get(root)
        if unit is None:
            self._unkept |= holds(before)
            self._file(root, None)
            self._queueing.forget(root)
            self._parking.forget(root)
            if timer := self._timers.pop(root, None):
                timer.cancel()
            return
        self._lives.look(unit)
        parked = self._parking.holding(root)
        if parked is not None:
            self._parking.stir(root)
            if parked.reason == REASON_FAILED:
                return  # it may be what was about to be done here that fails
        loop = asyncio.get_running_loop()
        kept, topology, around = self._queueing.around(unit)
        if before is not None and kept.reservation is None and holds(before):
            kept = replace(kept, reservation=before.decision.reservation)  # its status is not written yet
        entry = assess(unit, topology, around, self._cache.capacity.shape, before, kept, loop.time())
        if parked is not None and entry.want in {Want.MINIMUM, Want.SURPLUS}:
            said = replace(entry.decision, reason=parked.reason, message=parked.message)
            entry = replace(entry, decision=said, refused=True)
        self._enter(root, entry)
        self._alarm(root, entry)

    def _enter(self, root: Key, entry: Entry) -> None:
        before = self._entries.get(root)
        self._file(root, entry)
        if holds(before) and not holds(entry):
            self._unkept = True
            self._wake.set()
        if before is None or before.decision != entry.decision:
            self._decided(root)

    def _file(self, root: Key, entry: Entry | None) -> None:
        for shelf in (self._entries, self._open, self._refused, self._unplaced):
            shelf.pop(root, None)
        if entry is None:
            self._waiting.drop(root)
            return
        self._entries[root] = entry
        if entry.refused:
            self._refused[root] = entry
        elif entry.want is Want.MINIMUM or entry.want is Want.SURPLUS:
            self._open[root] = entry
        if entry.want is not Want.NOTHING and entry.want is not Want.SURPLUS:
            self._unplaced[root] = entry
            self._waiting.put(root, entry.decision.reason, entries.waiting_since(entry.unit.root))
        else:
            self._waiting.drop(root)

    def _alarm(self, root: Key, entry: Entry) -> None:
        """Look again when time alone can change something: a wait ends, an exclusion runs out, a wait was too long."""
        if timer := self._timers.pop(root, None):
            timer.cancel()
        delays = [*self._queueing.deadlines(entry)]
        if entry.since is not None and entry.settling(asyncio.get_running_loop().time()):
            delays.append(entry.since + SETTLE - asyncio.get_running_loop().time())
        rest = self._parking.left(root)
        if rest is not None:
            delays.append(rest)
        if delays:
            due = min(delays)
            then = self._resume if due == rest else self.mark
            self._timers[root] = asyncio.get_running_loop().call_later(max(0.0, due) + 0.01, then, root)

    def _resume(self, root: Key) -> None:
        """A unit was parked for long enough."""
        entry = self._entries.get(root)
        if entry is not None and self._parking.exhausted(root):
            self._alarm(root, entry)  # refused like any other from now on: more room helps, and other deadlines
        else:
            self.mark(root)

    def _helped(self, rooms: Iterable[str]) -> list[Key]:
        """Refused units with a pod that fits on a node that has changed."""
        nodes = [node for node in rooms if self._cache.capacity.room.nodes.get(node) is not None]
        if not nodes:
            return []
        fitting: dict[Shape, bool] = {}

        def fits(shape: Shape) -> bool:
            if shape not in fitting:
                fitting[shape] = any(self._cache.capacity.room.fits(shape, node) is None for node in nodes)
            return fitting[shape]

        return [
            root
            for root, entry in self._refused.items()
            if entry.gang is not None
            and any(
                pod.node is None and fits(pod.shape)
                for role in entry.gang.roles
                for replica in role.replicas
                for pod in replica.pods
            )
        ]

    def _retry(self, roots: Iterable[Key]) -> None:
        for root in roots:
            if self._parking.holding(root):
                self._parking.stir(root)
            else:
                self._file(root, replace(self._entries[root], refused=False))

    def _due(self) -> Iterator[tuple[Want, Key]]:
        """What to plan, in order: by priority; in each all minimums by age, then all surplus.

        Surplus waits while a minimum of its priority or a higher one is about to be planned. Whether it still holds
        is asked at each step, for a plan before may have changed it.
        """
        due = [(entry, root) for root, entry in self._open.items()]
        due.sort(key=lambda each: (each[0].order[0], each[0].want is Want.SURPLUS, each[0].order))
        for entry, root in due:
            if self._entries.get(root) is not entry or root in self._dirty:
                continue
            if entry.want is Want.SURPLUS and self._minimum_comes(entry):
                continue
            yield entry.want, root

    def _minimum_comes(self, surplus: Entry) -> bool:
        now = asyncio.get_running_loop().time()
        return any(
            entry.settling(now) and (entry.gang is None or entry.order[0] <= surplus.order[0])
            for entry in self._unplaced.values()
        )

    async def _plan(self, root: Key, want: Want) -> None:
        entry = self._entries[root]
        gang = entry.gang
        assert gang is not None
        asked, closed = self._reservations.confine(gang, self._unplaced.values(), surplus=want is Want.SURPLUS)
        if gang.spread is not None and entry.decision.topology is not None:
            # A sibling may have been placed in this very pass.
            taken = self._queueing.occupied(entry.unit, entry.decision.topology)
            asked = replace(asked, spread=replace(gang.spread, occupied=taken))
        answer = await self._ask(asked, want, closed)
        if answer.verdict is not Verdict.UNKNOWN:
            self._parking.planned(root)
        if isinstance(answer, Refusal):
            self._refuse(root, entry, answer)
        elif not answer.assignments:
            self._enter(root, replace(entry, refused=True))
        else:
            self._admit(root, entry, answer, want)

    async def _ask(self, gang: Gang, want: Want, closed: Sequence[Path]) -> Plan | Refusal:
        started = time.perf_counter()
        planner = partial(plan_minimum if want is Want.MINIMUM else plan_surplus, forbidden=closed)
        with self._cache.capacity.planning() as inventory:
            if is_small(gang, inventory):
                answer: Plan | Refusal = planner(gang, inventory)
            else:
                answer = await asyncio.to_thread(planner, gang, inventory)
        metrics.PLAN_DURATION.labels(answer.verdict.value).observe(time.perf_counter() - started)
        return answer

    def _refuse(self, root: Key, entry: Entry, answer: Refusal) -> None:
        refused = entries.refusal(entry, answer)
        refused = self._reservations.consider(refused, answer)
        metrics.GANG_REFUSALS.labels(refused.decision.reason).inc()
        if entry.decision.message != refused.decision.message:
            log.info("gang refused", namespace=root.namespace, root=root.name, why=refused.decision.message)
            self._tell(entry.unit, "Warning", refused.decision.reason or "", refused.decision.message)
        if answer.verdict is Verdict.UNKNOWN:
            self._park(root, refused, REASON_UNKNOWN, refused.decision.message)
        else:
            self._enter(root, refused)
            self._alarm(root, refused)
        # Pins of an earlier plan that the rest cannot be planned around any more hold room for nothing. But while a
        # predecessor of the rest still ends, its room is what the rest waits for; the pins' own time goes on.
        stuck = [pod for pod in entry.unit.pods() if podstate.pinned(pod)]
        if stuck and not any(self._ends(pod) for pod in self._cache.index.members(root)):
            self._start(self._give_up(stuck))

    def _ends(self, pod: core.Pod) -> bool:
        """A member that stands for no place any more, but still has its room."""
        leaf = self._cache.index.leaf_of(pod)
        member = leaf is not None and podstate.is_member(pod, leaf)
        return member and not podstate.counts(pod) and self._cache.index.holding(pod) is not None

    def _admit(self, root: Key, entry: Entry, plan: Plan, want: Want) -> None:
        topology = entry.decision.topology
        assert topology is not None
        placements = self._still_good(plan.assignments, topology)
        if placements is None:
            self.mark(root)
            return
        decision = replace(entry.decision, reason=None, message="", reservation=None)
        self._enter(root, replace(entry, want=Want.NOTHING, decision=decision, since=None))
        self._start(self._commit(root, placements, want))

    def _still_good(self, assignments: Sequence[Assignment], topology: Topology) -> list[Placement] | None:
        """Hold the plan's room, unless something it was made from has changed while it was made."""
        held: list[Placement] = []
        for each in assignments:
            pod = self._cache.index.pod(each.pod)
            good = pod is not None and podstate.counts(pod) and podstate.obstacle(pod) is None
            if pod is None or not good or self._cache.capacity.refusal(pod, each.node):
                for other in held:
                    self._cache.unassume(other.pod.metadata.uid)
                return None
            placement = Placement(pod, each.node, domains(topology, each))
            self._committer.assume([placement])
            held.append(placement)
        return held

    async def _commit(self, root: Key, placements: Sequence[Placement], want: Want) -> None:
        started = time.perf_counter()
        committed = await self._committer.commit(placements, rehearse=self._denied(root))
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
            self._deny(root, committed.denied)
        if done == len(placements):
            self._parking.forget(root)
            metrics.GANG_ADMISSIONS.labels(want.value).inc()
            unit = self._cache.index.unit(root)
            if unit is not None and want is Want.MINIMUM:
                self._lives.admitted(unit)
            controller = unit.root.metadata.controller if unit is not None else None
            # Of a resource's units the operator says so, on the resource.
            if unit is not None and (controller is None or controller.kind != "DisaggregatedInference"):
                self._tell(unit, "Normal", "Admitted", f"{done} pods of the {want.value} have their places")
        self.mark(root)

    def _denied(self, root: Key) -> bool:
        """The unit's last pins were denied, by what is remembered or, after a restart, by its status."""
        unit = self._cache.index.unit(root)
        said = core.condition(unit.root.status.conditions, ADMITTED) if unit else None
        return self._parking.denied(root) or (said is not None and said.reason == REASON_DENIED)

    def _deny(self, root: Key, why: str) -> None:
        entry = self._entries.get(root)
        if entry is None:
            return
        self._tell(entry.unit, "Warning", REASON_DENIED, why)
        self._park(root, entry, REASON_DENIED, why)

    async def _give_up(self, pods: Sequence[core.Pod]) -> None:
        await asyncio.gather(*(self._writer.release(pod, RELEASE_CONFLICT) for pod in pods))

    def _tell(self, unit: Unit, kind: str, reason: str, note: str) -> None:
        meta = unit.root.metadata
        regarding = ObjectRef(unit.root.api_version, unit.root.kind, meta.name, meta.namespace, meta.uid)
        self._recorder.event(regarding, "Normal" if kind == "Normal" else "Warning", reason, note, "Admit")

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)


def domains(topology: Topology, assignment: Assignment) -> dict[str, str]:
    """Level → domain value, for the levels that the node has."""
    pairs = zip(topology.levels, assignment.path, strict=False)
    return {level.name: value for level, value in pairs if value is not None}
