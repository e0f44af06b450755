"""Groups that are being deleted, by anybody.

Such a group is neither applied nor taken for there. Where the API server keeps it as long as pods are of it, they
decide: pods with nodes go on, and others may join them; pods without any go, so that it can be made again. Until then
no pod of it is created.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from covey.backends import Identity
from covey.compile import Slot, Tree
from covey.operator.snapshot import podstate
from covey.operator.snapshot.observed import Observed
from covey.operator.terms.actions import Actions, DeletePod
from covey.operator.terms.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Ending:
    """Places whose pods wait for a group of theirs to go; the pods that keep it for nothing are deleted."""

    slots: frozenset[Slot] = frozenset()
    outcome: Outcome = field(default_factory=Outcome)


def find_ending(tree: Tree, observed: Observed, going: Collection[str]) -> Ending:
    """Find places that wait for groups that are being deleted, and pods that have to give way to them.

    Args:
        tree: what is wanted.
        observed: the snapshot.
        going: UIDs of pods that are deleted in this pass.
    """
    ending = {identity for identity, owned in observed.objects.items() if owned.metadata.deletion_timestamp is not None}
    if not ending:
        return Ending()
    places: dict[Identity, list[Slot]] = {}
    for slot in tree.slots:
        anchor = tree.pods.anchor(slot)
        if anchor in ending:
            places.setdefault(anchor, []).append(slot)
    found = [slots for slots in places.values() if not _is_kept(slots, observed, going)]
    pods = [pod for slots in found for slot in slots for pod in observed.pods.get(slot, ())]
    return Ending(
        frozenset(slot for slots in found for slot in slots),
        Outcome(
            Actions(
                delete_pods=tuple(
                    DeletePod(pod, "its group is deleted")
                    for pod in pods
                    if not podstate.is_going(pod) and pod.metadata.uid not in going
                )
            )
        ),
    )


def _is_kept(slots: Collection[Slot], observed: Observed, going: Collection[str]) -> bool:
    """Tell whether a pod of a group has a node, and stays."""
    for slot in slots:
        pod = observed.current.get(slot)
        if pod is not None and podstate.is_bound(pod) and pod.metadata.uid not in going:
            return True
    return False
