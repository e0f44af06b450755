"""From numbers to nodes: which domain, and which node in it, takes how much.

The tables say what fits; here a demand that fits is shared out on the way down, at the lowest price: fewest domains
first (coarse before fine, hosts not counted), then fewest wholly free domains broken into, then the tightest fit.
A domain that the gang lies in already costs nothing more. Hosts are chosen last, inside each bottom domain: broken
ones before wholly free ones, the tightest first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from math import prod
from typing import Any, Final

import numpy as np

from covey.placement.chain import Chain
from covey.placement.cover import NO_WAY, Cover, Offer, Points, clip
from covey.placement.domains import DomainNode
from covey.placement.engine import Engine, Entry, View
from covey.placement.inventory import NodeState
from covey.placement.model import Path
from covey.placement.resources import CPU, ORDINARY
from covey.placement.tables import Budget, Table, Vector

#: Cells of a price list beyond which a domain is priced as if it had no finer domains inside.
_PRICE_CELLS: Final = 4096
#: Bits of a price.
_PRICE_BITS: Final = 60
#: Points times cells beyond which a demand is shared out without prices.
_COVER_CELLS: Final = 8_000_000
#: Cells of the lists of points that are remembered.
_POINTS: Final = 2_000_000

Place = DomainNode | NodeState


@dataclass(frozen=True, slots=True)
class Item:
    """A replica to be placed: its missing pods by stream, each named by its key, by ascending index."""

    role: int
    replica: int
    kind: int
    pods: tuple[tuple[str, ...], ...]


class Prices:
    """What using a domain or a node costs, packed into one integer so that the earlier aim always wins."""

    def __init__(self, engine: Engine, used: Collection[Path], pods: int, counted: range) -> None:
        names = {name for s in engine.structure.streams for name, _ in s.shape.requests}
        self._scarce = tuple(sorted(names - ORDINARY)) or (CPU,)
        self.used = frozenset(used)
        whole = max(1, sum(max(engine.tree.root.free.get(name, 0), 0) for name in self._scarce))
        #: Where the number of a depth's domains stands in a price, and the number of those broken into.
        self._number: dict[int, int] = {}
        self._broken: dict[int, int] = {}
        bits = {depth: min(pods, engine.tree.counts[depth]).bit_length() for depth in counted}
        taken = 2 * sum(bits.values())
        #: Tightness is told as exactly as there are bits left for it.
        self._coarse = max(0, whole.bit_length() - (_PRICE_BITS - taken))
        position = max(whole.bit_length() - self._coarse, 1)
        for places in (self._broken, self._number):
            self.number_shift = position
            for depth in reversed(counted):
                places[depth] = 1 << position
                position += bits[depth]
        #: Prices are comparable only when they are packed alike.
        self.packing = (self._coarse, tuple(self._broken.items()), tuple(self._number.items()))
        self._finest = counted[-1] if counted else None
        self._node_broken = 1 << whole.bit_length()

    def free(self, place: Place) -> int:
        """What is free of the gang's scarce resources (its devices, else cpu)."""
        free = place.free
        if len(self._scarce) == 1:
            return max(0, free.get(self._scarce[0], 0))
        return max(0, sum(free.get(name, 0) for name in self._scarce))

    def domain(self, domain: DomainNode) -> int:
        """The price of putting anything into a domain."""
        number = self._number.get(domain.depth)
        if number is None or domain.path in self.used:
            return 0
        price = number + self._broken[domain.depth] if domain.broken == 0 else number
        # Tightness is that of the finest domains alone.
        return price + (self.free(domain) >> self._coarse) if domain.depth == self._finest else price

    def node(self, node: NodeState) -> int:
        """The price of putting anything onto a node."""
        return (self._node_broken if node.in_use == 0 else 0) + self.free(node)


class Layout:
    """Shares out a demand inside one candidate domain after another; one object for each plan."""

    def __init__(self, engine: Engine, view: View, prices: Prices, counted: range) -> None:
        self.engine = engine
        self.view = view
        self.prices = prices
        self._deepest = counted[-1] if counted else engine.structure.scope
        self._covers: dict[tuple[Path, Vector], Cover[Place] | Chain[Place]] = {}

    def price(self, scope: DomainNode, target: Vector) -> int:
        """The lowest price of a target (whole replicas by class of the scope's frame) in a candidate domain."""
        if scope.depth >= self._deepest:
            return 0
        alone = scope.path not in self.view.touched and not self.prices.used
        known = self.engine.priced.get(scope.path)
        key = (scope.version, target, self.prices.packing)
        if alone and known is not None and known[0] == key:
            return known[1]
        cover = self._cover(scope, self._below(scope, target))
        price = min(cover.price(cover.need, mask) for mask in cover.masks)
        if alone:
            self.engine.priced[scope.path] = (key, price)
        return price

    def place(
        self, scope: DomainNode, target: Vector, items: Mapping[int, list[Item]], fixed: Mapping[Path, list[Item]]
    ) -> dict[str, str]:
        """The node of every pod.

        Args:
            scope: the candidate domain.
            target: how many replicas of each class, in the order of the scope's frame.
            items: the replicas of each class, those to be placed first first.
            fixed: the half placed replicas by the domain that their missing pods must go to.
        """
        streams = len(self.engine.structure.streams)
        dimensions = self.engine.frames[scope.depth].dimensions
        hands: dict[int, list[Any]] = {
            d: items.get(d - streams, [])[:n] for d, n in zip(dimensions, target, strict=True)
        }
        nodes: dict[str, str] = {}
        self._down(scope, target, None, hands, fixed, nodes)
        return nodes

    def _down(
        self,
        domain: DomainNode,
        vector: Vector,
        mask: int | None,
        hands: dict[int, list[Any]],
        fixed: Mapping[Path, list[Item]],
        nodes: dict[str, str],
    ) -> None:
        need = self._below(domain, vector)
        below = self.engine.frames[domain.depth + 1].dimensions
        hands = self._open(hands, fixed.get(domain.path, ()), below)
        cover = self._cover(domain, need)
        if mask is None:
            mask = min(cover.masks, key=lambda m: (cover.price(need, m), m))
        else:
            mask &= ~self._groups_at(domain.depth)
        taken, visited = [0] * len(below), set()
        for share in sorted(cover.shares(need, mask), key=lambda s: order(s.child)):
            part: dict[int, list[Any]] = {}
            for axis, dimension in enumerate(below):
                start = taken[axis]
                taken[axis] += share.vector[axis]
                part[dimension] = hands[dimension][start : taken[axis]]
            if isinstance(share.child, DomainNode):
                visited.add(share.child.path)
                self._down(share.child, share.vector, share.mask, part, fixed, nodes)
            else:
                nodes.update((pod, share.child.name) for pods in part.values() for pod in pods)

        if fixed and domain.depth < self.engine.structure.bottom:
            for child in domain.children.values():  # a mandatory part may lie where nothing else goes
                if child.path not in visited and any(path[: len(child.path)] == child.path for path in fixed):
                    self._down(child, (0,) * len(below), 0, {d: [] for d in below}, fixed, nodes)

    def _open(self, hands: dict[int, list[Any]], fixed: Collection[Item], below: Vector) -> dict[int, list[Any]]:
        """Take replicas apart into pods where their class is no longer counted as a whole."""
        streams = len(self.engine.structure.streams)
        opened: dict[int, list[Any]] = {dimension: [] for dimension in below}
        whole = [item for dimension, held in hands.items() if dimension not in opened for item in held]
        for item in (*fixed, *sorted(whole, key=lambda item: (item.role, item.replica))):
            for stream, pods in enumerate(item.pods):
                if pods:
                    opened[stream].extend(pods)
        for dimension, held in hands.items():
            if dimension in opened:
                opened[dimension] = held if dimension >= streams else opened[dimension] + held
        return opened

    def _below(self, domain: DomainNode, vector: Vector) -> Vector:
        """A domain's vector in the units of its children, mandatory pods included."""
        need = np.array(vector) @ self.engine.takes(domain.depth)
        demand = self.view.mandatory.get(domain.path)
        if demand is not None:
            need = need + np.array(self.engine.demand(domain.depth + 1, demand))
        return tuple(need.tolist())

    def _groups_at(self, depth: int) -> int:
        return sum(1 << group for group, at in enumerate(self.engine.structure.groups) if at == depth)

    def _cover(self, domain: DomainNode, need: Vector) -> Cover[Place] | Chain[Place]:
        key = (domain.path, need)
        found = self._covers.get(key)
        if found is None:
            children = [(child, entry) for child, entry in self.engine.children(domain, self.view) if entry.number != 0]
            children = self._cheapest(children, sum(need))
            points = sum(len(table.points) for _, entry in children for table in entry.tables.values())
            if points * prod(n + 1 for n in need) > _COVER_CELLS:
                frame = self.engine.frames[domain.depth + 1]
                found = Chain(need, children, frame, self.engine.budget)
            else:
                offers = [self._offer(child, entry, need) for child, entry in children]
                found = Cover(need, offers, self.engine.budget)
            self._covers[key] = found
        return found

    def _cheapest(self, children: list[tuple[Place, Entry]], most: int) -> list[tuple[Place, Entry]]:
        """Of children that offer the same the cheapest, no more than could be used; cheap ones first."""
        priced = sorted(children, key=lambda pair: (self._own(pair[0]), order(pair[0])))
        if self._deep(priced) or any(
            isinstance(child, DomainNode) and child.path in self.view.touched for child, _ in priced
        ):
            return priced
        seen: dict[int, count[int]] = {}
        return [pair for pair in priced if next(seen.setdefault(pair[1].number, count())) < most]

    def _deep(self, children: list[tuple[Place, Entry]]) -> bool:
        """Whether the children have priced domains inside."""
        return bool(children) and isinstance(children[0][0], DomainNode) and children[0][0].depth < self._deepest

    def _own(self, place: Place) -> int:
        return self.prices.domain(place) if isinstance(place, DomainNode) else self.prices.node(place)

    def _offer(self, child: Place, entry: Entry, need: Vector) -> Offer[Place]:
        own = self._own(child)
        points: dict[int, tuple[Points, Any]] = {}
        for mask, table in entry.tables.items():
            priced = None
            if isinstance(child, DomainNode) and child.depth < self._deepest:
                priced = self._price_list(child, table, mask, need, own)
            if priced is None:
                flat = self._flat(child, table, need)
                priced = (flat, np.full(len(flat.rows), own, dtype=np.int64))
            points[mask] = priced
        return Offer(child, points)

    def _flat(self, child: Place, table: Table, need: Vector) -> Points:
        """The largest vectors that a child takes of a need; remembered, as equal tables come again and again."""
        depth = child.depth if isinstance(child, DomainNode) else self.engine.structure.bottom + 1
        key = (depth, table.number, need)
        found = self.engine.points.get(key)
        if found is None:
            found = Points(clip(table.points, need), need)
            self.engine.points_size += found.rest.size
            if self.engine.points_size > _POINTS:
                self.engine.points.clear()
                self.engine.points_size = found.rest.size
            self.engine.points[key] = found
        return found

    def _price_list(
        self, child: DomainNode, table: Table, mask: int, need: Vector, own: int
    ) -> tuple[Points, Any] | None:
        """Points of a domain with finer domains inside, each at its own price; None when the list would be long."""
        box = tuple(map(min, table.extent, need))
        volume = int(np.prod([n + 1 for n in box], dtype=np.int64))
        below = self._below(child, box)
        if volume > _PRICE_CELLS or np.prod([n + 1 for n in below], dtype=np.int64) > _PRICE_CELLS:
            return None
        cells = np.indices([n + 1 for n in box]).reshape(len(box), -1).T
        inside = table.hold(cells)
        demand = self.view.mandatory.get(child.path)
        needs = cells @ self.engine.takes(child.depth)
        if demand is not None:
            needs = needs + np.array(self.engine.demand(child.depth + 1, demand))
        cover = self._cover(child, below)
        if isinstance(cover, Chain):
            return None
        inner = cover.prices(needs, mask & ~self._groups_at(child.depth))
        prices = np.where(inside, inner, NO_WAY)
        keep = (prices < NO_WAY) & cells.any(axis=1)
        grid = prices.reshape([n + 1 for n in box])
        for axis in range(len(box)):  # a larger vector at no higher price makes the smaller one superfluous
            larger = np.full_like(grid, NO_WAY)
            larger[(*(slice(None),) * axis, slice(0, -1))] = grid[(*(slice(None),) * axis, slice(1, None))]
            keep &= (larger > grid).reshape(-1)
        return Points(cells[keep], need), prices[keep] + own


def counted_depths(engine: Engine, host: int | None) -> range:
    """The depths inside the scope whose domains are counted: all that are looked at, hosts aside."""
    structure = engine.structure
    return range(structure.scope + 1, structure.bottom + 1 if structure.bottom != host else structure.bottom)


@lru_cache(maxsize=65_536)
def natural(name: str | None) -> tuple[Any, ...]:
    """A sort key that puts ``node-2`` before ``node-10``."""
    parts: list[Any] = []
    digits = ""
    for character in (name or "") + "\0":
        if character.isascii() and character.isdigit():
            digits += character
        else:
            if digits:
                parts.append((0, int(digits), digits))
                digits = ""
            parts.append((1, 0, character))
    return tuple(parts)


def order(place: Place) -> tuple[Any, ...]:
    """Where a domain or node stands among its siblings."""
    return natural(place.path[-1] if isinstance(place, DomainNode) and place.path else getattr(place, "name", None))


__all__ = ["Budget", "Item", "Layout", "Prices", "counted_depths", "natural", "order"]
