"""Pods of a suspended Job that do not exist: they are planned and have places before anybody creates them. Pure.

The operator shows on the Job's PodGroup what the API server would make of one of its pods. As many as the minimum lacks
stand beside those that exist, each like it. A pod that comes takes the place of one that was expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from covey.api import core
from covey.api.annotations import Expected, read_expected
from covey.api.constants import ANNOTATION_EXPECTED, LABEL_POD_GROUP, REASON_WAITING
from covey.model import podstate

#: Pods that one group may expect: as many as the barrier holds bind calls for.
MOST: Final = 4096


class ExpectedPod(core.Pod, frozen=True):
    """A pod that nobody has created yet."""


def is_expected(pod: core.Pod) -> bool:
    """Tell whether a pod does not exist yet."""
    return isinstance(pod, ExpectedPod)


def expected_wait(group: core.Group) -> tuple[str, str] | None:
    """The reason and the words for which no places are looked for yet, as the operator says; None where they are."""
    expected = _read(group)
    return (expected.reason or REASON_WAITING, expected.waits) if expected is not None and expected.waits else None


def find_expected(
    group: core.Group, pods: Iterable[core.Pod], before: Mapping[str, ExpectedPod]
) -> dict[str, ExpectedPod]:
    """Find the pods that a group expects, by UIDs that no pod has; none once one of those that exist has a place.

    Args:
        group: the group, as it is now.
        pods: those that carry its label and exist.
        before: the pods that it expected until now, which stay those that they are.
    """
    expected, gang = _read(group), group.spec.scheduling_policy.gang
    if expected is None or expected.pod is None or expected.waits or gang is None:
        return {}
    there = [pod for pod in podstate.members(group, pods) if podstate.counts(pod)]
    missing = (gang.min_count or 0) - len(there)
    if missing > MOST or any(map(podstate.is_placed, there)):
        return {}
    like = _make_member(group, expected.pod)
    kept = {uid: pod for uid, pod in before.items() if pod == _with_uid(like, uid)}
    numbers = (f"{group.metadata.uid}.{number}" for number in range(missing + len(kept)))
    uids = [*kept, *(uid for uid in numbers if uid not in kept)][: max(0, missing)]
    return {uid: kept.get(uid) or _with_uid(like, uid) for uid in uids}


def is_of_job(group: core.Group) -> bool:
    """Tell whether a group of Covey's own is that of a labelled Job."""
    owner = group.metadata.controller
    return owner is not None and owner.kind == "Job" and not group.is_native


def _read(group: core.Group) -> Expected | None:
    return read_expected(group.metadata.annotation(ANNOTATION_EXPECTED)) if is_of_job(group) else None


def _make_member(group: core.Group, pod: core.Pod) -> ExpectedPod:
    meta = core.Meta(
        namespace=group.metadata.namespace,
        creation_timestamp=group.metadata.creation_timestamp,
        labels={**(pod.metadata.labels or {}), LABEL_POD_GROUP: group.metadata.name},
        annotations=pod.metadata.annotations,
        owner_references=group.metadata.owner_references,
    )
    return ExpectedPod(metadata=meta, spec=msgspec.structs.replace(pod.spec, node_name=None))


def _with_uid(pod: ExpectedPod, uid: str) -> ExpectedPod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, name=uid, uid=uid))
