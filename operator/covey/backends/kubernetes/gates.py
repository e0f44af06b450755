"""The hierarchy that flat groups cannot say, held by Covey's own gate.

kube-scheduler knows each PodGroup by itself: the prefill replicas of a unit could start without its decode replicas. So
every pod is born with Covey's gate. The minimum of all roles of a unit is let go together, once all its pods exist and
the free room of the cluster holds all of them. Surplus is let go replica by replica, as room allows, while the whole
minimum of its unit is bound; when a part of the minimum is lost, what has not been let go waits again. A minimum that was
raised waits for what was lost: while a unit lacks some of what it had, that goes without the replicas that it never had,
as far as groups of roles tell the minimum that was met last.

What this does not guarantee stands in every verdict (``LIMITS``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from covey.api import constants as names
from covey.api import core
from covey.backends.seam import Owned, Release, ReleaseFacts, ReplicaProgress
from covey.compile import Slot
from covey.compile.identity import group_name

#: What a pod is born with.
GATED: Final[Mapping[str, Any]] = {"schedulingGates": [{"name": names.GATE_GANG}]}
REASON: Final = "HierarchyByGates"
LIMITS: Final = (
    "between that look and the binding somebody else may take the capacity, and kube-scheduler need not find the same "
    "nodes: then the gang stays partly bound until capacity comes"
)
LET_GO: Final = (
    f"Covey's gates have let the whole minimum go together, since there was capacity for all of it; {LIMITS}"
)
_LOST: Final = "what the unit has lost comes back first"
_UNSEEN: Final = "the operator has not seen all nodes and pods of the cluster yet; if this stays, see its log"
#: Replicas of a unit's surplus that are let go in one pass. Their pods bring the next one.
_STEP: Final = 32


def release(progress: ReleaseFacts, *, atomic: bool = False, groups: str = "") -> Release:
    """Return the pods to let go now, and why the minimum of other units has to wait.

    Args:
        progress: how far the resource has come.
        atomic: one pod with a gate keeps its whole group from the queue. Single pods of one role have one group: those
            of the surplus are there only while the minimum is bound, and go at once.
        groups: the type of the groups that roles of single pods have; they tell which minimum was met last.
    """
    waits: dict[int, core.Condition] = {}
    withheld: set[Slot] = set()
    going: list[ReplicaProgress] = []
    for unit, replicas in sorted(progress.units.items()):
        whole = [replica for replica in replicas if replica.in_minimum]
        minimum = _without_raised(progress, whole, groups)
        if not all(replica.is_let_go for replica in minimum):
            wait = _wait(progress, minimum)
            if wait is None:
                # Who comes first is placed first: the larger a replica, the fewer places there are for it.
                going += sorted(minimum, key=_largest)
            else:
                waits[unit] = wait
        elif len(minimum) < len(whole):
            count = len(whole) - len(minimum)
            waits[unit] = _waiting_condition(
                names.REASON_WAITING, f"{count} replicas of the raised minimum wait: {_LOST}"
            )
        if atomic:
            raised = (replica for replica in whole if replica not in minimum and len(replica.slots) == 1)
            withheld.update(slot for replica in raised for slot in replica.slots)
        if atomic and not progress.has_minimum(unit):
            withheld.update(slot for replica in replicas if _is_single_surplus(replica) for slot in replica.slots)
    # Every minimum that can go has its room by now.
    for unit, replicas in progress.units.items():
        if progress.has_minimum(unit):
            at_once = [replica for replica in replicas if atomic and _is_single_surplus(replica)]
            going += (replica for replica in at_once if replica.is_complete and not replica.is_let_go)
            going += _surplus(progress, [e for e in replicas if not _is_single_surplus(e)] if at_once else replicas)
    slots = tuple(slot for replica in going for slot in replica.slots)
    return Release(slots, waits, confined=_domain_labels(progress, slots), withheld=frozenset(withheld))


def _without_raised(
    progress: ReleaseFacts, minimum: Sequence[ReplicaProgress], groups: str
) -> Sequence[ReplicaProgress]:
    """Return what a unit that has nodes had of its minimum, while it lacks some of that; else the whole minimum."""
    if not any(replica.is_bound for replica in minimum):
        return minimum
    roles: dict[str, list[ReplicaProgress]] = {}
    for replica in sorted(minimum, key=lambda replica: (not replica.is_bound, not replica.is_let_go, replica.slots)):
        roles.setdefault(replica.role, []).append(replica)
    had: list[ReplicaProgress] = []
    for role, replicas in roles.items():
        name = group_name(progress.inference.metadata.name, replicas[0].slots[0].unit, role)
        met = _met_minimum(progress.objects.get((groups, name)))
        had += [replica for place, replica in enumerate(replicas) if replica.is_bound or met is None or place < met]
    return minimum if all(replica.is_bound for replica in had) else had


def _met_minimum(group: Owned | None) -> int | None:
    """Read the minimum that was met last: what a role's group notes, or its count; None of a role without such a group."""
    if group is None:
        return None
    note = group.metadata.annotation(names.ANNOTATION_MET_MINIMUM) or ""
    count = group.spec.get("schedulingPolicy", {}).get("gang", {}).get("minCount", 0)
    return int(note) if note.isdecimal() else int(count)


def _domain_labels(progress: ReleaseFacts, slots: Sequence[Slot]) -> Mapping[Slot, Mapping[str, str]]:
    """Return the node labels of the domains in which the whole was found to fit, by place.

    kube-scheduler needs them, as it goes from replica to replica and never back.
    """
    labelled = ((slot, progress.room.domain_labels(slot)) for slot in slots) if progress.room is not None else ()
    return {slot: labels for slot, labels in labelled if labels}


def _is_single_surplus(replica: ReplicaProgress) -> bool:
    return not replica.in_minimum and len(replica.slots) == 1


def _largest(replica: ReplicaProgress) -> int:
    return -len(replica.slots)


def _wait(progress: ReleaseFacts, minimum: Sequence[ReplicaProgress]) -> core.Condition | None:
    """Return why the minimum of a unit is kept; None when it may go."""
    missing = sum(not replica.is_complete for replica in minimum)
    if missing:
        what = f"{missing} of {len(minimum)} replicas of its minimum have no pods yet"
        return _waiting_condition(names.REASON_WAITING, what)
    if progress.room is None:
        return _waiting_condition(names.REASON_WAITING, _UNSEEN)
    lacks = progress.room.lacks(progress.inference, minimum)
    if lacks is None:
        return None
    return _waiting_condition(
        REASON, f"{lacks}; Covey's gates let the minimum of all roles go together, once all of it fits"
    )


def _waiting_condition(reason: str, message: str) -> core.Condition:
    return core.Condition(names.ADMITTED, "False", reason, message)


def _surplus(progress: ReleaseFacts, replicas: Sequence[ReplicaProgress]) -> Iterator[ReplicaProgress]:
    """Return the surplus that finds room, the emptiest role first; a replica that finds none ends its role's turn."""
    waiting: dict[str, list[ReplicaProgress]] = {}
    share: dict[str, list[bool]] = {}
    for waiting_replica in replicas:
        share.setdefault(waiting_replica.role, []).append(waiting_replica.is_let_go)
        if not waiting_replica.is_let_go and waiting_replica.is_complete:
            waiting.setdefault(waiting_replica.role, []).append(waiting_replica)
    room, anchor = progress.room, _anchor(progress, replicas)
    for _ in range(_STEP):
        if room is None or not waiting:
            return
        role = min(waiting, key=lambda name: (sum(share[name]) / len(share[name]), name))
        first, *rest = waiting.pop(role)
        if room.lacks(progress.inference, (*anchor, first)) is None:
            yield first
            share[role][share[role].index(False)] = True
            if rest:
                waiting[role] = rest


def _anchor(progress: ReleaseFacts, replicas: Sequence[ReplicaProgress]) -> tuple[ReplicaProgress, ...]:
    """Return a bound replica that says in which domain its unit lies, where it has to lie in one."""
    spec = progress.inference.spec
    if spec.topology.required is None:
        return ()
    following = {role.name for role in spec.roles if role.topology.follow_unit}
    return tuple(replica for replica in replicas if replica.is_bound and replica.role in following)[:1]
