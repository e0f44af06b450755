"""Replicas of revisions of which no record is left: nobody knows what they run, so nothing of them is rolled."""

from __future__ import annotations

from covey.api import constants as names
from covey.compile.revision import Revision
from covey.operator.model.observed import Observed
from covey.operator.replicas.progress import known_revisions

#: Revisions that are named in one message.
_NAMED = 3


def describe_unexplained(observed: Observed, in_force: Revision) -> str:
    """Describe replicas of revisions that no record explains and that are not in force; empty where there are none."""
    known = known_revisions(observed)
    replicas: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for slot, pod in observed.current.items():
        revision = pod.metadata.label(names.LABEL_REVISION) or ""
        wanted = in_force.roles.get(slot.role)
        if wanted is not None and revision != wanted.hash and (slot.role, revision) not in known:
            replicas.setdefault((slot.role, revision), set()).add((slot.unit, slot.replica))
    if not replicas:
        return ""
    texts = [
        f"{len(numbers)} of {role} ({revision or 'without a revision'})"
        for (role, revision), numbers in sorted(replicas.items())
    ]
    rest = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return (
        f"replicas of revisions without a record: {', '.join(texts[:_NAMED])}{rest}; what they run is not known, and they "
        "are not rolled: delete their pods, one replica after another, to have them made anew"
    )
