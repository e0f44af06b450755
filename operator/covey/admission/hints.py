"""Hints for the scheduling queue: the conditions under which a refused gang is worth planning again. Pure.

Two answers come from it without a plan. *Can this node help?* A change of a node makes a gang fit only if one of its
missing pods fits there, and only if the domain in which that pod must lie can take all that must lie there with it: the
gang itself, the roles of a rule, the replica. *Is it the same question?* Gangs that ask for the same pods under the
same levels, none of them placed, get the same answer, and one plan answers all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from covey.admission.fit_counts import FitCounts, room_for
from covey.placement.anti_affinity import TermCounts, is_host
from covey.placement.cluster import resources
from covey.placement.cluster.domains import NodeState
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import sum_requests, with_terms
from covey.placement.model import Gang, Path, Shape
from covey.placement.question.demands import (
    Demand,
    common_domain,
    followers,
    minimum_demands,
    placed_paths,
    surplus_demands,
)
from covey.placement.refusal.exclusions import RESERVED

#: The depth of the whole cluster.
EVERYWHERE: Final = -1


@dataclass(frozen=True, slots=True)
class Need:
    """Pods that must lie in one domain.

    ``depth`` is the domain's. ``shape`` is the most demanding one and ``count`` says how many pods have it; ``sums`` is
    what all of them ask for together. ``anchor`` is the domain that placed members fix.
    """

    depth: int
    shape: Shape
    count: int
    sums: tuple[tuple[str, int], ...]
    anchor: Path | None = None

    def met_at(self, topology: str, path: Path, inventory: Inventory, slots: FitCounts) -> bool:
        """Tell whether the domain of this depth around a node could take the pods."""
        head = path[: self.depth + 1]
        if head and head[-1] is None:
            return False
        if self.anchor is not None and self.anchor != head:
            return False
        domain = inventory.trees[topology].by_path.get(head)
        if domain is None or any(domain.free.get(name, 0) < amount for name, amount in self.sums):
            return False
        return slots.at(self.shape, topology, head, inventory) >= self.count


@dataclass(frozen=True, slots=True)
class Part:
    """Pods that are missing, by shape, and the needs of every domain that they must lie in."""

    shapes: tuple[Shape, ...]
    needs: tuple[Need, ...]


@dataclass(frozen=True, slots=True)
class QueueingHint:
    """The condition for which a gang waits. ``key`` is the same for gangs whose question is the same; None for one that is alone.

    ``parts`` is None where it cannot be told what would help: then any change may. ``wide``: a node can help also where
    none of the pods fits on it, since rules between domains count.
    """

    topology: str
    parts: tuple[Part, ...] | None
    key: Hashable = None
    wide: bool = False

    def can_help(self, node: NodeState, inventory: Inventory, slots: FitCounts) -> bool:
        """Tell whether a change of this node can make the gang, or a replica of its surplus, fit."""
        leaf = node.leaves.get(self.topology)
        if leaf is None or self.parts is None:
            return True
        return any(
            (self.wide or any(room_for(node, shape) for shape in part.shapes))
            and all(need.met_at(self.topology, leaf.path, inventory, slots) for need in part.needs)
            for part in self.parts
        )

    def shapes(self) -> Iterator[Shape]:
        """The shapes that are counted for it."""
        return (need.shape for part in self.parts or () for need in part.needs)


#: Of a unit that any change may help.
ANYTHING: Final = QueueingHint("", None)


def hint_for_minimum(gang: Gang, inventory: Inventory) -> QueueingHint:
    """The condition for a gang whose minimum found no room."""
    told = with_terms(gang, inventory.terms)
    return _ask(told, inventory, minimum_demands(told), surplus=False)


def hint_for_surplus(gang: Gang, inventory: Inventory) -> QueueingHint:
    """The condition for a gang none of whose further replicas found room."""
    told = with_terms(gang, inventory.terms)
    return _ask(told, inventory, surplus_demands(told), surplus=True)


def same_question(gang: Gang, terms: TermCounts) -> Hashable:
    """Equal for gangs that the planner answers alike.

    None for one that has members placed, that counts its siblings, or whose groups say more than roles do: levels
    inside a replica or over several, surplus after surplus, a choice of what comes first. The gang is to be told
    already which anti-affinity terms speak of its pods.
    """
    replicas = [replica for role in gang.roles for replica in role.replicas]
    if gang.spread is not None or any(pod.node for replica in replicas for pod in replica.pods):
        return None
    if gang.rules or _is_open(gang) or any(replica.parts or replica.after for replica in replicas):
        return None
    roles = tuple(
        (
            *(role.name, role.minimum, role.desired, role.required, role.preferred, role.follow_unit, role.missing),
            tuple((r.replica, r.together, tuple((pod.index, pod.shape) for pod in r.pods)) for r in role.replicas),
        )
        for role in gang.roles
    )
    levels = (gang.topology, gang.required, gang.preferred, gang.proximity)
    # What is kept for others is no part of the question: whoever joins an answer compares it (``SchedulingQueue.join_class``).
    excluded = frozenset(each for each in gang.excluded_nodes.items() if each[1] != RESERVED)
    return (levels, roles, excluded, terms.version)


def _ask(gang: Gang, inventory: Inventory, demands: Sequence[Demand], *, surplus: bool) -> QueueingHint:
    """The ask of a gang that is told which anti-affinity terms speak of its pods."""
    # What is missing of one choice says nothing about the others, and what leaves a clique opens all its nodes.
    # Pods that are spread may be helped by what comes or goes in any other domain.
    missing = [pod.shape for demand in demands for pod in demand.missing]
    if _is_open(gang) or any(shape.clique or shape.pod_spread for shape in missing):
        return QueueingHint(gang.topology, None)
    try:
        parts = _parts(gang, inventory, demands, surplus=surplus)
    except KeyError:  # a topology or a level that is gone
        return QueueingHint(gang.topology, None)
    wide = gang.spread is not None or any(
        shape.wide_terms or not all(map(is_host, shape.matched))
        for role in gang.roles
        for replica in role.replicas
        for shape in (pod.shape for pod in replica.pods if pod.node is None)
    )
    key = None if surplus else same_question(gang, inventory.terms)
    return QueueingHint(gang.topology, parts, key, wide)


def _is_open(gang: Gang) -> bool:
    """Tell whether the order of replicas is free to choose."""
    return bool(gang.guessed) or any(role.free for role in gang.roles)


def _parts(gang: Gang, inventory: Inventory, demands: Sequence[Demand], *, surplus: bool) -> tuple[Part, ...]:
    topology = inventory.topologies[gang.topology]
    shared = {} if surplus else _shared_domains(gang, inventory, demands)
    unit = EVERYWHERE if gang.required is None else topology.depth(gang.required)
    anchor = common_domain(placed_paths(gang, inventory, followers(gang)), unit) if unit != EVERYWHERE else None
    parts: dict[Part, None] = {}
    for demand in demands:
        role = gang.roles[demand.role]
        missing = [pod.shape for pod in demand.missing]
        own = EVERYWHERE if role.required is None else topology.depth(role.required)
        needs = [shared[each] for each in _scopes(gang, demand.role) if each in shared]
        if role.follow_unit and anchor is not None:
            needs.append(_need(unit, missing, anchor))
        if own > unit or not needs:
            needs.append(_need(own, missing))
        parts.setdefault(Part(tuple(dict.fromkeys(missing)), tuple(needs)))
    return tuple(parts)


#: The gang's followers, all its pods, or the roles of a required rule by its number.
_Scope = str | int


def _scopes(gang: Gang, role: int) -> Iterator[_Scope]:
    """The sets of roles that must share a domain, to which a role belongs."""
    yield "all"
    if gang.roles[role].follow_unit:
        yield "followers"
    for number, rule in enumerate(gang.proximity):
        if rule.required and gang.roles[role].name in rule.roles:
            yield number


def _shared_domains(gang: Gang, inventory: Inventory, demands: Iterable[Demand]) -> dict[_Scope, Need]:
    """The demands that must share a domain with others, and at which depth."""
    depth = inventory.topologies[gang.topology].depth
    unit = EVERYWHERE if gang.required is None else depth(gang.required)
    depths: dict[_Scope, int] = {"all": EVERYWHERE, "followers": unit}
    depths |= {number: depth(rule.level) for number, rule in enumerate(gang.proximity) if rule.required}
    pods: dict[_Scope, list[Shape]] = {}
    for demand in demands:
        for scope in _scopes(gang, demand.role):
            pods.setdefault(scope, []).extend(pod.shape for pod in demand.missing)
    if unit == EVERYWHERE or len(followers(gang)) == len(gang.roles):
        pods.pop("all" if unit != EVERYWHERE else "followers", None)  # one says all that the other does
    return {scope: _need(depths[scope], shapes) for scope, shapes in pods.items() if shapes}


def _need(depth: int, shapes: Sequence[Shape], anchor: Path | None = None) -> Need:
    counts = Counter(shapes)
    sums = sum_requests(counts)
    measured = resources.measure(sums)
    demanding = max(counts, key=lambda shape: demand_of(shape, measured))
    return Need(depth, demanding, counts[demanding], tuple(sorted((n, a) for n, a in sums.items() if a > 0)), anchor)


def demand_of(shape: Shape, resource: str) -> tuple[int, int]:
    """A sort key for shapes: by the resource by which all of them are measured, then by cpu."""
    asked = dict(shape.requests)
    return asked.get(resource, 0), asked.get(resources.CPU, 0)
