"""The planner's question as an integer programme for OR-tools CP-SAT, written from the design's planner chapter.

Unknowns are counts of pods per batch, kind and node. A *batch* is a number of replicas that nobody could tell apart
(same role, same kinds of pods, unbound, no mark); a replica that differs is a batch of its own. Replicas of a batch
that must not straddle a level are whole in each of its domains: the domain's pods of each kind are a multiple of what
one replica has. The objective's terms are solved one after another, each fixed before the next.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from math import prod

from ortools.sat.python import cp_model

from covey.placement.model import Path, PodRequest, RoleRequest
from oracle import facts
from oracle.case import Case
from oracle.checker import Score, crowded, fill_of, scopes

#: Terms are put into one weighted objective as long as the weights stay below this.
WEIGHT_LIMIT = 10**9


@dataclass(frozen=True)
class Best:
    """What the solver knows. ``feasible`` None: not decided in time. ``score`` None: not proven (or infeasible)."""

    feasible: bool | None
    score: Score | None = None


@dataclass(frozen=True, eq=False)
class Batch:
    """``count`` replicas alike, each with these unplaced pods. ``bound``: what one that is placed in part has."""

    role: RoleRequest
    #: Index of a kind (among those of the gang), and how many pods of a replica are of it.
    pods: tuple[tuple[int, int], ...]
    count: int
    compulsory: bool
    minimum: bool
    together: str | None
    bound: tuple[PodRequest, ...]


@dataclass(frozen=True)
class Term:
    """Something to be maximised, at most ``most``."""

    expression: cp_model.LinearExprT
    most: int


def solve(case: Case, *, surplus: bool = True, effort: float = 2.0) -> Best:
    """Whether the minimum has a place; and, with ``surplus``, the best score that minimum and surplus can have.

    ``effort`` bounds each solve in the solver's deterministic seconds.
    """
    if any(len(role.replicas) < role.minimum for role in case.gang.roles):
        return Best(feasible=False)
    return _Programme(case, surplus=surplus).best(effort)


class _Programme:
    def __init__(self, case: Case, *, surplus: bool) -> None:
        self.case = case
        self.model = cp_model.CpModel()
        self.paths = {name: facts.path_of(case.topology, node) for name, node in case.node.items()}
        kinds = facts.kinds_of(case)
        self.bodies = list(kinds.values())
        self.batches = [batch for batch in batches(case, list(kinds)) if surplus or batch.compulsory]
        self.surplus = surplus
        #: Pods of a batch's shape on a node.
        self.pods: dict[tuple[Batch, int, str], cp_model.IntVar] = {}
        #: Replicas of a batch that are placed.
        self.placed: dict[Batch, cp_model.LinearExprT] = {}
        self._unknowns()
        self._capacity()
        self._unit()
        self._proximity()

    # unknowns, and replicas whole in their domains

    def _unknowns(self) -> None:
        marks: dict[str, cp_model.IntVar] = {}
        room = {
            (index, node): facts.room(self.case, node, body)
            for index, body in enumerate(self.bodies)
            for node in self.case.node
        }
        for batch in self.batches:
            if batch.compulsory:
                self.placed[batch] = batch.count
            elif batch.together is not None:
                mark = marks.setdefault(batch.together, self.model.new_bool_var(""))
                self.placed[batch] = mark
            else:
                self.placed[batch] = self.model.new_int_var(0, batch.count, "")
            nodes = [node for node in self.case.node if self._allowed(batch, node)]
            for shape, number in batch.pods:
                for node in nodes:
                    if room[shape, node]:
                        most = min(room[shape, node], number * batch.count)
                        self.pods[batch, shape, node] = self.model.new_int_var(0, most, "")
                self.model.add(self._sum(batch, shape) == number * self.placed[batch])
            level = facts.replica_depth(self.case, batch.role)
            if level is not None:
                self._whole(batch, level, None)

    def _allowed(self, batch: Batch, node: str) -> bool:
        """Required levels, pins and the spread rule, as far as they concern one node alone."""
        gang, path = self.case.gang, self.paths[node]
        level = facts.replica_depth(self.case, batch.role)
        if level is not None and not self._joins(batch.bound, path, level):
            return False
        if batch.role.follow_unit:
            if gang.spread is not None and gang.spread.required and crowded(self.case, path):
                return False
            members = facts.pods_of(facts.followers(gang))
            if gang.required and not self._joins(members, path, self.case.topology.depth(gang.required)):
                return False
        for rule in gang.proximity:
            if rule.required and batch.role.name in rule.roles:
                members = facts.pods_of(role for role in gang.roles if role.name in rule.roles)
                if not self._joins(members, path, self.case.topology.depth(rule.level)):
                    return False
        return True

    def _joins(self, members: Iterable[PodRequest], path: Path, depth: int) -> bool:
        """A path has a domain of the level, and it is that of every bound member whose node still exists."""
        own = facts.domain(path, depth)
        return own is not None and all(found == own for found in self._bound_domains(members, depth))

    def _bound_domains(self, members: Iterable[PodRequest], depth: int) -> set[Path | None]:
        return {facts.domain(self.paths[pod.node], depth) for pod in members if pod.node in self.paths}

    def _sum(self, batch: Batch, shape: int, among: Iterable[str] | None = None) -> cp_model.LinearExprT:
        nodes = self.case.node if among is None else among
        return sum(self.pods[batch, shape, node] for node in nodes if (batch, shape, node) in self.pods)

    def _by_domain(self, depth: int) -> dict[Path | None, list[str]]:
        found: dict[Path | None, list[str]] = defaultdict(list)
        for node, path in self.paths.items():
            found[facts.domain(path, depth)].append(node)
        return found

    def _whole(self, batch: Batch, depth: int, when: cp_model.IntVar | None) -> None:
        """Each domain of the level holds whole replicas of the batch (if ``when`` is true)."""
        for own, nodes in self._by_domain(depth).items():
            here = self.model.new_int_var(0, 0 if own is None else batch.count, "")
            for shape, number in batch.pods:
                constraint = self.model.add(self._sum(batch, shape, nodes) == number * here)
                if when is not None:
                    constraint.only_enforce_if(when)

    def _confine(self, chosen: Iterable[Batch], depth: int, when: cp_model.IntVar | None) -> None:
        """All pods of these batches lie in one domain of the level (if ``when`` is true)."""
        chosen = list(chosen)
        here: dict[Path | None, cp_model.IntVar] = {own: self.model.new_bool_var("") for own in self._by_domain(depth)}
        self.model.add(sum(var for own, var in here.items() if own is not None) <= 1)
        for (batch, _, node), count in self.pods.items():
            if batch in chosen:
                own = facts.domain(self.paths[node], depth)
                enforce = [] if when is None else [when]
                self.model.add(count == 0).only_enforce_if([*enforce, ~here[own]])
                if own is None:
                    self.model.add(count == 0).only_enforce_if(enforce)

    # constraints on nodes and on the gang

    def _capacity(self) -> None:
        on_node: dict[str, list[tuple[int, cp_model.IntVar]]] = defaultdict(list)
        for (_, shape, node), count in self.pods.items():
            on_node[node].append((shape, count))
        for node, counts in on_node.items():
            left = facts.free(self.case, node)
            requests = [(dict(self.bodies[shape].shape.requests), count) for shape, count in counts]
            for name in sorted({name for wanted, _ in requests for name in wanted}):
                asked = sum(wanted.get(name, 0) * count for wanted, count in requests)
                self.model.add(asked <= max(left.get(name, 0), 0))
            self._clashes(counts)

    def _clash(self, one: int, other: int) -> bool:
        return facts.clash(self.bodies[one], self.bodies[other])

    def _clashes(self, counts: Sequence[tuple[int, cp_model.IntVar]]) -> None:
        shapes = {shape for shape, _ in counts}
        if not any(self._clash(one, other) for one in shapes for other in shapes):
            return
        present = {shape: self.model.new_bool_var("") for shape in shapes}
        for shape, count in counts:
            self.model.add(count == 0).only_enforce_if(~present[shape])
        for one in shapes:
            if self._clash(one, one):
                self.model.add(sum(count for shape, count in counts if shape == one) <= 1)
            for other in shapes - {one}:
                if self._clash(one, other):
                    self.model.add(present[one] + present[other] <= 1)

    def _unit(self) -> None:
        if self.case.gang.required is not None:
            depth = self.case.topology.depth(self.case.gang.required)
            self._confine((batch for batch in self.batches if batch.role.follow_unit), depth, None)

    def _proximity(self) -> None:
        for rule in self.case.gang.proximity:
            if rule.required:
                near = (batch for batch in self.batches if batch.role.name in rule.roles)
                self._confine(near, self.case.topology.depth(rule.level), None)

    # objective

    def _preferences(self) -> list[Term]:
        """One term a level, finest first: how many scopes have it or a finer one."""
        case, terms = self.case, []
        wanted = [scope for scope in scopes(case, case) if not scope.name.startswith("proximity")]
        reached = {
            (scope.name, depth): self._reach(scope.name, depth)
            for scope in wanted
            for depth in scope.ladder(case.topology, scope.base + 1)
        }
        for depth in reversed(range(len(case.topology.levels))):
            have = []
            for scope in wanted:
                if ladder := scope.ladder(case.topology, depth):
                    have.append(self.model.new_bool_var(""))
                    self.model.add(have[-1] <= sum(reached[scope.name, finer] for finer in ladder))
            terms.append(Term(sum(have), len(have)))
        return terms

    def _reach(self, scope: str, depth: int) -> cp_model.IntVar:
        reached = self.model.new_bool_var("")
        if scope == "unit":
            roles = facts.followers(self.case.gang)
            members = [pod for role in roles for replica in facts.minimum_of(role) for pod in replica.pods]
            near = [batch for batch in self.batches if batch.minimum and batch.role.follow_unit]
            self._confine(near, depth, reached)
            self._join(near, members, depth, reached)
        else:
            (role,) = (role for role in self.case.gang.roles if scope == f"role/{role.name}")
            for replica in facts.minimum_of(role):
                if replica.placed:
                    self._join([], replica.pods, depth, reached)
            for batch in self.batches:
                if batch.minimum and batch.role is role:
                    self._whole(batch, depth, reached)
                    self._join([batch], batch.bound, depth, reached)
        return reached

    def _join(
        self, newcomers: Sequence[Batch], members: Iterable[PodRequest], depth: int, when: cp_model.IntVar
    ) -> None:
        """Bound members lie in one domain and the newcomers in the same (if ``when`` is true)."""
        taken = self._bound_domains(members, depth)
        if len(taken) > 1 or None in taken:
            self.model.add(when == 0)
        elif taken:
            for (batch, _, node), count in self.pods.items():
                if batch in newcomers and facts.domain(self.paths[node], depth) not in taken:
                    self.model.add(count == 0).only_enforce_if(when)

    def _fill(self) -> list[Term]:
        """Leximin of admitted/desired: at each possible ratio, as few roles as possible at or below it."""
        gang = self.case.gang
        above: dict[Fraction, list[cp_model.LinearExprT]] = defaultdict(list)
        admitted: list[cp_model.LinearExprT] = []
        thresholds = sorted({Fraction(n, role.desired) for role in gang.roles for n in range(len(role.replicas) + 1)})
        for role in gang.roles:
            already = sum(replica.placed for replica in role.replicas)
            total = already + sum(self.placed[batch] for batch in self.batches if batch.role is role)
            admitted.append(total)
            at_least = {n: self.model.new_bool_var("") for n in range(1, len(role.replicas) + 1)}
            for n, reached in at_least.items():
                self.model.add(total >= n).only_enforce_if(reached)
            for n, following in pairwise(at_least):
                self.model.add_implication(at_least[following], at_least[n])
            for ratio in thresholds:
                needed = int(ratio * role.desired) + 1
                if needed in at_least:
                    above[ratio].append(at_least[needed])
        terms = [Term(sum(above[ratio]), len(above[ratio])) for ratio in thresholds]
        return terms + [Term(total, len(role.replicas)) for total, role in zip(admitted, gang.roles, strict=True)]

    def best(self, effort: float) -> Best:
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 1
        solver.parameters.max_deterministic_time = effort
        if not self.surplus:
            status = solver.solve(self.model)
            return Best(
                feasible={cp_model.OPTIMAL: True, cp_model.FEASIBLE: True, cp_model.INFEASIBLE: False}.get(status)
            )
        preferences = self._preferences()
        for stage in stages([*preferences, *self._fill()]):
            weighted, weight = 0, 1
            for term in reversed(stage):
                weighted += weight * term.expression
                weight *= term.most + 1
            self.model.maximize(weighted)
            status = solver.solve(self.model)
            if status == cp_model.INFEASIBLE:
                return Best(feasible=False)
            if status != cp_model.OPTIMAL:
                return Best(feasible=True if status == cp_model.FEASIBLE else None)
            self.model.add(weighted == round(solver.objective_value))
            self._hint(solver)
        preferred = tuple(solver.value(term.expression) for term in preferences)
        return Best(feasible=True, score=self._score(solver, preferred))

    def _hint(self, solver: cp_model.CpSolver) -> None:
        self.model.clear_hints()
        for count in self.pods.values():
            self.model.add_hint(count, solver.value(count))

    def _score(self, solver: cp_model.CpSolver, preferred: tuple[int, ...]) -> Score:
        case = self.case
        admitted = tuple(
            sum(replica.placed for replica in role.replicas)
            + sum(solver.value(self.placed[batch]) for batch in self.batches if batch.role is role)
            for role in case.gang.roles
        )
        return Score(preferred, fill_of(case, admitted), admitted)


def stages(terms: Sequence[Term]) -> list[list[Term]]:
    """The terms in order, as many in one weighted objective as its numbers allow; constants are left out."""
    found: list[list[Term]] = [[]]
    for term in terms:
        if not term.most:
            continue
        if prod(known.most + 1 for known in found[-1]) * (term.most + 1) > WEIGHT_LIMIT:
            found.append([])
        found[-1].append(term)
    return found


def batches(case: Case, kinds: Sequence[str]) -> list[Batch]:
    """Everything that is not whole, replicas that nobody could tell apart counted together."""
    must = facts.compulsory(case.gang)
    alike: dict[str, list[Batch]] = defaultdict(list)
    for role in case.gang.roles:
        minimum = {replica.replica for replica in facts.minimum_of(role)}
        for replica in role.replicas:
            if replica.placed:
                continue
            bound = tuple(pod for pod in replica.pods if pod.node is not None)
            pods = sorted(
                Counter(kinds.index(facts.kind_of(case, pod)) for pod in replica.pods if pod.node is None).items()
            )
            compulsory = (role.name, replica.replica) in must
            mark = None if compulsory else replica.together
            batch = Batch(role, tuple(pods), 1, compulsory, replica.replica in minimum, mark, bound)
            apart = f"{role.name}/{replica.replica}" if bound or mark else role.name
            alike[f"{apart} {pods} {compulsory} {batch.minimum}"].append(batch)
    return [replace(same[0], count=len(same)) for same in alike.values()]
