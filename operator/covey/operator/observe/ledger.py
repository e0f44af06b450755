"""Pods between two events of the watch: those that it does not show yet, and those that it shows no more.

=========  ============================================  ====================================================
a pod is   since                                         until
=========  ============================================  ====================================================
newborn    the API server answered that it created it    the watch shows it (or its end), or has had its time
shown      the watch showed it                           the watch shows its end, or that of its label
condemned  its deletion is about to be asked for, while  likewise; then it is buried as *confirmed*
           it is shown
missing    it was shown and is no more, and nobody is    it is shown again, or asked for by name: still there
           known to have deleted it: it may have lost    (it counts as seen) or gone (buried, *confirmed*)
           the label by which it is found
buried     it ended, was condemned, or was asked for     a later pod of its place is buried, or this process
           and is gone                                   begins to lead: who led knew which were retired
=========  ============================================  ====================================================

Newborn and shown pods are in the snapshot. A missing pod is a grave that is not *confirmed*, a buried one a grave that
is. A pod that this process has written to is *changed* until the watch shows it so: the snapshot has it as it was
written, for what it served with before serves no more.

Apart from that a pod is *retired* from when there was to be none in its place: a retired pod is not lost when
it goes. A retired pod that is not on its way out is so no longer when its place is wanted again.

Nothing is decided from this memory that a process without it would not decide in the end (``snapshot.places.Grave``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from covey.api import core
from covey.compile import Slot
from covey.compile.identity import slot_of
from covey.operator.observe.newborn import Newborns
from covey.operator.snapshot import podstate
from covey.operator.snapshot.observed import Observed
from covey.operator.snapshot.places import Grave

Key = tuple[str, str]


class Ledger:
    """The pods of all resources, by the resource's key.

    Args:
        is_shown: whether the watch has shown this incarnation, and so will show its end.
        clock: monotonic, seconds.
    """

    def __init__(self, is_shown: Callable[[core.Pod], bool], clock: Callable[[], float]) -> None:
        self._is_shown = is_shown
        self._graves: dict[Key, dict[Slot, Grave]] = {}
        self._condemned: dict[Key, set[str]] = {}
        self._retired: dict[Key, set[str]] = {}
        self._changed: dict[Key, dict[str, core.Pod]] = {}
        self.newborns: Newborns[core.Pod] = Newborns(clock)

    def graves(self, key: Key) -> Mapping[Slot, Grave]:
        """The pods that were last in places of a resource, missing ones included."""
        return dict(self._graves.get(key, {}))

    def retired(self, key: Key) -> frozenset[str]:
        """UIDs of the pods of a resource that are retired."""
        return frozenset(self._retired.get(key, ()))

    def condemned(self, key: Key) -> frozenset[str]:
        """UIDs of the pods of a resource whose deletion has been asked for, which the watch still shows."""
        return frozenset(self._condemned.get(key, ()))

    def changed(self, key: Key, pod: core.Pod) -> None:
        """Note a pod that was changed, as the API server has answered."""
        self._changed.setdefault(key, {})[pod.metadata.uid] = pod

    def latest(self, key: Key, pod: core.Pod) -> core.Pod:
        """A pod that the watch shows, as this process knows it: the watch may be faster than the answer."""
        changed = self._changed.get(key)
        written = changed.get(pod.metadata.uid) if changed else None
        return written if written is not None and pod.metadata.is_before(written.metadata) else pod

    def spare(self, key: Key, uid: str) -> None:
        """Note that the deletion of a pod has failed."""
        self._condemned.get(key, set()).discard(uid)

    def created(self, key: Key, pod: core.Pod) -> None:
        """Note a pod that was created, as the API server has answered."""
        buried = {grave.uid for grave in self._graves.get(key, {}).values()}
        if not self._is_shown(pod) and pod.metadata.uid not in buried:
            self.newborns.add(key, pod)

    def shown(self, key: Key, pod: core.Pod) -> None:
        """Note that the watch shows a pod."""
        written = self._changed.get(key, {})
        if pod.metadata.uid in written and not pod.metadata.is_before(written[pod.metadata.uid].metadata):
            del written[pod.metadata.uid]
        slot, graves = slot_of(pod.spec.hostname), self._graves.get(key)
        if graves and slot is not None and slot in graves and graves[slot].uid == pod.metadata.uid:
            del graves[slot]

    def ended(self, key: Key, pod: core.Pod, *, ours: bool) -> None:
        """Note that the watch shows a pod no more.

        Args:
            key: of the resource that it was shown for.
            pod: as it was seen last.
            ours: it belonged to the resource that has this key now; a namesake's pods are nobody's.
        """
        slot, uid = slot_of(pod.spec.hostname), pod.metadata.uid
        self._changed.get(key, {}).pop(uid, None)
        condemned = self._condemned.get(key, set())
        confirmed = uid in condemned or podstate.is_dead(pod)
        condemned.discard(uid)
        if slot is not None and ours:
            retired = uid in self._retired.get(key, ())
            self._graves.setdefault(key, {})[slot] = Grave.of(pod, confirmed=confirmed, retired=retired)

    def condemn(self, key: Key, pod: core.Pod) -> None:
        """Note that the deletion of a pod is about to be asked for: when it is no longer shown, it is gone."""
        if self._is_shown(pod):
            self._condemned.setdefault(key, set()).add(pod.metadata.uid)

    def confirm(self, key: Key, slots: Iterable[Slot]) -> None:
        """Note that the pods that were last seen in these places are gone."""
        graves = self._graves.get(key, {})
        for slot in graves.keys() & set(slots):
            graves[slot] = replace(graves[slot], confirmed=True)

    def retire(self, key: Key, observed: Observed, wanted: Iterable[Slot]) -> None:
        """Retire all pods but those in the wanted places.

        Args:
            key: of the resource.
            observed: the snapshot that was planned from.
            wanted: the places that there shall be.
        """
        places, known = set(wanted), self._retired.pop(key, set())
        graves = self._graves.get(key, {})
        for slot in graves.keys() - places:
            graves[slot] = replace(graves[slot], retired=True)
        retired = {pod.metadata.uid for slot, pods in observed.pods.items() if slot not in places for pod in pods}
        if known:
            # A place may be wanted again while the pod that had to leave it still terminates.
            retired |= {pod.metadata.uid for pod in observed.every_pod() if self._goes(key, pod)} & known
        if retired:
            self._retired[key] = retired

    def forget_graves(self) -> None:
        """Forget pods that are gone: another process has decided so far, and alone knows which of them were lost."""
        self._graves.clear()

    def forget(self, key: Key) -> None:
        """Forget a resource that is gone."""
        self._graves.pop(key, None)
        self._condemned.pop(key, None)
        self._retired.pop(key, None)
        self._changed.pop(key, None)
        self.newborns.forget(key)

    def _goes(self, key: Key, pod: core.Pod) -> bool:
        return pod.metadata.deletion_timestamp is not None or pod.metadata.uid in self._condemned.get(key, ())
