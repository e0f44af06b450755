"""Why a minimum fits nowhere, in terms a person can act on, and the proof of it.

Everything is read off the tables that refused the gang: for each role how many of its replicas fit alone, how many
beside the other minimums, and where the most; then, in the best domain, what is missing for the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final

from covey.placement import resources
from covey.placement.domains import DomainNode
from covey.placement.exclusions import exclusions
from covey.placement.fill import Growth, fill_key, fullest
from covey.placement.inventory import Inventory, NodeState
from covey.placement.layout import natural
from covey.placement.model import Bound, Exclusion, Gang, Path, Reason, Refusal, Shape, Verdict
from covey.placement.request import Demand
from covey.placement.shortage import Bench, Shortage
from covey.placement.solve import Solution
from covey.placement.tables import Budget, Table, Vector

#: Vectors of the minimum that are listed one against all in a certificate.
_LISTED: Final = 4096
#: Domains in which a missing replica is tried for the nearest fix.
_TRIED: Final = 8
#: Missing replicas that are counted one by one.
_COUNTED: Final = 3
_ENOUGH: Final = 1 << 60


def explain(
    gang: Gang, inventory: Inventory, solution: Solution, needed: Sequence[Demand], forbidden: Collection[Path]
) -> Refusal:
    """The refusal of a gang whose minimum fits nowhere; one reason for each role that is to blame."""
    solution.engine.budget = Budget(_ENOUGH)  # the verdict stands; only the words are still to be found
    case = _Case(gang, inventory, solution, needed, forbidden)
    return Refusal(Verdict.INFEASIBLE, tuple(case.reasons()), case.certificate())


@dataclass(frozen=True, slots=True)
class _Best:
    """The candidate in which most replicas of a role fit, and how many."""

    scope: DomainNode
    count: int


class _Case:
    """One refused gang."""

    def __init__(
        self,
        gang: Gang,
        inventory: Inventory,
        solution: Solution,
        needed: Sequence[Demand],
        forbidden: Collection[Path],
    ) -> None:
        self._gang = gang
        self._inventory = inventory
        self._solution = solution
        self._forbidden = forbidden
        self._needed = needed
        problem = solution.problem
        self._open = [
            [d for d in needed if d.role == i and (d.role, d.replica.replica) in problem.kinds]
            for i in range(len(gang.roles))
        ]
        self._roles = [i for i, demands in enumerate(self._open) if demands]
        self._kinds = [tuple(problem.kinds[d.role, d.replica.replica] for d in demands) for demands in self._open]
        self._classes = len(problem.structure.classes)
        tables = [(scope, solution.table(scope)) for scope in solution.candidates()]
        self._tables = [(scope, table) for scope, table in tables if table is not None]
        self._tables.sort(key=lambda pair: [natural(value) for value in pair[0].path])
        self._most_memo: dict[tuple[int, int, Vector], int] = {}

    def reasons(self) -> Iterable[Reason]:
        """One reason for each role to blame."""
        if not self._tables:
            yield from self._stuck()
            return
        alone = {i: self._best(i, (0,) * len(self._open)) for i in self._roles}
        unfit = [i for i in self._roles if alone[i].count < len(self._open[i])]
        if unfit:
            for i in unfit:
                yield self._alone(i, alone[i])
        else:
            yield from self._jointly()

    def certificate(self) -> tuple[Bound, ...]:
        """For every candidate the vectors of whole replicas that it holds at most."""
        names = tuple(self._gang.roles[i].name for i in self._roles)
        most = [len(self._open[i]) for i in self._roles]
        listed: dict[int, tuple[Vector, ...]] = {}
        if prod(n + 1 for n in most) > _LISTED:
            return ()
        for _, table in self._tables:
            if table.number not in listed:
                listed[table.number] = self._maximal(table, most)
        held = {scope.path: listed[table.number] for scope, table in self._tables}
        return tuple(Bound(s.path, names, held.get(s.path, ())) for s in self._solution.candidates())

    def _maximal(self, table: Table, most: Sequence[int]) -> tuple[Vector, ...]:
        fitting = {
            counts for counts in product(*(range(n + 1) for n in most)) if self._fits(table, self._spread(counts))
        }
        return tuple(
            sorted(
                counts
                for counts in fitting
                if not any((*counts[:a], counts[a] + 1, *counts[a + 1 :]) in fitting for a in range(len(counts)))
            )
        )

    def _spread(self, counts: Sequence[int]) -> Vector:
        """Counts of the open roles as counts of all roles."""
        every = [0] * len(self._open)
        for i, n in zip(self._roles, counts, strict=True):
            every[i] = n
        return tuple(every)

    def _fits(self, table: Table, counts: Vector) -> bool:
        by_class = [0] * self._classes
        for kinds, n in zip(self._kinds, counts, strict=True):
            for kind in kinds[:n]:
                by_class[kind] += 1
        return table.holds([by_class[kind] for kind in self._solution.order])

    def _most(self, table: Table, role: int, others: Vector) -> int:
        """How many replicas of a role fit beside the others; -1 when those do not fit themselves."""
        key = (table.number, role, others)
        if key not in self._most_memo:
            count = -1
            while count < len(self._open[role]) and self._fits(table, (*others[:role], count + 1, *others[role + 1 :])):
                count += 1
            self._most_memo[key] = count
        return self._most_memo[key]

    def _best(self, role: int, others: Vector) -> _Best:
        def merit(pair: tuple[DomainNode, Table]) -> tuple[int, int]:
            return (self._most(pair[1], role, others), self._room(pair[0], role))

        scope, table = max(self._tables, key=merit)
        return _Best(scope, self._most(table, role, others))

    def _room(self, scope: DomainNode, role: int) -> int:
        """How much is free in a domain of what the role's pods ask first."""
        first = min((name for name, _ in self._open[role][0].missing[0].shape.requests), key=resources.rank)
        return scope.free.get(first, 0)

    def _alone(self, role: int, best: _Best) -> Reason:
        """The role does not fit, whatever the others do."""
        depth = self._depth(role)
        if best.count == 0 and depth > self._solution.problem.structure.scope:
            return self._no_replica(role, depth)
        nothing = (0,) * len(self._open)
        lack = self._lack(role, best.scope, (*nothing[:role], best.count, *nothing[role + 1 :]))
        return self._reason(
            role, "unit", self._scope_level(), best.scope.path, best.count, lack, self._counted(role, best, lack)
        )

    def _no_replica(self, role: int, depth: int) -> Reason:
        """Not one replica fits into any domain of its level."""
        demand = self._open[role][0]
        ranked = self._ranked(demand, depth, [scope for scope, _ in self._tables])
        level = self._solution.engine.tree.topology.levels[depth].name
        size = len(demand.missing)
        name = self._gang.roles[role].name
        if not ranked:
            message = f"{name}: no {level} can be used at all"
            return self._reason(role, "replica", level, (), 0, Shortage(None, 0, 0, size), message)
        shapes = [pod.shape for pod in demand.missing]
        tried = [(Bench(d.nodes.values(), {}).lack(shapes), fits, d) for fits, d in ranked[:_TRIED]]
        lack, fits, domain = min(tried, key=lambda t: (t[0].size, -t[1]))
        message = (
            f"{name}: no {level} has room for a replica of {size} pod{'s' * (size > 1)}"
            f"{self._asking(shapes)}; {level} {where(domain.path)} has room for {fits}{_fix(lack)}"
        )
        return self._reason(role, "replica", level, domain.path, 0, lack, message)

    def _jointly(self) -> Iterable[Reason]:
        """Each role fits alone, but not all of them together."""
        growths = [Growth(kinds, 0, len(kinds)) for kinds in self._kinds]
        zero = (0,) * self._classes
        scored = []
        for scope, table in self._tables:
            counts = fullest(table, self._solution.order, zero, growths)
            if counts is not None:
                scored.append((fill_key(counts, growths), counts, scope, table))
        _, counts, scope, table = max(scored, key=lambda s: s[:2])
        full = tuple(map(len, self._open))
        beside = {i: self._most(table, i, full) for i in self._roles}
        placed = {i: counts[i] if beside[i] < 0 else beside[i] for i in self._roles}
        short = [i for i in self._roles if placed[i] < len(self._open[i])]
        names = _listed([self._gang.roles[i].name for i in self._roles])
        for i in short:
            rest = counts if beside[i] < 0 else (*full[:i], beside[i], *full[i + 1 :])
            lack = self._lack(i, scope, rest)
            others = _listed([self._gang.roles[j].name for j in self._roles if j != i])
            message = (
                f"{names} each fit alone but not together in {self._named(scope)}: beside {others} there is room for "
                f"{self._done(i) + placed[i]} of {self._gang.roles[i].minimum} replicas of {self._gang.roles[i].name}{_fix(lack)}"
            )
            yield self._reason(i, "unit", self._scope_level(), scope.path, placed[i], lack, message)

    def _stuck(self) -> Iterable[Reason]:
        """Some half placed replica has no room in its own domain, or its domain lies outside every candidate."""
        problem = self._solution.problem
        tree = self._solution.engine.tree
        for path, items in sorted(problem.fixed.items(), key=lambda pair: [natural(value) for value in pair[0]]):
            domain = tree.by_path.get(path)
            for item in items:
                demand = next(d for d in self._needed if (d.role, d.replica.replica) == (item.role, item.replica))
                shapes = [pod.shape for pod in demand.missing]
                lack = Bench(domain.nodes.values() if domain else (), {}).lack(shapes)
                if lack.short == 0 and lack.nodes == 0 and len(problem.fixed) + len(items) > 2:
                    continue  # this one would fit by itself
                level = tree.topology.levels[len(path) - 1].name
                message = (
                    f"{self._gang.roles[item.role].name}: {len(shapes)} missing pod{'s' * (len(shapes) > 1)} of replica "
                    f"{item.replica} must join the others in {level} {where(path)}, which has no room{_fix(lack)}"
                )
                yield self._reason(item.role, "replica", level, path, 0, lack, message)
        if not problem.fixed:
            broad = self._scope_level()
            message = f"no {broad or 'node'} can take the rest: placed pods or required levels exclude every one"
            yield self._reason(self._needed[0].role, "unit", broad, (), 0, Shortage(None, 0, 0, 0), message)

    def _depth(self, role: int) -> int:
        """The depth that a replica of the role must not straddle."""
        return max(self._solution.problem.structure.classes[kind].depth for kind in self._kinds[role])

    def _ranked(self, demand: Demand, depth: int, scopes: Sequence[DomainNode]) -> list[tuple[int, DomainNode]]:
        """The domains of a depth inside the scopes, by how many of a replica's pods they hold."""
        engine, view = self._solution.engine, self._solution.problem.view
        dimensions = engine.frames[depth + 1].dimensions
        streams = {stream.shape: i for i, stream in enumerate(engine.structure.streams)}
        memo: dict[int, int] = {}
        ranked = []
        for scope in scopes:
            for domain in scope.descend(depth - scope.depth):
                total = engine.total(domain, view) if domain.real else None
                if total is None:
                    continue
                if total.number not in memo:
                    tables, vector, count = total.tables.values(), [0] * len(dimensions), 0
                    for pod in demand.missing:
                        if streams[pod.shape] not in dimensions:
                            break
                        vector[dimensions.index(streams[pod.shape])] += 1
                        if not any(table.holds(vector) for table in tables):
                            break
                        count += 1
                    memo[total.number] = count
                ranked.append((memo[total.number], domain))
        role = demand.role
        return sorted(ranked, key=lambda r: (-r[0], -self._room(r[1], role), [natural(v) for v in r[1].path]))

    def _lack(self, role: int, scope: DomainNode, counts: Vector) -> Shortage:
        """What is missing in a candidate for the role's next replicas, these counts being placed."""
        taken = self._taken(scope, counts)
        missing = self._open[role][counts[role] :]
        depth = self._depth(role)
        structure = self._solution.problem.structure
        total: Shortage | None = None
        for demand in missing[:_COUNTED]:
            shapes = [pod.shape for pod in demand.missing]
            places = [scope]
            if structure.scope < depth <= structure.bottom:
                places = [domain for _, domain in self._ranked(demand, depth, [scope])][:_TRIED] or [scope]
            lack = min((Bench(self._usable(place), taken).lack(shapes) for place in places), key=lambda s: s.size)
            if total is None:
                total = lack
            elif lack.resource == total.resource:
                total = Shortage(total.resource, total.requested, total.short + lack.short, total.nodes + lack.nodes)
        if total is None:
            return Shortage(None, 0, 0, 0)
        beyond = len(missing) - _COUNTED
        if beyond > 0:
            total = Shortage(
                total.resource,
                total.requested,
                total.short * len(missing) // _COUNTED,
                total.nodes * len(missing) // _COUNTED,
            )
        return total

    def _usable(self, place: DomainNode) -> list[NodeState]:
        """The nodes of a place that the gang may use as far as it is concerned."""
        closed = self._forbidden
        return [
            node
            for node in place.nodes.values()
            if node.name not in self._gang.excluded_nodes
            and not (closed and any(node.leaves[self._gang.topology].path[: len(path)] == path for path in closed))
        ]

    def _taken(self, scope: DomainNode, counts: Vector) -> dict[str, list[Shape]]:
        """What the counted replicas (and the fixed demands) take of each node."""
        chosen = [demand for i, n in enumerate(counts) for demand in self._open[i][:n]]
        nodes = self._solution.place(scope, self._solution.layout(()), chosen)
        taken: dict[str, list[Shape]] = {}
        for demand in self._needed:
            for pod in demand.missing:
                if pod.key in nodes:
                    taken.setdefault(nodes[pod.key], []).append(pod.shape)
        return taken

    def _done(self, role: int) -> int:
        """Replicas of the role's minimum that are placed, or have all they lack."""
        return self._gang.roles[role].minimum - len(self._open[role])

    def _scope_level(self) -> str | None:
        scope = self._solution.problem.structure.scope
        return self._solution.engine.tree.topology.levels[scope].name if scope >= 0 else None

    def _named(self, scope: DomainNode) -> str:
        return f"{self._scope_level()} {where(scope.path)}" if scope.path else "the cluster"

    def _counted(self, role: int, best: _Best, lack: Shortage) -> str:
        name = self._gang.roles[role].name
        done = self._done(role) + best.count
        return (
            f"{name}: room for {done} of {self._gang.roles[role].minimum} replicas in {self._named(best.scope)}, "
            f"{'the best' if best.scope.path else 'all of it'}{_fix(lack)}"
        )

    def _asking(self, shapes: Sequence[Shape]) -> str:
        """What each pod asks of the first resource, when all ask the same."""
        first = {min(shape.requests, key=lambda r: resources.rank(r[0])) for shape in shapes}
        if len(first) > 1:
            return ""
        name, value = first.pop()
        return f" with {resources.text(name, value)} {name} each"

    def _reason(
        self, role: int, scope: str, level: str | None, path: Path, satisfied: int, lack: Shortage, message: str
    ) -> Reason:
        request = self._gang.roles[role]
        excluded = self._excluded(role)
        if excluded:
            nodes = sum(e.nodes for e in excluded)
            causes = _listed([f"{e.nodes} {e.cause}" for e in excluded[:3]])
            message += f"; {nodes} node{'s are' if nodes > 1 else ' is'} out: {causes}"
        resource = lack.resource
        return Reason(
            role=request.name,
            scope=scope,
            level=level,
            best_domain=path,
            required=request.minimum,
            satisfied=self._done(role) + satisfied,
            resource=resource,
            requested=None if resource is None else resources.text(resource, lack.requested),
            short=None if resource is None else resources.text(resource, lack.short),
            excluded=excluded,
            message=message,
        )

    def _excluded(self, role: int) -> tuple[Exclusion, ...]:
        gang, request = self._gang, self._gang.roles[role]
        levels = [level for level in ((gang.required if request.follow_unit else None), request.required) if level]
        shapes = [pod.shape for replica in request.replicas for pod in replica.pods]
        return exclusions(gang, self._inventory, shapes, levels, self._forbidden)


def where(path: Path) -> str:
    """A domain as people write it: its values from broad to narrow."""
    return "/".join(value or "-" for value in path)


def _fix(lack: Shortage) -> str:
    """The nearest fix, when adding capacity is one."""
    parts = []
    if lack.resource is not None:
        parts.append(f"{resources.text(lack.resource, lack.short)} more {lack.resource}")
    if lack.nodes:
        parts.append(f"{lack.nodes} more usable node{'s' * (lack.nodes > 1)}")
    return f"; {' and '.join(parts)} there would do" if parts else ""


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "the rest"


__all__ = ["explain", "where"]
