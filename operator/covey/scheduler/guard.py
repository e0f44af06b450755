"""The guard: filter and preemption of an extender, as kube-scheduler calls them.

The filter: a member goes to the node it is pinned to and nowhere else. A stranger may go anywhere but where the room it
needs is kept for admitted gangs. Nothing is decided or remembered here that is not in the cache; the refused are noted
only to wake them later (``wake``), and losing that note costs kube-scheduler's own five minutes at most.

Refused nodes go to ``FailedAndUnresolvableNodes``: ``FailedNodes`` would invite preemption, a node in neither map
loses its reason. ``Error`` would be retried by timer only.

The messages (``k8s.io/kube-scheduler/extender/v1``) have Go's field names, for the Go structs carry no JSON tags.
``NodeNames`` stays raw bytes: for a pinned pod it is never decoded, and in a cluster of 5,000 nodes it is most of the
body.

Preemption: an existing scheduler that Covey is attached to keeps its own: ordinary pods evict ordinary pods as before. Only
what touches a gang is taken out. A member never evicts: its place comes from a plan. A member is not evicted either:
one pod less breaks its whole gang. And nobody evicts for room that he would not get: kube-scheduler chooses victims
before it asks the guard, so a pod that the guard refuses afterwards would go on and empty one node after another.

Pods of the system outrank that (``Capacity.outranks``), or one pod of a tenant would keep a node's own daemons away.
The operator gives up what they leave of a gang.

The profile that Covey prints for a scheduler of its own has preemption off and never asks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from covey.admission import obstacles
from covey.admission.obstacles import refusal
from covey.api import core
from covey.model import podstate
from covey.scheduler.cache import Cache


class FilterArgs(msgspec.Struct, rename="pascal"):
    """``ExtenderArgs``, with ``nodeCacheCapable: true`` (names, no node objects)."""

    pod: core.Pod
    node_names: msgspec.Raw = msgspec.Raw(b"null")


class FilterResult(msgspec.Struct, rename="pascal", omit_defaults=True):
    """``ExtenderFilterResult``. ``NodeNames`` is always sent: its absence would mean that no node is left."""

    node_names: list[str] | msgspec.Raw
    failed_and_unresolvable_nodes: dict[str, str] = {}


class MetaPod(msgspec.Struct, rename="pascal"):
    """``MetaPod``: a victim."""

    uid: str = msgspec.field(name="UID")


class MetaVictims(msgspec.Struct, rename="pascal"):
    """``MetaVictims``: who would be evicted from one node, highest priority first."""

    pods: tuple[MetaPod, ...] | None = None
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PreemptArgs(msgspec.Struct, rename="pascal"):
    """``ExtenderPreemptionArgs``, with ``nodeCacheCapable: true`` (UIDs, no pod objects)."""

    pod: core.Pod
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


class PreemptResult(msgspec.Struct, rename="pascal"):
    """``ExtenderPreemptionResult``: the nodes that may be chosen; an empty map is a veto."""

    node_name_to_meta_victims: dict[str, MetaVictims] = {}


class BindArgs(msgspec.Struct, rename="pascal"):
    """``ExtenderBindingArgs``."""

    pod_name: str
    pod_namespace: str
    node: str
    pod_uid: str = msgspec.field(name="PodUID")


class BindResult(msgspec.Struct, rename="pascal"):
    """``ExtenderBindingResult``; an empty error is success."""

    error: str = ""


FILTER_ARGS: Final = msgspec.json.Decoder(FilterArgs)
PREEMPT_ARGS: Final = msgspec.json.Decoder(PreemptArgs)
BIND_ARGS: Final = msgspec.json.Decoder(BindArgs)
NAMES: Final = msgspec.json.Decoder(list[str] | None)
ENCODER: Final = msgspec.json.Encoder()


def allowed_victims(cache: Cache, pod: core.Pod, nodes: Mapping[str, MetaVictims]) -> dict[str, MetaVictims]:
    """The nodes where a pod may evict the victims chosen for it.

    Args:
        cache: groups, pods and room as they are now.
        pod: for whom room is to be made.
        nodes: node names and the victims on each. One without victims is left out: kube-scheduler takes it for an
            error.
    """
    if podstate.claims_membership(pod):
        return {}
    return {node: victims for node, victims in nodes.items() if victims.pods and _may_evict(cache, pod, node, victims)}


def _may_evict(cache: Cache, pod: core.Pod, node: str, victims: MetaVictims) -> bool:
    uids = [each.uid for each in victims.pods or ()]
    if not cache.capacity.outranks(pod) and any(_is_protected(cache, uid) for uid in uids):
        return False
    return cache.capacity.reserved_away(pod, node, without=uids) is None


def _is_protected(cache: Cache, uid: str) -> bool:
    """The pod stands for its place in a gang. So may one that the watch has not shown yet."""
    pod = cache.index.pod(uid)
    if pod is None:
        return True
    leaf = cache.index.leaf_of(pod)
    return leaf is not None and podstate.is_member(pod, leaf) and podstate.counts(pod)


_UNMARKED: Final = "it was made by an older release, and nothing would hold its binding; it waits to be replaced"
_ELSEWHERE: Final = "the gang's plan has another node for this pod"


class Guard:
    """Answers filter calls from the cache.

    Args:
        cache: what is known.
        refused: told of ordinary pods that are left without any node.
        marked: whether kube-scheduler asks for the bindings of marked members only; no other may get that far.
    """

    def __init__(
        self, cache: Cache, refused: Callable[[core.Pod], None] = lambda _pod: None, *, marked: bool = False
    ) -> None:
        self._cache = cache
        self._refused = refused
        self._marked = marked

    def filter(self, args: FilterArgs) -> FilterResult:
        """The nodes of a call that the pod may use."""
        pod = self._read(args.pod)
        judge = self._member if podstate.claims_membership(pod) else self._stranger
        return judge(pod, args.node_names)

    def preempt(self, args: PreemptArgs) -> PreemptResult:
        """The nodes of a call where the pod may evict what kube-scheduler has chosen."""
        return PreemptResult(allowed_victims(self._cache, self._read(args.pod), args.node_name_to_meta_victims or {}))

    def _read(self, pod: core.Pod) -> core.Pod:
        """kube-scheduler's copy of a pod, as the watch would have brought it."""
        return self._cache.pod_type(pod.metadata, pod.spec, pod.status)

    def _member(self, pod: core.Pod, names: msgspec.Raw) -> FilterResult:
        leaf = self._cache.index.leaf_of(pod)
        why = refusal(pod, leaf)
        known = self._cache.index.pod(pod.metadata.uid)
        if why is None and known is not None and not podstate.counts(known):
            why = refusal(known, leaf)  # our cache may know more than the scheduler's copy
        if why is None and self._marked and not obstacles.is_marked(pod):
            why = _UNMARKED
        if why is not None:
            return _refuse(decode(names), (), why)
        node = podstate.pinned_node(pod) or ""
        if bytes(names) == b'["' + node.encode() + b'"]':
            return FilterResult(names)
        return _refuse(decode(names), (node,), _ELSEWHERE)

    def _stranger(self, pod: core.Pod, names: msgspec.Raw) -> FilterResult:
        capacity = self._cache.capacity
        if not capacity.reserved and not capacity.kept:
            return FilterResult(names)
        shape, asked = capacity.shape(pod), decode(names)
        taken = (node for node in asked if node in capacity.reserved or node in capacity.kept)
        away = {node: why for node in taken if (why := capacity.reserved_away(pod, node, shape))}
        if not away:
            return FilterResult(names)
        left = [name for name in asked if name not in away]
        if not left:
            self._refused(pod)
        return FilterResult(left, away)


def decode(names: msgspec.Raw) -> list[str]:
    """The node names of a call; kube-scheduler sends null for none."""
    return NAMES.decode(names) or []


def _refuse(names: Collection[str], allowed: Collection[str], why: str) -> FilterResult:
    return FilterResult(
        [name for name in names if name in allowed], {name: why for name in names if name not in allowed}
    )
