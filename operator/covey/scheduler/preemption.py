"""Where may kube-scheduler evict pods for another? Pure.

An existing scheduler that Covey is attached to keeps its preemption: ordinary pods evict ordinary pods as before. Only
what touches a gang is taken out. A member never evicts: its place comes from a plan. A member is not evicted either: one
pod less breaks its whole gang. And nobody evicts for room that he would not get: kube-scheduler chooses victims before
it asks the guard, so a pod that the guard refuses afterwards would go on and empty one node after another.

Pods of the system outrank that (``Capacity.outranks``), or one pod of a tenant would keep a node's own daemons away. The
operator gives up what they leave of a gang.

The profile that Covey prints for a scheduler of its own has preemption off and never asks.
"""

from __future__ import annotations

from collections.abc import Mapping

from covey.admission import podstate
from covey.api import core
from covey.scheduler.cache import Cache
from covey.scheduler.wire import MetaVictims


def allowed(cache: Cache, pod: core.Pod, nodes: Mapping[str, MetaVictims]) -> dict[str, MetaVictims]:
    """The nodes where a pod may evict the victims chosen for it.

    Args:
        cache: groups, pods and room as they are now.
        pod: for whom room is to be made.
        nodes: node names and the victims on each. One without victims is left out: kube-scheduler takes it for an error.
    """
    if podstate.claims_membership(pod):
        return {}
    return {node: victims for node, victims in nodes.items() if victims.pods and _may_evict(cache, pod, node, victims)}


def _may_evict(cache: Cache, pod: core.Pod, node: str, victims: MetaVictims) -> bool:
    uids = [each.uid for each in victims.pods or ()]
    if not cache.capacity.outranks(pod) and any(_protected(cache, uid) for uid in uids):
        return False
    return cache.capacity.reserved_away(pod, node, without=uids) is None


def _protected(cache: Cache, uid: str) -> bool:
    """The pod stands for its place in a gang. So may one that the watch has not shown yet."""
    pod = cache.index.pod(uid)
    if pod is None:
        return True
    leaf = cache.index.leaf_of(pod)
    return leaf is not None and podstate.is_member(pod, leaf) and podstate.counts(pod)
