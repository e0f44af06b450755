"""Resources at rest: all has been as it is wanted, and nobody has given a reason since to take away what serves.

Reasons are a change of the spec or of a scaler, a pod that others have taken or touched, one that is not Ready any more,
and a node that wants its pods gone. What is no reason ends no rest: a taint ``NoSchedule`` on no list, a Service, budget
or quota that changes, a label key of the topology that is renamed, processes that are away.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from soak.facts import Owner, Pod, Resource

if TYPE_CHECKING:
    from soak.world import World

#: Conditions that a resource at rest has, and their reasons; any where it is empty.
_CONDITIONS: Final = {"Admitted": "", "Scheduled": "", "Available": "", "Progressing": "Complete"}


@dataclass
class Rests:
    """The resources at rest, and those on their way to it."""

    settled: set[Owner] = field(default_factory=set)
    #: Since when all has been as it is wanted, of those that are not settled yet.
    _since: dict[Owner, float] = field(default_factory=dict)

    def stir(self, owner: Owner) -> None:
        """Somebody gives a reason to take pods of a resource away."""
        self.settled.discard(owner)
        self._since.pop(owner, None)

    def look(self, world: World, at: float, grace: float) -> None:
        """Time has passed: a resource is settled once all of it has been as it is wanted for ``grace`` seconds."""
        for owner, resource in world.resources.items():
            if owner in self.settled:
                continue
            if not _is_as_wanted(world, resource):
                self._since.pop(owner, None)
            elif at - self._since.setdefault(owner, at) > grace:
                self.settled.add(owner)


def _is_as_wanted(world: World, resource: Resource) -> bool:
    """All that is wanted serves, on nodes where it may stay, nothing else is there, and the resource says so."""
    wanted = resource.wanted
    if resource.going or wanted.suspended or wanted.paused or wanted.broken or resource.gate:
        return False
    if resource.observed != resource.generation or not _is_complete(resource):
        return False
    pods = [pod for pod in world.pods.values() if pod.owner_uid == resource.uid and pod.replica is not None]
    if not all(pod.serves and _may_stay(world, pod) for pod in pods):
        return False
    replicas = {pod.replica for pod in pods if pod.replica is not None}
    if not all(world.serves(replica) for replica in replicas):
        return False
    revisions = {(pod.labels.get("covey.dev/role"), pod.labels.get("covey.dev/revision")) for pod in pods}
    if len(revisions) > len({role for role, _ in revisions}):
        return False
    counts = Counter((replica.side.unit, replica.side.role) for replica in replicas)
    expected = {
        (unit, role): counts[unit, role] if part.external else part.replicas
        for unit in range(wanted.units)
        for role, part in wanted.parts.items()
    }
    return all(counts[side] == expected.get(side, 0) for side in counts.keys() | expected.keys())


def _is_complete(resource: Resource) -> bool:
    found = {kind: resource.conditions.get(kind, ("", "", "")) for kind in _CONDITIONS}
    return all(
        status == "True" and reason == (_CONDITIONS[kind] or reason) for kind, (status, reason, _) in found.items()
    )


def _may_stay(world: World, pod: Pod) -> bool:
    node = world.nodes.get(pod.node)
    return node is not None and not node.drives
