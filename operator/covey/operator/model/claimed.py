"""Claims on the room of a resource, and the replicas that they name.

The scheduler process writes a claim on the root that is to benefit (``status.claim``) before anybody is touched; it
names those that give way by the UIDs of their pods. A replica is named as soon as one of its pods is that lives, and
then the whole of it; of a whole unit likewise. Pods that were made later have other UIDs and are none of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.backends import Owned
from covey.compile.identity import ReplicaKey, Slot
from covey.model import podstate

#: The kind of a victim that is all of a unit.
WHOLE_UNIT: Final = "Unit"
#: That of an ordinary pod, which is of no resource.
POD: Final = "Pod"


@dataclass(frozen=True, slots=True)
class RootClaim:
    """A claim, and those of one resource that it names.

    ``uid`` is that of the root; ``namespace`` and ``name`` are of the resource that benefits, or of the root itself
    where it belongs to none (``is_of_resource``). ``priority`` is None where nobody knows it. ``max_drain``: seconds for
    which its victims may drain at the most, whatever their owner says.
    """

    uid: str
    namespace: str
    name: str
    purpose: str
    victims: tuple[core.Victim, ...]
    message: str = ""
    priority: int | None = None
    is_of_resource: bool = True
    max_drain: float = inf

    def describe_to(self, namespace: str, priority: int | None) -> str:
        """Describe the root to one that gives way: by name only in its own namespace, by its priority everywhere.

        Whoever may read the victim need not be allowed to read the other namespace. Room that is kept names no gang
        either.
        """
        whom = f"{self.namespace}/{self.name}" if namespace == self.namespace else "a gang of another namespace"
        return whom if priority is None else f"{whom} (priority {priority})"


@dataclass(frozen=True, slots=True)
class Claimed:
    """The claim that a replica gives way to, ``whole`` with all of its unit."""

    claim: RootClaim
    whole: bool = False

    @property
    def kind(self) -> str:
        """``Unit`` or ``Replica``."""
        return WHOLE_UNIT if self.whole else "Replica"


def read_claim(root: Owned) -> RootClaim | None:
    """Read the claim of a group; None where it is no root, is being deleted, or claims nobody's room."""
    metadata, claim = root.metadata, root.status.claim
    if claim is None or not claim.victims or metadata.deletion_timestamp is not None:
        return None
    if root.spec.get("parentCompositePodGroupName"):
        return None
    resource = metadata.label(names.LABEL_INFERENCE)
    return RootClaim(
        metadata.uid,
        metadata.namespace,
        resource or metadata.name,
        claim.purpose,
        claim.victims,
        claim.message,
        is_of_resource=bool(resource),
    )


def find_claimed(
    claims: Iterable[RootClaim], pods: Mapping[Slot, tuple[core.Pod, ...]]
) -> Mapping[ReplicaKey, Claimed]:
    """Find the replicas that give way; where several claims name one, that of all of its unit comes first.

    Args:
        claims: those that name this resource.
        pods: every incarnation of each place.
    """
    named: dict[str, Claimed] = {}
    for claim in sorted(claims, key=lambda claim: claim.uid):
        for victim in claim.victims:
            claimed = Claimed(claim, victim.kind == WHOLE_UNIT)
            for uid in victim.pods:
                if claimed.whole or uid not in named:
                    named[uid] = claimed
    if not named:
        return {}
    units: dict[int, Claimed] = {}
    places: dict[ReplicaKey, Claimed] = {}
    for slot in sorted(pods):
        live = (pod.metadata.uid for pod in pods[slot] if not podstate.is_dead(pod))
        found_here = next((named[uid] for uid in live if uid in named), None)
        if found_here is not None and found_here.whole:
            units.setdefault(slot.unit, found_here)
        elif found_here is not None:
            places.setdefault(slot[:3], found_here)
    return places | {slot[:3]: units[slot.unit] for slot in pods if slot.unit in units}
