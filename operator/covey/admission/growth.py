"""Growth of units, as opposed to what only replaces something: pure.

Room that is kept for a gang (``reservations``) is closed to growth alone. What a unit had when the keeping began it may
have again; and a replica that takes the place of another one, which still runs, is no growth either: the surge of a
rollout, the successor of a replica that drains or whose node is about to go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from covey.admission import losses, podstate
from covey.admission.tree import Replica, Unit, replica_met
from covey.api import core
from covey.api.constants import ANNOTATION_DRAINING_SINCE, LABEL_REVISION
from covey.placement.model import Gang

#: Role → replicas that have their nodes.
Footprint = Mapping[str, int]


def footprint(unit: Unit) -> Footprint:
    """Count the replicas of a unit that are bound, by role."""
    found: Counter[str] = Counter()
    for role in unit.roles:
        found[role.name] += sum(replica_met(replica, podstate.bound) for replica in role.replicas)
    return found


def without_growth(gang: Gang, unit: Unit, had: Footprint, leaves: Callable[[str], bool]) -> Gang:
    """A gang with no more surplus than replaces something.

    Args:
        gang: the gang whose surplus is to be planned.
        unit: its unit.
        had: what the unit had when the keeping began.
        leaves: whether a node is about to go.
    """
    allowed = _allowed(unit, had, leaves)
    roles = []
    for role in gang.roles:
        room = allowed.get(role.name, 0)
        placed = [each for each in role.replicas if each.placed]
        waiting = [each for each in role.replicas if not each.placed]
        chosen = {each.replica for each in [*placed, *waiting[: max(room, 0)]]}
        roles.append(replace(role, replicas=tuple(each for each in role.replicas if each.replica in chosen)))
    return replace(gang, roles=tuple(roles))


def _allowed(unit: Unit, had: Footprint, leaves: Callable[[str], bool]) -> Mapping[str, int]:
    """Replicas of each role that may get places without being growth."""
    found: dict[str, int] = {}
    for role in unit.roles:
        placed = [each for each in role.replicas if replica_met(each, podstate.bound)]
        waiting = [each for each in role.replicas if not replica_met(each, podstate.bound)]
        revisions = {pod.metadata.label(LABEL_REVISION) for each in waiting for pod in each.pods}
        going = sum(_goes(each, revisions, leaves) for each in placed)
        lost = sum(any(map(losses.room_said, each.pods)) for each in waiting)
        found[role.name] = max(had.get(role.name, 0) + going - len(placed), lost)
    return found


def _goes(replica: Replica, revisions: set[str | None], leaves: Callable[[str], bool]) -> bool:
    """A replica that has its places is about to give them up."""
    return any(
        pod.metadata.deletion_timestamp is not None
        or pod.metadata.annotation(ANNOTATION_DRAINING_SINCE) is not None
        or _is_old(pod, revisions)
        or leaves(pod.spec.node_name or "")
        for pod in replica.pods
    )


def _is_old(pod: core.Pod, revisions: set[str | None]) -> bool:
    """Successors of another revision wait."""
    return bool(revisions) and pod.metadata.label(LABEL_REVISION) not in revisions


__all__ = ["Footprint", "footprint", "without_growth"]
