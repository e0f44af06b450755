"""The life of a Preemption, as it follows from the claim of a root and from what its victims' pods say: pure.

::

    claim is made      claim stands                        claim is over
    Preemption ──────> victims: Named -> Draining -> Gone ──> Placed    the unit is assigned nodes
                                Named, Draining -> Released ──> Released  nobody needs it, or it cannot be planned
                                Named -> Refused, Draining -> Late ──> GivenUp  they are left aside for this root

Who gives way now is said by the claim (``status.claim`` of the root); what of a Preemption is told here is never read to
take anybody down. What is read again, by whoever leads next, is how it ended: who is left aside for whom, and until when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import count, takewhile
from typing import Final

import msgspec

from covey.admission.entry import QueueStage
from covey.admission.ordinary import POD
from covey.api import core
from covey.api.constants import PURPOSE_EXCHANGE, PURPOSE_PREEMPTION, PURPOSE_RECLAIM
from covey.api.core.preemption import (
    DRAINING,
    EXCHANGE,
    GIVEN_UP,
    GONE,
    KEPT,
    LATE,
    NAMED,
    PLACED,
    PRIORITY,
    RECLAIM,
    REFUSED,
    RELEASED,
    Beneficiary,
)
from covey.model import podstate

_REASONS: Final = {PURPOSE_PREEMPTION: PRIORITY, PURPOSE_RECLAIM: RECLAIM, PURPOSE_EXCHANGE: EXCHANGE}
#: Workloads that a summary names.
_NAMED_WORKLOADS: Final = 8
#: Characters of the name of a Preemption that are its root's, and those that tell it from others of the root.
_PREFIX, _DIGEST = 200, 10

#: Seconds for which something is left aside at the most.
LONGEST_ASIDE: Final = 14_400.0

FindPod = Callable[[str], core.Pod | None]


@dataclass(frozen=True, slots=True)
class LeftAside:
    """Until when something is not taken for a root, in seconds since the epoch, and how often that was said of it."""

    until: float
    attempts: int
    refused: bool = False


def victim_uid(victim: core.Victim) -> str:
    """The UID by which a victim is known in a Preemption."""
    return min(victim.pods)


def takes(claim: core.Claim | None) -> bool:
    """Tell whether others give way to a claim."""
    return claim is not None and bool(claim.victims) and claim.purpose in _REASONS


def describe(root: core.Group, claim: core.Claim, find_pod: FindPod) -> core.PreemptionSpec:
    """Build the spec of the Preemption of a claim with victims.

    Args:
        root: the group that others give way to.
        claim: its claim.
        find_pod: the pod of a UID.
    """
    victims = tuple(_describe_victim(victim, root.metadata.namespace, find_pod) for victim in claim.victims)
    counted = Counter((victim.kind, f"{victim.namespace}/{victim.workload}") for victim in victims)
    parts = [f"{_amount(kind, number)} of {workload}" for (kind, workload), number in counted.items()]
    more = len(parts) - _NAMED_WORKLOADS
    summary = ", ".join(parts[:_NAMED_WORKLOADS]) + (f" and {more} more" if more > 0 else "")
    beneficiary = Beneficiary(root.kind, root.metadata.name, root.metadata.uid)
    return core.PreemptionSpec(beneficiary, _REASONS[claim.purpose], summary[:1024], victims, claim.nodes)


def _describe_victim(victim: core.Victim, namespace: str, find_pod: FindPod) -> core.PreemptionVictim:
    uid, workload, name = victim_uid(victim), victim.name, f"unit {victim.unit}"
    if victim.kind == POD:
        pod = find_pod(uid)
        controller = pod.metadata.controller if pod is not None else None
        workload, name = controller.name if controller is not None else victim.name, victim.name
    elif victim.role:
        name = f"{victim.role}/{victim.replica} of unit {victim.unit}"
    # Whoever may read the beneficiary need not be allowed to read another namespace.
    shown = name if victim.namespace == namespace else ""
    return core.PreemptionVictim(uid, victim.kind, victim.namespace, workload, len(victim.pods), shown)


def _amount(kind: str, number: int) -> str:
    noun = {POD: "pod", "Unit": "unit"}.get(kind, "replica")
    return f"{number} {noun}{'s' if number > 1 else ''}"


def name_of(root: core.Group, claim: core.Claim, is_taken: Callable[[str], bool]) -> str:
    """Name the Preemption of a claim: the same name whenever it is tried again.

    Args:
        root: the group that others give way to.
        claim: its claim.
        is_taken: tells of a name whether another Preemption has it.
    """
    base = (root.metadata.uid, claim.since, claim.purpose, *map(victim_uid, claim.victims))
    names = (
        f"{root.metadata.name[:_PREFIX].rstrip('-.')}-{sha256('/'.join((*base, str(number))).encode()).hexdigest()[:_DIGEST]}"
        for number in count()
    )
    return next(name for name in names if not is_taken(name))


def is_of(preemption: core.Preemption, claim: core.Claim) -> bool:
    """Tell whether a Preemption is that of a claim: it is not over, and names all victims that the claim still has."""
    spec = preemption.spec
    is_open = not preemption.status.outcome
    named = {victim.uid for victim in spec.victims}
    return is_open and spec.reason == _REASONS.get(claim.purpose) and named.issuperset(map(victim_uid, claim.victims))


def is_root(preemption: core.Preemption, root: core.Group) -> bool:
    """Tell whether a Preemption is of this root, and not of another of its name."""
    return preemption.spec.beneficiary.uid == root.metadata.uid


def follow(preemption: core.Preemption, claim: core.Claim, find_pod: FindPod, deadline: float) -> core.PreemptionStatus:
    """The status of a Preemption whose claim stands.

    Args:
        preemption: as it is stored.
        claim: the claim, with the victims that are still needed.
        find_pod: the pod of a UID.
        deadline: when the claim is given up, if it comes no nearer; seconds since the epoch.
    """
    known, named = _states(preemption), {victim_uid(victim): victim for victim in claim.victims}
    states = tuple(
        _follow_victim(victim.uid, known.get(victim.uid), named.get(victim.uid), find_pod)
        for victim in preemption.spec.victims
    )
    # How long an exchange stands is said by whoever asked for it.
    until = None if preemption.spec.reason == EXCHANGE else core.rfc3339(deadline)
    return core.PreemptionStatus(states, _count_gone(states), until)


def _follow_victim(
    uid: str, known: core.VictimStatus | None, victim: core.Victim | None, find_pod: FindPod
) -> core.VictimStatus:
    if known is not None and known.state not in {NAMED, DRAINING}:
        return known
    uids = victim.pods if victim is not None else (uid,)
    pods = [pod for pod in map(find_pod, uids) if pod is not None]
    if not pods:
        return core.VictimStatus(uid, GONE)
    going = [pod for pod in pods if podstate.is_terminating(pod) or podstate.gives_way(pod)]
    if victim is None and not all(map(podstate.is_terminating, pods)):
        return core.VictimStatus(uid, RELEASED)
    if not going:
        return core.VictimStatus(uid, NAMED)
    times = (core.seconds(pod.metadata.deletion_timestamp) or podstate.drains_until(pod) for pod in going)
    until = max((time for time in times if time is not None), default=None)
    return core.VictimStatus(uid, DRAINING, core.rfc3339(until) if until is not None else None)


def end(
    preemption: core.Preemption,
    *,
    stage: QueueStage | None,
    replaced: bool,
    aside: Mapping[str, LeftAside],
    find_pod: FindPod,
    now: float,
) -> core.PreemptionStatus:
    """The last status of a Preemption whose claim is over.

    Args:
        preemption: as it is stored.
        stage: what its root needs now; None where that is not known.
        replaced: whether others give way to the root instead.
        aside: what is left aside for the root, by UID.
        find_pod: the pod of a UID.
        now: seconds since the epoch.
    """
    known = _states(preemption)
    states = tuple(
        _end_victim(victim.uid, known.get(victim.uid), aside.get(victim.uid), find_pod, now)
        for victim in preemption.spec.victims
    )
    kinds = {state.state for state in states}
    if preemption.spec.reason == EXCHANGE:
        is_placed = kinds == {GONE}
    else:
        is_placed = stage in {QueueStage.NOTHING, QueueStage.SURPLUS}
    if is_placed:
        outcome, reason, message = PLACED, "Placed", "the beneficiary is assigned nodes"
    elif REFUSED in kinds:
        outcome, reason = GIVEN_UP, "Refused"
        message = "some of those who were to give way may not be evicted: others are looked for"
    elif LATE in kinds:
        outcome, reason = GIVEN_UP, "NoProgress"
        message = "it came no nearer for long: those who did not go are left aside"
    elif replaced:
        outcome, reason, message = RELEASED, "Replaced", "it did not suffice any more: others give way, too"
    elif stage is QueueStage.PODS:
        outcome, reason, message = RELEASED, "Unplannable", "the beneficiary cannot be planned any more"
    else:
        outcome, reason, message = RELEASED, "NotNeeded", "nobody needs to give way to the beneficiary any more"
    return core.PreemptionStatus(
        states,
        _count_gone(states),
        outcome=outcome,
        reason=reason,
        message=message,
        end_time=core.rfc3339(now),
    )


def _end_victim(
    uid: str, known: core.VictimStatus | None, aside: LeftAside | None, find_pod: FindPod, now: float
) -> core.VictimStatus:
    if known is not None and known.state not in {NAMED, DRAINING}:
        return known
    pod = find_pod(uid)
    if pod is None or podstate.is_terminating(pod):
        return core.VictimStatus(uid, GONE)
    if aside is None or aside.until <= now:
        return core.VictimStatus(uid, RELEASED)
    state = REFUSED if aside.refused else LATE
    return core.VictimStatus(uid, state, core.rfc3339(aside.until), aside.attempts)


def _states(preemption: core.Preemption) -> dict[str, core.VictimStatus]:
    return {state.uid: state for state in preemption.status.victims}


def _count_gone(states: Collection[core.VictimStatus]) -> str:
    counted = Counter(state.state for state in states)
    return f"{counted[GONE]}/{len(states) - counted[RELEASED]}"


def differs(stored: core.PreemptionStatus, wanted: core.PreemptionStatus, now: float) -> bool:
    """Tell whether a status is worth a write: another deadline alone is, once the one that is told is over."""
    if msgspec.structs.replace(stored, deadline=wanted.deadline) != wanted:
        return True
    return stored.deadline != wanted.deadline and (core.seconds(stored.deadline) or 0.0) <= now


def read_left_aside(preemptions: Iterable[core.Preemption]) -> dict[str, LeftAside]:
    """Read what is left aside for a root from its Preemptions: UIDs, of those that ended since it was placed last."""
    ended = sorted(filter(is_over, preemptions), key=_end_of, reverse=True)
    found: dict[str, LeftAside] = {}
    for preemption in takewhile(lambda each: each.status.outcome != PLACED, ended):
        for state in preemption.status.victims:
            until = core.seconds(state.until)
            if state.state in {REFUSED, LATE} and until is not None:
                found.setdefault(state.uid, LeftAside(until, state.attempts, refused=state.state == REFUSED))
    return found


def is_over(preemption: core.Preemption) -> bool:
    """Tell whether a Preemption has ended."""
    return bool(preemption.status.outcome)


def _end_of(preemption: core.Preemption) -> float:
    return core.seconds(preemption.status.end_time) or 0.0


def expires(preemption: core.Preemption) -> float:
    """When an ended Preemption is deleted, in seconds since the epoch: nothing of it is left aside any more by then."""
    untils = (core.seconds(state.until) or 0.0 for state in preemption.status.victims if state.state in {REFUSED, LATE})
    ended = _end_of(preemption)
    return min(max((ended + KEPT, *untils)), ended + LONGEST_ASIDE)


def find_surplus(preemptions: Iterable[core.Preemption], most: int) -> list[core.Preemption]:
    """Find the ended Preemptions of a root that are more than so many, the oldest."""
    ended = sorted(filter(is_over, preemptions), key=lambda each: (_end_of(each), each.metadata.name), reverse=True)
    return ended[most:]
