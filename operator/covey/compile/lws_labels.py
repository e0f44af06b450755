"""Labels of LeaderWorkerSet's (``api/leaderworkerset/v1``, ``leaderworkerset_types.go``), for selectors that name them.

A role is what LeaderWorkerSet has as one object, a replica what it has as a group. A resource of one role stands for the
object of its own name. Replicas of several units may have the same index; their group keys differ. LeaderWorkerSet's pod
webhook takes every pod with the label ``name`` for one of its own, and denies it without an annotation that only
LeaderWorkerSet itself should set. With that annotation it would put the address of a pod that does not exist before
ours, so Covey leaves it out.
"""

from __future__ import annotations

import hashlib

from covey.api import constants as names
from covey.compile.identity import Owner, Slot, fit_label
from covey.compile.revision import RoleRevision


def leader_worker_set_labels(owner: Owner, slot: Slot, revision: RoleRevision, *, alone: bool) -> dict[str, str]:
    """The labels of one pod.

    Args:
        owner: the resource.
        slot: the pod's place.
        revision: that of its replica.
        alone: the resource has one role only.
    """
    group = f"{owner.namespace}/{owner.name}-{slot.unit}-{slot.role}-{slot.replica}"
    key = hashlib.sha1(group.encode(), usedforsecurity=False).hexdigest()
    name = owner.name if alone else fit_label(owner.name, slot.role)
    values = (name, slot.replica, slot.index, key, revision.hash)
    return {name: str(value) for name, value in zip(names.LWS_LABELS, values, strict=True)}
