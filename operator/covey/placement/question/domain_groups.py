"""Bindings between replicas: one domain for a unit, for a proximity rule, for everything under a group.

Levels are *aims*: the required ones always, the preferred ones as far as they are tried. The minimum and the surplus
may aim at different levels, because a preference counts for the minimum alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Path, Rule
from covey.placement.question.demands import (
    Demand,
    common_domain,
    followers,
    minimum_paths,
    placed_paths,
    rule_paths,
    unit_anchor,
)


@dataclass(frozen=True, slots=True)
class Aims:
    """Depths that must not be straddled (-1: none): by the unit, each role's replicas, each rule; by proximity."""

    unit: int
    roles: tuple[int, ...]
    proximity: frozenset[int]
    spread: bool
    rules: tuple[int, ...] = ()


@dataclass(slots=True)
class DomainGroup:
    """Replicas, by role and number, that share one domain of a depth; ``anchor`` is where some of them lie already.

    ``ranked``: its domain is chosen by what other units lack there.
    """

    depth: int
    members: set[tuple[int, int]]
    anchor: Path | None
    ranked: bool = False

    def level(self, scope: int) -> bool:
        """Tell whether the group only means a level of its one replica inside a candidate: that costs less."""
        return len(self.members) == 1 and self.anchor is None and self.depth > scope and not self.ranked


def levels_alone(groups: Iterable[DomainGroup], scope: int) -> dict[tuple[int, int], set[int]]:
    """The depths that a replica must not straddle by groups of its own; its nodes must have the level of each."""
    depths_of: dict[tuple[int, int], set[int]] = {}
    for group in groups:
        if group.level(scope):
            (member,) = group.members
            depths_of.setdefault(member, set()).add(group.depth)
    return depths_of


def groups_of(
    gang: Gang,
    inventory: Inventory,
    demands: Sequence[Demand],
    aims: Aims,
    loose: Aims,
    *,
    scope: int,
    unit: int,
) -> list[DomainGroup]:
    """The groups of some demands.

    Args:
        gang: the gang.
        inventory: where its placed members lie.
        demands: what is to be placed.
        aims: the minimum's depths.
        loose: those of the surplus.
        scope: the depth of the candidates.
        unit: the depth of the unit's own level.
    """
    groups: list[DomainGroup] = []
    everyone = range(len(gang.roles))

    def group(
        depth: int, roles: Collection[int], *, everybody: bool, anchor: Path | None, ranked: bool = False
    ) -> None:
        members = {(d.role, d.replica.replica) for d in demands if d.role in roles and (everybody or d.minimum)}
        if members:
            groups.append(DomainGroup(depth, members, anchor, ranked))

    if unit > scope:
        anchor = unit_anchor(gang, inventory, unit)
        group(unit, followers(gang), everybody=True, anchor=anchor, ranked=bool(inventory.outstanding))
    if aims.unit > unit:
        paths = minimum_paths(gang, inventory, followers(gang))
        group(aims.unit, followers(gang), everybody=False, anchor=common_domain(paths, aims.unit))
    for index in sorted(aims.proximity | loose.proximity):
        rule = gang.proximity[index]
        depth = inventory.topologies[gang.topology].depth(rule.level)
        roles = {i for i in everyone if gang.roles[i].name in rule.roles}
        required = index in loose.proximity
        paths = (placed_paths if required else minimum_paths)(gang, inventory, roles)
        group(depth, roles, everybody=required, anchor=common_domain(paths, depth))
    for group_rule, depth, wish in zip(gang.rules, loose.rules, aims.rules, strict=True):
        groups += _of_rule(gang, inventory, demands, group_rule, depth, wish)
    return groups


def _of_rule(
    gang: Gang, inventory: Inventory, demands: Sequence[Demand], rule: Rule, depth: int, wish: int
) -> Iterator[DomainGroup]:
    """A rule's groups: everything under its required level, and the minimum under what is wished."""
    own = set(rule.members)
    members = {
        (d.role, d.replica.replica): d.minimum for d in demands if (gang.roles[d.role].name, d.replica.replica) in own
    }
    if depth >= 0 and members:
        yield DomainGroup(depth, set(members), common_domain(rule_paths(gang, inventory, rule), depth))
    needed = {member for member, minimum in members.items() if minimum}
    if wish > depth and needed:
        yield DomainGroup(wish, needed, common_domain(rule_paths(gang, inventory, rule, minimum=True), wish))
