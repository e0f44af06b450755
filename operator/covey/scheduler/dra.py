"""Devices of drivers, watched: slices, classes, claims and taint rules, and the nodes that they are on.

A pod takes what its claims ask for, once they are made: they are read and not their templates, which may have changed
since. A claim that it names and that is allocated takes nothing more, but ties it to the nodes that reach its devices.

Devices are counted (``placement.cluster.slices``) as if nodes offered them by themselves, so that whoever reads what a
node has sees them. Where the API server does not serve ``resource.k8s.io/v1`` nothing is counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from covey.admission import obstacles
from covey.admission.gangs import UnplannableError
from covey.admission.volumes import confine_to_nodes
from covey.api import core
from covey.api.constants import REASON_UNSUPPORTED
from covey.kube.client import Client
from covey.kube.clock import Clock
from covey.kube.reflector import Reflector
from covey.kube.resources import DEVICE_CLASSES, DEVICE_TAINT_RULES, RESOURCE_CLAIMS, RESOURCE_SLICES
from covey.placement.cluster.device_claims import (
    SHARED,
    UNSERVED,
    DeviceAsk,
    UnsupportedClaimError,
    asks_of_pod,
    claims_named,
    claims_of,
)
from covey.placement.cluster.shape import shape_of
from covey.placement.cluster.slices import DeviceCounts
from covey.scheduler.capacity import Capacity

#: Slices, nodes or pods that are looked at before others on the event loop have their turn.
STEP: Final = 5


class DriverDevices:
    """Keeps the nodes of ``capacity`` extended by their devices.

    Args:
        client: reads.
        capacity: what the nodes have.
        node: a node by name, as the API server has it.
        changed: told of a node that has more or fewer devices, and whether it may have more.
        refusals_changed: told when other resources than before cannot be counted.
        pods_changed: told of pods (UIDs) that may take something else than before, or whose claims have come or gone.
    """

    def __init__(
        self,
        client: Client,
        capacity: Capacity,
        *,
        node: Callable[[str], core.Node | None],
        clock: Clock,
        changed: Callable[[str], None],
        refusals_changed: Callable[[], None],
        pods_changed: Callable[[Iterable[str]], None],
    ) -> None:
        self.counts = DeviceCounts()
        self._capacity = capacity
        self._node = node
        self._changed = changed
        self._refusals_changed = refusals_changed
        self._pods_changed = pods_changed
        self._refused: Collection[str | DeviceAsk] = frozenset()
        #: By UID: pods with claims. Namespace and name of a claim → UIDs of the pods that it is for.
        self._claimants: dict[str, core.Pod] = {}
        self._naming: dict[tuple[str, str], set[str]] = {}
        #: Namespace and name of a claim → UID of the pod that it was made for, as the pod's status has it.
        self._made: dict[tuple[str, str], str] = {}
        #: Nodes that are looked at in steps, and whether the classes have changed.
        self._waiting: set[str] = set()
        self._stale = False
        self._task: asyncio.Task[None] | None = None
        #: Cleared while that goes on in a task.
        self.steady = asyncio.Event()
        self.steady.set()
        self._claims = Reflector(client, RESOURCE_CLAIMS, core.ResourceClaim, clock=clock, on_event=self._on_claim)
        self.reflectors: list[Reflector[Any]] = [
            Reflector(client, DEVICE_CLASSES, core.DeviceClass, clock=clock, on_event=self._on_class),
            Reflector(client, RESOURCE_SLICES, core.ResourceSlice, clock=clock, on_event=self._on_slice),
            Reflector(client, DEVICE_TAINT_RULES, core.DeviceTaintRule, clock=clock, on_event=self._on_rule),
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
        uid = pod.metadata.uid
        if core.is_terminal(pod):
            self._drop_claimant(pod)
        elif pod.spec.resource_claims:
            self._set_claimant(pod)
        for made in _made_claims(pod):
            self._made[made] = uid
            if (claim := self._claims.store.get(made)) is not None:
                self._recount(self.counts.set_claim(claim, uid))
        self._look_at(uid, freed)

    def remove_pod(self, pod: core.Pod, freed: str | None) -> None:
        """A pod is gone; what was allocated for it stays so until its claim says otherwise."""
        self._drop_claimant(pod)
        for made in _made_claims(pod):
            if self._made.get(made) == pod.metadata.uid:
                del self._made[made]
        self._look_at(pod.metadata.uid, freed)

    def count_claims(self, pod: core.Pod, spec: core.PodSpec) -> core.PodSpec:
        """A pod's spec with what its claims ask for, as overhead, and confined to where those are that it names."""
        more = Counter[str]()
        for ask, count in self._asks(pod).items():
            more.update(dict.fromkeys(self.counts.classes.names_of(ask), count))
        if more:
            spec = replace(spec, overhead={**(spec.overhead or {}), **more})
        named = (self._claims.store.get(key) for key in claims_named(pod))
        allocations = (claim.status.allocation for claim in named if claim)
        return confine_to_nodes(spec, (each.node_selector for each in allocations if each and each.node_selector))

    def obstacle(self, pod: core.Pod) -> str | None:
        """The reason for which a pod must not be planned: a claim that it names does not exist, and nobody makes it.

        Raises:
            UnplannableError: it asks for something that cannot be counted, or for more devices than a claim may have.
        """
        if self.counts.classes.served and (excess := self.counts.find_excess(shape_of(pod).requests)):
            raise UnplannableError(REASON_UNSUPPORTED, excess)
        if not pod.spec.resource_claims:
            return None
        if not self._claims.served:
            raise UnplannableError(REASON_UNSUPPORTED, UNSERVED)
        for key in claims_of(pod):
            if not self.counts.knows_claim(*key):
                return f"ResourceClaim {key[1]} of pod {pod.metadata.name} does not exist: create it"
        for key in claims_named(pod):
            claim = self._claims.store.get(key)
            if claim is not None and claim.status.allocation is None and len(self._naming.get(key, ())) > 1:
                raise UnplannableError(REASON_UNSUPPORTED, f"ResourceClaim {key[1]} {SHARED}")
        try:
            asks_of_pod(pod, self._claims.store)
        except UnsupportedClaimError as error:
            raise UnplannableError(REASON_UNSUPPORTED, str(error)) from None
        classes, asks = self.counts.classes, self._asks(pod)
        if refused := next(filter(None, map(classes.refusal, asks)), None):
            raise UnplannableError(REASON_UNSUPPORTED, refused)
        return None if all(map(classes.has_judged, asks)) else f"devices for pod {pod.metadata.name} are being counted"

    def _asks(self, pod: core.Pod) -> Counter[DeviceAsk]:
        """All that its claims ask for; nothing where that cannot be counted."""
        try:
            return asks_of_pod(pod, self._claims.store)
        except UnsupportedClaimError:
            return Counter()

    def _set_claimant(self, pod: core.Pod) -> None:
        before = self._claimants.get(pod.metadata.uid)
        self._claimants[pod.metadata.uid] = pod
        if before is None or set(claims_of(before)) != set(claims_of(pod)):
            if before is not None:
                self._drop_names(before)
            for key in claims_of(pod):
                self._naming.setdefault(key, set()).add(pod.metadata.uid)
        elif _stage_of(before) == _stage_of(pod):
            return
        self._ask(pod)

    def _drop_claimant(self, pod: core.Pod) -> None:
        known = self._claimants.pop(pod.metadata.uid, None)
        if known is not None:
            self._drop_names(known)
            self._ask(known, is_gone=True)
            # Who shared a claim with it may have it alone now.
            self._pods_changed({uid for key in claims_named(known) for uid in self._naming.get(key, ())})

    def _drop_names(self, pod: core.Pod) -> None:
        for key in claims_of(pod):
            self._naming.get(key, set()).discard(pod.metadata.uid)
            if not self._naming.get(key):
                self._naming.pop(key, None)

    def _ask(self, pod: core.Pod, *, is_gone: bool = False) -> None:
        # Whoever cannot be given devices now must not keep others from theirs, nor a pod of no gang a gang.
        asks = Counter[DeviceAsk]() if is_gone or obstacles.foreign_gates(pod) else self._asks(pod)
        if self.counts.ask(pod, asks, obstacles.find_yielding(pod, asks, self._claims.store)):
            self._stale = True
            self._go_on()

    def _look_at(self, uid: str, freed: str | None) -> None:
        if self.counts.has_claim(uid):
            self._recount({node for node in (freed, self._capacity.room.holder(uid)) if node})

    def _extend(self, node: core.Node) -> core.Node:
        holders = self._capacity.room.holders(node.metadata.name)
        return self.counts.extend(node, ((uid, held.shape.requests) for uid, held in holders.items()))

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
            for _ in steps:
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
                pods = tuple(self._claimants)
                for number in range(0, len(pods), STEP):
                    self._pods_changed(pods[number : number + STEP])
                    yield
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
        refused: set[str | DeviceAsk] = {name for name in self.counts.classes.problems if self.counts.problem(name)}
        refused |= self.counts.classes.refused.keys()
        if refused != self._refused:
            self._refused = refused
            self._refusals_changed()

    def _on_slice(self, event: str, found: core.ResourceSlice, _previous: object) -> None:
        gone = event == "DELETED"
        self._recount(self.counts.remove_slice(found.metadata.name) if gone else self.counts.set_slice(found))
        self._note_refusals()

    def _on_class(self, event: str, found: core.DeviceClass, _previous: object) -> None:
        gone = event == "DELETED"
        if self.counts.classes.drop(found.metadata.name) if gone else self.counts.classes.note(found):
            self._stale = True
            self._go_on()

    def _on_rule(self, event: str, found: core.DeviceTaintRule, _previous: object) -> None:
        gone = event == "DELETED"
        self._recount(self.counts.remove_rule(found.metadata.name) if gone else self.counts.set_rule(found))

    def _on_claim(self, event: str, found: core.ResourceClaim, previous: core.ResourceClaim | None) -> None:
        key = found.metadata.key
        gone = event == "DELETED"
        nodes = self.counts.remove_claim(key) if gone else self.counts.set_claim(found, self._made.get(key))
        pods = tuple(self._naming.get(key, ()))
        if gone or previous is None or previous.status.allocation != found.status.allocation:
            for uid in pods:
                self._ask(self._claimants[uid])
            self._pods_changed(pods)
        self._recount({*nodes, *(node for uid in pods if (node := self._capacity.room.holder(uid)))})


def _stage_of(pod: core.Pod) -> tuple[object, ...]:
    """What decides besides its claims whether a pod asks for devices, or has them."""
    return obstacles.foreign_gates(pod), pod.spec.node_name


def _made_claims(pod: core.Pod) -> Iterator[tuple[str, str]]:
    """The claims that were made for a pod; what they say of that themselves anybody may take away."""
    names = [each.resource_claim_name for each in pod.status.resource_claim_statuses or ()]
    if pod.status.extended_resource_claim_status:
        names.append(pod.status.extended_resource_claim_status.resource_claim_name)
    yield from ((pod.metadata.namespace, name) for name in names if name)
