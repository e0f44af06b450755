"""Replicas for which a scheduler has no nodes, as far as it has said so, or quotas have no room."""

from __future__ import annotations

from collections.abc import Callable

from covey.api import constants as names
from covey.api import core
from covey.backends import Owned
from covey.compile import Layout, Slot, Tree
from covey.operator.rolling.leaving import Place
from covey.operator.snapshot import podstate
from covey.operator.snapshot.observed import Observed

#: Whether the scheduler has looked at a replica as it is wanted now, and has no nodes for it; asked for a layout.
Refused = Callable[[Layout], Callable[[Place], bool]]


def _without_nodes(observed: Observed) -> frozenset[Place]:
    """Replicas with a pod for which kube-scheduler, or Volcano, has no node."""
    return frozenset(
        (slot.unit, slot.role, slot.replica)
        for slot, pod in observed.current.items()
        if podstate.unschedulable(pod) is not None
    )


def refused(compiled: Callable[[Layout], Tree], observed: Observed) -> Refused:
    """Make a function that tells which replicas are refused, by quotas and the statuses of groups or of pods.

    Where those say nothing of a replica, it does not count as refused.
    """

    def asked(layout: Layout) -> Callable[[Place], bool]:
        pods, without = compiled(layout).pods, _without_nodes(observed) | observed.unfit.keys()
        return lambda place: place in without or _is_refused(observed.objects.get(pods.anchor(Slot(*place, 0))))

    return asked


def _is_refused(owned: Owned | None) -> bool:
    """Tell whether the scheduler has looked at a group as it is wanted now, and not all of it has nodes."""
    if owned is None:
        return False
    admitted = core.condition(owned.status.conditions, names.ADMITTED)
    wanted = owned.spec.get("desiredCount")
    seen = admitted is not None and (admitted.observed_generation or 0) >= owned.metadata.generation
    return seen and isinstance(wanted, int) and (owned.status.admitted or 0) < wanted
