"""Proves a refusal, and checks the proof without trusting the planner.

A certificate is made of the tables by which the planner has refused. It says for every candidate domain which numbers of whole replicas it holds at most. The check works the
same numbers out again in the plainest way (sets of vectors, one node after another; no tables, no memory, no classes
or streams shared between roles) and compares. It costs far more than planning and is meant for tests and for doubters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from unittest.mock import patch

from covey.placement import planner, search
from covey.placement.choice.candidates import Solution
from covey.placement.cluster.domains import DomainNode, NodeState
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import conflict, with_terms
from covey.placement.model import Gang, Plan, PodRequest, Refusal, RoleRequest, Verdict
from covey.placement.planner import plan_minimum
from covey.placement.question.demands import Demand
from covey.placement.refusal import counts, reasons
from oracle.bounds import Bound, bounds

_Vector = tuple[int, ...]
Certificate = tuple[Bound, ...]


def plan_with_certificate(gang: Gang, inventory: Inventory) -> tuple[Plan | Refusal, Certificate]:
    """The answer for a gang's minimum, and the proof of a refusal; empty for a plan, and for refusals without tables."""
    found: dict[int, Certificate] = {}

    def explain(gang: Gang, inventory: Inventory, solution: Solution, needed: Sequence[Demand]) -> Refusal:
        refusal = reasons.explain(gang, inventory, solution, needed)
        kinds = counts.Counts(gang, inventory, solution, needed).kinds
        found[id(refusal)] = bounds(gang, solution, kinds)
        return refusal

    with patch.object(planner, "explain", explain), patch.object(search, "explain", explain):
        answer = plan_minimum(gang, inventory)
    return answer, found.get(id(answer), ())


def check_certificate(gang: Gang, inventory: Inventory, refusal: Refusal, certificate: Certificate) -> bool | None:
    """Tell whether the refusal is proven: every candidate is bounded, correctly so, and no bound allows the minimum.

    Returns None when the gang is outside what the check covers: members that are placed already, groups of roles
    (proximity, rules, spread, roles that do not follow the unit), levels inside replicas, or a refusal without bounds.
    """
    gang = with_terms(gang, inventory.terms)
    nested = any(replica.parts for role in gang.roles for replica in role.replicas)
    ruled = gang.proximity or gang.rules or gang.spread
    beyond = ruled or nested or not all(role.follow_unit for role in gang.roles)
    placed = any(pod.node for role in gang.roles for replica in role.replicas for pod in replica.pods)
    if beyond or placed or not certificate or refusal.verdict is not Verdict.INFEASIBLE:
        return None
    tree = inventory.trees[gang.topology]
    scope = -1 if gang.required is None else tree.topology.depth(gang.required)
    bounds = {bound.path: bound for bound in certificate}
    roles = [role for role in gang.roles if role.minimum]
    return all(
        domain.path in bounds
        and bounds[domain.path].roles == tuple(role.name for role in roles)
        and all(any(n < role.minimum for n, role in zip(v, roles, strict=True)) for v in bounds[domain.path].maximal)
        and _Counter(gang, inventory, roles, scope).most(domain) == set(bounds[domain.path].maximal)
        for domain in tree.at(scope)
    )


class _Counter:
    """Counts, by plain enumeration, what fits in a domain.

    A vector holds one number for every sort of pod of every role that is not counted as a whole yet, then one number
    of whole replicas for every role.
    """

    def __init__(self, gang: Gang, inventory: Inventory, roles: Sequence[RoleRequest], scope: int) -> None:
        self._gang = gang
        self._inventory = inventory
        topology = inventory.topologies[gang.topology]
        levels = [-1 if role.required is None else topology.depth(role.required) for role in roles]
        self._depths = [max(scope, level) for level in levels]
        #: The different pods of a replica: the role, a pod like it, how many of them a replica has.
        self._pods: list[tuple[int, PodRequest, int]] = []
        for index, role in enumerate(roles):
            shapes = [pod.shape for pod in role.replicas[0].pods]
            for shape in dict.fromkeys(shapes):
                pod = next(pod for pod in role.replicas[0].pods if pod.shape == shape)
                self._pods.append((index, pod, shapes.count(shape)))
        self._caps = [roles[role].minimum * count for role, _, count in self._pods]
        self._caps += [role.minimum for role in roles]

    def most(self, scope: DomainNode) -> set[_Vector]:
        """The vectors of whole replicas that cannot grow."""
        return {vector[len(self._pods) :] for vector in _top(self._count(self._inside(scope), scope.depth, scope))}

    def _inside(self, domain: DomainNode) -> set[_Vector]:
        nothing = {(0,) * len(self._caps)}
        if not domain.children:
            return self._sum(nothing, (self._node(node) for node in domain.nodes.values()))
        return self._sum(
            nothing, (self._count(self._inside(child), child.depth, child) for child in domain.children.values())
        )

    def _count(self, vectors: set[_Vector], depth: int, domain: DomainNode) -> set[_Vector]:
        """Turn pods into whole replicas of the roles that must not straddle this depth, and drop what is left."""
        for index in [i for i, own in enumerate(self._depths) if own == depth]:
            vectors = _top({self._whole(vector, index, real=domain.real) for vector in vectors})
        return vectors

    def _whole(self, vector: _Vector, role: int, *, real: bool) -> _Vector:
        found = list(vector)
        parts = [i for i, (owner, _, _) in enumerate(self._pods) if owner == role]
        replicas = min(vector[i] // self._pods[i][2] for i in parts)
        found[len(self._pods) + role] = replicas if real else 0
        for i in parts:
            found[i] = 0
        return tuple(found)

    def _sum(self, start: set[_Vector], parts: Iterable[set[_Vector]]) -> set[_Vector]:
        total = start
        for part in parts:
            total = _top(
                {
                    tuple(min(a + b, cap) for a, b, cap in zip(one, other, self._caps, strict=True))
                    for one in total
                    for other in part
                }
            )
        return total

    def _node(self, node: NodeState) -> set[_Vector]:
        usable = node.name not in self._gang.excluded_nodes
        found: set[_Vector] = set()
        counts = [0] * len(self._caps)

        def extend(index: int, free: dict[str, int]) -> None:
            if index == len(self._pods):
                found.add(tuple(counts))
                return
            shape = self._pods[index][1].shape
            left = dict(free)
            extend(index + 1, left)
            if not usable or node.static_cause(shape) or node.conflict(shape):
                return
            if node.name in self._inventory.kept_off(shape):
                return
            if any(counts[i] and conflict(shape, self._pods[i][1].shape) for i in range(index)):
                return
            most = 1 if conflict(shape, shape) else self._caps[index]
            while counts[index] < most and all(left.get(name, 0) >= value for name, value in shape.requests):
                for name, value in shape.requests:
                    left[name] -= value
                counts[index] += 1
                extend(index + 1, left)
            counts[index] = 0

        extend(0, dict(node.free))
        return _top(found)


def _top(vectors: set[_Vector]) -> set[_Vector]:
    """The vectors that no other one covers."""
    ordered = sorted(vectors, key=sum, reverse=True)
    kept: list[_Vector] = []
    for vector in ordered:
        if not any(all(a <= b for a, b in zip(vector, other, strict=True)) for other in kept):
            kept.append(vector)
    return set(kept)
