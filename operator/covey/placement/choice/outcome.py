"""The answer in the planner's vocabulary: assignments, the domains they share, preferences and what became of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Assignment, Domain, Gang, Path, Plan, PreferenceOutcome, ReplicaPlan, Topology
from covey.placement.question.demands import minimum_of, together


def make_plan(gang: Gang, inventory: Inventory, nodes: Mapping[str, str]) -> Plan:
    """Return the plan that gives these pods (by key) these nodes."""
    topology = inventory.topologies[gang.topology]
    where = _Where(gang, inventory, nodes)
    assignments = tuple(
        Assignment(pod.key, nodes[pod.key], inventory.path(gang.topology, nodes[pod.key]))
        for role in gang.roles
        for replica in role.replicas
        for pod in replica.pods
        if pod.key in nodes
    )
    replicas = tuple(
        ReplicaPlan(
            role.name,
            replica.replica,
            replica.replica in minimum,
            _shared_domains(topology, where.paths[i, replica.replica]),
        )
        for i, role in enumerate(gang.roles)
        for minimum in [minimum_of(role)]
        for replica in role.replicas
        if (i, replica.replica) in where.whole
    )
    followers = {i for i, role in enumerate(gang.roles) if role.follow_unit}
    everyone = [path for (i, _), paths in where.paths.items() if i in followers for path in paths]
    return Plan(
        assignments,
        replicas,
        _shared_domains(topology, everyone),
        tuple(_preferences(gang, topology, where, followers)),
    )


class _Where:
    """The paths of every replica's placed pods, after the plan."""

    def __init__(self, gang: Gang, inventory: Inventory, nodes: Mapping[str, str]) -> None:
        self.paths: dict[tuple[int, int], list[Path]] = {}
        self.whole: set[tuple[int, int]] = set()
        self.minimum: set[tuple[int, int]] = set()
        for i, role in enumerate(gang.roles):
            self.minimum |= {(i, number) for number in minimum_of(role)}
            for replica in role.replicas:
                at = [pod.node or nodes.get(pod.key) for pod in replica.pods]
                known = [node for node in at if node is not None and node in inventory.nodes]
                self.paths[i, replica.replica] = [inventory.path(gang.topology, node) for node in known]
                if None not in at:
                    self.whole.add((i, replica.replica))

    def of_minimum(self, roles: Iterable[int]) -> list[Path]:
        """The paths of the minimum's pods of these roles."""
        wanted = set(roles)
        return [path for key in sorted(self.minimum) if key[0] in wanted for path in self.paths[key]]


def _preferences(gang: Gang, topology: Topology, where: _Where, followers: set[int]) -> Iterable[PreferenceOutcome]:
    if gang.preferred is not None:
        yield _preference("unit", topology, gang.preferred, [where.of_minimum(followers)])
    for i, role in enumerate(gang.roles):
        if role.preferred is not None:
            parts = [where.paths[key] for key in sorted(where.minimum) if key[0] == i]
            yield _preference(f"role/{role.name}", topology, role.preferred, parts)
    for index, rule in enumerate(gang.proximity):
        if not rule.required:
            members = [i for i, role in enumerate(gang.roles) if role.name in rule.roles]
            yield _preference(f"proximity/{index}", topology, rule.level, [where.of_minimum(members)])
    numbers = {role.name: i for i, role in enumerate(gang.roles)}
    for group_rule in gang.rules:
        if group_rule.preferred is not None:
            own = {(numbers[name], replica) for name, replica in group_rule.members}
            paths = [path for key in sorted(own & where.minimum) for path in where.paths[key]]
            yield _preference(f"group/{group_rule.name}", topology, group_rule.preferred, [paths])
    spread = gang.spread
    if spread is not None and not spread.required:
        depth = topology.depth(spread.level)
        domains = {path[: depth + 1] for path in where.of_minimum(followers)}
        kept = all(spread.occupied.get(domain, 0) < spread.max_per_domain for domain in domains)
        yield PreferenceOutcome("spread", spread.level, kept, spread.level if kept else None)


def _preference(scope: str, topology: Topology, level: str, parts: Sequence[Sequence[Path]]) -> PreferenceOutcome:
    """Report whether a preference was met, and the finest level, up to the wanted one, that no part straddles."""
    wanted = topology.depth(level)
    reached = next((depth for depth in range(wanted, -1, -1) if together(parts, depth)), None)
    return PreferenceOutcome(
        scope, level, reached == wanted, None if reached is None else topology.levels[reached].name
    )


def _shared_domains(topology: Topology, paths: Sequence[Path]) -> tuple[Domain, ...]:
    """The domain of each level that holds all of them, broad to narrow."""
    if not paths:
        return ()
    return tuple(
        Domain(level.name, paths[0][: depth + 1])
        for depth, level in enumerate(topology.levels)
        if together([paths], depth)
    )
