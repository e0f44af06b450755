"""Required levels, and whether the places of a gang still agree with them: pure.

Each plan keeps them, but what is bound in the end need not be one plan: an answer that was lost, a second writer, or a
node whose labels were changed can leave a gang pinned across two racks that requires one. The barrier asks here before
it releases. Judged is what the planner was asked for (``gangs``), so that the two never disagree for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from covey.admission.tree import Unit
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
