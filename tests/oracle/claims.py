"""Claims: random clusters full of units, and the least that must give way there, as an integer programme.

The programme is the planner's question (``cpsat``) with a boolean for each step that may be taken; what may be is
worked out here from the plain records of a case, not by the product.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ortools.sat.python import cp_model

from builders.victims import NOW, ordinary, serving
from covey.admission.ordinary import OrdinaryPod
from covey.admission.victims import Candidate
from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang
from oracle import facts
from oracle.build import TOPOLOGY, role
from oracle.case import Case, Hold
from oracle.cpsat import _Programme
from oracle.written import GPU, node, shape

MIN_RUN = 600.0


@dataclass(frozen=True)
class Replica:
    """A replica of a unit: the nodes of its pods, seconds of service, and its state."""

    nodes: tuple[str, ...]
    served: float
    ready: bool = True
    draining: bool = False


@dataclass(frozen=True)
class Owned:
    """A unit that holds nodes; each of its pods has so many GPUs."""

    name: str
    priority: int
    gpus: int
    roles: dict[str, tuple[int, tuple[Replica, ...]]]
    #: A pod of no gang: one replica that no minimum needs, and nothing to go whole.
    is_ordinary: bool = False

    def pod(self, role: str, replica: int, index: int) -> str:
        """The UID of a pod."""
        return f"uid-{self.name}-{role}-{replica}-{index}"

    def candidate(self) -> Candidate:
        """The unit as the product sees it."""
        found = [(role, n, each) for role, (_, all_) in self.roles.items() for n, each in enumerate(all_)]
        return serving(
            self.name,
            {
                role: (minimum, [list(each.nodes) for each in replicas])
                for role, (minimum, replicas) in self.roles.items()
            },
            priority=self.priority,
            gpus=self.gpus,
            served={(role, number): each.served for role, number, each in found},
            unready=[(role, number) for role, number, each in found if not each.ready],
            draining=[(role, number) for role, number, each in found if each.draining],
        )


@dataclass(frozen=True)
class ClaimCase:
    """A gang that waits, nodes, and units that hold them."""

    gang: Gang
    nodes: tuple[core.Node, ...]
    units: tuple[Owned, ...]
    candidates: tuple[Candidate, ...] = field(default=())
    ordinary: tuple[OrdinaryPod, ...] = field(default=())

    def inventory(self) -> Inventory:
        """The planner's view."""
        return Case(self.gang, TOPOLOGY, self.nodes, tuple(self.holds())).inventory()

    def holds(self) -> Iterator[Hold]:
        """What the units hold."""
        for unit in self.units:
            for name, (_, replicas) in unit.roles.items():
                for number, replica in enumerate(replicas):
                    for index, place in enumerate(replica.nodes):
                        body = shape(unit.gpus)
                        yield Hold(unit.pod(name, number, index), place, body)

    def leaving(self) -> frozenset[str]:
        """UIDs of the pods that drain."""
        return frozenset(
            unit.pod(name, number, index)
            for unit in self.units
            for name, (_, replicas) in unit.roles.items()
            for number, replica in enumerate(replicas)
            if replica.draining
            for index in range(len(replica.nodes))
        )


def draw(seed: int, *, with_ordinary: bool = False) -> ClaimCase:
    """A random case of at most 40 nodes; the same one with ordinary pods in what is left of them."""
    source = random.Random(seed)
    per_rack = source.randint(2, 8)
    racks = source.randint(1, min(6, 40 // per_rack))
    nodes = tuple(
        node(
            f"r{rack}-n{number}",
            {"example.com/block": f"b{rack // 2}", "example.com/rack": f"r{rack}"},
            gpus=source.choice((8, 8, 8, 8, 4)),
        )
        for rack in range(racks)
        for number in range(per_rack)
    )
    left = {each.metadata.name: int(str((each.status.allocatable or {})[GPU])) for each in nodes}
    units: list[Owned] = []
    most = source.choice((6, 12, 40))
    for number in range(most):
        found = _unit(source, f"u{number}", left)
        if found is not None:
            units.append(found)
    gang = _gang(source, per_rack)
    candidates = tuple(each.candidate() for each in units)
    pods = list(_ordinary(source, left)) if with_ordinary else []
    owned = (*units, *(each for each, _ in pods))
    return ClaimCase(gang, nodes, owned, candidates, tuple(pod for _, pod in pods))


def _ordinary(source: random.Random, left: dict[str, int]) -> Iterator[tuple[Owned, OrdinaryPod]]:
    for number in range(source.choice((4, 12, 30))):
        gpus = source.choice((1, 2, 4, 8))
        open_ = [home for home in left if left[home] >= gpus]
        if open_:
            place, served = source.choice(open_), source.choice((30.0, 700.0, 5000.0))
            left[place] -= gpus
            owned = Owned(
                f"p{number}",
                source.choice((0, 5, 7, 10)),
                gpus,
                {"pod": (0, (Replica((place,), served),))},
                is_ordinary=True,
            )
            pod = ordinary(
                owned.name, place, gpus=gpus, priority=owned.priority, served=served, uid=owned.pod("pod", 0, 0)
            )
            if owned.priority < 10:
                yield owned, OrdinaryPod(pod)


def _unit(source: random.Random, name: str, left: dict[str, int]) -> Owned | None:
    gpus = source.choice((1, 2, 4, 4, 8, 8))
    roles: dict[str, tuple[int, tuple[Replica, ...]]] = {}
    homes = source.sample(sorted(left), min(len(left), source.choice((2, 4, 40))))
    for role_name in ("prefill", "decode")[: source.choice((1, 1, 2))]:
        size = source.choice((1, 1, 1, 2, 3))
        minimum = source.randint(1, 2)
        replicas: list[Replica] = []
        for _ in range(minimum + source.choice((0, 0, 1, 2, 3))):
            places: list[str] = []
            for _ in range(size):
                open_ = [home for home in homes if left[home] >= gpus]
                if not open_:
                    break
                places.append(source.choice(open_))
                left[places[-1]] -= gpus
            if len(places) < size:
                for place in places:
                    left[place] += gpus
                break
            draining = source.random() < 0.04
            served = source.choice((30.0, 700.0, 1300.0, 5000.0, 90000.0, 4000.0))
            replicas.append(Replica(tuple(places), served, source.random() < 0.9, draining))
        if len(replicas) < minimum:
            for replica in replicas:
                for place in replica.nodes:
                    left[place] += gpus
            break
        roles[role_name] = (minimum, tuple(replicas))
    return Owned(name, source.choice((0, 0, 5, 5, 7, 10)), gpus, roles) if roles else None


def _gang(source: random.Random, per_rack: int) -> Gang:
    roles = []
    required = source.choice((None, "rack", "rack", "block"))
    for name in ("first", "second")[: source.choice((1, 1, 2))]:
        size = source.choice((1, 1, 2, 3))
        count = source.randint(1, max(1, per_rack // size))
        wants = shape(source.choice((2, 4, 8, 8)))
        level = source.choice((None, None, "rack"))
        desired = count + source.choice((0, 0, 2))
        roles.append(role(name, size=size, minimum=count, desired=desired, wants=wants, required=level))
    return Gang("default", "gang", 0, tuple(roles), TOPOLOGY.name, required=required, priority=10, uid="gang")


#: Highest priority, whole units, replicas, devices, devices times minutes.
Cost = tuple[int, int, int, int, int]


def least(case: ClaimCase, *, effort: float = 8.0, longest: float = 1800.0) -> Cost | str | None:
    """The lowest cost of what must give way: None where nothing helps, ``fits`` where nobody needs to."""
    free = Case(case.gang, TOPOLOGY, case.nodes, tuple(h for h in case.holds() if h.key not in case.leaving()))
    programme = _Claims(free, case, longest)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = effort
    values: list[int] = []
    for number, expression in enumerate(programme.objective()):
        programme.model.minimize(expression)
        status = solver.solve(programme.model)
        if status == cp_model.INFEASIBLE:
            return None
        if status != cp_model.OPTIMAL:
            return "unknown"
        values.append(round(solver.objective_value))
        programme.model.add(expression == values[-1])
        if number == 0 and values[0] == 0:
            return "fits"
    return (programme.priorities[values[0] - 1], values[1], values[2], values[3], values[4])


@dataclass(frozen=True)
class _Step:
    unit: Owned
    whole: bool
    keys: frozenset[str]
    served: float

    @property
    def devices(self) -> int:
        return self.unit.gpus * len(self.keys)


class _Claims(_Programme):
    """The programme in which steps may be taken."""

    def __init__(self, free: Case, case: ClaimCase, longest: float) -> None:
        self._longest = longest
        self._held = free
        self._steps = [step for unit in case.units if unit.priority < case.gang.priority for step in _steps_of(unit)]
        stays = Case(free.gang, free.topology, free.nodes, tuple(h for h in free.holds if not self._may_go(h.key)))
        super().__init__(stays, surplus=False)

    def _may_go(self, key: str) -> bool:
        return any(key in step.keys for step in self._steps)

    def _capacity(self) -> None:
        self._taken = [self.model.new_bool_var("") for _ in self._steps]
        self._limits()
        gone: dict[str, list[tuple[cp_model.IntVar, int]]] = defaultdict(list)
        on: Counter[str] = Counter()
        for hold in self._held.holds:
            if self._may_go(hold.key):
                amount = dict(hold.shape.requests).get(GPU, 0)
                on[hold.node] += amount
                for step, taken in zip(self._steps, self._taken, strict=True):
                    if hold.key in step.keys:
                        gone[hold.node].append((taken, amount))
        asked: dict[str, list[cp_model.LinearExprT]] = defaultdict(list)
        for (_, kind, place), count in self.pods.items():
            asked[place].append(dict(self.bodies[kind].shape.requests).get(GPU, 0) * count)
        for place, amounts in asked.items():
            room = facts.free(self.case, place).get(GPU, 0) - on[place]
            self.model.add(sum(amounts) <= room + sum(amount * taken for taken, amount in gone[place]))

    def _limits(self) -> None:
        by_unit: dict[str, list[int]] = defaultdict(list)
        for number, step in enumerate(self._steps):
            by_unit[step.unit.name].append(number)
        for numbers in by_unit.values():
            unit = self._steps[numbers[0]].unit
            whole = [self._taken[n] for n in numbers if self._steps[n].whole]
            own = [n for n in numbers if not self._steps[n].whole]
            for number in own:
                for taken in whole:
                    self.model.add(taken + self._taken[number] <= 1)
            for name, (minimum, replicas) in unit.roles.items():
                here = [
                    (n, number)
                    for n in own
                    for number in range(len(replicas))
                    if _is(self._steps[n], unit, name, number)
                ]
                staying = [each for each in replicas if not each.draining]
                ready = sum(each.ready for each in staying)
                self.model.add(sum(self._taken[n] for n, _ in here) <= max(len(staying) - minimum, 0))
                serving_ones = [self._taken[n] for n, number in here if replicas[number].ready]
                self.model.add(sum(serving_ones) <= max(ready - minimum, 0))

    def objective(self) -> Sequence[cp_model.LinearExprT]:
        self.priorities = sorted({step.unit.priority for step in self._steps})
        rank = self.model.new_int_var(0, len(self.priorities), "")
        for step, taken in zip(self._steps, self._taken, strict=True):
            self.model.add(rank >= self.priorities.index(step.unit.priority) + 1).only_enforce_if(taken)
        pairs = list(zip(self._steps, self._taken, strict=True))
        return (
            rank,
            sum(taken for step, taken in pairs if step.whole),
            sum(taken for step, taken in pairs if not step.whole),
            sum(step.devices * taken for step, taken in pairs),
            sum(step.devices * int(min(step.served, self._longest) // 60) * taken for step, taken in pairs),
        )


def _is(step: _Step, unit: Owned, role_name: str, number: int) -> bool:
    return not step.whole and unit.pod(role_name, number, 0) in step.keys


def _steps_of(unit: Owned) -> Iterator[_Step]:
    keys: set[str] = set()
    spared, longest = False, 0.0
    for name, (minimum, replicas) in unit.roles.items():
        staying = [(number, each) for number, each in enumerate(replicas) if not each.draining]
        old = [each for _, each in staying if each.served >= MIN_RUN]
        spared = spared or len(old) < min(minimum, len(staying))
        for number, each in staying:
            own = frozenset(unit.pod(name, number, index) for index in range(len(each.nodes)))
            keys |= own
            longest = max(longest, each.served)
            if each.served >= MIN_RUN and len(staying) > minimum:
                yield _Step(unit, whole=False, keys=own, served=each.served)
    if keys and not spared and not unit.is_ordinary:
        yield _Step(unit, whole=True, keys=frozenset(keys), served=longest)


__all__ = ["NOW", "ClaimCase", "Cost", "draw", "least"]
