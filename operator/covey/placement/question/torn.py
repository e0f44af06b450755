"""Members that are bound where a required level forbids it: then nothing more is placed under that level.

Labels of nodes change, somebody binds pods by hand, a level is required later: what is bound is a fact, in two domains
too. Whatever else were placed would be in the wrong one of them, so it waits until the members are in one again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Path, Reason, Refusal, Verdict, where
from covey.placement.question.demands import Demand, followers, placed_paths, replica_paths, rule_paths


@dataclass(frozen=True, slots=True)
class Torn:
    """A scope whose members lie in several domains of the level that it requires, or outside all of them."""

    name: str
    level: str
    domains: tuple[Path, ...]
    members: frozenset[tuple[int, int]]

    def holds(self, demand: Demand) -> bool:
        """Tell whether the scope includes the demand."""
        return (demand.role, demand.replica.replica) in self.members

    @property
    def message(self) -> str:
        """Sentence for a person."""
        places = " and ".join(where(path) for path in self.domains[:5])
        return f"{self.name} requires one {self.level}, but has members in {places}: nothing more is placed under it"


def torn(gang: Gang, inventory: Inventory) -> list[Torn]:
    """Return every scope of a gang that is torn."""
    topology = inventory.topologies[gang.topology]
    torn_groups = []
    for name, level, paths, members in _scopes(gang, inventory):
        depth = topology.depth(level)
        domains = sorted({path[: depth + 1] for path in paths}, key=lambda path: [value or "" for value in path])
        if len(domains) > 1 or any(path[-1] is None for path in domains):
            torn_groups.append(Torn(name, level, tuple(domains), frozenset(members)))
    return torn_groups


def allowed_demands(scopes: Sequence[Torn], demands: Iterable[Demand]) -> list[Demand]:
    """Return the demands that no torn scope holds back, ``together`` sets whole."""
    held = list(demands)
    stuck = {d.replica.together for d in held if any(scope.holds(d) for scope in scopes)} - {None}
    return [d for d in held if d.replica.together not in stuck and not any(scope.holds(d) for scope in scopes)]


def refusal_of(gang: Gang, scopes: Sequence[Torn], needed: Collection[Demand]) -> Refusal | None:
    """The refusal of a minimum that needs something which a torn scope holds back."""
    reasons = []
    for scope in scopes:
        roles = sorted({demand.role for demand in needed if scope.holds(demand)})
        for role in roles[:1]:
            request = gang.roles[role]
            whole = sum(replica.placed for replica in request.replicas)
            reasons.append(
                Reason(
                    role=request.name,
                    scope="unit",
                    level=scope.level,
                    best_domain=(),
                    required=request.minimum,
                    satisfied=min(whole, request.minimum),
                    resource=None,
                    requested=None,
                    short=None,
                    excluded=(),
                    message=scope.message,
                )
            )
    return Refusal(Verdict.INFEASIBLE, tuple(reasons)) if reasons else None


def _scopes(gang: Gang, inventory: Inventory) -> Iterator[tuple[str, str, list[Path], set[tuple[int, int]]]]:
    """Every required level: whose, which, the paths of placed members, and all members."""

    def of(roles: Iterable[int]) -> set[tuple[int, int]]:
        return {(i, replica.replica) for i in roles for replica in gang.roles[i].replicas}

    if gang.required is not None:
        following = followers(gang)
        yield "the unit", gang.required, placed_paths(gang, inventory, following), of(following)
    for i, role in enumerate(gang.roles):
        for replica in role.replicas:
            name = f"replica {replica.replica} of {role.name}"
            if role.required is not None and not replica.placed:
                yield name, role.required, replica_paths(gang, inventory, replica), {(i, replica.replica)}
            for part in replica.parts if not replica.placed else ():
                own = replace(replica, pods=tuple(pod for pod in replica.pods if pod.key in part.pods))
                yield name, part.required, replica_paths(gang, inventory, own), {(i, replica.replica)}
    for rule in gang.proximity:
        if rule.required:
            near = [i for i, role in enumerate(gang.roles) if role.name in rule.roles]
            yield f"proximity of {' and '.join(rule.roles)}", rule.level, placed_paths(gang, inventory, near), of(near)
    numbers = {role.name: i for i, role in enumerate(gang.roles)}
    for rule_ in gang.rules:
        if rule_.required is not None:
            members = {(numbers[name], replica) for name, replica in rule_.members}
            yield f"group {rule_.name}", rule_.required, rule_paths(gang, inventory, rule_), members
