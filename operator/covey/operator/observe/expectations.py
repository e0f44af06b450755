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

Objects that this process has created and that its watch has not shown yet.

A thousand answers to creations arrive before the watch has shown the last of them; a plan from the watch alone
would create those again, and each would exist already. So what the API server has answered counts as seen.

An object that was created and deleted while the watch was broken is never shown, so nothing is believed for long: what
expires here is created again if it is wanted, under the same name. Nothing depends on this memory but needless
writes, and that no unit has two leaders for a moment (``scaling.leading``).

Pods that are no longer seen, though nobody was seen to delete them.

The operator finds its pods by a label. Where somebody takes the label away, a pod vanishes from sight and goes on
running; to replace it would make a double, and to count it as lost would take its whole replica down. So the API
server is asked, once for each such pod, and a pod that is still there gets its labels back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Generic, TypeVar

from covey.api import core
from covey.compile import Owner, Slot
from covey.compile.identity import slot_of
from covey.kube import resources
from covey.kube.client import Client
from covey.kube.errors import ApiError, NotFound
from covey.kube.store import Described
from covey.model import podstate
from covey.observability.logging import get_logger
from covey.operator.model.observed import Grave, Observed, is_ours
from covey.operator.model.problem import is_denial

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

    def retired_pods(self, key: Key) -> frozenset[str]:
        """UIDs of the pods of a resource that are retired."""
        return frozenset(self._retired.get(key, ()))

    def pending_deletions(self, key: Key) -> frozenset[str]:
        """UIDs of the pods of a resource whose deletion has been asked for, which the watch still shows."""
        return frozenset(self._condemned.get(key, ()))

    def note_change(self, key: Key, pod: core.Pod) -> None:
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

    def note_creation(self, key: Key, pod: core.Pod) -> None:
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

    def note_end(self, key: Key, pod: core.Pod, *, ours: bool) -> None:
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


T = TypeVar("T", bound=Described)

#: Seconds that a watch may be behind before its silence counts as the object's absence.
PATIENCE: Final = 10.0


class Newborns(Generic[T]):
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


_log = get_logger(__name__)


def missing_pods(observed: Observed) -> Mapping[Slot, Grave]:
    """Pods of places that nobody fills, of which it is not known whether they are gone."""
    return {slot: grave for slot, grave in observed.graves.items() if not grave.confirmed and slot not in observed.pods}


async def find_remaining(client: Client, owner: Owner, missing: Mapping[Slot, Grave]) -> dict[Slot, core.Pod]:
    """Find pods that are still there, and give them their labels back; a place that is left out has lost its pod.

    Raises:
        KubeError: when the API server could not be asked.
    """
    found = await asyncio.gather(*(_find(client, owner, grave) for grave in missing.values()))
    return {slot: pod for slot, pod in zip(missing, found, strict=True) if pod is not None}


async def _find(client: Client, owner: Owner, grave: Grave) -> core.Pod | None:
    try:
        found = await client.get(resources.PODS, grave.name, owner.namespace, type=core.Pod)
        if found.metadata.uid != grave.uid or podstate.is_dead(found) or not is_ours(found.metadata, owner):
            return None
        patch = {"metadata": {"uid": grave.uid, "labels": dict(grave.labels)}}
        given = await client.merge_patch(resources.PODS, grave.name, owner.namespace, patch, type=core.Pod)
    except NotFound:
        return None
    except ApiError as error:
        if not is_denial(error):
            raise
        # It has its place all the same; the plan tries once more, and its refusal is reported.
        _log.warning("labels not given back", pod=grave.name, error=str(error))
        return found
    _log.info("labels given back", pod=grave.name)
    return given
