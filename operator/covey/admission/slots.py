"""Upper bounds on what nodes hold of a gang's minimum once some holders are gone: pure, and far cheaper than a plan.

A set of steps that fails a bound has no plan, which is proven; one that meets all of them may have one. Bounds are
sums: pods of each shape by node, whole replicas by domain of their own level, and devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

from covey.admission.victims import Offer, Step
from covey.placement.cluster import resources
from covey.placement.cluster.domains import DomainNode, NodeState
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import exclusive, with_terms
from covey.placement.model import Gang, Path, Shape
from covey.placement.question.demands import minimum_demands

#: Of a node or domain: pods of each shape, then units of each resource.
Vector = tuple[int, ...]
#: A domain of a level of replicas: its depth and its path.
Place = tuple[int, Path]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The wants of a minimum: shapes with their counts, resources (name, step, total), and replicas by their level.

    A replica class is a depth, the count of each shape in one replica, and the number of replicas.
    """

    topology: str
    shapes: tuple[Shape, ...]
    need: Vector
    sums: tuple[tuple[str, int], ...]
    classes: tuple[tuple[int, tuple[tuple[int, int], ...], int], ...] = ()
    excluded: Collection[str] = ()
    names: tuple[str, ...] = ()
    #: By node: what it holds while nobody is gone, once it was asked for.
    bases: dict[str, Vector] = field(default_factory=dict, compare=False, repr=False)
    _known: dict[tuple[Vector, tuple[bool, ...]], Vector] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, gang: Gang, inventory: Inventory) -> Wanted:
        """The wants of a gang, of which some pods may are assigned nodes."""
        full = with_terms(gang, inventory.terms)
        topology = inventory.topologies[full.topology]
        demands = minimum_demands(full)
        counts = Counter(pod.shape for demand in demands for pod in demand.missing)
        shapes = tuple(counts)
        asked: dict[str, list[int]] = {}
        for shape, count in counts.items():
            for name, amount in shape.requests:
                if amount > 0 and resources.is_extended(name):
                    asked.setdefault(name, []).extend([amount] * count)
        sums = tuple((name, gcd(*amounts)) for name, amounts in sorted(asked.items()))
        classes: Counter[tuple[int, tuple[tuple[int, int], ...]]] = Counter()
        for demand in demands:
            level = full.roles[demand.role].required
            if level is not None and not demand.partial:
                own = Counter(shapes.index(pod.shape) for pod in demand.missing)
                classes[topology.depth(level), tuple(sorted(own.items()))] += 1
        need = (*counts.values(), *(sum(asked[name]) // unit for name, unit in sums))
        counted = tuple((depth, own, count) for (depth, own), count in classes.items())
        names = sorted({name for shape in shapes for name, amount in shape.requests if amount})
        return cls(full.topology, shapes, need, sums, counted, full.excluded_nodes, tuple(names))

    def base(self, state: NodeState) -> Vector:
        """Count what a node can hold at most while nobody is gone."""
        base = self.bases.get(state.name)
        if base is None:
            base = self.bases[state.name] = self.measure(state, ())
        return base

    def measure(self, state: NodeState, gone: Collection[str]) -> Vector:
        """Count what a node can hold at most, of each by itself, once some holders (``gone``) have freed their room."""
        if state.name in self.excluded:
            return (0,) * len(self.need)
        free = dict(state.free)
        for key in gone:
            for name, amount in state.held[key].shape.requests:
                free[name] = free.get(name, 0) + amount
        have = tuple([max(free.get(name, 0), 0) for name in self.names])
        open_ = tuple(
            [state.static_cause(shape) is None and not _is_blocked(state, shape, gone) for shape in self.shapes]
        )
        counts = self._known.get((have, open_))
        if counts is None:
            counts = self._known[have, open_] = self._count(dict(zip(self.names, have, strict=True)), open_)
        return counts

    def _count(self, have: Mapping[str, int], open_: Sequence[bool]) -> Vector:
        counts: list[int] = []
        asked: set[str] = set()
        for shape, count, is_open in zip(self.shapes, self.need, open_, strict=False):
            most = min([count, *(have[name] // amount for name, amount in shape.requests if amount)]) if is_open else 0
            counts.append(min(most, 1) if exclusive(shape) else most)
            asked.update(name for name, _ in shape.requests if most)
        counts += [have[name] // unit if name in asked else 0 for name, unit in self.sums]
        return tuple(counts)


def _is_blocked(state: NodeState, shape: Shape, gone: Collection[str]) -> bool:
    return bool(state.guards or shape.anti_affinity) and state.conflict(shape, without=gone) is not None


@dataclass(slots=True)
class Ground:
    """Some steps in a domain, numbered; sets of them are bits of an integer.

    Args:
        wanted: what is to be placed.
        domain: where.
        inventory: the holders.
        offers: of the units whose steps these are.
        steps: those that are looked at.
    """

    wanted: Wanted
    domain: DomainNode
    inventory: Inventory
    offers: Mapping[object, Offer]
    steps: Sequence[Step]
    #: By node: the keys of each step that hold there.
    on: dict[str, list[tuple[int, tuple[str, ...]]]] = field(init=False)
    nodes: list[tuple[str, ...]] = field(init=False)
    closed: list[bool] = field(init=False)
    _masks: dict[str, int] = field(init=False)
    _known: dict[tuple[str, int], Vector] = field(init=False)
    _allowed: dict[int, bool] = field(init=False)
    #: The set that was looked at last, and all that the domain holds at most without it.
    _last: tuple[int, list[int]] = field(init=False)
    _below: dict[Place, list[int]] = field(init=False)
    _inside: dict[Place, list[str]] = field(init=False)
    _whole: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        base = [0] * len(self.wanted.need)
        self._below = {}
        for state in self.domain.nodes.values():
            vector = self.wanted.base(state)
            for index, value in enumerate(vector):
                base[index] += value
            for place in self.places(state.name):
                sums = self._below.setdefault(place, [0] * len(vector))
                for index, value in enumerate(vector):
                    sums[index] += value
        self.on, self.nodes, self.closed, self._known = {}, [], [], {}
        self._allowed, self._last = {}, (0, base)
        for number, step in enumerate(self.steps):
            at: dict[str, list[str]] = {}
            for key in step.keys:
                held = self.inventory.hold_of(key)
                if held is not None:
                    at.setdefault(held[0], []).append(key)
            inside = {name: keys for name, keys in at.items() if name in self.domain.nodes}
            for name, keys in inside.items():
                self.on.setdefault(name, []).append((number, tuple(keys)))
            self.nodes.append(tuple(inside))
            self.closed.append(len(inside) == len(at))
        self._whole, self._inside = {}, {}
        for name in self.on:
            for place in self.places(name):
                self._inside.setdefault(place, []).append(name)
        for place in self._below:
            self._inside.setdefault(place, [])
        self._masks = {name: sum(1 << number for number, _ in numbered) for name, numbered in self.on.items()}

    @property
    def all(self) -> int:
        """Every step."""
        return (1 << len(self.steps)) - 1

    def bits(self, mask: int) -> Iterator[int]:
        """The numbers of the steps of a set."""
        while mask:
            low = mask & -mask
            yield low.bit_length() - 1
            mask ^= low

    def steps_of(self, mask: int) -> list[Step]:
        """The steps of a set."""
        return [self.steps[number] for number in self.bits(mask)]

    def is_closed(self, mask: int) -> bool:
        """Tell whether these steps free room in this domain only."""
        return all(self.closed[number] for number in self.bits(mask))

    def allows(self, mask: int) -> bool:
        """Tell whether these steps may be taken together: no replica of a unit that goes whole, and none of a minimum."""
        allowed = self._allowed.get(mask)
        if allowed is None:
            units: dict[object, list[Step]] = {}
            for step in self.steps_of(mask):
                units.setdefault(step.unit, []).append(step)
            allowed = self._allowed[mask] = all(
                (len(steps) == 1 and steps[0].kind == "Unit")
                or (all(step.kind != "Unit" for step in steps) and self.offers[unit].allows(steps))
                for unit, steps in units.items()
            )
        return allowed

    def lacks(self, mask: int) -> list[int]:
        """The least that the domain is short of once these steps are gone; nothing is below zero."""
        before, sums = self._last  # sets follow one another that differ by a few steps
        for name in self._nodes_of(mask ^ before):
            for index, (new, old) in enumerate(zip(self.vector(name, mask), self.vector(name, before), strict=True)):
                sums[index] += new - old
        self._last = mask, sums
        return [max(want - have, 0) for want, have in zip(self.wanted.need, sums, strict=True)]

    def fits(self, mask: int) -> bool:
        """Tell whether no bound forbids a plan once these steps are gone."""
        return not any(self.lacks(mask)) and all(
            self.replicas(mask, number) >= wanted[2] for number, wanted in enumerate(self.wanted.classes)
        )

    def replicas(self, mask: int, number: int) -> int:
        """Count the whole replicas of a class that the domain holds at most."""
        depth, _, count = self.wanted.classes[number]
        if depth <= self.domain.depth:
            return count
        whole = self._whole.get(number)
        if whole is None:
            whole = sum(self.replicas_in(place, 0, number) for place in self._below if place[0] == depth)
            self._whole[number] = whole
        places = {place for name in self._nodes_of(mask) for place in self.places(name) if place[0] == depth}
        return whole + sum(
            self.replicas_in(inner, mask, number) - self.replicas_in(inner, 0, number) for inner in places
        )

    def replicas_in(self, place: Place, mask: int, number: int) -> int:
        """Count the whole replicas of a class that a domain of its level holds at most."""
        sums = list(self._below[place])
        for name in self._inside[place] if mask else ():
            vector, before = self.vector(name, mask), self.wanted.bases[name]
            if vector is not before:
                sums = [have + new - old for have, new, old in zip(sums, vector, before, strict=True)]
        return min(sums[shape] // pods for shape, pods in self.wanted.classes[number][1])

    def vector(self, name: str, mask: int) -> Vector:
        """Count what a node holds at most once these steps are gone."""
        here = mask & self._masks.get(name, 0)
        if not here:
            return self.wanted.bases[name]
        vector = self._known.get((name, here))
        if vector is None:
            gone = {key for number, keys in self.on[name] if here >> number & 1 for key in keys}
            vector = self.wanted.measure(self.domain.nodes[name], gone)
            self._known[name, here] = vector
        return vector

    def _nodes_of(self, mask: int) -> Iterable[str]:
        return {name for number in self.bits(mask) for name in self.nodes[number]}

    def places(self, name: str) -> Iterator[Place]:
        """The domains of the replicas' levels that a node lies in, below this one."""
        path = self.domain.nodes[name].leaves[self.wanted.topology].path
        for depth in {depth for depth, _, _ in self.wanted.classes if depth > self.domain.depth}:
            if path[depth] is not None:
                yield depth, path[: depth + 1]
