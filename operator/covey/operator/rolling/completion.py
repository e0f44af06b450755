"""Completion of the revision in force: it has been rolled out and serves, and is then worth going back to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter

from covey.compile import Revision, Scale
from covey.compile.layout import RoleCount
from covey.operator.intent import Intent
from covey.operator.replicas.progress import ReplicaState, count_unit


def is_complete(in_force: Revision, intent: Intent, scale: Scale) -> bool:
    """Tell whether all replicas are of the revision in force, and every unit serves: its minimum, and one of each role.

    Args:
        in_force: the revision.
        intent: what is wanted.
        scale: how much is wanted, where the layout does not say.
    """
    layout = intent.layout
    if intent.progress is not None or not layout.units:
        return False
    if any(role_revision.hash != in_force.roles[role].hash for (_, role, _), role_revision in intent.running.items()):
        return False
    scale = layout.scale or scale
    return all(_serves(scale.unit(unit), intent.states.get(unit, {})) for unit in layout.units)


def _serves(roles: Mapping[str, RoleCount], states: Mapping[str, Mapping[int, ReplicaState]]) -> bool:
    least = {name: replace(count, minimum=max(count.minimum, min(1, count.replicas))) for name, count in roles.items()}
    return count_unit(least, states, attrgetter("is_ready")).has_minimum
