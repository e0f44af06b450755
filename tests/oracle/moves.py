"""Consolidation: random clusters of replicas, and the fewest moves that free a rack or start a gang.

The programme looks at the end alone, not at the order of moves, so it never says more than the truth.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass

from ortools.sat.python import cp_model

from builders.victims import hold, serving
from covey.admission.defrag import Mobile
from covey.admission.gangs import Surroundings, build_gang
from covey.admission.taken_room import counted_shape
from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang
from oracle.build import TOPOLOGY, role
from oracle.written import node, shape


@dataclass(frozen=True)
class Replica:
    """A replica of a unit: the nodes of its pods, and its GPUs in each."""

    unit: str
    gpus: int
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class MoveCase:
    """Nodes with their racks and free GPUs, replicas on them, ordinary pods, and a gang that wants a rack (count, GPUs)."""

    racks: dict[str, str]
    gpus: int
    replicas: tuple[Replica, ...]
    strangers: dict[str, int]
    wants: tuple[int, int]

    def nodes(self) -> list[core.Node]:
        """The nodes."""
        labels = {name: {"example.com/block": "b0", "example.com/rack": rack} for name, rack in self.racks.items()}
        return [node(name, labels[name], gpus=self.gpus) for name in self.racks]

    def mobiles(self) -> list[Mobile]:
        """The units as the product sees them."""
        found: dict[str, list[Replica]] = defaultdict(list)
        for each in self.replicas:
            found[each.unit].append(each)
        return [self._mobile(name, own) for name, own in found.items()]

    def _mobile(self, name: str, own: list[Replica]) -> Mobile:
        made = serving(name, {"w": (max(1, len(own) - 1), [list(each.nodes) for each in own])}, gpus=own[0].gpus)
        return Mobile(made, build_gang(made.unit, TOPOLOGY, counted_shape, Surroundings()))

    def gang(self) -> Gang:
        """The gang that waits."""
        count, gpus = self.wants
        wanted = role("w", minimum=count, wants=shape(gpus))
        return Gang("default", "gang", 0, (wanted,), TOPOLOGY.name, required="rack", uid="gang")

    def inventory(self) -> Inventory:
        """The planner's view."""
        found = Inventory([TOPOLOGY])
        for each in self.nodes():
            found.set_node(each)
        for name, gpus in self.strangers.items():
            found.hold(f"stranger-{name}", name, shape(gpus))
        return hold(found, *(each.candidate for each in self.mobiles()))


def draw(seed: int) -> MoveCase:
    """A random case of at most 20 nodes."""
    source = random.Random(seed)
    gpus, per_rack = 8, source.randint(2, 4)
    racks = {f"r{r}-n{n}": f"r{r}" for r in range(source.randint(2, 5)) for n in range(per_rack)}
    left = dict.fromkeys(racks, gpus)
    strangers: dict[str, int] = {}
    for name in source.sample(sorted(racks), source.choice((0, 0, 1, 2))):
        strangers[name] = source.choice((1, 8))
        left[name] -= strangers[name]
    replicas: list[Replica] = []
    for number in range(source.choice((2, 4, 7))):
        wants, size = source.choice((1, 2, 4, 8)), source.choice((1, 1, 2))
        for _ in range(source.randint(1, 3)):
            open_ = [name for name in racks if left[name] >= wants]
            if len(open_) >= size:
                places = tuple(source.sample(open_, size))
                replicas.append(Replica(f"u{number}", wants, places))
                for name in places:
                    left[name] -= wants
    return MoveCase(racks, gpus, tuple(replicas), strangers, (source.randint(1, per_rack), source.choice((4, 8))))


def fewest(case: MoveCase, *, start: bool, effort: float = 0.5) -> int | str | None:
    """The fewest moves after which the gang has its places, or a rack is free; None where none do, or ``unknown``."""
    model = cp_model.CpModel()
    used: dict[str, list[cp_model.LinearExprT]] = {name: [case.strangers.get(name, 0)] for name in case.racks}
    moved = []
    chosen = {rack: model.new_bool_var("") for rack in sorted(set(case.racks.values()))}
    model.add_exactly_one(chosen.values())
    for each in case.replicas:
        moves = model.new_bool_var("")
        moved.append(moves)
        new = {name: model.new_int_var(0, len(each.nodes), "") for name in case.racks}
        model.add(sum(new.values()) == len(each.nodes))
        for name, count in new.items():
            model.add(count == each.nodes.count(name)).only_enforce_if(~moves)
            used[name].append(count * each.gpus)
    count, gpus = case.wants
    for rack, mark in chosen.items():
        inside = [name for name in case.racks if case.racks[name] == rack]
        if not start:
            for name in inside:
                model.add(sum(used[name]) == 0).only_enforce_if(mark)
            continue
        mine = {name: model.new_int_var(0, count, "") for name in inside}
        model.add(sum(mine.values()) == count).only_enforce_if(mark)
        model.add(sum(mine.values()) == 0).only_enforce_if(~mark)
        for name in inside:
            used[name].append(mine[name] * gpus)
    for name in case.racks:
        model.add(sum(used[name]) <= case.gpus)
    model.minimize(sum(moved))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = effort
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.INFEASIBLE):
        return "unknown"
    return round(solver.objective_value) if status == cp_model.OPTIMAL else None
