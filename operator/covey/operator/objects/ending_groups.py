"""Groups that are being deleted, by anybody: neither applied nor taken for there.

Where the API server keeps such a group as long as pods are of it, they decide: pods with nodes go on, and others may
join them; pods without any go, so that it can be made again. Until then no pod of it is created.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.backends import Identity
from covey.compile import Slot, Tree
from covey.model import podstate
from covey.operator.model.actions import Actions, DeletePod
from covey.operator.model.compute_domains import domain_of
from covey.operator.model.observed import Observed
from covey.operator.model.outcome import Outcome, Remark

#: A group is being deleted for long, and pods wait for its end.
REASON_NOT_GONE: Final = "GroupNotGone"


#: Seconds for which that is told to nobody.
_ENDS_SOON: Final = 60.0


@dataclass(frozen=True, slots=True)
class GroupsEnding:
    """Places whose pods wait for a group of theirs to go; the pods that keep it for nothing are deleted."""

    slots: frozenset[Slot] = frozenset()
    outcome: Outcome = field(default_factory=Outcome)


def find_ending(tree: Tree, observed: Observed, going: Collection[str]) -> GroupsEnding:
    """Find places that wait for groups that are being deleted, and pods that have to give way to them.

    Args:
        tree: what is wanted.
        observed: the snapshot.
        going: UIDs of pods that are deleted in this pass.
    """
    ending = {identity for identity, owned in observed.objects.items() if owned.metadata.deletion_timestamp is not None}
    if not ending:
        return GroupsEnding()
    places: dict[Identity, list[Slot]] = {}
    for slot in tree.slots:
        for needed in ending.intersection((tree.pods.anchor(slot), domain_of(tree, slot))):
            places.setdefault(needed, []).append(slot)
    waiting = {needed: slots for needed, slots in places.items() if not _is_kept(slots, observed, going)}
    pods = [pod for slots in waiting.values() for slot in slots for pod in observed.pods.get(slot, ())]
    since = {needed: core.seconds(observed.objects[needed].metadata.deletion_timestamp) or 0.0 for needed in waiting}
    late = sorted(needed for needed, begun in since.items() if observed.now >= begun + _ENDS_SOON)
    return GroupsEnding(
        frozenset(slot for slots in waiting.values() for slot in slots),
        Outcome(
            Actions(
                delete_pods=tuple(
                    DeletePod(pod, "its group is deleted")
                    for pod in pods
                    if not podstate.is_terminating(pod) and pod.metadata.uid not in going
                )
            ),
            tuple(_describe_late(*needed) for needed in late),
            min(
                (begun + _ENDS_SOON - observed.now for needed, begun in since.items() if needed not in late),
                default=None,
            ),
        ),
    )


def _describe_late(kind: str, name: str) -> Remark:
    what = f"{kind.partition('.')[0]} {name} is being deleted and does not go, and its pods wait for that"
    remedy = f"have whoever set its finalizers (`kubectl get {kind} {name} -o yaml`) take them away"
    return Remark(names.DEGRADED, REASON_NOT_GONE, f"{what}: {remedy}")


def _is_kept(slots: Collection[Slot], observed: Observed, going: Collection[str]) -> bool:
    """Tell whether a pod of a group has a node, and stays."""
    for slot in slots:
        pod = observed.current.get(slot)
        if pod is not None and podstate.is_bound(pod) and pod.metadata.uid not in going:
            return True
    return False
