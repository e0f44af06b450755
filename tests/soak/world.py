"""What is, and what of the recent past the invariants need: losses, specs, and who deleted what.

Times are quiet seconds (``Quiet``): they do not pass while a process is down, a watch may be cut or answers are held
up, for then nobody can have seen what happened a moment ago.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from soak.facts import LEVELS, Json, Node, Owner, Pod, Replica, Resource, Side, Wanted
from soak.rests import Rests

#: Quiet seconds after which everybody has seen what happened.
GRACE: Final = 8.0


@dataclass(frozen=True, slots=True)
class Loss:
    """A live pod that went, or that is not Ready any more. ``ours``: the operator asked for its deletion."""

    at: float
    replica: Replica
    ours: bool
    #: Its replica served until then.
    served: bool
    #: It gives way to a claim.
    claimed: bool = False


@dataclass
class World:
    """Everything that the watches have told so far."""

    pods: dict[str, Pod] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    resources: dict[Owner, Resource] = field(default_factory=dict)
    #: Specs that may be acted upon, with the time from which: the last, and those before it for a while.
    specs: dict[Owner, deque[tuple[float, Wanted]]] = field(default_factory=dict)
    losses: deque[Loss] = field(default_factory=deque)
    #: When a node was last found unfit, or gone.
    unfit: dict[str, float] = field(default_factory=dict)
    #: The version with which a node has become fit.
    became_fit: dict[str, int] = field(default_factory=dict)
    #: When each pod was bound.
    bound: dict[str, float] = field(default_factory=dict)
    #: Until when the rollout of a resource said that it finds no room, if it does not still.
    cramped: dict[Owner, float] = field(default_factory=dict)
    #: Namespaces with a ResourceQuota: by its arithmetic alone an old replica may go for its successor.
    limited: set[str] = field(default_factory=set)
    #: UIDs of pods of which it was proven that their going would give a successor its places.
    proven: set[str] = field(default_factory=set)
    #: Until when a resource said that it gives up more than was lost, if it does not still.
    escalated: dict[Owner, float] = field(default_factory=dict)
    #: Pods (namespace, name) that the operator has asked to delete.
    condemned: set[tuple[str, str]] = field(default_factory=set)
    #: UIDs of pods that the soak has done something to.
    touched: set[str] = field(default_factory=set)
    rests: Rests = field(default_factory=Rests)
    replicas: dict[Replica, dict[str, Pod]] = field(default_factory=dict)
    on_node: dict[str, dict[str, Pod]] = field(default_factory=dict)

    # What is

    def members(self, replica: Replica) -> list[Pod]:
        """The pods of a replica, dead ones included."""
        return list(self.replicas.get(replica, {}).values())

    def live(self, replica: Replica) -> dict[int, list[Pod]]:
        """The live pods of a replica by index."""
        found: dict[int, list[Pod]] = {}
        for pod in self.members(replica):
            if pod.live:
                found.setdefault(pod.index, []).append(pod)
        return found

    def numbers(self, side: Side) -> Iterator[Replica]:
        """The replicas of a role of a unit that have pods."""
        return (replica for replica in self.replicas if replica.side == side)

    def whole(self, replica: Replica, *, placed: bool) -> bool:
        """All places of a replica are filled with pods that are decided, or placed."""
        live = self.live(replica)
        return any(
            all(any(each.placed if placed else each.decided for each in live.get(index, ())) for index in range(size))
            for size in {pod.size for pods in live.values() for pod in pods}
        )

    def serves(self, replica: Replica) -> bool:
        """All pods of a replica serve."""
        live = self.live(replica)
        return any(
            all(any(each.serves for each in live.get(index, ())) for index in range(size))
            for size in {pod.size for pods in live.values() for pod in pods}
        )

    def serving(self, side: Side) -> int:
        """How many replicas serve."""
        return sum(self.serves(replica) for replica in self.numbers(side))

    def units(self, owner: Owner) -> set[int]:
        """The units that have live pods."""
        return {
            replica.side.unit
            for replica, pods in self.replicas.items()
            if replica.side.owner == owner and any(pod.live for pod in pods.values())
        }

    # What was

    def wanted(self, owner: Owner, at: float) -> list[Wanted]:
        """The specs that somebody may act upon at a time, the newest last."""
        told = self.specs.get(owner, deque())
        # One that is not accepted leaves the last one before it in force.
        past = [number for number, (since, spec) in enumerate(told) if since < at - GRACE and not spec.broken]
        for _ in range(max(past, default=0)):
            told.popleft()
        return [spec for _, spec in told]

    def note_spec(self, owner: Owner, spec: Wanted, at: float) -> None:
        """A spec is about to be written, or was seen."""
        told = self.specs.setdefault(owner, deque())
        if not told or told[-1][1] != spec:
            told.append((at, spec))

    def recent_losses(self, at: float) -> list[Loss]:
        """Losses that not everybody need have seen."""
        while self.losses and self.losses[0].at < at - GRACE:
            self.losses.popleft()
        return list(self.losses)

    # What comes

    def put_pod(self, pod: Pod, at: float) -> Pod | None:
        """Take a pod as it is now; returns it as it was before."""
        before = self._take_out(pod.uid)
        self.pods[pod.uid] = pod
        if pod.replica is not None:
            self.replicas.setdefault(pod.replica, {})[pod.uid] = pod
        if pod.node:
            self.on_node.setdefault(pod.node, {})[pod.uid] = pod
            self.bound.setdefault(pod.uid, at)
        return before

    def drop_pod(self, uid: str) -> Pod | None:
        """A pod is gone; returns it as it was."""
        self.bound.pop(uid, None)
        return self._take_out(uid)

    def put_node(self, node: Node, at: float) -> None:
        """Take a node as it is now."""
        before = self.nodes.get(node.name)
        # A node stays where it is, also while a level's label is renamed or missing.
        before_labels = before.labels if before is not None else {}
        where = {key: before_labels[key] for key in LEVELS.values() if key in before_labels}
        self.nodes[node.name] = node = replace(node, labels=where | dict(node.labels))
        if node.drives:
            self.stir_node(node.name)
        if not node.fit and (before is None or before.fit):
            self.unfit[node.name] = at
        if node.fit and self.unfit.pop(node.name, None) is not None:
            self.became_fit[node.name] = node.version

    def stir_node(self, name: str) -> None:
        """A node gives a reason to take pods away."""
        for pod in self.on_node.get(name, {}).values():
            if pod.replica is not None:
                self.rests.stir(pod.replica.side.owner)

    def drop_node(self, name: str, at: float) -> None:
        """A node is gone."""
        self.stir_node(name)
        self.nodes.pop(name, None)
        self.unfit.setdefault(name, at)

    def note_proofs(self, root: Json) -> None:
        """Take notice of who may go for a successor, as a root's status says."""
        for successor in root.get("status", {}).get("succession", {}).get("successors", ()):
            for victim in successor.get("victims", ()):
                self.proven.update(victim.get("pods", ()))

    def put_resource(self, resource: Resource, at: float) -> None:
        """Take a resource as it is now."""
        before = self.resources.get(resource.owner)
        self.resources[resource.owner] = resource
        self.note_spec(resource.owner, resource.wanted, at)
        if before is None or before.generation != resource.generation or resource.going:
            self.rests.stir(resource.owner)
        if before is not None and before.gate == "Nodes":
            self.cramped[resource.owner] = at
        if before is not None and before.escalates:
            self.escalated[resource.owner] = at

    def drop_resource(self, owner: Owner) -> None:
        """A resource is gone."""
        self.resources.pop(owner, None)
        self.rests.stir(owner)

    def _take_out(self, uid: str) -> Pod | None:
        before = self.pods.pop(uid, None)
        if before is None:
            return None
        if before.replica is not None:
            pods = self.replicas[before.replica]
            pods.pop(uid, None)
            if not pods:
                del self.replicas[before.replica]
        if before.node:
            self.on_node.get(before.node, {}).pop(uid, None)
        return before
