"""Labels of LeaderWorkerSet's (``api/leaderworkerset/v1``, ``leaderworkerset_types.go``), for selectors that name them.

A role is what LeaderWorkerSet has as one object, a replica what it has as a group. A resource of one role stands for the
object of its own name. Replicas of several units may have the same index; their group keys differ. Its pod webhook takes every pod with the label ``name`` for one of its own, and
denies it without an annotation that only LeaderWorkerSet itself should set. With that annotation it would put the
address of a pod that does not exist before ours, so Covey leaves it out.
"""

from __future__ import annotations

import hashlib
from typing import Final

from covey.compile.identity import Owner, Slot, fitted
from covey.compile.revision import RoleRevision

_PREFIX: Final = "leaderworkerset.sigs.k8s.io"
LABEL_NAME: Final = f"{_PREFIX}/name"
LABEL_GROUP_INDEX: Final = f"{_PREFIX}/group-index"
LABEL_WORKER_INDEX: Final = f"{_PREFIX}/worker-index"
LABEL_GROUP_KEY: Final = f"{_PREFIX}/group-key"
LABEL_TEMPLATE: Final = f"{_PREFIX}/template-revision-hash"
LABELS: Final = (LABEL_NAME, LABEL_GROUP_INDEX, LABEL_WORKER_INDEX, LABEL_GROUP_KEY, LABEL_TEMPLATE)


def labels(owner: Owner, slot: Slot, revision: RoleRevision, *, alone: bool) -> dict[str, str]:
    """The labels of one pod.

    Args:
        owner: the resource.
        slot: the pod's place.
        revision: that of its replica.
        alone: the resource has one role only.
    """
    group = f"{owner.namespace}/{owner.name}-{slot.unit}-{slot.role}-{slot.replica}"
    key = hashlib.sha1(group.encode(), usedforsecurity=False).hexdigest()
    name = owner.name if alone else fitted(owner.name, slot.role)
    values = (name, slot.replica, slot.index, key, revision.hash)
    return {name: str(value) for name, value in zip(LABELS, values, strict=True)}
