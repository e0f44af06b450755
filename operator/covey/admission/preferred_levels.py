"""Preferred levels that the minimum of a unit has reached: pure.

Counted is what the planner counts: the minimum's replicas, of the unit only the roles that follow it. Surplus is never
held back by a preference, so it does not spoil one either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from covey.admission.roles import Replica
from covey.admission.tree import Unit, minimum_replicas
from covey.api import core
from covey.model import podstate
from covey.placement.cluster.devices import CLUSTER
from covey.placement.model import Path, Topology


class PreferenceScope(StrEnum):
    """The scope for which a level is preferred."""

    UNIT = "unit"
    ROLE = "role"
    GROUP = "group"
    PROXIMITY = "proximity"


@dataclass(frozen=True, slots=True)
class Preference:
    """A level that is preferred, and the domain paths of those pods that are to share one domain of it, set by set.

    ``name`` is of the role, the group, or the roles of a proximity; empty for the unit.
    """

    scope: PreferenceScope
    name: str
    level: str
    sets: Sequence[Sequence[Path]]

    def __str__(self) -> str:
        """The scope that prefers it, for people."""
        return (
            f"{self.scope} of {self.name}"
            if self.scope is PreferenceScope.PROXIMITY
            else f"{self.scope} {self.name}".rstrip()
        )

    def reached_level(self, topology: Topology) -> str:
        """The narrowest level, at most as narrow as the preferred one, of which every set shares a domain.

        ``cluster`` where there is none. A level that the topology does not have is never reached.
        """
        names = [level.name for level in topology.levels]
        depth = names.index(self.level) if self.level in names else len(names) - 1
        shared = (at for at in range(depth, -1, -1) if all(_shares(paths, at) for paths in self.sets))
        return next((names[at] for at in shared), CLUSTER)

    def is_met(self, topology: Topology) -> bool:
        """The preferred level is reached."""
        return self.reached_level(topology) == self.level


def preferences(unit: Unit, topology: Topology, path_of: Callable[[str], Path]) -> list[Preference]:
    """The preferences of a unit; none while none of its pods that are spoken of has a place.

    Args:
        unit: the unit.
        topology: the one that it is planned in.
        path_of: a node's domain path; empty when the node is unknown.
    """
    found = list(_preferences(unit, topology, path_of))
    return found if any(paths for each in found for paths in each.sets) else []


def _preferences(unit: Unit, topology: Topology, path_of: Callable[[str], Path]) -> Iterator[Preference]:
    def paths(replicas: Iterable[Replica]) -> list[Path]:
        pods = (pod for replica in replicas for pod in replica.pods)
        return [path_of(node) for pod in pods if (node := pod.spec.node_name or podstate.pinned_node(pod)) is not None]

    minimum = [(role, minimum_replicas(role, podstate.is_placed)) for role in unit.roles]
    if level := _preferred_level(topology, unit.root):
        following = [replica for role, replicas in minimum if role.follows for replica in replicas]
        yield Preference(PreferenceScope.UNIT, "", level, [paths(following)])
    for role, replicas in minimum:
        groups = [replica.group for replica in role.replicas] if role.whole else [role.group]
        preferred = next((level for group in groups if (level := _preferred_level(topology, group))), None)
        if preferred and role.group is not unit.root:
            yield Preference(PreferenceScope.ROLE, role.name, preferred, [paths([replica]) for replica in replicas])
    least = {(role.name, replica.number): replica for role, replicas in minimum for replica in replicas}
    for scope in unit.scopes:
        if level := _preferred_level(topology, scope.group):
            near = [least[member] for member in scope.members if member in least]
            yield Preference(PreferenceScope.GROUP, scope.group.metadata.name, level, [paths(near)])
    constraints = unit.root.spec.scheduling_constraints
    for rule in (constraints.proximity or ()) if constraints else ():
        if rule.mode == "Preferred":
            near = [replica for role, replicas in minimum if role.name in rule.roles for replica in replicas]
            yield Preference(PreferenceScope.PROXIMITY, " and ".join(rule.roles), rule.level, [paths(near)])


def _preferred_level(topology: Topology, group: core.Group) -> str | None:
    """The narrowest preferred level of a group; a level that the topology does not have is never reached."""
    constraints = group.spec.scheduling_constraints
    levels = [
        each.level or next((level.name for level in topology.levels if each.key in level.keys), each.key or "")
        for each in (constraints.topology or () if constraints else ())
        if each.mode == "Preferred"
    ]
    order = [level.name for level in topology.levels]
    return max(levels, key=lambda name: order.index(name) if name in order else len(order), default=None)


def _shares(paths: Sequence[Path], depth: int) -> bool:
    """All lie in one domain of a level; a node without the level lies in none."""
    heads = {path[: depth + 1] for path in paths}
    return len(heads) <= 1 and all(head[depth : depth + 1] != (None,) for head in heads)
