"""Minimums that were raised and have not been met yet.

A gang is planned whole or not at all, so a minimum beyond the room there is would keep from a unit what it has lost and
could have again. Until a raised minimum is met for the first time:

1. While the unit has what it had, its groups ask for the raised minimum, and note the one that was met.
2. While it lacks some of that, they ask for what was met, and no more.

What was met is the count that a role's group has, or notes; what has come beyond it since counts as well. A unit without
any place has nothing to keep and starts whole. Groups that may not be changed keep their count anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from covey.api import constants as names
from covey.backends import Backend
from covey.compile import Tree, identity_of
from covey.compile.groups import Object
from covey.model import podstate
from covey.operator.model.observed import Observed

#: A unit's number and a role.
_UnitRole = tuple[int, str]


def with_met_minimums(tree: Tree, backend: Backend, observed: Observed) -> Tree:
    """The tree with the minimum that was met last for units whose minimum was raised and that lack some of what they had.

    Args:
        tree: what is wanted.
        backend: knows which groups may be changed.
        observed: the snapshot.
    """
    wanted: dict[_UnitRole, int] = {}
    met: dict[_UnitRole, int] = {}
    for key, body in _role_groups(tree):
        wanted[key] = _minimum_in(body["spec"])
        stored = observed.objects.get(identity_of(body))
        if stored is None:
            continue
        note = stored.metadata.annotation(names.ANNOTATION_MET_MINIMUM) or ""
        count = int(note) if note.isdecimal() else _minimum_in(stored.spec)
        if count < wanted[key] and not backend.is_fixed(stored, body):
            met[key] = count
    if not met:
        return tree
    placed = Counter(
        (unit, role)
        for (unit, role, _), slots in tree.replicas.items()
        if all(slot in observed.current and podstate.is_in_place(observed.current[slot]) for slot in slots)
    )
    started = {unit for unit, _ in placed}
    met = {key: max(count, placed[key]) for key, count in met.items() if key[0] in started}
    met = {key: count for key, count in met.items() if count < wanted[key]}
    short = {key[0] for key, minimum in wanted.items() if placed[key] < met.get(key, minimum)}
    kept = {key: count for key, count in met.items() if key[0] in short}
    outside = Counter(unit for (unit, _), count in kept.items() if not count)

    def amend(body: Object) -> Object:
        labels = body["metadata"].get("labels", {})
        unit = labels.get(names.LABEL_UNIT)
        if unit is None or names.LABEL_REPLICA in labels or _gang_of(body.get("spec", {})) is None:
            return body
        key = (int(unit), labels.get(names.LABEL_ROLE, ""))
        if key in kept:
            return _with_minimum(body, kept[key])
        if key in met:
            annotations = {**body["metadata"].get("annotations", {}), names.ANNOTATION_MET_MINIMUM: str(met[key])}
            return {**body, "metadata": {**body["metadata"], "annotations": annotations}}
        # The root counts the roles of the gang.
        return _with_minimum(body, _minimum_in(body["spec"]) - outside[key[0]]) if not key[1] and outside else body

    levels = (replace(level, objects=tuple(map(amend, level.objects))) for level in tree.levels)
    return replace(tree, levels=tuple(levels))


def _role_groups(tree: Tree) -> Iterator[tuple[_UnitRole, Object]]:
    """The groups of the gang that stand for a whole role of a unit."""
    for level in tree.levels:
        for body in level.objects:
            labels = body["metadata"].get("labels", {})
            if names.LABEL_ROLE not in labels or names.LABEL_UNIT not in labels or names.LABEL_REPLICA in labels:
                continue
            if _gang_of(body.get("spec", {})) is not None:
                yield (int(labels[names.LABEL_UNIT]), labels[names.LABEL_ROLE]), body


def _gang_of(spec: Mapping[str, Any]) -> Mapping[str, int] | None:
    """The gang of a group, whose one field is ``minCount`` or ``minGroupCount``; None outside one, and for other objects."""
    gang: Mapping[str, int] | None = spec.get("schedulingPolicy", {}).get("gang")
    return gang


def _minimum_in(spec: Mapping[str, Any]) -> int:
    return next(iter((_gang_of(spec) or {}).values()), 0)


def _with_minimum(body: Object, minimum: int) -> Object:
    policy = {"gang": dict.fromkeys(_gang_of(body["spec"]) or (), minimum)} if minimum else {"basic": {}}
    return {**body, "spec": {**body["spec"], "schedulingPolicy": policy}}
