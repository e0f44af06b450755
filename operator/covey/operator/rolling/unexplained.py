"""Replicas of revisions of which no record is left: nobody knows what they run, so nothing of them is rolled."""

from __future__ import annotations

from covey.api import constants as names
from covey.compile.revision import Revision
from covey.operator.replicas.scale import known_revisions
from covey.operator.snapshot.observed import Observed

#: Revisions that are named in one message.
_NAMED = 3


def find_unexplained(observed: Observed, in_force: Revision) -> dict[str, dict[str, int]]:
    """Find revisions, by role, that no record explains and that are not in force, with their number of replicas."""
    known = known_revisions(observed)
    found: dict[str, dict[str, set[tuple[int, int]]]] = {}
    for slot, pod in observed.current.items():
        revision = pod.metadata.label(names.LABEL_REVISION) or ""
        wanted = in_force.roles.get(slot.role)
        if wanted is not None and revision != wanted.hash and (slot.role, revision) not in known:
            found.setdefault(slot.role, {}).setdefault(revision, set()).add((slot.unit, slot.replica))
    return {role: {each: len(replicas) for each, replicas in told.items()} for role, told in sorted(found.items())}


def describe_unexplained(found: dict[str, dict[str, int]]) -> str:
    """Describe replicas of unexplained revisions; empty where there are none."""
    told = [
        f"{count} of {role} ({revision or 'without a revision'})"
        for role, revisions in found.items()
        for revision, count in sorted(revisions.items())
    ]
    if not told:
        return ""
    rest = f" and {len(told) - _NAMED} more" if len(told) > _NAMED else ""
    return (
        f"replicas of revisions without a record: {', '.join(told[:_NAMED])}{rest}; what they run is not known, and they "
        "are not rolled: delete their pods, one replica after another, to have them made anew"
    )
