"""Reasons why a minimum fits nowhere, in terms a person can act on, and the proof of it.

Everything is read off the tables that refused the gang: for each role how many of its replicas fit alone, how many
next to the other minimums, and where the most; then, in the best domain, what is missing for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from covey.placement.capacity.tables import SearchLimit, Table, Vector
from covey.placement.choice.candidates import Solution
from covey.placement.choice.surplus import Growth, fill_key, fullest
from covey.placement.cluster import resources
from covey.placement.cluster.domains import DomainNode, NodeState
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Exclusion, Gang, Path, Reason, Refusal, Shape, Verdict, natural, where
from covey.placement.question.demands import Demand, minimum_demands, minimum_of, minimum_replicas
from covey.placement.refusal.shortage import Bench, Shortage, exclusions
from covey.placement.sharing.layout import Item

#: Domains in which a missing replica is tried for the nearest fix.
_TRIED: Final = 8
#: Missing replicas that are counted one by one at least, and pods tried on nodes up to which more are.
_COUNTED: Final = 3
_STEPS: Final = 5_000
_ENOUGH: Final = 1 << 60


def explain(gang: Gang, inventory: Inventory, solution: Solution, needed: Sequence[Demand]) -> Refusal:
    """Explain why a gang's minimum fits nowhere; one reason for each role that is to blame."""
    case = _Case(gang, inventory, solution, needed)
    return Refusal(Verdict.INFEASIBLE, case.reasons_or_fallback())


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
    ) -> None:
        self._gang = gang
        self._inventory = inventory
        self._solution = solution
        self._needed = needed
        problem = solution.problem
        self._open = [
            [d for d in needed if d.role == i and (d.role, d.replica.replica) in problem.kinds]
            for i in range(len(gang.roles))
        ]
        self._roles = [i for i, demands in enumerate(self._open) if demands]
        self.kinds = [tuple(problem.kinds[d.role, d.replica.replica] for d in demands) for demands in self._open]
        self._classes = len(problem.structure.classes)
        #: For each role what its first 0, 1, 2 … open replicas are, by class.
        self._first = [self._by_class(kinds) for kinds in self.kinds]
        tables = [(scope, solution.table(scope)) for scope in solution.candidates()]
        self._tables = [(scope, table) for scope, table in tables if table is not None]
        self._tables.sort(key=lambda pair: [natural(value) for value in pair[0].path])
        self._asked_first: dict[int, str] = {}
        self._most_memo: dict[tuple[int, int, Vector], int] = {}
        self._own: dict[str, list[Shape]] = {}
        for pod in (pod for role in gang.roles for replica in role.replicas for pod in replica.pods):
            if pod.node is not None:
                self._own.setdefault(pod.node, []).append(pod.shape)

    def reasons_or_fallback(self) -> tuple[Reason, ...]:
        """One reason for each role to blame; never none."""
        return tuple(self.reasons()) or (self._plainly(),)

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

    def _by_class(self, kinds: Sequence[int]) -> list[list[int]]:
        rows = [[0] * self._classes]
        for kind in kinds:
            rows.append([n + (number == kind) for number, n in enumerate(rows[-1])])
        return rows

    def _fits(self, table: Table, counts: Vector) -> bool:
        rows = [first[n] for first, n in zip(self._first, counts, strict=True)]
        return table.holds([sum(row[kind] for row in rows) for kind in self._solution.order])

    def _most(self, table: Table, role: int, others: Vector) -> int:
        """Compute how many replicas of a role fit next to the others; -1 when the others do not fit themselves."""
        key = (table.number, role, others)
        if key not in self._most_memo:
            fits, high = -1, len(self._open[role])  # where there is room for more there is room for less
            while fits < high:
                middle = (fits + high + 1) // 2
                if self._fits(table, (*others[:role], middle, *others[role + 1 :])):
                    fits = middle
                else:
                    high = middle - 1
            self._most_memo[key] = fits
        return self._most_memo[key]

    def _best(self, role: int, others: Vector) -> _Best:
        def merit(pair: tuple[DomainNode, Table]) -> tuple[int, int]:
            return (self._most(pair[1], role, others), self._room(pair[0], role))

        scope, table = max(self._tables, key=merit)
        return _Best(scope, self._most(table, role, others))

    def _room(self, scope: DomainNode, role: int) -> int:
        """Return how much is free in a domain of the first resource that the role's pods ask for."""
        if role not in self._asked_first:
            requests = self._open[role][0].missing[0].shape.requests
            self._asked_first[role] = min((name for name, _ in requests), key=resources.rank)
        return scope.free.get(self._asked_first[role], 0)

    def _alone(self, role: int, best: _Best) -> Reason:
        """Report a role that does not fit, whatever the others do."""
        depth = self._depth(role)
        if best.count == 0 and depth > self._solution.problem.structure.scope:
            return self._no_replica(role, depth)
        nothing = (0,) * len(self._open)
        lack = self._lack(role, best.scope, (*nothing[:role], best.count, *nothing[role + 1 :]))
        fix = lack.fix(whole=self._settles(role, best.scope, lack))
        satisfied = self._count_satisfied(role, best.count)
        return self._reason(
            role, "unit", self._scope_level(), best.scope.path, satisfied, lack, self._describe_count(role, best, fix)
        )

    def _no_replica(self, role: int, depth: int) -> Reason:
        """Report a role of which no replica fits into any domain of its level."""
        demand = self._open[role][0]
        ranked = self._rank_domains(demand, depth, [scope for scope, _ in self._tables])
        level = self._solution.engine.tree.topology.levels[depth].name
        size = len(demand.missing)
        name = self._gang.roles[role].name
        if not ranked:
            message = f"{name}: no {level} can be used at all"
            lack = Shortage(None, 0, 0, size)
            return self._reason(role, "replica", level, (), self._count_satisfied(role, 0), lack, message)
        shapes = [pod.shape for pod in demand.missing]
        tried = [(self._bench(d, {}).lack(shapes), fits, d) for fits, d in ranked[:_TRIED]]
        lack, fits, domain = min(tried, key=lambda t: (t[0].size, -t[1]))
        scope = next(d for d in domain.ancestors() if d.depth == self._solution.problem.structure.scope)
        fix = lack.fix(whole=lack.sure and self._settles(role, scope, lack, domain), one=True)
        message = (
            f"{name}: no {level} has room for a replica of {size} pod{'s' * (size > 1)}"
            f"{'' if lack.apart else self._asking(shapes)}; the best, {where(domain.path)}, has room for {fits}{fix}"
        )
        return self._reason(role, "replica", level, domain.path, self._count_satisfied(role, 0), lack, message)

    def _jointly(self) -> Iterable[Reason]:
        """Report that each role fits alone, but not all of them together."""
        growths = [Growth(kinds, 0, len(kinds)) for kinds in self.kinds]
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
        short = [i for i in short if self._count_satisfied(i, placed[i]) < self._gang.roles[i].minimum] or short[:1]
        names = join_names([self._gang.roles[i].name for i in self._roles])
        message = ""
        for i in short:
            rest = counts if beside[i] < 0 else (*full[:i], beside[i], *full[i + 1 :])
            lack = self._lack(i, scope, rest)
            others = join_names([self._gang.roles[j].name for j in self._roles if j != i])
            fix = lack.fix(whole=self._settles(i, scope, lack))
            message = message or (  # one sentence for all: the mirrored ones would add nothing
                f"{names} each fit alone but not together in {self._scope_name(scope)}: beside {others} there is room for "
                f"{self._done(i) + placed[i]} of {self._total(i)} replicas of {self._gang.roles[i].name}{fix}"
                f"{self._out(self._exclusions(i))}"
            )
            satisfied = self._count_satisfied(i, placed[i])
            yield self._reason(i, "unit", self._scope_level(), scope.path, satisfied, lack, message, told=True)

    def _stuck(self) -> Iterable[Reason]:
        """Report half placed replicas without room in their own domain, or with a domain outside every candidate."""
        problem = self._solution.problem
        alone = len(self._needed) == 1
        for path, items in sorted(problem.fixed.items(), key=lambda pair: [natural(value) for value in pair[0]]):
            lacks = [(item, self._bench_at(path).lack(self._shapes(item))) for item in items]
            unfit = [(item, lack) for item, lack in lacks if lack.size > (0, 0)]
            for item, lack in unfit:
                count = len(self._shapes(item))
                message = (
                    f"{self._gang.roles[item.role].name}: {count} missing pod{'s' * (count > 1)} of replica "
                    f"{item.replica} must join the others in {self._place(path)}, which has no room"
                    f"{lack.fix(whole=alone and self._is_only_room(), one=True)}"
                )
                yield self._reason(item.role, "replica", self._level(path), path, self._whole(item.role), lack, message)
            if not unfit and len(items) > 1:
                yield from self._crowded_reasons(path, items)

    def _crowded_reasons(self, path: Path, items: Sequence[Item]) -> Iterable[Reason]:
        """Report half placed replicas that each would fit into their domain, but not all of them."""
        lack = self._bench_at(path).lack([shape for item in items for shape in self._shapes(item)])
        if lack.size > (0, 0):
            replicas = join_names([f"{self._gang.roles[item.role].name} {item.replica}" for item in items])
            message = (
                f"the missing pods of the replicas {replicas} must all join the others in {self._place(path)}, "
                f"which has no room for all of them{lack.fix(whole=False, one=True)}"
            )
            role = items[0].role
            yield self._reason(role, "unit", self._level(path), path, self._whole(role), lack, message)

    def _plainly(self) -> Reason:
        """Return the reason that remains when nothing can be counted."""
        broad = self._scope_level()
        message = f"no {broad or 'node'} can take the rest: placed pods or required levels exclude every one"
        role = self._needed[0].role
        return self._reason(role, "unit", broad, (), self._whole(role), Shortage(None, 0, 0, 0), message)

    def _shapes(self, item: Item) -> list[Shape]:
        demand = next(d for d in self._needed if (d.role, d.replica.replica) == (item.role, item.replica))
        return [pod.shape for pod in demand.missing]

    def _bench_at(self, path: Path) -> Bench:
        domain = self._solution.engine.tree.by_path.get(path)
        return self._bench(domain, {}) if domain is not None else Bench((), {})

    def _bench(self, place: DomainNode, taken: Mapping[str, Sequence[Shape]]) -> Bench:
        return Bench(self._usable(place), taken, self._own, self._inventory.kept_off)

    def _level(self, path: Path) -> str:
        return self._solution.engine.tree.topology.levels[len(path) - 1].name

    def _place(self, path: Path) -> str:
        return f"{self._level(path)} {where(path)}"

    def _is_only_room(self) -> bool:
        """Tell whether room is all that matters: no rule binds replicas to each other, no level stands inside them."""
        problem, spread = self._solution.problem, self._gang.spread
        if any(kind.parts for kind in problem.structure.classes):
            return False
        return not problem.structure.groups and not problem.wide and (spread is None or not spread.required)

    def _settles(self, role: int, scope: DomainNode, lack: Shortage, only: DomainNode | None = None) -> bool:
        """Tell whether the whole minimum lacks no more in a candidate than this role was found to lack."""
        table = next((table for place, table in self._tables if place is scope), None)
        full = tuple(map(len, self._open))
        beside = -1 if table is None else self._most(table, role, full)
        if beside < 0 or not self._is_only_room() or len(self._needed) < len(minimum_demands(self._gang)):
            return False
        if only is not None and len(self._open[role]) - beside > 1:
            return False
        return self._lack(role, scope, (*full[:role], beside, *full[role + 1 :]), only) == lack

    def _depth(self, role: int) -> int:
        """The depth that a replica of the role must not straddle."""
        return max(self._solution.problem.structure.classes[kind].depth for kind in self.kinds[role])

    def _rank_domains(self, demand: Demand, depth: int, scopes: Sequence[DomainNode]) -> list[tuple[int, DomainNode]]:
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

    def _lack(self, role: int, scope: DomainNode, counts: Vector, only: DomainNode | None = None) -> Shortage:
        """Compute what is missing in a candidate for the role's next replicas when these counts are placed."""
        missing = self._open[role][counts[role] :]
        if not missing:
            return Shortage(None, 0, 0, 0)
        depth = self._depth(role)
        structure = self._solution.problem.structure
        places = [scope]
        if only is not None:
            places = [only]
        elif structure.scope < depth <= structure.bottom:
            places = [domain for _, domain in self._rank_domains(missing[0], depth, [scope])][:_TRIED] or [scope]
        taken = self._shapes_by_node(scope, counts)
        benches = [self._bench(place, taken) for place in places]
        steps = sum(len(place.nodes) for place in places) * len(missing[0].missing)
        tried = missing[: max(_COUNTED, _STEPS // max(steps, 1))]
        total = Shortage(None, 0, 0, 0)
        for demand in tried:
            shapes = [pod.shape for pod in demand.missing]
            bench = benches[0]
            if len(benches) > 1:
                bench = min(benches, key=lambda bench: bench.copy().lack(shapes).size)
            total = total.plus(bench.lack(shapes))
        return total if len(tried) == len(missing) else total.scale(len(missing), len(tried))

    def _usable(self, place: DomainNode) -> list[NodeState]:
        """Return the nodes of a place that the gang does not exclude."""
        return [node for node in place.nodes.values() if node.name not in self._gang.excluded_nodes]

    def _shapes_by_node(self, scope: DomainNode, counts: Vector) -> dict[str, list[Shape]]:
        """Return the shapes of the pods that the counted replicas (and the fixed demands) put on each node."""
        chosen = [demand for i, n in enumerate(counts) for demand in self._open[i][:n]]
        try:
            nodes = self._solution.place(scope, self._solution.sketch(), chosen)
        except SearchLimit:  # the reason is given without it
            return {}
        taken: dict[str, list[Shape]] = {}
        for demand in self._needed:
            for pod in demand.missing:
                if pod.key in nodes:
                    taken.setdefault(nodes[pod.key], []).append(pod.shape)
        return taken

    def _done(self, role: int) -> int:
        """Count the replicas of the role's minimum that are placed, or have all they lack."""
        numbers = minimum_of(self._gang.roles[role])
        return len(numbers) - sum(demand.replica.replica in numbers for demand in self._open[role])

    def _total(self, role: int) -> int:
        """Count the role's minimum and what a set brings in beyond it."""
        return self._done(role) + len(self._open[role])

    def _whole(self, role: int) -> int:
        """Count the replicas of the role's minimum all of whose pods are placed."""
        return sum(replica.placed for replica in minimum_replicas(self._gang.roles[role]))

    def _count_satisfied(self, role: int, count: int) -> int:
        """Count the replicas of the role's minimum that are whole when that many of its open ones find room."""
        lost = {demand.replica.together for demand in self._open[role][count:]} - {None}
        numbers = minimum_of(self._gang.roles[role])
        found = [d for d in self._open[role][:count] if d.replica.replica in numbers]
        return self._done(role) + sum(d.replica.together not in lost for d in found)

    def _bringer(self, role: int) -> int:
        """Return the role of the minimum with which a role outside of it comes along."""
        marks = {demand.replica.together for demand in self._needed if demand.role == role}
        return next(
            d.role for d in self._needed if d.replica.together in marks and self._gang.roles[d.role].minimum > 0
        )

    def _scope_level(self) -> str | None:
        scope = self._solution.problem.structure.scope
        return self._solution.engine.tree.topology.levels[scope].name if scope >= 0 else None

    def _scope_name(self, scope: DomainNode) -> str:
        return f"{self._scope_level()} {where(scope.path)}" if scope.path else "the cluster"

    def _describe_count(self, role: int, best: _Best, fix: str) -> str:
        name = self._gang.roles[role].name
        done = self._done(role) + best.count
        return (
            f"{name}: room for {done} of {self._total(role)} replicas in {self._scope_name(best.scope)}, "
            f"{'the best' if best.scope.path else 'all of it'}{fix}"
        )

    def _asking(self, shapes: Sequence[Shape]) -> str:
        """Describe what each pod asks of the first resource, when all ask the same."""
        first = {min(shape.requests, key=lambda r: resources.rank(r[0])) for shape in shapes}
        name, value = first.pop()
        if first or name == resources.PODS:
            return ""
        return f" with {resources.text(name, value)} {name} each"

    def _reason(
        self,
        role: int,
        scope: str,
        level: str | None,
        path: Path,
        satisfied: int,
        lack: Shortage,
        message: str,
        *,
        told: bool = False,
    ) -> Reason:
        """Make a reason. ``told``: the message is complete as it is."""
        request = self._gang.roles[role]
        excluded = self._exclusions(role)
        if not told:
            message += self._out(excluded)
        if not request.minimum:  # it is not missed for itself, but for the replica that it comes with
            blamed = self._bringer(role)
            message = f"{self._gang.roles[blamed].name} comes together with {request.name}; {message}"
            request, satisfied = self._gang.roles[blamed], self._whole(blamed)
        resource = lack.resource
        return Reason(
            role=request.name,
            scope=scope,
            level=level,
            best_domain=path,
            required=request.minimum,
            satisfied=satisfied,
            resource=resource,
            requested=None if resource is None else resources.text(resource, lack.requested),
            short=None if resource is None else resources.text(resource, lack.short),
            excluded=excluded,
            message=message,
        )

    def _out(self, excluded: Sequence[Exclusion]) -> str:
        """Describe how many nodes are out, as the end of a sentence."""
        if not excluded:
            return ""
        nodes = sum(e.nodes for e in excluded)
        causes = join_names([f"{e.nodes} {e.cause}" for e in excluded[:3]])
        return f"; {nodes} node{'s are' if nodes > 1 else ' is'} out: {causes}"

    def _exclusions(self, role: int) -> tuple[Exclusion, ...]:
        gang, request = self._gang, self._gang.roles[role]
        levels = [level for level in ((gang.required if request.follow_unit else None), request.required) if level]
        shapes = [pod.shape for replica in request.replicas for pod in replica.pods if pod.node is None]
        return exclusions(gang, self._inventory, shapes, levels)


def join_names(names: Sequence[str]) -> str:
    """Join names as people write them one after another."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "the rest"


__all__ = ["explain", "join_names"]
