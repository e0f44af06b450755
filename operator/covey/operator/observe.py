"""What is: one resource's own objects, as the caches have them, sorted by the place they fill.

Objects are found by label and taken for ours by the UID of their controlling owner; what a former resource of the
same name left behind is not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from covey.api import core
from covey.compile.identity import Owner, Slot, slot_of
from covey.compile.revision import Revision
from covey.operator import podstate
from covey.operator.objects import ControllerRevision, Owned


@dataclass(frozen=True, slots=True)
class Grave:
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

    @classmethod
    def of(cls, pod: core.Pod, *, confirmed: bool = True, retired: bool = False) -> Grave:
        """What to remember of a pod."""
        metadata = pod.metadata
        bound, restarts, labels = podstate.is_bound(pod), podstate.restarts(pod), metadata.labels or {}
        return cls(metadata.uid, metadata.name, bound, restarts, labels, confirmed, retired)


@dataclass(frozen=True, slots=True)
class StoredRevision:
    """A revision that a ControllerRevision holds."""

    name: str
    number: int
    revision: Revision
    uid: str = ""


@dataclass(frozen=True)
class Observed:
    """A snapshot.

    ``pods`` has every incarnation of each place, ``strays`` those that fill none, ``objects`` the Workload, groups
    and Services by (kind, name).
    """

    pods: Mapping[Slot, tuple[core.Pod, ...]] = field(default_factory=dict)
    strays: tuple[core.Pod, ...] = ()
    objects: Mapping[tuple[str, str], Owned] = field(default_factory=dict)
    revisions: tuple[StoredRevision, ...] = ()
    graves: Mapping[Slot, Grave] = field(default_factory=dict)
    #: Levels of the topology in use; None when it is not known.
    levels: tuple[str, ...] | None = None
    #: UIDs of pods that go because there was to be none in their place.
    retired: frozenset[str] = frozenset()

    def every_pod(self) -> Iterator[core.Pod]:
        """All pods, strays included."""
        for pods in self.pods.values():
            yield from pods
        yield from self.strays

    def with_pods(self, found: Mapping[Slot, core.Pod]) -> Observed:
        """The same with pods that were found otherwise, in places where none was seen."""
        return replace(self, pods={**{slot: (pod,) for slot, pod in found.items()}, **self.pods})

    @property
    def in_force(self) -> StoredRevision | None:
        """The revision that pods are made from: the newest stored."""
        return max(self.revisions, key=lambda stored: stored.number, default=None)


def is_ours(metadata: core.Meta, owner: Owner) -> bool:
    """The controlling owner is this very resource."""
    controller = metadata.controller
    return controller is not None and controller.uid == owner.uid


def place_pods(pods: Iterable[core.Pod]) -> tuple[dict[Slot, tuple[core.Pod, ...]], tuple[core.Pod, ...]]:
    """Pods by their place, and those without one.

    The host name says which place a pod fills. Labels say the same and may have been edited.
    """
    placed: dict[Slot, list[core.Pod]] = {}
    strays: list[core.Pod] = []
    for pod in pods:
        slot = slot_of(pod.spec.hostname)
        (strays if slot is None else placed.setdefault(slot, [])).append(pod)
    return {slot: tuple(found) for slot, found in placed.items()}, tuple(strays)


def number(metadata: core.Meta, label: str) -> int | None:
    """The number in a label."""
    value = metadata.label(label)
    return int(value) if value is not None and value.isdecimal() else None


def read_revisions(stored: Iterable[ControllerRevision]) -> tuple[StoredRevision, ...]:
    """The revisions that can be read; one that cannot is as good as absent."""
    found: list[StoredRevision] = []
    for item in stored:
        try:
            revision = Revision.from_data(item.data)
        except (KeyError, TypeError, AttributeError):
            continue
        found.append(StoredRevision(item.metadata.name, item.revision, revision, item.metadata.uid))
    return tuple(found)
