"""``Preemption``: who gives way to whom, how far it has come, and how it ended."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from covey.api.core.meta import Meta, Read
from covey.api.model import (
    ATOMIC,
    IMMUTABLE,
    REQUIRED,
    Count,
    DnsLabel,
    ObjectName,
    OneOf,
    Sentence,
    Timestamp,
    Uid,
    Word,
)

#: Reasons.
PRIORITY, RECLAIM, EXCHANGE = "Priority", "Reclaim", "Exchange"
#: States of a victim; all but the first two are final.
NAMED, DRAINING, GONE, REFUSED, LATE, RELEASED = "Named", "Draining", "Gone", "Refused", "Late", "Released"
#: Outcomes beside that all victims were released.
PLACED, GIVEN_UP = "Placed", "GivenUp"
#: Ended ones of a root that are kept at the most.
MOST_ENDED: Final = 8
#: Seconds after its end for which one is kept at least.
KEPT: Final = 3600.0


class Beneficiary(Read, frozen=True):
    """The root group that others give way to, in the same namespace."""

    kind: Annotated[str, OneOf(("CompositePodGroup", "PodGroup")), REQUIRED, IMMUTABLE] = ""
    """CompositePodGroup or PodGroup."""
    name: Annotated[ObjectName, REQUIRED, IMMUTABLE] = ""
    """Its name."""
    uid: Annotated[Uid, REQUIRED, IMMUTABLE] = ""
    """Its UID: a successor of the name is another one."""


class PreemptionVictim(Read, frozen=True):
    """Who gives way. Of another namespace no more is shown than the workload and how many pods."""

    uid: Annotated[Uid, IMMUTABLE]
    """The UID of one of its pods, the least of them: by it the victim is known in the status."""
    kind: Annotated[str, OneOf(("Replica", "Unit", "Pod")), IMMUTABLE]
    """Replica: one replica above the minimum of its role. Unit: all of a unit. Pod: a pod of no gang, which is evicted."""
    namespace: Annotated[DnsLabel, IMMUTABLE]
    """The namespace of its workload."""
    workload: Annotated[ObjectName, IMMUTABLE]
    """The name of its DisaggregatedInference. Of a pod the name of its controller, or its own where it has none."""
    pods: Annotated[Count, REQUIRED, IMMUTABLE] = 0
    """The number of its pods."""
    name: Annotated[str, IMMUTABLE, Field(max_length=253)] = ""
    """In the namespace of the Preemption: what it is in its workload, as people say it (decode/3 of unit 0)."""


class PreemptionSpec(Read, frozen=True):
    """What was decided, before anybody was touched."""

    beneficiary: Annotated[Beneficiary, REQUIRED] = Beneficiary()
    """The root that others give way to."""
    reason: Annotated[str, OneOf((PRIORITY, RECLAIM, EXCHANGE)), REQUIRED, IMMUTABLE] = ""
    """Priority: they are of a lower one. Reclaim: they have borrowed from the queue of the beneficiary. Exchange: replicas of
    another role of the same unit go for its own."""
    summary: Annotated[str, REQUIRED, IMMUTABLE, Field(max_length=1024)] = ""
    """The victims in words: how many of which workloads."""
    victims: Annotated[
        tuple[PreemptionVictim, ...], REQUIRED, ATOMIC, IMMUTABLE, Field(min_length=1, max_length=256)
    ] = ()
    """Those that give way. 1 to 256."""
    nodes: Annotated[tuple[ObjectName, ...], ATOMIC, IMMUTABLE, Field(max_length=4096)] = ()
    """The nodes that were to be kept for the beneficiary; those that are kept now stand in its status."""


class VictimStatus(Read, frozen=True):
    """How far a victim is."""

    uid: Uid
    """The victim, by its UID in the spec."""
    state: Annotated[str, OneOf((NAMED, DRAINING, GONE, REFUSED, LATE, RELEASED))]
    """Named: it serves as before. Draining: it is marked or being deleted. Gone. Refused: it may not be evicted. Late: it came to
    no end in time. Released: it is not needed any more, and stays."""
    until: Timestamp | None = None
    """Draining: the time by which it is deleted. Refused and Late: until when it is not taken for this beneficiary."""
    attempts: Count = 0
    """Refused and Late: how often that has been said of it for this beneficiary; each time it holds for twice as long."""


class PreemptionStatus(Read, frozen=True):
    """How far it is, and how it ended."""

    victims: Annotated[tuple[VictimStatus, ...], ATOMIC, Field(max_length=256)] = ()
    """The state of each victim."""
    progress: Annotated[str, Field(max_length=63)] = ""
    """How many of the victims that are needed are gone, for kubectl get."""
    deadline: Timestamp | None = None
    """The time at which it is given up, if it comes no nearer: a victim that drains or goes moves it."""
    outcome: Annotated[str, OneOf(("", PLACED, RELEASED, GIVEN_UP))] = ""
    """Empty while it is under way. Placed: the beneficiary is assigned nodes. Released: nobody needs to give way any more.
    GivenUp: some victim was refused or late."""
    reason: Word = ""
    """The reason of the outcome in one word: Placed, NotNeeded, Unplannable, Replaced, Refused or NoProgress."""
    message: Sentence = ""
    """The same in a sentence."""
    end_time: Timestamp | None = None
    """The time at which it ended. An hour later it is deleted, or when nothing of it is left aside any more."""


class Preemption(Read, frozen=True):
    """The life of one taking: for whom, from whom, how far, until when, and how it ended.

    The scheduler process alone writes it. Who gives way now, and what the operator obeys, is status.claim of the root.
    """

    metadata: Meta
    spec: Annotated[PreemptionSpec, REQUIRED] = PreemptionSpec()
    """What was decided, before anybody was touched."""
    status: PreemptionStatus = PreemptionStatus()
    """How far it is, and how it ended."""


__all__ = [
    "Beneficiary",
    "Preemption",
    "PreemptionSpec",
    "PreemptionStatus",
    "PreemptionVictim",
    "VictimStatus",
]
