"""The filter of nodes for kube-scheduler: a gang's pod on its planned node alone, ordinary pods off reserved room.

A member goes to the node it is pinned to and nowhere else. A stranger may go anywhere but where the room it needs is
kept for admitted gangs. Nothing is decided or remembered here that is not in the cache; the refused are noted only to
wake them later (``wake``), and losing that note costs kube-scheduler's own five minutes at most.

Refused nodes go to ``FailedAndUnresolvableNodes``: ``FailedNodes`` would invite preemption, a node in neither map
loses its reason. ``Error`` would be retried by timer only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import msgspec

from covey.admission import podstate
from covey.admission.membership import refusal
from covey.api import core
from covey.scheduler import preemption
from covey.scheduler.cache import Cache
from covey.scheduler.wire import NAMES, FilterArgs, FilterResult, PreemptArgs, PreemptResult

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
        if podstate.claims_membership(args.pod):
            return self._member(args.pod, args.node_names)
        return self._stranger(args.pod, args.node_names)

    def preempt(self, args: PreemptArgs) -> PreemptResult:
        """The nodes of a call where the pod may evict what kube-scheduler has chosen."""
        return PreemptResult(preemption.allowed(self._cache, args.pod, args.node_name_to_meta_victims or {}))

    def _member(self, pod: core.Pod, names: msgspec.Raw) -> FilterResult:
        leaf = self._cache.index.leaf_of(pod)
        why = refusal(pod, leaf)
        known = self._cache.index.pod(pod.metadata.uid)
        if why is None and known is not None and not podstate.counts(known):
            why = refusal(known, leaf)  # our cache may know more than the scheduler's copy
        if why is None and self._marked and not podstate.is_marked(pod):
            why = _UNMARKED
        if why is not None:
            return _refuse(decode(names), (), why)
        node = podstate.pinned(pod) or ""
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
