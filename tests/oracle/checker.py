"""Says everything that is wrong with a plan, from first principles; an empty list means that it is right.

``violations`` judges where pods lie; ``check`` also judges what the plan reports about it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from covey.placement.model import Domain, Path, Plan, PodRequest, ReplicaRequest, RoleRequest, Topology
from oracle import facts
from oracle.case import Case

Phase = Literal["minimum", "surplus"]


def violations(case: Case, nodes: Mapping[str, str], phase: Phase) -> list[str]:
    """What is wrong with placing these pods (by key) on these nodes, beside all that the case holds already."""
    shape = list(_known(case, nodes))
    if shape:
        return shape  # nothing else can be computed
    after = case.placed(nodes)
    return [
        *_capacity(case, nodes),
        *_whole(case, after, nodes, phase),
        *_levels(case, after, nodes),
        *_spread(case, after, nodes),
    ]


def check(case: Case, plan: Plan, phase: Phase) -> list[str]:
    """What is wrong with a plan of the minimum, or of the surplus on top of a placed minimum."""
    nodes = {assignment.pod: assignment.node for assignment in plan.assignments}
    found = violations(case, nodes, phase)
    if len(nodes) != len(plan.assignments):
        found.append("a pod is assigned twice")
    if not found:
        found += _reports(case, case.after(plan.assignments), plan)
    return found


def _known(case: Case, nodes: Mapping[str, str]) -> Iterator[str]:
    pods = {pod.key: pod for pod in facts.pods_of(case.gang.roles)}
    for key, node in nodes.items():
        if key not in pods:
            yield f"{key} is no pod of the gang"
        elif pods[key].node is not None:
            yield f"{key} is placed already and must not be moved"
        if node not in case.node:
            yield f"node {node} does not exist"
    for key, raw in case.pods.items():
        if key in nodes and key in pods and dict(pods[key].shape.requests) != facts.requests(raw):
            yield f"{key} asks for {facts.requests(raw)}, the planner counts {dict(pods[key].shape.requests)}"


def _capacity(case: Case, nodes: Mapping[str, str]) -> Iterator[str]:
    pods = {pod.key: pod for pod in facts.pods_of(case.gang.roles)}
    arrivals: dict[str, list[PodRequest]] = {}
    for key, node in nodes.items():
        arrivals.setdefault(node, []).append(pods[key])
    for node, newcomers in arrivals.items():
        for pod in newcomers:
            if not facts.may_use(pod.shape, case.node[node]):
                yield f"{pod.key} may not use {node}"
        if node in case.gang.excluded_nodes:
            yield f"{node} is excluded for this gang"
        asked: Counter[str] = Counter()
        for pod in newcomers:
            asked.update(dict(pod.shape.requests))
        left = facts.free(case, node)
        for name, amount in asked.items():
            if amount > 0 and amount > left.get(name, 0):
                yield f"{node} has {left.get(name, 0)} {name} free, asked {amount}"
        for index, pod in enumerate(newcomers):
            body = case.body(pod)
            others = [hold.body for hold in case.held.get(node, ())] + [
                case.body(later) for later in newcomers[index + 1 :]
            ]
            if any(facts.clash(body, other) for other in others):
                yield f"{pod.key} clashes with another pod on {node}"
            if facts.kept_away(case, node, body):
                yield f"{pod.key} is kept off the domain of {node}"


def _whole(case: Case, after: Case, nodes: Mapping[str, str], phase: Phase) -> Iterator[str]:
    wanted = facts.compulsory(case.gang)
    sets: dict[str, set[bool]] = {}
    for role, later in zip(case.gang.roles, after.gang.roles, strict=True):
        if len(role.replicas) < role.minimum:
            yield f"{role.name} has fewer replicas than its minimum"
        for replica, result in zip(role.replicas, later.replicas, strict=True):
            name = f"{role.name}/{replica.replica}"
            touched = any(pod.key in nodes for pod in replica.pods)
            if touched and not result.placed:
                yield f"{name} is placed in part"
            if (role.name, replica.replica) in wanted and not result.placed:
                yield f"{name} belongs to the minimum and is not placed"
            if phase == "minimum" and touched and (role.name, replica.replica) not in wanted:
                yield f"{name} is surplus and is placed with the minimum"
            if replica.together is not None and not replica.placed:
                sets.setdefault(replica.together, set()).add(result.placed)
    for mark, placed in sets.items():
        if len(placed) > 1:
            yield f"the set {mark} is placed in part"


def _domains(case: Case, pods: Iterable[PodRequest], depth: int) -> set[Path | None]:
    """The domains of a level that placed pods lie in. A node that is gone says nothing."""
    return {
        facts.domain(facts.path_of(case.topology, case.node[pod.node]), depth)
        for pod in pods
        if pod.node is not None and pod.node in case.node
    }


def _together_at(case: Case, pods: Iterable[PodRequest], depth: int) -> bool:
    domains = _domains(case, pods, depth)
    return not domains or (len(domains) == 1 and None not in domains)


def _levels(case: Case, after: Case, nodes: Mapping[str, str]) -> Iterator[str]:
    gang, depth = after.gang, case.topology.depth

    def grew(roles: Iterable[RoleRequest]) -> bool:
        return any(pod.key in nodes for pod in facts.pods_of(roles))

    follow = facts.followers(gang)
    if (
        gang.required is not None
        and grew(follow)
        and not _together_at(after, facts.pods_of(follow), depth(gang.required))
    ):
        yield f"the unit is not in one {gang.required}"
    for role in gang.roles:
        level = facts.replica_depth(after, role)
        for replica in role.replicas:
            touched = any(pod.key in nodes for pod in replica.pods)
            if level is not None and touched and not _together_at(after, replica.pods, level):
                yield f"{role.name}/{replica.replica} is not in one {role.required}"
    for index, rule in enumerate(gang.proximity):
        roles = [role for role in gang.roles if role.name in rule.roles]
        if rule.required and grew(roles) and not _together_at(after, facts.pods_of(roles), depth(rule.level)):
            yield f"proximity {index}: {rule.roles} are not in one {rule.level}"


def crowded(case: Case, path: Path) -> bool:
    """The spread rule leaves no place for this unit in the domain of a path."""
    spread = case.gang.spread
    assert spread is not None
    own = facts.domain(path, case.topology.depth(spread.level))
    return own is not None and spread.occupied.get(own, 0) >= spread.max_per_domain


def _spread(case: Case, after: Case, nodes: Mapping[str, str]) -> Iterator[str]:
    if after.gang.spread is None or not after.gang.spread.required:
        return
    for pod in facts.pods_of(facts.followers(after.gang)):
        if pod.key in nodes and crowded(after, facts.path_of(case.topology, case.node[nodes[pod.key]])):
            yield f"{pod.key} is in a {after.gang.spread.level} that has its share of units"


# --- what the plan says about itself


def placement_of(case: Case, pods: Iterable[PodRequest]) -> tuple[Domain, ...]:
    """At each level, broad to narrow, the one domain that holds all these placed pods, if there is one."""
    placed = [pod for pod in pods if pod.node is not None]
    found = []
    for depth, level in enumerate(case.topology.levels):
        domains = _domains(case, placed, depth)
        if len(domains) == 1 and None not in domains:
            found.append(Domain(level.name, next(path for path in domains if path is not None)))
    return tuple(found)


def _reports(case: Case, after: Case, plan: Plan) -> Iterator[str]:
    for assignment in plan.assignments:
        if assignment.path != facts.path_of(case.topology, case.node[assignment.node]):
            yield f"{assignment.pod}: path {assignment.path} is not that of {assignment.node}"
    minimum = {(role.name, replica.replica) for role in case.gang.roles for replica in facts.minimum_of(role)}
    expected = {
        (role.name, replica.replica): placement_of(after, replica.pods)
        for role in after.gang.roles
        for replica in role.replicas
        if replica.placed
    }
    reported = Counter((entry.role, entry.replica) for entry in plan.replicas)
    if set(reported) != set(expected) or any(count > 1 for count in reported.values()):
        yield f"replicas reported {sorted(reported.elements())}, whole are {sorted(expected)}"
    for entry in plan.replicas:
        key = (entry.role, entry.replica)
        if entry.minimum != (key in minimum):
            yield f"{key}: minimum is reported as {entry.minimum}"
        if key in expected and entry.placement != expected[key]:
            yield f"{key}: placement is reported as {entry.placement}, is {expected[key]}"
    unit = placement_of(after, facts.pods_of(facts.followers(after.gang)))
    if plan.placement != unit:
        yield f"the unit's placement is reported as {plan.placement}, is {unit}"
    yield from _preference_reports(case, after, plan)


@dataclass(frozen=True)
class Scope:
    """A preference of unit, role or proximity rule: each group of pods wants to lie in one domain of ``level``."""

    name: str
    level: str
    groups: tuple[tuple[PodRequest, ...], ...]
    #: Depth of the level that holds anyway; -1 when there is none.
    base: int = -1

    def ladder(self, topology: Topology, depth: int) -> range:
        """The wanted levels that are at least as fine as ``depth``; none when the level is not wanted."""
        finest = topology.depth(self.level)
        return range(depth, finest + 1) if depth > self.base else range(0)

    def reaches(self, case: Case, depth: int) -> bool:
        return all(_together_at(case, group, depth) for group in self.groups)


def scopes(before: Case, after: Case) -> list[Scope]:
    """Every preference about closeness, for the pods of the minimum (as it is counted before the plan)."""
    gang, depth = after.gang, after.topology.depth
    chosen = {role.name: {replica.replica for replica in facts.minimum_of(role)} for role in before.gang.roles}
    unit = depth(gang.required) if gang.required else -1

    def minimum(role: RoleRequest) -> list[ReplicaRequest]:
        return [replica for replica in role.replicas if replica.replica in chosen[role.name]]

    def pods(roles: Iterable[RoleRequest]) -> tuple[PodRequest, ...]:
        return tuple(pod for role in roles for replica in minimum(role) for pod in replica.pods)

    found = []
    if gang.preferred:
        found.append(Scope("unit", gang.preferred, (pods(facts.followers(gang)),), unit))
    for role in gang.roles:
        if role.preferred:
            base = max(depth(role.required) if role.required else -1, unit if role.follow_unit else -1)
            groups = tuple(replica.pods for replica in minimum(role))
            found.append(Scope(f"role/{role.name}", role.preferred, groups, base))
    for index, rule in enumerate(gang.proximity):
        if not rule.required:
            near = pods(role for role in gang.roles if role.name in rule.roles)
            found.append(Scope(f"proximity/{index}", rule.level, (near,)))
    return found


def _preference_reports(case: Case, after: Case, plan: Plan) -> Iterator[str]:
    reports = {report.scope: report for report in plan.preferred}
    wanted = {scope.name: scope for scope in scopes(case, after)}
    spread = after.gang.spread
    names = set(wanted) | ({"spread"} if spread is not None and not spread.required else set())
    if set(reports) != names or len(plan.preferred) != len(names):
        yield f"preferences reported: {sorted(report.scope for report in plan.preferred)}, there are {sorted(names)}"
        return
    for name, scope in wanted.items():
        report, finest = reports[name], after.topology.depth(scope.level)
        held = [after.topology.levels[depth].name for depth in range(finest + 1) if scope.reaches(after, depth)]
        reached = held[-1] if held else None
        if (report.level, report.reached, report.achieved) != (scope.level, reached, reached == scope.level):
            yield f"{report} is reported, {reached} is reached"
    if spread is not None and not spread.required:
        chosen = {(role.name, replica.replica) for role in case.gang.roles for replica in facts.minimum_of(role)}
        paths = [
            facts.path_of(after.topology, after.node[pod.node])
            for role in facts.followers(after.gang)
            for replica in role.replicas
            if (role.name, replica.replica) in chosen
            for pod in replica.pods
            if pod.node in after.node
        ]
        apart = not any(crowded(after, path) for path in paths)
        if reports["spread"].achieved != apart or reports["spread"].level != spread.level:
            yield f"{reports['spread']} is reported, apart is {apart}"


# --- how good a layout is


@dataclass(frozen=True, order=True)
class Score:
    """How good a layout is, as far as the objective orders preferences and surplus; greater is better."""

    #: Per level, finest first: how many scopes (unit, roles) that want it have it or a finer one.
    preferred: tuple[int, ...]
    #: Fill ratios of the roles in ascending order: leximin.
    fill: tuple[Fraction, ...]
    #: Whole replicas by role in declared order: the tie-break.
    admitted: tuple[int, ...]


def score(before: Case, after: Case) -> Score:
    """The score of a layout; ``before`` says which replicas count as the minimum."""
    wanted = [scope for scope in scopes(before, after) if not scope.name.startswith("proximity")]
    preferred = tuple(
        sum(any(scope.reaches(after, finer) for finer in scope.ladder(after.topology, depth)) for scope in wanted)
        for depth in reversed(range(len(after.topology.levels)))
    )
    admitted = tuple(sum(replica.placed for replica in role.replicas) for role in after.gang.roles)
    return Score(preferred, fill_of(after, admitted), admitted)


def fill_of(case: Case, admitted: tuple[int, ...]) -> tuple[Fraction, ...]:
    """Admitted over desired by role, in ascending order: the greater tuple is leximin-better."""
    pairs = zip(admitted, case.gang.roles, strict=True)
    return tuple(sorted(Fraction(count, role.desired) for count, role in pairs))
