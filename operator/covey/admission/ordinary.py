"""Ordinary pods as victims: those that no gang has, one by one, if the cluster lets them be evicted. Pure.

An ordinary pod has no surplus and no minimum: it is a step of its own, which counts as a replica. Its owner's
PodDisruptionBudgets are asked by the eviction itself, which the operator tries without effect beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from heapq import nsmallest
from typing import Final

from covey.admission.nodes import Key
from covey.admission.slots import Vector, Wanted
from covey.admission.victims import Caps, Offer, Step, Terms, bound_at, devices_of, sum_held
from covey.api import core
from covey.api.constants import LABEL_INFERENCE
from covey.api.inference import MIN_RUN_SECONDS
from covey.model import podstate
from covey.placement.cluster.domains import NodeState
from covey.placement.cluster.inventory import Inventory

POD: Final = "Pod"
#: Ordinary pods that a search looks at; of more those that hold what is lacked, and of these the lowest priority.
MOST: Final = 2000
#: Kinds of owners whose pods belong to their nodes: a DaemonSet's come back there, a static pod is its node's own.
_OF_NODES: Final = frozenset({"DaemonSet", "Node"})
_MIRROR: Final = "kubernetes.io/config.mirror"
#: Classes that Kubernetes keeps for itself.
_SYSTEM: Final = "system-"
#: On pods of Volcano's groups.
_VOLCANO: Final = "scheduling.k8s.io/group-name"


@dataclass(frozen=True, slots=True)
class OrdinaryPod:
    """A pod that may be evicted."""

    pod: core.Pod

    @property
    def key(self) -> Key:
        """Its key, by which it is no unit's."""
        return Key(POD, self.pod.metadata.namespace, self.pod.metadata.name)

    @property
    def priority(self) -> int:
        """Its priority."""
        return self.pod.spec.priority or 0

    def pods(self) -> tuple[core.Pod, ...]:
        """The pod."""
        return (self.pod,)

    @property
    def has_surplus(self) -> bool:
        """Tell that no unit has to go whole for it."""
        return True

    def offer(self, inventory: Inventory, terms: Terms) -> Offer:
        """The step that it is; none where it is claimed already, or has hardly begun to run.

        It is spared for as long as replicas are by default. So what came back where it was evicted is not evicted again.
        """
        since = bound_at(self.pods())
        uid, served = self.pod.metadata.uid, terms.seconds_since(since)
        if uid in terms.claimed or served < min(float(MIN_RUN_SECONDS), terms.longest):
            return Offer()
        held = sum_held((uid,), inventory)
        step = Step(
            POD,
            self.key,
            self.pod.metadata.name,
            0,
            (uid,),
            self.priority,
            count=held[terms.resource],
            devices=devices_of(held),
            since=since,
            served=served,
        )
        return Offer((step,), {"": Caps(1, 1)})


def find_ordinary(
    pods: Iterable[core.Pod],
    priority: int,
    refused: Collection[str] = (),
    *,
    holds: Callable[[core.Pod], bool] = lambda _pod: True,
) -> list[OrdinaryPod]:
    """Find the pods that may be evicted for a gang: of more than ``MOST`` those first that hold what it lacks.

    Args:
        pods: all pods of the cluster.
        priority: the gang's.
        holds: tells of a pod whether it holds what the gang lacks.
        refused: UIDs of pods whose eviction was refused lately. Neither are pods of their controllers tried: what
            forbids one of them mostly forbids them all.
    """
    found: list[OrdinaryPod] = []
    closed: set[str] = set()
    for pod in pods:
        owner = pod.metadata.controller
        if pod.metadata.uid in refused and owner is not None:
            closed.add(owner.uid)
        if (pod.spec.priority or 0) < priority and pod.metadata.uid not in refused and is_evictable(pod):
            found.append(OrdinaryPod(pod))
    allowed = (each for each in found if (owner := each.pod.metadata.controller) is None or owner.uid not in closed)
    return nsmallest(MOST, allowed, key=lambda each: (not holds(each.pod), each.priority, each.pod.metadata.uid))


def is_evictable(pod: core.Pod) -> bool:
    """Tell whether a pod is an ordinary one that has a node, serves no node of its own, and is not going anyway."""
    meta, owner = pod.metadata, pod.metadata.controller
    if (
        not podstate.occupies_node(pod)
        or podstate.is_terminating(pod)
        or (owner is not None and owner.kind in _OF_NODES)
    ):
        return False
    if meta.annotation(_MIRROR) is not None or (pod.spec.priority_class_name or "").startswith(_SYSTEM):
        return False
    gang = podstate.claims_membership(pod) or meta.label(LABEL_INFERENCE) is not None
    return not (gang or pod.spec.scheduling_group or meta.annotation(_VOLCANO) is not None)


def is_in_the_way(key: str, state: NodeState, wanted: Wanted, most: Vector) -> bool:
    """Tell whether a gang may need what a holder has on a node, however much else is gone there.

    Args:
        key: of the holder.
        state: the node.
        wanted: what is to be placed.
        most: what the node holds at most, of each shape, once all that may be taken is gone.
    """
    if state.guards or any(shape.anti_affinity for shape in wanted.shapes):
        return True
    used: dict[str, int] = {}
    for shape, count in zip(wanted.shapes, most, strict=False):
        for name, amount in shape.requests:
            used[name] = used.get(name, 0) + amount * count
    return any(
        amount and state.free.get(name, 0) < used.get(name, 0) for name, amount in state.held[key].shape.requests
    )
