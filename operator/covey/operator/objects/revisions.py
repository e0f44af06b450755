"""ControllerRevisions: one is written for every spec that has been accepted.

Of those that differ in live fields only, the newest is kept; of the others as many as people look back at, and those
that some pod was made from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from covey.api import constants as names
from covey.compile import Owner
from covey.compile.identity import short_hash
from covey.compile.revision import Revision
from covey.operator.model.accepted import Accepted
from covey.operator.model.actions import DeleteObject, Mark, Object
from covey.operator.model.objects import ANNOTATION_NUMBER, CONTROLLER_REVISIONS
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
    # Named by what former releases wrote, nulls and all: a spec that comes back finds the record that they made of it.
    named = {**data, "spec": accepted.content, "topology": data["topology"] or None}
    digest = short_hash(json.dumps(named, sort_keys=True, separators=(",", ":")), 10)
    shown = newest.shown if newest else 0
    if known is None or not known.revision.is_same(accepted.revision):
        shown += 1
    metadata = owner.metadata(f"{owner.name}-{digest}", {names.LABEL_REVISION: accepted.revision.hash})
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {**metadata, "annotations": {ANNOTATION_NUMBER: str(shown)}},
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
        *(record.record.revision.hash for record in observed.revisions if record.record and record.completed),
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
    named: set[tuple[str | None, str | None]] = {
        (pod.metadata.label(names.LABEL_ROLE), pod.metadata.label(names.LABEL_REVISION)) for pod in observed.every_pod()
    }
    seen: set[str] = set()
    #: Revisions of which a newer record says that they were complete.
    completed: set[str] = set()
    for stored in newest_first:
        if stored.record is None:
            continue
        revision = stored.record.revision
        tells = named & {(name, role.hash) for name, role in revision.roles.items()}
        named -= tells
        # The one in force is no history.
        told_twice = revision.hash in seen and (not stored.completed or revision.hash in completed)
        if told_twice or (len(seen) > limit and not tells and not stored.failed):
            yield DeleteObject(CONTROLLER_REVISIONS.type, stored.name, stored.uid)
        seen.add(revision.hash)
        completed |= {revision.hash} if stored.completed else set()
