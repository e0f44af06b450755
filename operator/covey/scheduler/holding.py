"""Holds the room of lost pods for their successors (``admission.losses``), in the capacity that everybody plans by.

Every replica of the process does so, leading or not, for each answers its own kube-scheduler: gangs are planned without
that room, and ordinary pods are kept off it like off the room of admitted gangs. Nothing is held that is taken already:
pods that other schedulers bind cannot be kept off, and a hold gives way to them. The unit itself is planned as if
nothing was held for it (``snapshot``). A hold without a successor ends within seconds while an operator leads: one
that quota or a policy denies needs no room. A successor that is made later says where its predecessor was, and has that
room held again if it is free.

A unit's queue is charged on for a pod from its deletion on, while it holds its node itself, and for its hold then, so that
its quota goes to nobody else meanwhile (``holds_of``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from covey.admission import losses
from covey.admission.losses import Hold
from covey.admission.nodes import Key
from covey.admission.tree import Unit
from covey.api import core
from covey.kube.clock import Clock
from covey.model import podstate
from covey.observability import scheduler_metrics as metrics
from covey.placement.cluster.inventory import Inventory
from covey.placement.overlay import overlay
from covey.scheduler.cache import Cache, Listener
from covey.scheduler.defaults import MAX_HOLD
from covey.scheduler.operator_lease import ALWAYS, LOOK, OperatorLease
from covey.scheduler.plugin import Handle, Plugin

#: Seconds that holds may be late to end.
LATE: Final = 0.02
#: Seconds for which a place may have no pod that waits while an operator leads, and its room is held still.
SUCCESSOR: Final = 10.0
FOREVER: Final = float("inf")


class Holding(Plugin):
    """The holds of all units.

    Args:
        cache: the pods and groups.
        clock: the time.
        longest: seconds for which room is ever held.
        operator: who makes successors; without it somebody always does.
    """

    def __init__(
        self,
        cache: Cache,
        clock: Clock,
        *,
        longest: float = MAX_HOLD,
        operator: OperatorLease | None = None,
    ) -> None:
        self._cache = cache
        self._longest = longest
        self._operator = operator
        self._clock = clock.monotonic
        self._wall = clock.wall
        #: Is told of a unit for which less is held than before.
        self.on_drop: Callable[[Key], None] = lambda _root: None
        self._holds: dict[Key, dict[str, Hold]] = {}
        self._on: dict[str, dict[str, Hold]] = {}
        #: By UID, what is going to be held once pods that are being deleted are gone.
        self._coming: dict[Key, dict[str, Hold]] = {}
        #: UIDs of pods whose deletion was noted; the unit that is charged on for it, if any.
        self._terminating: dict[str, Key | None] = {}
        #: By hold, since when it has been without a successor.
        self._alone_since: dict[str, float] = {}
        #: UIDs of members that ended before they were gone.
        self._ended: set[str] = set()
        #: UIDs of successors that were read. They are lost like any other later on.
        self._successors: set[str] = set()
        self._begun = False
        self._news = asyncio.Event()
        cache.subscribe(Listener(unit=self._unit, pod=self._pod, gone=self._on_pod_deleted))

    def attach(self, handle: Handle) -> None:
        """Requeue units here for which less is held than before."""
        self.on_drop = handle.queue.requeue

    def shares_refusal(self, root: Key) -> bool:
        """Tell whether nothing is held for a unit: what is makes its question one of its own."""
        return root not in self._holds

    def holds_of(self, root: Key) -> list[Hold]:
        """The room that is held for a unit, and what is going to be once pods of it that are being deleted are gone."""
        return [*self._holds.get(root, {}).values(), *self._coming.get(root, {}).values()]

    def begin(self) -> None:
        """Everything has been listed: read what successors say, and watch from now on."""
        self._begun = True
        pods = list(self._cache.index.pods())
        for pod in pods:
            if core.is_terminal(pod):
                self._ended.add(pod.metadata.uid)
            elif podstate.is_terminating(pod):
                self._note_deletion(pod, unbroken=False)
        for pod in pods:
            self._read(pod)

    async def end_holds(self) -> None:
        """End holds whose time is over, for ever."""
        look = self._clock()
        while True:
            self._news.clear()
            due = min(self._dues(), default=None)
            if due is None:
                await self._news.wait()
                continue
            if self._operator is not None and min(self._alone_since.values(), default=FOREVER) < FOREVER:
                if look <= self._clock():
                    await self._operator.look()
                    look = self._clock() + LOOK
                due = min([look, *self._dues()])
            try:
                await asyncio.wait_for(self._news.wait(), max(due - self._clock(), 0.0) + LATE)
            except TimeoutError:
                self.expire()

    def expire(self) -> None:
        """End the holds whose time is over, and those whose successor nobody has made."""
        now = self._clock()
        for hold in [hold for holds in self._holds.values() for hold in holds.values() if self._due(hold) <= now]:
            if hold.until > now and self._still_ends(hold):
                self._alone_since[hold.key] = now
            else:
                self._drop(hold)
        late = [(uid, hold) for coming in self._coming.values() for uid, hold in coming.items() if hold.until <= now]
        for uid, hold in late:
            self._drop_coming(uid)
            self.on_drop(hold.root)

    def _dues(self) -> Iterator[float]:
        yield from (self._due(hold) for holds in self._holds.values() for hold in holds.values())
        yield from (hold.until for coming in self._coming.values() for hold in coming.values())

    def _due(self, hold: Hold) -> float:
        led_since = self._operator.led_since if self._operator is not None else ALWAYS
        if led_since is None:
            return hold.until
        return min(hold.until, max(self._alone_since[hold.key], led_since) + SUCCESSOR)

    def _still_ends(self, hold: Hold) -> bool:
        """Another pod of the replica is about to go: the successors of all may be made after that."""
        return any(
            pod.metadata.deletion_timestamp is not None
            and not core.is_terminal(pod)
            and losses.is_of_same_replica(hold, pod)
            for pod in self._cache.index.members(hold.root)
        )

    @contextmanager
    def snapshot(self, root: Key, inventory: Inventory) -> Iterator[None]:
        """Let the planner see what is held for a unit as free; nobody else may look at the inventory meanwhile."""
        held = list(self._holds.get(root, ()))
        if not held:
            yield
            return
        with overlay(inventory) as changes:
            changes.remove(held)
            yield

    @contextmanager
    def place(self, root: Key) -> Iterator[None]:
        """Let a unit take its places; what is held for the others is held on where its new pods have left it room."""
        holds = self._holds.pop(root, {})
        for hold in holds.values():
            self._cache.capacity.give_room(hold.key)
            self._forget(hold)
        try:
            yield
        finally:
            unit = self._cache.index.unit(root)
            assumed = self._cache.capacity.assumed
            wanted = {hold.key for hold in losses.find_wanted(holds.values(), unit, assumed)}
            for hold in holds.values():
                if hold.key not in wanted or not self._hold_room(hold):
                    del self._alone_since[hold.key]
                    self._cache.tell_room(hold.node)
            self._drop_filled(root, unit)
            self._count()

    def _unit(self, root: Key) -> None:
        if root not in self._holds and root not in self._coming:
            return
        unit = self._cache.index.unit(root)
        self._drop_filled(root, unit)
        for hold in self._holds.get(root, {}).values():
            self._look_for_successor(hold, unit)

    def _drop_filled(self, root: Key, unit: Unit | None) -> None:
        """Drop what a unit lacks no pod for any more."""
        wanted = {hold.key for hold in losses.find_wanted(self.holds_of(root), unit, self._cache.capacity.assumed)}
        for hold in [hold for hold in self._holds.get(root, {}).values() if hold.key not in wanted]:
            self._drop(hold)
        for uid in [uid for uid, hold in self._coming.get(root, {}).items() if hold.key not in wanted]:
            self._drop_coming(uid)

    def _look_for_successor(self, hold: Hold, unit: Unit | None) -> None:
        before = self._alone_since.get(hold.key, FOREVER)
        if unit is not None and losses.has_successor(hold, unit):
            self._alone_since[hold.key] = FOREVER
        elif before == FOREVER:
            self._alone_since[hold.key] = self._clock()
            self._news.set()

    def _pod(self, pod: core.Pod) -> None:
        if not self._begun:
            return
        uid = pod.metadata.uid
        if core.is_terminal(pod):
            if uid not in self._ended:
                self._ended.add(uid)
                self._note_lost_pod(pod)
            return
        if podstate.is_terminating(pod) and uid not in self._terminating:
            self._note_deletion(pod, unbroken=True)
        self._read(pod)
        if pod.spec.node_name in self._on:
            self._give_way(pod.spec.node_name)

    def _on_pod_deleted(self, pod: core.Pod) -> None:
        if not self._begun:
            return
        self._successors.discard(pod.metadata.uid)
        if pod.metadata.uid in self._ended:
            self._ended.discard(pod.metadata.uid)
        else:
            self._note_lost_pod(pod)

    def _note_deletion(self, pod: core.Pod, *, unbroken: bool) -> None:
        """A pod is being deleted: its unit is charged for it until it is gone, but not for ever where nobody ends it."""
        uid, hold = pod.metadata.uid, self._hold_after(pod, unbroken=unbroken)
        self._terminating[uid] = hold.root if hold is not None else None
        if hold is not None:
            grace = max((core.seconds(pod.metadata.deletion_timestamp) or 0.0) - self._wall(), 0.0)
            self._coming.setdefault(hold.root, {})[uid] = replace(hold, until=hold.until + grace)
            self._news.set()

    def _drop_coming(self, uid: str) -> Hold | None:
        """Charge a unit no longer for a pod that is being deleted; what is held for it later does not count to the unit."""
        root = self._terminating.get(uid)
        if root is None:
            return None
        self._terminating[uid] = None
        coming = self._coming[root]
        hold = coming.pop(uid)
        if not coming:
            del self._coming[root]
        return hold

    def _note_lost_pod(self, pod: core.Pod) -> None:
        """A pod has given up its node."""
        uid = pod.metadata.uid
        coming = self._drop_coming(uid)
        unbroken = coming.unbroken if coming is not None else uid not in self._terminating
        self._terminating.pop(uid, None)
        hold = self._hold_after(pod, unbroken=unbroken)
        if hold is not None:
            self._hold(hold)

    def _hold_after(self, pod: core.Pod, *, unbroken: bool) -> Hold | None:
        """The hold for the successor of a pod; none of what gave way to a claim, or is wanted no longer."""
        gave_way = pod.metadata.uid in self._cache.capacity.claimed or podstate.gives_way(pod)
        if pod.spec.node_name is None or gave_way:
            return None
        return self._make_hold(pod, pod.spec.node_name, 0.0, unbroken=unbroken)

    def _read(self, pod: core.Pod) -> None:
        """A successor may say where its predecessor was, once: whoever saw the predecessor go holds that room already."""
        node = losses.room_said(pod)
        if node is None or pod.metadata.uid in self._successors:
            return
        root = self._cache.index.root_of_pod(pod)
        if root is None:
            return
        self._successors.add(pod.metadata.uid)
        place = losses.place_of(pod)
        if any(hold.place == place for hold in self.holds_of(root)):
            return
        hold = self._make_hold(pod, node, losses.age_of(pod, self._wall()), unbroken=False)
        if hold is not None:
            self._hold(hold)

    def _make_hold(self, pod: core.Pod, node: str, age: float, *, unbroken: bool) -> Hold | None:
        leaf, root = self._cache.index.leaf_of(pod), self._cache.index.root_of_pod(pod)
        group = self._cache.index.root(root) if root is not None else None
        if leaf is None or root is None or group is None or not podstate.is_member(pod, leaf):
            return None
        shape = self._cache.capacity.shape(pod)
        hold = losses.hold_for(pod, node, group, root, shape, now=self._clock(), age=age, longest=self._longest)
        wanted = losses.find_wanted([hold] if hold else (), self._cache.index.unit(root), self._cache.capacity.assumed)
        return replace(wanted[0], unbroken=unbroken) if wanted else None

    def _hold(self, hold: Hold) -> None:
        if self._hold_room(hold):
            self._look_for_successor(hold, self._cache.index.unit(hold.root))
            self._count()

    def _hold_room(self, hold: Hold) -> bool:
        """Hold room if it is there."""
        if not self._cache.capacity.hold_room(hold.key, hold.node, hold.shape, hold.meta):
            return False
        self._holds.setdefault(hold.root, {})[hold.key] = hold
        self._on.setdefault(hold.node, {})[hold.key] = hold
        self._news.set()
        return True

    def _drop(self, hold: Hold) -> None:
        self._cache.capacity.give_room(hold.key)
        holds = self._holds[hold.root]
        del holds[hold.key], self._alone_since[hold.key]
        if not holds:
            del self._holds[hold.root]
        self._forget(hold)
        self._count()
        self._cache.tell_room(hold.node)
        self.on_drop(hold.root)

    def _forget(self, hold: Hold) -> None:
        on_node = self._on[hold.node]
        del on_node[hold.key]
        if not on_node:
            del self._on[hold.node]

    def _give_way(self, node: str) -> None:
        """Somebody has taken what was held."""
        while node in self._on and self._cache.capacity.is_overcommitted(node):
            self._drop(next(reversed(self._on[node].values())))

    def _count(self) -> None:
        held = sum(map(len, self._holds.values()))
        metrics.CAPACITY_HELD.set(held)
        metrics.ROOM_HELD.set(held)
