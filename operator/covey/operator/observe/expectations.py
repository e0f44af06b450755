"""What this process has written and its watch does not show yet, and what it remembers of pods that are gone.

A thousand answers to creations arrive before the watch has shown the last of them; a plan from the watch alone would
create those again. So what the API server has answered counts as seen, as with client-go's expectations, but not for
long: an object that was created and deleted while the watch was broken is never shown. What expires here is created again
if it is wanted, under the same name. Nothing depends on this memory but needless writes, and that no unit has two
leaders for a moment (``scaling.scaler``).

================  ============================================  ====================================================
a pod is          since                                         until
================  ============================================  ====================================================
created           the API server answered that it created it    the watch shows it (or its end), or has had its time
shown             the watch showed it                           the watch shows its end, or that of its label
pending deletion  its deletion is about to be asked for, while  likewise, and then it is known to be gone; or the
                  it is shown                                   deletion has failed
missing           it was shown and is no more, and nobody is    it is shown again, or asked for by name: still there
                  known to have deleted it: it may have lost    (it counts as seen) or gone
                  the label by which it is found
gone              it ended, was deleted, or was asked for       a later pod of its place is gone, or this process
                                                                begins to lead: who led knew which were retired
================  ============================================  ====================================================

Created and shown pods are in the snapshot. A missing pod is a tombstone that is not *confirmed*, one that is gone a
tombstone that is. A pod that this process has written to is *changed* until the watch shows it so: the snapshot has it as
it was written, for what it served with before serves no more.

Apart from that a pod is *retired* from when there was to be none in its place: a retired pod is not lost when
it goes. A retired pod that is not on its way out is so no longer when its place is wanted again.

Nothing is decided from this memory that a process without it would not decide in the end (``Tombstone``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Generic, TypeVar

from covey.api import core
from covey.compile import Slot
from covey.compile.identity import slot_of
from covey.kube.store import Described
from covey.model import podstate
from covey.operator.model.observed import Observed
from covey.operator.model.place import Tombstone

Key = tuple[str, str]


class PodExpectations:
    """What is expected and remembered of the pods of all resources, by the resource's key.

    Args:
        is_shown: whether the watch has shown this incarnation, and so will show its end.
        clock: monotonic, seconds.
    """

    def __init__(self, is_shown: Callable[[core.Pod], bool], clock: Callable[[], float]) -> None:
        self._is_shown = is_shown
        self._tombstones: dict[Key, dict[Slot, Tombstone]] = {}
        self._pending_deletions: dict[Key, set[str]] = {}
        self._retired: dict[Key, set[str]] = {}
        self._changed: dict[Key, dict[str, core.Pod]] = {}
        self.creations: Expectations[core.Pod] = Expectations(clock)

    def tombstones(self, key: Key) -> Mapping[Slot, Tombstone]:
        """The pods that were last in places of a resource, missing ones included."""
        return dict(self._tombstones.get(key, {}))

    def retired_pods(self, key: Key) -> frozenset[str]:
        """UIDs of the pods of a resource that are retired."""
        return frozenset(self._retired.get(key, ()))

    def pending_deletions(self, key: Key) -> frozenset[str]:
        """UIDs of the pods of a resource whose deletion has been asked for, which the watch still shows."""
        return frozenset(self._pending_deletions.get(key, ()))

    def note_change(self, key: Key, pod: core.Pod) -> None:
        """Note a pod that was changed, as the API server has answered."""
        self._changed.setdefault(key, {})[pod.metadata.uid] = pod

    def latest(self, key: Key, pod: core.Pod) -> core.Pod:
        """A pod that the watch shows, as this process knows it: the watch may be faster than the answer."""
        changed = self._changed.get(key)
        written = changed.get(pod.metadata.uid) if changed else None
        return written if written is not None and pod.metadata.is_before(written.metadata) else pod

    def note_failed_deletion(self, key: Key, uid: str) -> None:
        """Note that the deletion of a pod has failed."""
        self._pending_deletions.get(key, set()).discard(uid)

    def note_creation(self, key: Key, pod: core.Pod) -> None:
        """Note a pod that was created, as the API server has answered."""
        gone = {tombstone.uid for tombstone in self._tombstones.get(key, {}).values()}
        if not self._is_shown(pod) and pod.metadata.uid not in gone:
            self.creations.add(key, pod)

    def shown(self, key: Key, pod: core.Pod) -> None:
        """Note that the watch shows a pod."""
        written = self._changed.get(key, {})
        if pod.metadata.uid in written and not pod.metadata.is_before(written[pod.metadata.uid].metadata):
            del written[pod.metadata.uid]
        slot, tombstones = slot_of(pod.spec.hostname), self._tombstones.get(key)
        if tombstones and slot is not None and slot in tombstones and tombstones[slot].uid == pod.metadata.uid:
            del tombstones[slot]

    def note_end(self, key: Key, pod: core.Pod, *, ours: bool) -> None:
        """Note that the watch shows a pod no more.

        Args:
            key: of the resource that it was shown for.
            pod: as it was seen last.
            ours: it belonged to the resource that has this key now; a namesake's pods are nobody's.
        """
        slot, uid = slot_of(pod.spec.hostname), pod.metadata.uid
        self._changed.get(key, {}).pop(uid, None)
        deletions = self._pending_deletions.get(key, set())
        confirmed = uid in deletions or podstate.is_dead(pod)
        deletions.discard(uid)
        if slot is not None and ours:
            retired = uid in self._retired.get(key, ())
            self._tombstones.setdefault(key, {})[slot] = Tombstone.of(pod, confirmed=confirmed, retired=retired)

    def note_deletion(self, key: Key, pod: core.Pod) -> None:
        """Note that the deletion of a pod is about to be asked for: when it is no longer shown, it is gone."""
        if self._is_shown(pod):
            self._pending_deletions.setdefault(key, set()).add(pod.metadata.uid)

    def confirm(self, key: Key, slots: Iterable[Slot]) -> None:
        """Note that the pods that were last seen in these places are gone."""
        tombstones = self._tombstones.get(key, {})
        for slot in tombstones.keys() & set(slots):
            tombstones[slot] = replace(tombstones[slot], confirmed=True)

    def retire(self, key: Key, observed: Observed, wanted: Iterable[Slot]) -> None:
        """Retire all pods but those in the wanted places.

        Args:
            key: of the resource.
            observed: the snapshot that was planned from.
            wanted: the places that there shall be.
        """
        places, known = set(wanted), self._retired.pop(key, set())
        tombstones = self._tombstones.get(key, {})
        for slot in tombstones.keys() - places:
            tombstones[slot] = replace(tombstones[slot], retired=True)
        retired = {pod.metadata.uid for slot, pods in observed.pods.items() if slot not in places for pod in pods}
        if known:
            # A place may be wanted again while the pod that had to leave it still terminates.
            retired |= {pod.metadata.uid for pod in observed.every_pod() if self._goes(key, pod)} & known
        if retired:
            self._retired[key] = retired

    def forget_tombstones(self) -> None:
        """Forget pods that are gone: another process has decided so far, and alone knows which of them were lost."""
        self._tombstones.clear()

    def forget(self, key: Key) -> None:
        """Forget a resource that is gone."""
        self._tombstones.pop(key, None)
        self._pending_deletions.pop(key, None)
        self._retired.pop(key, None)
        self._changed.pop(key, None)
        self.creations.forget(key)

    def _goes(self, key: Key, pod: core.Pod) -> bool:
        return pod.metadata.deletion_timestamp is not None or pod.metadata.uid in self._pending_deletions.get(key, ())


T = TypeVar("T", bound=Described)

#: Seconds that a watch may be behind before its silence counts as the object's absence.
PATIENCE: Final = 10.0


class Expectations(Generic[T]):
    """Objects of one kind, by the resource that they belong to; ``clock`` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._items: dict[Key, dict[str, tuple[float, T]]] = {}

    def add(self, key: Key, item: T) -> None:
        """Note an object that was created, as the API server has answered."""
        self._items.setdefault(key, {})[item.metadata.uid] = (self._clock() + PATIENCE, item)

    def shown(self, key: Key, uid: str) -> None:
        """Note that the watch shows an object: from now on the watch alone counts."""
        items = self._items.get(key)
        if items is not None and items.pop(uid, None) is not None and not items:
            del self._items[key]

    def of(self, key: Key) -> tuple[T, ...]:
        """The objects of a resource that still count as seen."""
        now = self._clock()
        for uid in [uid for uid, (until, _) in self._items.get(key, {}).items() if until <= now]:
            self.shown(key, uid)
        return tuple(item for _, item in self._items.get(key, {}).values())

    def within(self, namespace: str) -> Iterator[T]:
        """The objects of a namespace that still count as seen."""
        for key in tuple(self._items):
            if key[0] == namespace:
                yield from self.of(key)

    def patience(self, key: Key) -> float | None:
        """Seconds after which the first of them no longer counts as seen; None when there is none."""
        items = self._items.get(key)
        return max(min(until for until, _ in items.values()) - self._clock(), 0.0) if items else None

    def forget(self, key: Key) -> None:
        """Forget a resource that is gone."""
        self._items.pop(key, None)
