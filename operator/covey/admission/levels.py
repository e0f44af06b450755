"""Levels that a gang requires and prefers, the spread of a resource's units, and nodes that a unit keeps off. Pure.

Required levels, and whether the places of a gang still agree with them: each plan keeps them, but what is bound in the
end need not be one plan: an answer that was lost, a second writer, or a node whose labels were changed can leave a gang
pinned across two racks that requires one. The barrier asks here before it releases. Judged is what the planner was
asked for (``gangs``), so that the two never disagree for ever.

Nodes that new pods of a unit keep off because the operator says so on its root: the scheduler process finds out by
itself which nodes fail before a pod is bound (``excludedNodes`` in the status); what happens to pods afterwards only
the operator knows.

Preferred levels that the minimum of a unit has reached. Counted is what the planner counts: the minimum's replicas, of
the unit only the roles that follow it. Surplus is never held back by a preference, so it does not spoil one either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from covey.admission.tree import Replica, Unit, minimum_replicas
from covey.api import core
from covey.api.annotations import Avoided, read
from covey.api.constants import ANNOTATION_AVOID
from covey.model import podstate
from covey.placement.cluster.devices import CLUSTER
from covey.placement.cluster.inventory import path_of
from covey.placement.model import Gang, Part, Path, PodRequest, Topology

NodePath = Callable[[str], Path]


@dataclass(frozen=True, slots=True)
class Astray:
    """Pins outside the domain that a scope of the gang requires: UIDs of pods, and the reason."""

    pods: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class _Scope:
    """Pods that must share one domain of a level."""

    name: str
    level: str
    pods: tuple[PodRequest, ...]


def requires_levels(unit: Unit) -> bool:
    """Some group of the unit requires a level: only then need anything be looked at."""
    groups = [node.group for node in unit.tree.walk()]
    wishes = [group.spec.scheduling_constraints for group in groups if group.spec.scheduling_constraints]
    levels = (rule.mode for wish in wishes for rule in wish.topology or ())
    near = (rule.mode for wish in wishes for rule in wish.proximity or ())
    return "Required" in levels or "Required" in near


def astray(gang: Gang, topology: Topology, path_of: NodePath, bound: Callable[[str], bool]) -> Astray | None:
    """The unbound pins that do not keep a required level, for the first scope where there are any.

    Bound pods are facts: in one domain they say where the rest belongs; where they lie in two already, there is
    nothing to hold the pins against.

    Args:
        gang: the unit as the planner sees it.
        topology: the one that it was planned in.
        path_of: a node's domain path; empty when the node is unknown.
        bound: whether the pod with a UID is bound.
    """
    for scope in _scopes(gang):
        depth = topology.depth(scope.level) + 1
        places = {pod.key: path[:depth] for pod in scope.pods if pod.node and (path := path_of(pod.node))}
        settled = {path for uid, path in places.items() if bound(uid)}
        whole = len(set(places.values())) <= 1 and all(path[-1] is not None for path in places.values())
        if whole or len(settled) > 1 or any(path[-1] is None for path in settled):
            continue
        pods = tuple(uid for uid, path in places.items() if not bound(uid) and path not in settled)
        found = sorted({"/".join(map(str, path)) for path in places.values()})
        return Astray(
            pods, f"{scope.name} requires one {scope.level}, but is assigned nodes in {' and '.join(found[:5])}"
        )
    return None


def _scopes(gang: Gang) -> Iterator[_Scope]:
    roles = {role.name: tuple(pod for replica in role.replicas for pod in replica.pods) for role in gang.roles}
    if gang.required:
        following = (roles[role.name] for role in gang.roles if role.follow_unit)
        yield _Scope("the gang", gang.required, tuple(pod for pods in following for pod in pods))
    for role in gang.roles:
        for replica in role.replicas if role.required else ():
            yield _Scope(f"replica {replica.replica} of role {role.name}", role.required or "", replica.pods)
    for rule in gang.proximity:
        if rule.required:
            near = tuple(pod for name in rule.roles for pod in roles.get(name, ()))
            yield _Scope(f"the proximity of {' and '.join(rule.roles)}", rule.level, near)
    replicas = {(role.name, replica.replica): replica for role in gang.roles for replica in role.replicas}
    for rule_ in gang.rules:
        if rule_.required:
            held = (pod for member in rule_.members for pod in replicas[member].pods)
            yield _Scope(f"group {rule_.name}", rule_.required, (*held, *rule_.beside))
    for (role_name, number), replica in replicas.items():
        yield from _inside(
            f"replica {number} of role {role_name}", replica.parts, {pod.key: pod for pod in replica.pods}
        )


def _inside(name: str, parts: Iterable[Part], pods: Mapping[str, PodRequest]) -> Iterator[_Scope]:
    for part in parts:
        yield _Scope(f"a group of {name}", part.required, tuple(pods[key] for key in part.pods))
        yield from _inside(name, part.parts, pods)


def with_occupied_domains(
    gang: Gang, topology: Topology, siblings: Iterable[Unit], assumed: Mapping[str, str], path_of: Callable[[str], Path]
) -> Gang:
    """A gang that is spread, told in which domains its siblings lie by now; any other as it is.

    Args:
        gang: the gang.
        topology: the one that it is planned in.
        siblings: the other units of its resource.
        assumed: UID → node, of pods whose place was decided and is on no object yet.
        path_of: a node's domain path.
    """
    if gang.spread is None:
        return gang
    depth = topology.depth(gang.spread.level) + 1
    return replace(gang, spread=replace(gang.spread, occupied=count_units_by_domain(siblings, assumed, path_of, depth)))


def count_units_by_domain(
    units: Iterable[Unit], assumed: Mapping[str, str], path_of: Callable[[str], Path], depth: int
) -> Mapping[Path, int]:
    """Count the units in each domain of a level, by the places of their pods, decided ones too.

    A unit is spread, so it lies where the roles lie that follow it.
    """
    count: dict[Path, int] = {}
    for unit in units:
        nodes = {podstate.place_of(pod, assumed) for pod in unit.followers()} - {None}
        for path in {path_of(node)[:depth] for node in nodes if node}:
            if path:
                count[path] = count.get(path, 0) + 1
    return count


#: Seconds for which anything is ever avoided: what would last longer was written by another clock.
_LONGEST: Final = 86400.0


def avoided_now(root: core.Group, now: float) -> tuple[Avoided, ...]:
    """The nodes to avoid that a root names, as far as their time has not run out; ``now`` in seconds since the epoch."""
    return tuple(
        each for each in read(root.metadata.annotation(ANNOTATION_AVOID)) if 0.0 < each.until - now <= _LONGEST
    )


def avoided_nodes(avoided: Iterable[Avoided], topology: Topology, nodes: Iterable[core.Node]) -> dict[str, str]:
    """The nodes that are meant, with the reason.

    Args:
        avoided: nodes and domains.
        topology: whose levels the domains are of; one that it does not have is no domain.
        nodes: of the cluster; looked through only where domains are avoided.
    """
    told = tuple(avoided)
    found = {each.node: each.reason for each in told if each.node}
    domains = [each for each in told if not each.node]
    levels = {level.name for level in topology.levels}
    known = [domain for domain in domains if domain.domain.keys() <= levels]
    return {**(dict(_within(known, topology, nodes)) if known else {}), **found}


def _within(domains: Iterable[Avoided], topology: Topology, nodes: Iterable[core.Node]) -> Iterator[tuple[str, str]]:
    wanted = tuple(domains)
    for node in nodes:
        labels: Mapping[str, str] = node.metadata.labels or {}
        path = dict(zip((level.name for level in topology.levels), path_of(topology, labels), strict=True))
        for each in wanted:
            if each.domain.items() <= path.items():
                yield node.metadata.name, f"{each} is avoided: {each.reason}"


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
