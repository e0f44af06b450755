"""Replicas on nodes that are to be empty and that serve nobody: a drain of the node may take their pods.

The budget of the namespace counts the pods with ``covey.dev/gang: "true"``, and the eviction API takes none of those
while they run, whether they are Ready or not. ``unhealthyPodEvictionPolicy: AlwaysAllow`` would give up a gang that
loads its model, or that is not Ready for a moment. So it is said of single replicas, whose pods get another value of it
(``operator.objects.former_budget``):

1. A container waits in CrashLoopBackOff, or
2. nothing of it has got any further for ``spec.rollout.progressDeadlineSeconds``.

It stays so until all its pods are Ready, or no node of its is to be empty any more: then the budget counts them again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile import ReplicaKey, pod_budget
from covey.model import podstate
from covey.operator.intent import Leaving
from covey.operator.model.observed import Observed
from covey.operator.model.outcome import soonest
from covey.operator.replicas.progress import States
from covey.operator.rolling.layout import settings_of

_BROKEN: Final = "CrashLoopBackOff"


def find_idle(spec: DisaggregatedInferenceSpec, leaving: Leaving, states: States, observed: Observed) -> Leaving:
    """Mark the replicas that serve nobody and would keep their nodes from being drained.

    Args:
        spec: what is kept up.
        leaving: the replicas that have to leave their nodes.
        states: how far each replica has come.
        observed: the snapshot.
    """
    if not leaving.places:
        return leaving
    roles, deadline = pod_budget.gang_roles(spec), settings_of(spec).deadline
    pods: dict[ReplicaKey, list[core.Pod]] = {}
    for slot, pod in observed.current.items():
        place = (slot.unit, slot.role, slot.replica)
        if place in leaving.places and slot.role in roles:
            pods.setdefault(place, []).append(pod)
    found: set[ReplicaKey] = set()
    left: list[float] = []
    for place, members in pods.items():
        unit, role, replica = place
        state = states.get(unit, {}).get(role, {}).get(replica)
        if state is None or state.is_ready:
            continue
        due = podstate.stands_since(members, observed.now) + deadline - observed.now
        if due <= 0 or any(map(_is_given_up, members)):
            found.add(place)
        else:
            left.append(due)
    return replace(leaving, idle=frozenset(found), again=soonest((leaving.again, *left)))


def _is_given_up(pod: core.Pod) -> bool:
    """Tell whether the kubelet hardly starts a pod any more, or the pod was found to serve nobody before."""
    if pod.metadata.label(names.LABEL_GANG) == pod_budget.IDLE[names.LABEL_GANG]:
        return True
    waiting = (each.state.waiting for each in pod.status.container_statuses or () if each.state is not None)
    return any(each is not None and each.reason == _BROKEN for each in waiting)
