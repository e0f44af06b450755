"""The free room of a cluster where another scheduler binds: pure, kept up event by event.

=========  ==========================================================  ==================================================
a pod      is                                                          and takes room
=========  ==========================================================  ==================================================
held       bound, pinned by Covey's scheduler, or nominated            where it is
promised   still gated; a place was found, and its gate is lifted now  where that is, until it is let go or was not for
                                                                       ``PATIENCE``
expected   let go and not bound: kube-scheduler looks for a place      where one was found for it: when it was promised,
                                                                       else the first node that takes it
homeless   the same, and no node takes it now                          nowhere
=========  ==========================================================  ==================================================

Other pods that wait take nothing: nobody knows where they go. An expected pod whose node is full, or gone, is looked a
place for again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from covey.admission.taken_room import counted_shape
from covey.api import core
from covey.api.constants import LABEL_INFERENCE
from covey.model import podstate
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Shape

#: Seconds that a promise is kept for a pod whose gate stays.
PATIENCE: Final = 30.0
#: On pods that Volcano binds, all of a group or none: nobody knows of one of them whether it finds a place.
_VOLCANO: Final = "scheduling.k8s.io/group-name"


class Stock:
    """Free capacity by node.

    Args:
        on_freed: called when a node may have more room than before.
    """

    def __init__(self, on_freed: Callable[[], object] = lambda: None) -> None:
        self.inventory = Inventory()
        self._on_freed = on_freed
        self._places: dict[str, tuple[core.Pod, str]] = {}
        self._at: dict[str, set[str]] = {}
        self._homeless: dict[str, core.Pod] = {}
        self._promised: dict[str, float] = {}
        self._crowded: set[str] = set()
        self._touched: set[str] = set()
        self._freed: set[str] = set()

    def set_node(self, node: core.Node) -> None:
        """Take over a node as it is now."""
        before = self.inventory.facts
        self.inventory.set_node(node)
        if self.inventory.facts != before:
            self._free(node.metadata.name)

    def remove_node(self, name: str) -> None:
        """The node is gone."""
        self.inventory.remove_node(name)
        self._touch(name)

    def set_pod(self, pod: core.Pod) -> None:
        """Take over a pod as it is now."""
        uid = pod.metadata.uid
        node = podstate.holding(pod) or podstate.nominated_node(pod)
        if node is not None:
            self._unplace(uid)
            self._hold(pod, node)
        elif is_let_go(pod):
            self._promised.pop(uid, None)
            if uid in self._places:
                self._places[uid] = (pod, self._places[uid][1])
            else:
                self._release(uid)
                self._homeless[uid] = pod
        elif uid not in self._promised:
            self.remove_pod(uid)

    def remove_pod(self, uid: str) -> None:
        """The pod is gone, or nothing of its is taken."""
        self._unplace(uid)
        self._release(uid)

    def promise(self, nodes: Mapping[str, str], pods: Iterable[core.Pod], now: float) -> None:
        """Pods are about to be let go.

        Args:
            nodes: UID → node, of those that had none.
            pods: they, and perhaps others.
            now: seconds of a clock that never goes back.
        """
        for pod in pods:
            uid = pod.metadata.uid
            if uid in nodes:
                self._place(pod, nodes[uid])
                if not is_let_go(pod):
                    self._promised[uid] = now

    def withdraw(self, uids: Collection[str]) -> Callable[[], None]:
        """Take nothing for these until the function that is returned is called, or they are promised places anew."""
        taken = {uid: (self._places[uid], self._promised.get(uid)) for uid in uids if uid in self._places}
        for uid in taken:
            self._unplace(uid)
            self._release(uid, quiet=True)

        def restore() -> None:
            for uid, ((pod, node), since) in taken.items():
                self._place(pod, node)
                if since is not None:
                    self._promised[uid] = since

        return restore

    def settle(self, now: float) -> None:
        """Drop promises that were not kept, and find places for whoever was let go and has none."""
        for uid in [uid for uid, since in self._promised.items() if now - since > PATIENCE]:
            self.remove_pod(uid)
        for name in self._crowded & self._at.keys():
            for uid in [uid for uid in self._at[name] if self._is_full(name, self._places[uid][0])]:
                pod, _ = self._places[uid]
                self._unplace(uid)
                self._release(uid, quiet=True)
                self._homeless[uid] = pod
        self._crowded.clear()
        self._house()

    def take_touched(self) -> Collection[str]:
        """The nodes of which something has changed since this was last asked."""
        touched, self._touched = self._touched, set()
        return touched

    def take_freed(self) -> Collection[str]:
        """The nodes that may have more room than when this was last asked."""
        freed, self._freed = self._freed, set()
        return freed

    def _house(self) -> None:
        """Pods of one shape look on from where the last one found its place."""
        turns: dict[Shape, int] = {}
        names = list(self.inventory.nodes) if self._homeless else []
        for uid, pod in list(self._homeless.items()):
            shape = counted_shape(pod)
            at = turns.get(shape, 0)
            while at < len(names) and self.inventory.fits(shape, names[at], pod.metadata) is not None:
                at += 1
            turns[shape] = at
            if at < len(names):
                del self._homeless[uid]
                self._place(pod, names[at])

    def _is_full(self, name: str, pod: core.Pod) -> bool:
        state = self.inventory.nodes.get(name)
        if state is None or state.static_cause(counted_shape(pod)) is not None:
            return True
        return any(amount < 0 for amount in state.free.values())

    def _place(self, pod: core.Pod, node: str) -> None:
        uid = pod.metadata.uid
        self._unplace(uid)
        self._places[uid] = (pod, node)
        self._at.setdefault(node, set()).add(uid)
        self._hold(pod, node)

    def _unplace(self, uid: str) -> None:
        self._homeless.pop(uid, None)
        self._promised.pop(uid, None)
        place = self._places.pop(uid, None)
        if place is not None:
            self._at[place[1]].discard(uid)
            if not self._at[place[1]]:
                del self._at[place[1]]

    def _hold(self, pod: core.Pod, node: str) -> None:
        uid = pod.metadata.uid
        before = self.inventory.holder(uid)
        self.inventory.hold(uid, node, counted_shape(pod), pod.metadata)
        self._touch(node)
        if before is not None and before != node:
            self._free(before)

    def _release(self, uid: str, *, quiet: bool = False) -> None:
        before = self.inventory.holder(uid)
        if before is not None:
            self.inventory.release(uid)
            (self._touch if quiet else self._free)(before)

    def _touch(self, node: str) -> None:
        self._touched.add(node)
        self._crowded.add(node)

    def _free(self, node: str) -> None:
        self._touch(node)
        self._freed.add(node)
        self._on_freed()


def is_let_go(pod: core.Pod) -> bool:
    """A pod of a resource of ours that a scheduler other than Covey's may bind at any moment."""
    meta = pod.metadata
    if meta.label(LABEL_INFERENCE) is None or podstate.claims_membership(pod) or meta.annotation(_VOLCANO) is not None:
        return False
    return podstate.counts(pod) and pod.spec.node_name is None and not core.gates(pod)
