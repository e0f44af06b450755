"""The free room of the cluster, for backends whose scheduler knows no hierarchy: their gangs are let go by it.

Nodes and pods of the whole cluster are watched, but only once a resource has such a backend. What fits is what the
planner says (``admission``): the unit is expanded as for Covey's own scheduler, levels that the spec requires included.
What was let go counts as taken until it is bound, so units are let go one after another. Where a level is required,
pods get the domain of their place.

A resource that finds no room is looked at again when room comes free. Of those that ask for the same only the first is,
and the next one when that went: a node that is freed does not wake a thousand. What a freed node cannot help is not
woken at all (``admission.hints``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from covey.admission.fit_counts import FitCounts
from covey.admission.gangs import UnplannableError, missing
from covey.admission.hints import ANYTHING, QueueingHint, hint_for_minimum
from covey.admission.stock import Stock
from covey.api import core
from covey.api.inference import DisaggregatedInference
from covey.backends import ReplicaProgress
from covey.compile import Slot
from covey.kube.client import Client
from covey.kube.clock import Clock
from covey.kube.reflector import Reflector, expose
from covey.kube.resources import NODES, PODS
from covey.kube.watch import DELETED, EventType
from covey.operator.observe.unit_gang import Asked, Confined, expand, topology_of
from covey.operator.observe.watched import Key
from covey.placement.model import Gang, Refusal
from covey.placement.planner import LIMIT, plan_minimum

#: Seconds that events are gathered, and at least between two rounds of waking.
_GATHER: Final = 0.1
#: Resources that are woken at once.
_WAKES: Final = 32
#: Looks at resources that wait between two chances for others on the event loop.
_BREATH: Final = 50
#: Changed nodes beyond which each may help anybody: to ask one by one would cost more than to plan.
_MANY: Final = 64
#: A plan is made on the event loop: it may take a fraction of what Covey's scheduler allows itself.
_LIMIT: Final = LIMIT // 10

#: What waits: a resource, a unit of it, and the role of a replica of its surplus.
_Place = tuple[Key, int, str]


@dataclass(frozen=True, slots=True)
class _Wait:
    """A resource's wait for room: what it asked for, and the number of the pass that found none."""

    ask: QueueingHint
    number: int

    def group(self, place: _Place) -> Hashable:
        """Key that is equal for all that ask for the same."""
        return place if self.ask.key is None else self.ask.key


class ClusterRoom:
    """The free room of the cluster, and the resources that wait for it.

    Args:
        client: to the API server, for watches of everything.
        topologies: the ClusterTopologies that there are.
        enqueue: called with the key of a resource that has to be looked at.
        nodes: the watch of all nodes, which somebody else keeps; one of its own where there is none.
        clock: the time.
    """

    def __init__(
        self,
        client: Client,
        topologies: Callable[[], Sequence[core.ClusterTopology]],
        enqueue: Callable[[Key], None],
        *,
        clock: Clock,
        nodes: Reflector[core.Node] | None = None,
    ) -> None:
        self._topologies = topologies
        self._enqueue = enqueue
        self._clock = clock.monotonic
        self._news = asyncio.Event()
        self._wanted = asyncio.Event()
        self.stock = Stock(self._news.set)
        self._slots = FitCounts()
        self.nodes: Reflector[core.Node] = nodes or Reflector(
            client, NODES, core.Node, clock=clock, on_event=self._on_node
        )
        self._is_shared = nodes is not None
        self.pods = Reflector(client, PODS, core.Pod, clock=clock, on_event=self._on_pod)
        self._line: dict[_Place, _Wait] = {}
        self._passes: dict[Key, int] = {}
        self._numbers = count(1)
        #: Keys of questions that have found room: the next resource that asks one of them is to be looked at.
        self._again: set[Hashable] = set()

    @property
    def reflectors(self) -> Sequence[Reflector[Any]]:
        """Watches of nodes and pods, once both are synced; none before."""
        return (self.nodes, self.pods) if self.is_synced else ()

    @property
    def is_synced(self) -> bool:
        """Tell whether all nodes and pods are known."""
        return all(reflector.synced.is_set() for reflector in (self.nodes, self.pods))

    async def run(self) -> None:
        """Watch from the first question about room on, until cancelled."""
        await self._wanted.wait()
        watches: tuple[Reflector[Any], ...] = (self.pods,) if self._is_shared else (self.nodes, self.pods)
        if self._is_shared:
            for node in self.nodes.store.values():
                self.stock.set_node(node)
            self.nodes.subscribe(self._on_node)
        expose(watches)
        async with asyncio.TaskGroup() as tasks:
            for watch in watches:
                tasks.create_task(watch.run())
            tasks.create_task(self._wake_always())

    def view(self, key: Key) -> RoomView | None:
        """The room as a resource sees it in this pass; None until everything is known, when it is looked at again."""
        self._wanted.set()
        number = self._passes[key] = next(self._numbers)
        if self.is_synced:
            return RoomView(self, key, number)
        self._line[key, -1, ""] = _Wait(ANYTHING, number)
        return None

    def forget(self, key: Key) -> None:
        """Forget a resource that is gone, or asks for room no more."""
        self._passes.pop(key, None)

    def lacks(
        self, key: Key, number: int, inference: DisaggregatedInference, replicas: Sequence[ReplicaProgress]
    ) -> str | Confined:
        """Answer ``RoomView.lacks`` in the pass of this number; where nothing is lacking, by what confines the replicas."""
        now = self._clock()
        self.stock.settle(now)
        last = replicas[-1]
        place = (key, last.slots[0].unit, "" if last.in_minimum else last.role)
        restore = self.stock.withdraw([pod.metadata.uid for replica in replicas for pod in replica.pods])
        try:
            asked = self._expand(inference, replicas)
        except (UnplannableError, LookupError) as error:
            restore()
            self._line[place] = _Wait(ANYTHING, number)
            return str(error)
        answer = self._ask(asked)
        if isinstance(answer, Mapping):
            self.stock.promise(answer, asked.pods, now)
            self._leave(place)
            return asked.domain_labels(answer, self._labels)
        restore()
        self._line[place] = _Wait(self._ask_of(asked.gang), number)
        return answer

    def _labels(self, node: str) -> Mapping[str, str]:
        state = self.stock.inventory.nodes.get(node)
        return (state.node.metadata.labels or {}) if state is not None else {}

    def _expand(self, inference: DisaggregatedInference, replicas: Sequence[ReplicaProgress]) -> Asked:
        inventory = self.stock.inventory
        nodes = (state.node for state in inventory.nodes.values())
        topology = topology_of(inference.spec, self._topologies(), nodes)
        if inventory.topologies.get(topology.name) != topology:
            inventory.set_topologies([*inventory.topologies.values(), topology])
        return expand(inference, replicas, topology)

    def _ask(self, asked: Asked) -> Mapping[str, str] | str:
        """Plan a place: return nodes for the pods that have none, by UID; or the reason why there are none."""
        lacking = missing(asked.unit, asked.gang)
        if lacking is not None:
            return lacking
        answer = plan_minimum(asked.gang, self.stock.inventory, _LIMIT)
        if isinstance(answer, Refusal):
            return answer.message
        return {assignment.pod: assignment.node for assignment in answer.assignments}

    def _ask_of(self, gang: Gang) -> QueueingHint:
        return hint_for_minimum(gang, self.stock.inventory)

    def _leave(self, place: _Place) -> None:
        """Take a place out of the line, since room was found: others that ask for the same may find it too."""
        left = self._line.pop(place, None)
        if left is not None and left.ask.key is not None:
            self._again.add(left.ask.key)
            self._news.set()

    async def _wake_always(self) -> None:
        await self.nodes.synced.wait()
        await self.pods.synced.wait()
        for key, _, _ in list(self._line):
            self._enqueue(key)
        while True:
            await self._news.wait()
            await asyncio.sleep(_GATHER)
            self._news.clear()
            await self.wake()

    async def wake(self) -> None:
        """Wake resources that waited longest for each thing, where what has changed can help them."""
        freed, again, self._again = self.stock.take_freed(), self._again, set()
        woken = 0
        for looks, place in enumerate(self._firsts(), start=1):
            wait = self._line.get(place)
            if wait is not None and (wait.group(place) in again or self._helps(wait.ask, freed)):
                self._enqueue(place[0])
                woken += 1
                if woken % _WAKES == 0:
                    await asyncio.sleep(_GATHER)
            if looks % _BREATH == 0:
                await asyncio.sleep(0)
        if not self._line:
            self._slots.clear()

    def _firsts(self) -> list[_Place]:
        """The first of all that ask for the same; those that ask no more leave the line."""
        firsts: dict[Hashable, _Place] = {}
        for place, wait in list(self._line.items()):
            if self._passes.get(place[0]) != wait.number:
                del self._line[place]
                continue
            firsts.setdefault(wait.group(place), place)
        return list(firsts.values())

    def _helps(self, ask: QueueingHint, freed: Collection[str]) -> bool:
        self._slots.note_changes(self.stock.take_touched())
        if len(freed) > _MANY or (freed and ask.parts is None):
            return True
        inventory = self.stock.inventory
        states = (inventory.nodes.get(name) for name in freed)
        return any(state is not None and ask.can_help(state, inventory, self._slots) for state in states)

    def _on_node(self, kind: EventType, node: core.Node, _previous: core.Node | None) -> None:
        if kind == DELETED:
            self.stock.remove_node(node.metadata.name)
        else:
            self.stock.set_node(node)

    def _on_pod(self, kind: EventType, pod: core.Pod, _previous: core.Pod | None) -> None:
        if kind == DELETED:
            self.stock.remove_pod(pod.metadata.uid)
        else:
            self.stock.set_pod(pod)


@dataclass(frozen=True, slots=True)
class RoomView:
    """The room, as one resource asks for it in one pass."""

    room: ClusterRoom
    key: Key
    number: int
    _confined: dict[Slot, Mapping[str, str]] = field(default_factory=dict)

    def lacks(self, inference: DisaggregatedInference, replicas: Sequence[ReplicaProgress]) -> str | None:
        """Return why these replicas of one unit do not fit together; None when they do.

        Their room counts as taken from then on.
        """
        answer = self.room.lacks(self.key, self.number, inference, replicas)
        if isinstance(answer, str):
            return answer
        self._confined.update(answer)
        return None

    def domain_labels(self, slot: Slot) -> Mapping[str, str]:
        """Node labels of the domain that was found for a pod, where a level is required."""
        return self._confined.get(slot, {})
