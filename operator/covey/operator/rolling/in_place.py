"""Replicas that become ones of another revision by other images, in the pods that they have.

Which ones and when is said by ``covey.rollout``; here it is judged which of them can, and what to do for those that
shall. A pod is of the revision that its label says, for image and label are changed in one request. So a replica whose
pods are of two revisions is one whose change was interrupted, and is brought to its end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from covey.api import constants as names
from covey.api import core
from covey.compile import Layout, Slot
from covey.compile.revision import Revision, RoleRevision
from covey.model import image_update, podstate
from covey.operator.feature import Changes, Feature
from covey.operator.intent import Intent
from covey.operator.model.actions import Actions, Note, Relabel, UpdateInPlace
from covey.operator.model.observed import Observed
from covey.operator.model.outcome import Outcome
from covey.operator.replicas.progress import known_revisions
from covey.operator.replicas.replica_notes import by_role
from covey.rollout.image_diff import differ_in_images_only, images_of


@dataclass(frozen=True)
class Turning:
    """Judges which pods can become pods of another revision where they are.

    Args:
        known: revisions by role and hash.
    """

    known: Mapping[tuple[str, str], RoleRevision]
    _judged: dict[tuple[str, str, str], bool] = field(default_factory=dict)

    @classmethod
    def of(cls, observed: Observed, in_force: Revision) -> Turning:
        """Judge by the revisions that are stored, and the one that is rolled out."""
        wanted = {(name, role.hash): role for name, role in in_force.roles.items()}
        return cls({**known_revisions(observed), **wanted})

    def images(self, slot: Slot, pod: core.Pod, revision: RoleRevision) -> Mapping[str, str] | None:
        """The images that make a pod one of another revision; None where images do not do, or it is one already."""
        label = pod.metadata.label(names.LABEL_REVISION) or ""
        if label == revision.hash or not podstate.is_bound(pod) or podstate.is_dead(pod):
            return None
        former = self.known.get((slot.role, label))
        if former is None:
            return None
        key = (slot.role, label, revision.hash)
        if key not in self._judged:
            self._judged[key] = differ_in_images_only(former, revision)
        if not self._judged[key]:
            return None
        # Where somebody has put other images in (a mirror, say), only a new pod gets the like.
        found = {each.name: each.image for each in pod.spec.containers}
        return images_of(revision, slot.index) if images_of(former, slot.index).items() <= found.items() else None

    def can_turn(self, pods: Mapping[Slot, core.Pod], size: int, revision: RoleRevision) -> bool:
        """Tell whether a replica is whole, and all its pods can become ones of another revision."""
        return len(pods) == size and all(self.images(slot, pod, revision) is not None for slot, pod in pods.items())

    def is_torn(self, pods: Mapping[Slot, core.Pod], revision: RoleRevision) -> bool:
        """Tell whether some pods of a replica are yet to become ones of its revision."""
        return any(self.images(slot, pod, revision) is not None for slot, pod in pods.items())


@dataclass
class InPlaceUpdates(Feature):
    """Updates of pods whose replica shall be of another revision than they are, until it serves again."""

    HONOURS = frozenset({"spec.roles[].update.inPlace"})

    _turning: Turning = field(init=False)

    def intent(self, intent: Intent) -> Intent:
        """Which replicas can be updated so: without it a rollout replaces them."""
        self._turning = Turning.of(self.given.observed, self.given.in_force)
        return replace(intent, can_update_in_place=self._turning.can_turn, is_half_updated=self._turning.is_torn)

    def outcome(self, changes: Changes) -> Outcome:
        """The updates that begin, and those that are over."""
        layout, observed = changes.tree.layout, self.given.observed
        updates = tuple(_updates(layout, observed, self._turning, changes.gone))
        closed = tuple(_end_update(layout, observed))
        return Outcome(Actions(relabel=closed, in_place=updates, notes=tuple(_notes(updates))))


def _updates(layout: Layout, observed: Observed, turning: Turning, going: Collection[str]) -> Iterator[UpdateInPlace]:
    for slot, pod in observed.current.items():
        revision = layout.revision_of(slot) if pod.metadata.uid not in going else None
        images = turning.images(slot, pod, revision) if revision is not None and slot.index < revision.size else None
        if revision is not None and images is not None:
            yield UpdateInPlace(pod, images, revision.hash, observed.now)


def _end_update(layout: Layout, observed: Observed) -> Iterator[Relabel]:
    """End the update of pods whose replica serves again, all with their new images."""
    replicas = {slot[:3] for slot, pods in observed.pods.items() if any(map(image_update.is_open, pods))}
    for replica in sorted(replicas):
        unit, role, number = replica
        revision = layout.units.get(unit, {}).get(role, {}).get(number)
        slots = [Slot(*replica, index) for index in range(revision.size)] if revision is not None else []
        pods = [pod for slot in slots if (pod := observed.current.get(slot)) is not None]
        same = len({pod.metadata.label(names.LABEL_REVISION) for pod in pods}) == 1
        if same and len(pods) == len(slots) and all(_serves(pod, observed.now) for pod in pods):
            yield from (Relabel(pod, {}, image_update.closing(pod)) for pod in pods if image_update.is_open(pod))


def _serves(pod: core.Pod, now: float) -> bool:
    late = image_update.is_open(pod) and image_update.patience(pod, now) <= 0
    return podstate.is_ready(pod) or (late and podstate.says_ready(pod))


def _notes(updates: Sequence[UpdateInPlace]) -> Iterator[Note]:
    """Make one Event for all replicas whose images are updated in place."""
    label = attrgetter("pod.metadata.label")
    replicas = {
        tuple(label(each)(name) for name in (names.LABEL_ROLE, names.LABEL_UNIT, names.LABEL_REPLICA))
        for each in updates
    }
    listed = by_role(str(role) for role, _, _ in replicas)
    if listed:
        yield Note("UpdatedInPlace", f"giving other images to the pods of {listed}, which keep their nodes", "Rollout")
