"""Completion of the revision in force: it has been rolled out and serves, and is then worth going back to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter

from covey.compile import Scale
from covey.compile.layout import RoleCount
from covey.compile.revision import Revision
from covey.operator.replicas.scale import ReplicaState, Running, States, count_unit
from covey.operator.rolling.layout import Rolling


def is_complete(in_force: Revision, rolling: Rolling, running: Running, states: States, scale: Scale) -> bool:
    """Tell whether all replicas are of the revision in force, and every unit serves: its minimum, and one of each role.

    Args:
        in_force: the revision.
        rolling: what there shall be.
        running: of which revision each replica is.
        states: how far each replica has come.
        scale: what is wanted.
    """
    layout = rolling.layout
    if rolling.progress is not None or not layout.units:
        return False
    if any(each.hash != in_force.roles[role].hash for (_, role, _), each in running.items()):
        return False
    scale = layout.scale or scale
    return all(_serves(scale.unit(unit), states.get(unit, {})) for unit in layout.units)


def _serves(roles: Mapping[str, RoleCount], states: Mapping[str, Mapping[int, ReplicaState]]) -> bool:
    least = {name: replace(count, minimum=max(count.minimum, min(1, count.replicas))) for name, count in roles.items()}
    return count_unit(least, states, attrgetter("is_ready")).has_minimum
