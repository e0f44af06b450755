"""The place of a pod: the pod that fills it now, those that did before, and the last of those that are gone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from covey.api import core
from covey.compile.identity import Slot, pod_name
from covey.compile.restarts import NO_PAST, Past
from covey.model import podstate


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The pod of a place that was deleted last, as long as this process remembers.

    It only chooses names and tells a lost pod from one that never was: a process without it still converges.
    """

    uid: str
    name: str
    bound: bool
    restarts: int
    #: The labels that it had when it was last seen.
    labels: Mapping[str, str] = field(default_factory=dict)
    #: It is known to be gone; otherwise it may only have lost the label by which it is found.
    confirmed: bool = True
    #: It was not lost: there was to be no pod in this place.
    retired: bool = False
    #: What it knew of those before it.
    past: Past = NO_PAST
    #: It was the leader of a replica that had been Ready: since when.
    started: float | None = None
    #: The node that it had.
    node: str = ""

    @classmethod
    def of(cls, pod: core.Pod, *, confirmed: bool = True, retired: bool = False) -> Tombstone:
        """Take from a pod what is remembered of it."""
        metadata = pod.metadata
        bound, restarts, labels = podstate.is_bound(pod), podstate.restarts(pod), metadata.labels or {}
        past, started, node = podstate.past(pod), podstate.ready_since(pod), pod.spec.node_name or ""
        return cls(metadata.uid, metadata.name, bound, restarts, labels, confirmed, retired, past, started, node)


def current(incarnations: Sequence[core.Pod]) -> core.Pod | None:
    """The pod that fills a place now: neither dead nor released; of several the one furthest on, then the oldest."""
    # A place has one, and is asked for a dozen times in every pass.
    if len(incarnations) == 1:
        return incarnations[0] if _fills(incarnations[0]) else None
    return min(
        filter(_fills, incarnations),
        key=lambda pod: (
            not podstate.is_addressed(pod),
            not podstate.is_bound(pod),
            pod.metadata.creation_timestamp,
            pod.metadata.uid,
        ),
        default=None,
    )


def _fills(pod: core.Pod) -> bool:
    return not podstate.is_dead(pod) and not podstate.is_released(pod)


@dataclass(frozen=True, slots=True)
class Place:
    """One place of a replica: the pod that fills it now, the earlier ones, and the last of those that are gone."""

    slot: Slot
    now: core.Pod | None
    others: tuple[core.Pod, ...]
    tombstone: Tombstone | None
    #: UIDs of pods that nobody lost.
    retired: Collection[str] = ()

    def lost_bound(self, inference: str) -> bool:
        """Tell whether nobody fills the place, and the pod that did last was bound and is not retired."""
        if self.now is not None:
            return False
        last = self.last(inference)
        return last is not None and last.bound and not last.retired

    @property
    def is_blank(self) -> bool:
        """Tell whether there is no trace of a pod."""
        return self.now is None and not self.others and self.tombstone is None

    def last(self, inference: str) -> Tombstone | None:
        """The pod after which the next one is named: the end of the chain of successors."""
        pods = [*self.others, *([self.now] if self.now else [])]
        if not pods:
            return self.tombstone
        taken = {pod.metadata.name for pod in pods}
        ends = [pod for pod in pods if pod_name(inference, self.slot, pod.metadata.uid) not in taken]
        latest = max(ends or pods, key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.uid))
        end = Tombstone.of(latest, retired=latest.metadata.uid in self.retired)
        # The pod after the last that is seen may have come and gone.
        follows = self.tombstone is not None and self.tombstone.name == pod_name(inference, self.slot, end.uid)
        return self.tombstone if follows else end
