"""Counts of replicas that fit and of what the rest lacks, for a gang whose minimum fits nowhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from covey.placement.capacity.tables import SearchLimit, Table, Vector
from covey.placement.choice.candidates import Solution
from covey.placement.cluster import resources
from covey.placement.cluster.domains import DomainNode, NodeState
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Path, Shape, natural
from covey.placement.question.demands import Demand, minimum_demands, minimum_of, minimum_replicas
from covey.placement.refusal.nearest_fix import Bench
from covey.placement.refusal.shortage import Shortage
from covey.placement.sharing.layout import Item

#: Domains in which a missing replica is tried for the nearest fix.
TRIED: Final = 8
#: Missing replicas that are counted one by one at least, and pods tried on nodes up to which more are.
_COUNTED: Final = 3
_STEPS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Best:
    """The candidate in which most replicas of a role fit, and how many."""

    scope: DomainNode
    count: int


class Counts:
    """Replicas of one refused gang that fit into each candidate, and what the others lack there."""

    def __init__(
        self,
        gang: Gang,
        inventory: Inventory,
        solution: Solution,
        needed: Sequence[Demand],
    ) -> None:
        self.gang = gang
        self.inventory = inventory
        self.solution = solution
        self.needed = needed
        problem = solution.problem
        self.open = [
            [d for d in needed if d.role == i and (d.role, d.replica.replica) in problem.kinds]
            for i in range(len(gang.roles))
        ]
        self.roles = [i for i, demands in enumerate(self.open) if demands]
        self.kinds = [tuple(problem.kinds[d.role, d.replica.replica] for d in demands) for demands in self.open]
        self.classes = len(problem.structure.classes)
        #: For each role what its first 0, 1, 2 … open replicas are, by class.
        self._first = [self._by_class(kinds) for kinds in self.kinds]
        tables = [(scope, solution.table(scope)) for scope in solution.candidates()]
        self.tables = [(scope, table) for scope, table in tables if table is not None]
        self.tables.sort(key=lambda pair: [natural(value) for value in pair[0].path])
        self._asked_first: dict[int, str] = {}
        self._most_memo: dict[tuple[int, int, Vector], int] = {}
        self._own: dict[str, list[Shape]] = {}
        for pod in (pod for role in gang.roles for replica in role.replicas for pod in replica.pods):
            if pod.node is not None:
                self._own.setdefault(pod.node, []).append(pod.shape)

    def _by_class(self, kinds: Sequence[int]) -> list[list[int]]:
        rows = [[0] * self.classes]
        for kind in kinds:
            rows.append([n + (number == kind) for number, n in enumerate(rows[-1])])
        return rows

    def _fits(self, table: Table, counts: Vector) -> bool:
        rows = [first[n] for first, n in zip(self._first, counts, strict=True)]
        return table.holds([sum(row[kind] for row in rows) for kind in self.solution.order])

    def most(self, table: Table, role: int, others: Vector) -> int:
        """Compute how many replicas of a role fit next to the others; -1 when the others do not fit themselves."""
        key = (table.number, role, others)
        if key not in self._most_memo:
            fits, high = -1, len(self.open[role])  # where there is room for more there is room for less
            while fits < high:
                middle = (fits + high + 1) // 2
                if self._fits(table, (*others[:role], middle, *others[role + 1 :])):
                    fits = middle
                else:
                    high = middle - 1
            self._most_memo[key] = fits
        return self._most_memo[key]

    def best(self, role: int, others: Vector) -> Best:
        """Find the candidate with room for most replicas of a role next to the others, and then for most pods of one more."""
        counts = [(self.most(table, role, others), scope) for scope, table in self.tables]
        most = max(count for count, _ in counts)
        scopes = [scope for count, scope in counts if count == most]
        if len(scopes) > 1 and most < len(self.open[role]):
            placed, depth = self.open[role][: max(most, 0)], self.solution.problem.structure.scope
            ranked = self.rank_domains(self.open[role][max(most, 0)], depth, scopes, placed)
            scopes = [scope for _, scope in ranked] or scopes
        return Best(scopes[0], most)

    def _room(self, scope: DomainNode, role: int) -> int:
        """Return how much is free, on nodes that the role may use, of the first resource that its pods ask for."""
        shape = self.open[role][0].missing[0].shape
        if role not in self._asked_first:
            self._asked_first[role] = min((name for name, _ in shape.requests), key=resources.rank)
        name = self._asked_first[role]
        return sum(node.free.get(name, 0) for node in self._usable(scope) if node.static_cause(shape) is None)

    def shapes(self, item: Item) -> list[Shape]:
        """Return the shapes of the pods that a half placed replica misses."""
        demand = next(d for d in self.needed if (d.role, d.replica.replica) == (item.role, item.replica))
        return [pod.shape for pod in demand.missing]

    def bench_at(self, path: Path) -> Bench:
        """Return the usable nodes of a domain by its path, none where there is no such domain."""
        domain = self.solution.engine.tree.by_path.get(path)
        return self.bench(domain, {}) if domain is not None else Bench((), {})

    def bench(self, place: DomainNode, taken: Mapping[str, Sequence[Shape]]) -> Bench:
        """Return the usable nodes of a domain, with these shapes taken from each."""
        return Bench(self._usable(place), taken, self._own, self.inventory.kept_off)

    def is_only_room(self) -> bool:
        """Tell whether room is all that matters: no rule binds replicas to each other, no level stands inside them."""
        problem, spread = self.solution.problem, self.gang.spread
        if any(kind.parts for kind in problem.structure.classes):
            return False
        return not problem.structure.groups and not problem.wide and (spread is None or not spread.required)

    def settles(self, role: int, scope: DomainNode, lack: Shortage, only: DomainNode | None = None) -> bool:
        """Tell whether the whole minimum lacks no more in a candidate than this role was found to lack."""
        table = next((table for place, table in self.tables if place is scope), None)
        full = tuple(map(len, self.open))
        beside = -1 if table is None else self.most(table, role, full)
        if beside < 0 or not self.is_only_room() or len(self.needed) < len(minimum_demands(self.gang)):
            return False
        if only is not None and len(self.open[role]) - beside > 1:
            return False
        return self.lack(role, scope, (*full[:role], beside, *full[role + 1 :]), only) == lack

    def depth(self, role: int) -> int:
        """The depth that a replica of the role must not straddle."""
        return max(self.solution.problem.structure.classes[kind].depth for kind in self.kinds[role])

    def rank_domains(
        self, demand: Demand, depth: int, scopes: Sequence[DomainNode], placed: Sequence[Demand] = ()
    ) -> list[tuple[int, DomainNode]]:
        """The domains of a depth inside the scopes, by how many of a replica's pods they hold beside ``placed``."""
        engine, view = self.solution.engine, self.solution.problem.view
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
                    for stream in (streams[pod.shape] for other in placed for pod in other.missing):
                        if stream in dimensions:
                            vector[dimensions.index(stream)] += 1
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

    def lack(self, role: int, scope: DomainNode, counts: Vector, only: DomainNode | None = None) -> Shortage:
        """Compute what is missing in a candidate for the role's next replicas when these counts are placed."""
        missing = self.open[role][counts[role] :]
        if not missing:
            return Shortage(None, 0, 0, 0)
        depth = self.depth(role)
        structure = self.solution.problem.structure
        places = [scope]
        if only is not None:
            places = [only]
        elif structure.scope < depth <= structure.bottom:
            places = [domain for _, domain in self.rank_domains(missing[0], depth, [scope])][:TRIED] or [scope]
        taken = self._shapes_by_node(scope, counts)
        benches = [self.bench(place, taken) for place in places]
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
        return [node for node in place.nodes.values() if node.name not in self.gang.excluded_nodes]

    def _shapes_by_node(self, scope: DomainNode, counts: Vector) -> dict[str, list[Shape]]:
        """Return the shapes of the pods that the counted replicas (and the fixed demands) put on each node."""
        chosen = [demand for i, n in enumerate(counts) for demand in self.open[i][:n]]
        try:
            nodes = self.solution.place(scope, self.solution.sketch(), chosen)
        except SearchLimit:  # the reason is given without it
            return {}
        taken: dict[str, list[Shape]] = {}
        for demand in self.needed:
            for pod in demand.missing:
                if pod.key in nodes:
                    taken.setdefault(nodes[pod.key], []).append(pod.shape)
        return taken

    def done(self, role: int) -> int:
        """Count the replicas of the role's minimum that are placed, or have all they lack."""
        numbers = minimum_of(self.gang.roles[role])
        return len(numbers) - sum(demand.replica.replica in numbers for demand in self.open[role])

    def total(self, role: int) -> int:
        """Count the role's minimum and what a set brings in beyond it."""
        return self.done(role) + len(self.open[role])

    def whole(self, role: int) -> int:
        """Count the replicas of the role's minimum all of whose pods are placed."""
        return sum(replica.placed for replica in minimum_replicas(self.gang.roles[role]))

    def count_satisfied(self, role: int, count: int) -> int:
        """Count the replicas of the role's minimum that are whole when that many of its open ones find room."""
        lost = {demand.replica.together for demand in self.open[role][count:]} - {None}
        numbers = minimum_of(self.gang.roles[role])
        counted = [d for d in self.open[role][:count] if d.replica.replica in numbers]
        return self.done(role) + sum(d.replica.together not in lost for d in counted)

    def bringer(self, role: int) -> int:
        """Return the role of the minimum with which a role outside of it comes along."""
        marks = {demand.replica.together for demand in self.needed if demand.role == role}
        return next(d.role for d in self.needed if d.replica.together in marks and self.gang.roles[d.role].minimum > 0)
