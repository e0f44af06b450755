"""The order in which pods are created, for the case that not all of them can be.

=================  ==================================================================================================
precedence         pods of
=================  ==================================================================================================
running minimum    replicas that a unit lacks of its minimum, some of its pods being bound
minimum            replicas that any other unit lacks of its minimum, one unit after another
replacement        replicas beyond the minimum that have lost a pod
surplus            replicas that a role grows by, up to as many as are wanted
surge              replicas beyond those that are wanted: successors in a rollout or an evacuation
=================  ==================================================================================================

A role's minimum is made of the replicas that are whole, then of those that have lost a pod, then of new ones, of lower
number first. So a replica that is lost while enough others are there is no minimum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from covey.compile import ReplicaKey, Scale, Tree
from covey.model import podstate
from covey.operator.model.actions import CreatePod, Precedence
from covey.operator.model.observed import Observed


def order_creations(items: Sequence[CreatePod], tree: Tree, scale: Scale, observed: Observed) -> tuple[CreatePod, ...]:
    """Put pods in the order in which they are to be created, each with its precedence.

    Args:
        items: the pods of whole replicas.
        tree: what is wanted.
        scale: how many replicas are wanted, and how many are the minimum.
        observed: the snapshot.
    """
    if not items:
        return ()
    precedences = dict(_precedences(items, tree, tree.layout.scale or scale, observed))
    ranked = (replace(creation, precedence=precedences[creation.slot[:3]]) for creation in items)
    # Sorting is stable: within one precedence it goes by unit, role and number.
    return tuple(sorted(ranked, key=lambda creation: creation.precedence))


def _precedences(
    items: Iterable[CreatePod], tree: Tree, scale: Scale, observed: Observed
) -> Iterator[tuple[ReplicaKey, Precedence]]:
    torn: dict[ReplicaKey, bool] = {}
    for creation in items:
        replica = creation.slot[:3]
        torn[replica] = torn.get(replica, False) or creation.replaces
    units = {unit for unit, _, _ in torn}
    run = {slot.unit for slot, pod in observed.current.items() if slot.unit in units and podstate.is_bound(pod)}
    for (unit, role), replicas in _roles(tree, units).items():
        if all(replica not in torn for replica in replicas):
            continue
        count = scale.count(unit, role)
        lost = {
            replica: torn[replica] or any(slot in observed.current for slot in tree.replicas.get(replica, ()))
            for replica in replicas
            if replica in torn
        }
        ranked = sorted(replicas, key=lambda replica: (replica in torn, not lost.get(replica, True), replica))
        for position, replica in enumerate(ranked):
            if replica not in torn:
                continue
            if position < count.minimum:
                yield replica, Precedence.RUNNING_MINIMUM if unit in run else Precedence.MINIMUM
            elif lost[replica]:
                yield replica, Precedence.REPLACEMENT
            else:
                yield replica, Precedence.SURPLUS if position < count.replicas else Precedence.SURGE


def _roles(tree: Tree, units: Iterable[int]) -> Mapping[tuple[int, str], list[ReplicaKey]]:
    """The replicas of each role of these units."""
    return {
        (unit, role): [(unit, role, number) for number in replicas]
        for unit in sorted(units)
        for role, replicas in tree.layout.units.get(unit, {}).items()
    }
