"""Release of pods to Volcano: every minimum as one, and what is beyond it once it is bound.

A Volcano PodGroup's phase counts pods: with enough of one role it is Running without another. So the pods are asked.

===============================================  ======================================================================
of a unit                                        then
===============================================  ======================================================================
there is no PodGroup, or one with a lower        nobody: pods that Volcano sees under a stale minimum would be started
minimum of some role                             without the rest
pods of the minimum are missing                  nobody
the minimum is there                             all its pods together
it is let go, but not bound                      nobody else; what Volcano calls Running is still no minimum
it is bound                                      every complete replica beyond it, unless some unit's minimum is let go
                                                 in this very pass: it comes first
===============================================  ======================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from covey.api import constants as names
from covey.api import core
from covey.backends.seam import Owned, Release, ReleaseFacts, ReplicaProgress
from covey.backends.volcano.groups import TYPE
from covey.compile import Slot
from covey.compile.identity import group_name

#: Phases in which Volcano takes the minimum for met.
MET = frozenset({"Running", "Completed"})


def release(progress: ReleaseFacts) -> Release:
    """The places whose pods go now, and what units wait for."""
    name = progress.inference.metadata.name
    roots = {unit: progress.objects.get((TYPE, group_name(name, unit))) for unit in progress.units}
    waits = {
        unit: core.Condition(names.ADMITTED, "False", names.REASON_WAITING, why)
        for unit, replicas in progress.units.items()
        if (why := _waits_for(roots[unit], replicas))
    }
    ready = {unit: replicas for unit, replicas in progress.units.items() if unit not in waits}
    first = tuple(slot for replicas in ready.values() for slot in _gated_slots(replicas, in_minimum=True))
    bound = (replicas for unit, replicas in ready.items() if progress.has_minimum(unit))
    return Release(
        first or tuple(slot for replicas in bound for slot in _gated_slots(replicas, in_minimum=False)), waits
    )


def _minimum(replicas: Iterable[ReplicaProgress]) -> Iterator[ReplicaProgress]:
    return (replica for replica in replicas if replica.in_minimum)


def _gated_slots(replicas: Iterable[ReplicaProgress], *, in_minimum: bool) -> Iterator[Slot]:
    for replica in replicas:
        if replica.in_minimum is in_minimum and replica.is_complete and not replica.is_let_go:
            yield from replica.slots


def _waits_for(root: Owned | None, replicas: Sequence[ReplicaProgress]) -> str | None:
    minimum = tuple(_minimum(replicas))
    if root is None:
        return "waits until its PodGroup exists"
    if not all(replica.is_complete for replica in minimum):
        return f"waits until every pod of the minimum exists: {_describe_progress(minimum, 'is_complete')}"
    if _lags(root, minimum):
        return "waits until its PodGroup has the new minimum"
    if all(replica.is_let_go for replica in minimum) and not all(replica.is_bound for replica in minimum):
        return _unmet(root, minimum)
    return None


def _unmet(root: Owned, minimum: Sequence[ReplicaProgress]) -> str | None:
    """Return a correction where Volcano's own phase would mislead, or None."""
    if root.status.phase not in MET:
        return None
    counted = _describe_progress(minimum, "is_bound")
    return f"Volcano calls the PodGroup {root.status.phase}, which counts its pods only; bound are {counted}"


def _lags(root: Owned, minimum: Iterable[ReplicaProgress]) -> bool:
    """Tell whether the PodGroup is of a time when some role had a lower minimum."""
    stored: dict[str, int] = {}
    for policy in root.spec.get("subGroupPolicy") or ():
        role = policy.get("labelSelector", {}).get("matchLabels", {}).get(names.LABEL_ROLE, "")
        stored[role] = stored.get(role, 0) + policy.get("minSubGroups", 0)
    wanted = _by_role(minimum)
    return any(stored.get(role, 0) < len(replicas) for role, replicas in wanted.items())


def _describe_progress(minimum: Iterable[ReplicaProgress], what: str) -> str:
    """Describe the progress of each role: ``prefill 1/2, decode 1/1``."""
    return ", ".join(
        f"{role} {sum(getattr(replica, what) for replica in replicas)}/{len(replicas)}"
        for role, replicas in _by_role(minimum).items()
    )


def _by_role(replicas: Iterable[ReplicaProgress]) -> Mapping[str, Sequence[ReplicaProgress]]:
    by_role: dict[str, list[ReplicaProgress]] = {}
    for replica in replicas:
        by_role.setdefault(replica.role, []).append(replica)
    return by_role
