"""ControllerRevisions and groups at their end: what is written, kept and deleted.

The history of ControllerRevisions: those that are written, marked and deleted.

One is written for every spec that has been accepted. Of those that differ in live fields only, the newest is kept; of
the others as many as people look back at, and those that some pod was made from.

Groups that are being deleted, by anybody.

Such a group is neither applied nor taken for there. Where the API server keeps it as long as pods are of it, they
decide: pods with nodes go on, and others may join them; pods without any go, so that it can be made again. Until then
no pod of it is created.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from covey.api import constants as names
from covey.backends import Identity
from covey.compile import Owner, Slot, Tree
from covey.compile.identity import short_hash
from covey.compile.revision import Revision
from covey.operator.model import podstate
from covey.operator.model.accepted import Accepted
from covey.operator.model.actions import Actions, DeleteObject, DeletePod, Mark, Object, Outcome
from covey.operator.model.objects import CONTROLLER_REVISIONS
from covey.operator.model.observed import Observed

#: Revisions that are kept for people to go back to, where ``spec.rollout.historyLimit`` says nothing.
HISTORY: Final = 10


def to_store(owner: Owner, accepted: Accepted, observed: Observed) -> Object | None:
    """The ControllerRevision to write; None when the newest one says the same."""
    newest = observed.in_force
    known = newest.record.accepted if newest is not None and newest.record is not None else None
    if known is not None and known.is_same(accepted):
        return None
    data = accepted.as_data()
    digest = short_hash(json.dumps(data, sort_keys=True, separators=(",", ":")), 10)
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": owner.metadata(f"{owner.name}-{digest}", {names.LABEL_REVISION: accepted.revision.hash}),
        "data": data,
        "revision": newest.number + 1 if newest else 1,
    }


def to_mark(observed: Observed, wanted: Revision, complete: str, *, failed: bool) -> Iterator[Mark]:
    """Marks that ControllerRevisions lack, or have for nothing: only what is still asked for can have failed.

    A revision that was complete is marked when another one is asked for: before that nobody goes back to it.

    Args:
        observed: the snapshot.
        wanted: what the spec asks for.
        complete: the hash of the revision that was complete last.
        failed: its rollout is given up now.
    """
    completed = {
        complete,
        *(each.record.revision.hash for each in observed.revisions if each.record and each.completed),
    }
    for stored in observed.revisions:
        if stored.record is None:
            continue
        revision = stored.record.revision
        asked = revision.is_same(wanted)
        has_failed = asked and (failed or stored.failed)
        was_complete = stored.completed or (revision.hash in completed and not asked)
        if (has_failed, was_complete) != (stored.failed, stored.completed):
            yield Mark(stored.name, stored.uid, failed=has_failed, completed=was_complete)


def find_expired(observed: Observed, limit: int) -> Iterator[DeleteObject]:
    """Old revisions that no pod is of: for each role's pods the newest that records theirs is enough.

    One that cannot be read is left alone: another release may know what it says.
    """
    newest_first = sorted(observed.revisions, key=lambda stored: stored.number, reverse=True)
    told: set[tuple[str | None, str | None]] = {
        (pod.metadata.label(names.LABEL_ROLE), pod.metadata.label(names.LABEL_REVISION)) for pod in observed.every_pod()
    }
    seen: set[str] = set()
    #: Revisions of which a newer record says that they were complete.
    completed: set[str] = set()
    for stored in newest_first:
        if stored.record is None:
            continue
        revision = stored.record.revision
        tells = told & {(name, role.hash) for name, role in revision.roles.items()}
        told -= tells
        # The one in force is no history.
        told_twice = revision.hash in seen and (not stored.completed or revision.hash in completed)
        if told_twice or (len(seen) > limit and not tells and not stored.failed):
            yield DeleteObject(CONTROLLER_REVISIONS.type, stored.name, stored.uid)
        seen.add(revision.hash)
        completed |= {revision.hash} if stored.completed else set()


@dataclass(frozen=True, slots=True)
class Ending:
    """Places whose pods wait for a group of theirs to go; the pods that keep it for nothing are deleted."""

    slots: frozenset[Slot] = frozenset()
    outcome: Outcome = field(default_factory=Outcome)


def find_ending(tree: Tree, observed: Observed, going: Collection[str]) -> Ending:
    """Find places that wait for groups that are being deleted, and pods that have to give way to them.

    Args:
        tree: what is wanted.
        observed: the snapshot.
        going: UIDs of pods that are deleted in this pass.
    """
    ending = {identity for identity, owned in observed.objects.items() if owned.metadata.deletion_timestamp is not None}
    if not ending:
        return Ending()
    places: dict[Identity, list[Slot]] = {}
    for slot in tree.slots:
        anchor = tree.pods.anchor(slot)
        if anchor in ending:
            places.setdefault(anchor, []).append(slot)
    found = [slots for slots in places.values() if not _is_kept(slots, observed, going)]
    pods = [pod for slots in found for slot in slots for pod in observed.pods.get(slot, ())]
    return Ending(
        frozenset(slot for slots in found for slot in slots),
        Outcome(
            Actions(
                delete_pods=tuple(
                    DeletePod(pod, "its group is deleted")
                    for pod in pods
                    if not podstate.is_going(pod) and pod.metadata.uid not in going
                )
            )
        ),
    )


def _is_kept(slots: Collection[Slot], observed: Observed, going: Collection[str]) -> bool:
    """Tell whether a pod of a group has a node, and stays."""
    for slot in slots:
        pod = observed.current.get(slot)
        if pod is not None and podstate.is_bound(pod) and pod.metadata.uid not in going:
            return True
    return False
