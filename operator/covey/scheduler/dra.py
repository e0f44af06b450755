"""Devices of drivers, watched: slices, classes, claims and taint rules, and the nodes that they are on.

They are counted (``placement.cluster.slices``) as if nodes offered them by themselves, so that whoever reads what a
node has sees them. Where the API server does not serve ``resource.k8s.io/v1`` nothing is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final

from covey.api import core
from covey.kube.client import Client
from covey.kube.reflector import Reflector
from covey.kube.resources import DEVICE_CLASSES, DEVICE_TAINT_RULES, RESOURCE_CLAIMS, RESOURCE_SLICES
from covey.placement.cluster.slices import DeviceCounts, Requests
from covey.scheduler.capacity import Capacity

#: Slices or nodes that are looked at before others on the event loop have their turn.
STEP: Final = 20


class DriverDevices:
    """Keeps the nodes of ``capacity`` extended by their devices.

    Args:
        client: reads.
        capacity: what the nodes have.
        node: a node by name, as the API server has it.
        changed: told of a node that has more or fewer devices, and whether it may have more.
        refusals_changed: told when other resources than before cannot be counted.
        claim_made: told of the pods (UIDs) that name a claim which is there now.
    """

    def __init__(
        self,
        client: Client,
        capacity: Capacity,
        *,
        node: Callable[[str], core.Node | None],
        changed: Callable[[str], None],
        refusals_changed: Callable[[], None],
        claim_made: Callable[[Iterable[str]], None],
    ) -> None:
        self.counts = DeviceCounts()
        self._capacity = capacity
        self._node = node
        self._changed = changed
        self._refusals_changed = refusals_changed
        self._claim_made = claim_made
        self._refused: Collection[str] = frozenset()
        #: Namespace and name of a claim → UIDs of the pods that name it themselves.
        self._naming: dict[tuple[str, str], set[str]] = {}
        #: Namespace and name of a claim → UID of the pod for whose extended resources it was made.
        self._made: dict[tuple[str, str], str] = {}
        #: Nodes that are looked at in steps, and whether the classes have changed.
        self._waiting: set[str] = set()
        self._stale = False
        self._task: asyncio.Task[None] | None = None
        #: Cleared while that goes on in a task.
        self.steady = asyncio.Event()
        self.steady.set()
        self._claims = Reflector(client, RESOURCE_CLAIMS, core.ResourceClaim, on_event=self._on_claim)
        self.reflectors: list[Reflector[Any]] = [
            Reflector(client, DEVICE_CLASSES, core.DeviceClass, on_event=self._on_class),
            Reflector(client, RESOURCE_SLICES, core.ResourceSlice, on_event=self._on_slice),
            Reflector(client, DEVICE_TAINT_RULES, core.DeviceTaintRule, on_event=self._on_rule),
            self._claims,
        ]

    def set_node(self, node: core.Node) -> None:
        """Take over a node as it is now."""
        self.counts.set_node(node)
        self._capacity.set_node(self._extend(node))
        self._note_refusals()

    def remove_node(self, name: str) -> None:
        """A node is gone."""
        self.counts.remove_node(name)
        self._capacity.remove_node(name)
        self._note_refusals()

    def set_pod(self, pod: core.Pod, freed: str | None) -> None:
        """A pod was taken over: where its devices were allocated by a claim, they are counted by its requests now."""
        for key in _named_claims(pod):
            self._naming.setdefault(key, set()).add(pod.metadata.uid)
        if made := _made_claim(pod):
            self._made[made] = pod.metadata.uid
            if (claim := self._claims.store.get(made)) is not None:
                self._recount(self.counts.set_claim(claim, pod.metadata.uid))
        self._look_at(pod.metadata.uid, freed)

    def remove_pod(self, pod: core.Pod, freed: str | None) -> None:
        """A pod is gone; what was allocated for it stays so until its claim says otherwise."""
        for key in _named_claims(pod):
            self._naming.get(key, set()).discard(pod.metadata.uid)
            if not self._naming.get(key):
                self._naming.pop(key, None)
        if (made := _made_claim(pod)) and self._made.get(made) == pod.metadata.uid:
            del self._made[made]
        self._look_at(pod.metadata.uid, freed)

    def obstacle(self, pod: core.Pod) -> str | None:
        """The reason for which a pod must not be planned: a claim that it names does not exist, and nobody makes it."""
        if not self._claims.served:
            return None
        lacking = next((name for space, name in _named_claims(pod) if not self.counts.knows_claim(space, name)), None)
        return f"ResourceClaim {lacking} of pod {pod.metadata.name} does not exist: create it" if lacking else None

    def _look_at(self, uid: str, freed: str | None) -> None:
        if self.counts.has_claim(uid):
            self._recount({node for node in (freed, self._capacity.room.holder(uid)) if node})

    def _extend(self, node: core.Node) -> core.Node:
        return self.counts.extend(node, self._requests_on(node.metadata.name))

    def _requests_on(self, node: str) -> Iterator[tuple[str, Requests]]:
        for uid, held in self._capacity.room.holders(node).items():
            yield uid, held.shape.requests

    def _recount(self, nodes: Collection[str]) -> None:
        """Look at nodes again: at once, or if they are many in steps."""
        if len(nodes) > STEP:
            self._waiting.update(nodes)
            self._go_on()
        else:
            for name in nodes:
                self._count(name)

    def _go_on(self) -> None:
        """Begin what is due; what is not done after a step is done in a task."""
        if not self.steady.is_set():
            return
        steps = self._steps()
        for number, _ in enumerate(steps, 1):
            if number == STEP:
                self.steady.clear()
                self._task = asyncio.get_running_loop().create_task(self._finish(steps))
                return

    async def _finish(self, steps: Iterator[None]) -> None:
        try:
            for number, _ in enumerate(steps):
                if number % STEP == 0:
                    await asyncio.sleep(0)
        finally:
            self.steady.set()

    def _steps(self) -> Iterator[None]:
        while self._stale or self._waiting:
            if self._stale:
                self._stale = False
                yield from self.counts.judge()
                self._waiting.update(self.counts.nodes)
                self._note_refusals()
            else:
                self._count(self._waiting.pop())
                yield

    def _count(self, name: str) -> None:
        node, state = self._node(name), self._capacity.room.nodes.get(name)
        if node is None or state is None:
            return
        extended = self._extend(node)
        if extended.status.allocatable != state.node.status.allocatable:
            self._capacity.set_node(extended)
            self._changed(name)

    def _note_refusals(self) -> None:
        refused = {name for name in self.counts.problems if self.counts.problem(name)}
        if refused != self._refused:
            self._refused = refused
            self._refusals_changed()

    def _on_slice(self, event: str, found: core.ResourceSlice, _previous: object) -> None:
        gone = event == "DELETED"
        self._recount(self.counts.remove_slice(found.metadata.name) if gone else self.counts.set_slice(found))
        self._note_refusals()

    def _on_class(self, event: str, found: core.DeviceClass, _previous: object) -> None:
        gone = event == "DELETED"
        if self.counts.drop_class(found.metadata.name) if gone else self.counts.note_class(found):
            self._stale = True
            self._go_on()

    def _on_rule(self, event: str, found: core.DeviceTaintRule, _previous: object) -> None:
        gone = event == "DELETED"
        self._recount(self.counts.remove_rule(found.metadata.name) if gone else self.counts.set_rule(found))

    def _on_claim(self, event: str, found: core.ResourceClaim, previous: core.ResourceClaim | None) -> None:
        key = found.metadata.key
        self._recount(
            self.counts.remove_claim(key) if event == "DELETED" else self.counts.set_claim(found, self._made.get(key))
        )
        if event == "DELETED" or previous is None:
            self._claim_made(tuple(self._naming.get(key, ())))


def _made_claim(pod: core.Pod) -> tuple[str, str] | None:
    """The claim as kube-scheduler names it; the annotation, by which it is known until then, anybody may take away."""
    made = pod.status.extended_resource_claim_status
    return (pod.metadata.namespace, made.resource_claim_name) if made else None


def _named_claims(pod: core.Pod) -> Iterator[tuple[str, str]]:
    """Claims that a pod names itself; those of templates are in its status."""
    for each in pod.spec.resource_claims or ():
        if name := each.get("resourceClaimName"):
            yield pod.metadata.namespace, name
