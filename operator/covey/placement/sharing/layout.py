"""Shares of domains, and of the nodes in them: numbers become places.

The tables say what fits; here a demand that fits is shared out on the way down, at the lowest price: fewest domains
first (coarse before fine, hosts not counted), then fewest wholly free domains and hosts broken into, then the tightest
fit. A domain that the gang lies in already costs nothing more. Hosts are chosen last, inside each bottom domain: broken
ones before wholly free ones, the tightest first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from math import prod
from typing import Any, Final

import numpy as np

from covey.placement.capacity.engine import Engine
from covey.placement.capacity.frame import TableEntry
from covey.placement.capacity.tables import Budget, Table, Vector
from covey.placement.capacity.view import View
from covey.placement.cluster.domains import DomainNode
from covey.placement.model import Path, natural
from covey.placement.sharing.chain import Chain
from covey.placement.sharing.cost import Place, Price, Prices
from covey.placement.sharing.cover_dp import NO_WAY, ChildOffer, Cover, Points, clip, lower
from covey.placement.sharing.mixture import Mixture

#: Cells of a price list beyond which a domain is priced as if it had no finer domains inside.
_PRICE_CELLS: Final = 4096
#: Points times cells (times words of a price) beyond which a demand is shared out without prices.
_COVER_CELLS: Final = 8_000_000
#: Points times cells (times words) up to which wholly free hosts are counted while domains are chosen.
_HOST_CELLS: Final = 2_000_000
#: Cells of the lists of points that are remembered.
_POINTS: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class Item:
    """A replica to be placed: its missing pods by stream, each named by its key, by ascending index.

    Pods under a level of their own are in ``parts``.
    """

    role: int
    replica: int
    kind: int
    pods: tuple[tuple[str, ...], ...]
    parts: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class Beside:
    """What other units lack, by which domains are ranked for a unit that has its domain inside a candidate.

    ``depth`` and ``group`` (a mask) are those of the unit's domain. ``requests`` tells what is outstanding in a domain,
    and ``leaves_room`` whether the whole unit fits beside it.
    """

    depth: int
    group: int
    requests: Callable[[DomainNode], Mapping[str, int]]
    leaves_room: Callable[[DomainNode], bool]


class DemandLayout:
    """Shares out a demand inside one candidate domain after another; one object for each plan."""

    def __init__(
        self, engine: Engine, view: View, prices: Prices, cells: int = _COVER_CELLS, beside: Beside | None = None
    ) -> None:
        """``cells``: points times cells (times words of a price) beyond which a demand is shared out without prices."""
        self.engine = engine
        self.view = view
        self.prices = prices
        self._cells = cells
        self._beside = beside
        self._roomy: dict[Path, bool] = {}
        self._bottom = engine.structure.bottom
        self._one_host: Any = np.array(prices.one_host, dtype=np.int64)[:, None]
        #: Whether wholly free hosts are counted; None: not decided yet.
        self._hosts: bool | None = None
        self._covers: dict[tuple[Path, Vector], Cover[Place] | Chain[Place] | Mixture[Place]] = {}

    def look_at(self, scopes: Iterable[DomainNode], target: Vector) -> None:
        """Decide for all candidates alike whether the wholly free hosts that a target breaks into can be counted."""
        self._hosts = all(self._work(scope, target) <= _HOST_CELLS for scope in scopes)

    def _work(self, scope: DomainNode, target: Vector) -> int:
        """Compute the work of sharing a target out when every vector of a domain may have a price of its own."""
        if scope.depth == self._bottom:
            return 0
        alone = scope.path not in self.view.touched
        key = (scope.version, target, self.prices.words)
        known = self.engine.worked.get(scope.path)
        if alone and known is not None and known[0] == key:
            return known[1]
        need = self.vector_below(scope, target)
        cells = prod(n + 1 for n in need)
        work = cells * cells * len(scope.children) * self.prices.words
        if work <= _HOST_CELLS:  # whatever the domains hold
            return work
        boxes = (
            prod(min(most, wanted) + 1 for most, wanted in zip(table.extent, need, strict=True))
            for _, entry in self.engine.offers_below(scope, self.view)
            for table in entry.tables.values()
        )
        work = sum(boxes) * cells * self.prices.words
        if alone:
            self.engine.worked[scope.path] = (key, work)
        return work

    def price(self, scope: DomainNode, target: Vector) -> Price:
        """The lowest price of a target (whole replicas by class of the scope's frame) in a candidate domain."""
        if self._hosts is None:
            self.look_at([scope], target)
        alone = scope.path not in self.view.touched and not self.prices.used and self._beside is None
        known = self.engine.priced.get(scope.path)
        key = (scope.version, target, self.prices.packing, self._hosts)
        if alone and known is not None and known[0] == key:
            return known[1]
        price = self._at_bottom(scope, target) if scope.depth == self._bottom else self._inside(scope, target)
        if alone:
            self.engine.priced[scope.path] = (key, price)
        return price

    def mixture(self, scope: DomainNode, budget: Budget) -> Mixture[Place]:
        """Prepare the search for ways to share targets in a candidate without the candidate's own table."""
        children = list(self._spread(scope))
        works: dict[Hashable, int] = {}
        for child, _ in children:
            off = self.view.off(child.path if isinstance(child, DomainNode) else scope.path)
            alike, work = self.engine.paid(child, self.view, off)
            works[child if alike is None else alike] = work
        budget.spend(sum(works.values()))
        frame = self.engine.frames[scope.depth + 1]
        own: dict[
            int, TableEntry
        ] = {}  # entries of one frame: those of places on different depths have numbers of their own
        for _, entry in children:
            if id(entry) not in own:
                own[id(entry)] = frame.entry({m: frame.tables.intern(t.values) for m, t in entry.tables.items()})
        children = [(child, own[id(entry)]) for child, entry in children if entry.number != 0]
        return Mixture(children, frame, budget, groups=bool(self.engine.structure.groups))

    def follow(self, scope: DomainNode, mixture: Mixture[Place]) -> None:
        """Let `place` share out as a mixture found."""
        self._hosts = False
        self._covers[scope.path, mixture.need] = mixture

    def _spread(self, domain: DomainNode) -> Iterable[tuple[Place, TableEntry]]:
        """Yield the finest places inside a domain that offer no less apart than together; cheap domains first."""
        engine = self.engine
        if domain.depth >= engine.structure.bottom:
            yield from (
                (node, entry) for _, node, entry in self._price_children(engine.offers_below(domain, self.view))
            )
            return
        for child in sorted(domain.children.values(), key=lambda child: (self._own(child), order(child))):
            if self._plain(child):
                yield from self._spread(child)
            else:
                entry = engine.entry(child, self.view)
                if entry is not None:
                    yield child, entry

    def _plain(self, domain: DomainNode) -> bool:
        """Tell whether a domain is no more than the sum of its children."""
        structure, frames = self.engine.structure, self.engine.frames
        return (
            domain.real
            and domain.path not in self.view.touched
            and not self.view.off(domain.path)
            and frames[domain.depth].dimensions == frames[domain.depth + 1].dimensions
            and domain.depth not in structure.groups
            and all(limit.depth != domain.depth for limit in structure.limits)
        )

    def _price_children(self, children: Sequence[tuple[Place, TableEntry]]) -> list[tuple[Price, Place, TableEntry]]:
        """Children with what they cost themselves, cheap ones first."""
        priced = [(self._own(child), child, entry) for child, entry in children]
        priced.sort(key=lambda entry: (entry[0], order(entry[1])))
        return priced

    def _inside(self, scope: DomainNode, target: Vector) -> Price:
        cover = self._cover(scope, self.vector_below(scope, target))
        price = min(cover.price(cover.need, mask) for mask in cover.masks)
        return price if len(price) == self.prices.words else self.prices.zero  # a chain has no prices

    def _at_bottom(self, scope: DomainNode, target: Vector) -> Price:
        """Price a target in a candidate without domains inside: only wholly free hosts broken into count."""
        steps = self.engine.breaking(scope, self.view)
        number = next((n for n, entry in steps.offers if any(t.holds(target) for t in entry.tables.values())), 0)
        return self.prices.hosts(number)

    def place(
        self, scope: DomainNode, target: Vector, items: Mapping[int, list[Item]], fixed: Mapping[Path, list[Item]]
    ) -> dict[str, str]:
        """Return the node of every pod.

        Args:
            scope: the candidate domain.
            target: how many replicas of each class, in the order of the scope's frame.
            items: the replicas of each class, those to be placed first first.
            fixed: the half placed replicas by the domain that their missing pods must go to.
        """
        if self._hosts is None:
            self.look_at([scope], target)
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
        need = self.vector_below(domain, vector)
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
        """Take replicas apart into pods and parts where their class is no longer counted as a whole."""
        streams = len(self.engine.structure.streams)
        opened: dict[int, list[Any]] = {dimension: [] for dimension in below}
        whole = [item for dimension, held in hands.items() if dimension not in opened for item in held]
        for item in (*fixed, *sorted(whole, key=lambda item: (item.role, item.replica))):
            for stream, pods in enumerate(item.pods):
                if pods:
                    opened[stream].extend(pods)
            for part in item.parts:
                opened[streams + part.kind].append(part)
        for dimension, held in hands.items():
            if dimension in opened:
                opened[dimension] = opened[dimension] + held
        return opened

    def vector_below(self, domain: DomainNode, vector: Vector) -> Vector:
        """A domain's vector in the units of its children, mandatory pods included."""
        need = np.array(vector) @ self.engine.takes(domain.depth)
        demand = self.view.mandatory.get(domain.path)
        if demand is not None:
            need = need + np.array(self.engine.demand(domain.depth + 1, demand))
        return tuple(need.tolist())

    def _groups_at(self, depth: int) -> int:
        return sum(1 << group for group, at in enumerate(self.engine.structure.groups) if at == depth)

    def _cover(self, domain: DomainNode, need: Vector) -> Cover[Place] | Chain[Place] | Mixture[Place]:
        key = (domain.path, need)
        cover = self._covers.get(key)
        if cover is None:
            offered = [
                (child, entry) for child, entry in self.engine.offers_below(domain, self.view) if entry.number != 0
            ]
            children = self._cheapest(offered, sum(need))
            words = self.prices.words if domain.depth < self._bottom else self.prices.node_words
            cells = prod(n + 1 for n in need) * words
            points = sum(len(table.tops) for _, _, entry in children for table in entry.tables.values())
            if points * cells > self._cells:
                frame = self.engine.frames[domain.depth + 1]
                own = Budget(self.engine.budget.limit)
                cover = Chain(need, [(child, entry) for _, child, entry in children], frame, own)
            else:
                offers = [self._offer(child, entry, need, own) for own, child, entry in children]
                cover = Cover(need, offers, words)
            self._covers[key] = cover
        return cover

    def _cheapest(self, children: list[tuple[Place, TableEntry]], most: int) -> list[tuple[Price, Place, TableEntry]]:
        """The cheapest of children that offer the same, no more than could be used; cheap ones first, with prices."""
        priced = self._price_children(children)
        if self._deep(children) or any(
            isinstance(child, DomainNode) and child.path in self.view.touched for child, _ in children
        ):
            return priced
        seen: dict[Hashable, count[int]] = {}
        return [
            priced_child
            for priced_child in priced
            if next(seen.setdefault(self._alike(*priced_child[1:]), count())) < most
        ]

    def _alike(self, child: Place, entry: TableEntry) -> Hashable:
        """Return a key that is the same for children that can replace each other, but for their own prices."""
        if self._beside is not None and isinstance(child, DomainNode) and child.depth == self._beside.depth:
            return (
                entry.number,
                self._leaves_room(child),
                self._hosts and self.engine.breaking(child, self.view).number,
            )
        if self._hosts and isinstance(child, DomainNode) and child.depth == self._bottom:
            return (entry.number, self.engine.breaking(child, self.view).number)
        return entry.number

    def _deep(self, children: list[tuple[Place, TableEntry]]) -> bool:
        return bool(children) and isinstance(children[0][0], DomainNode) and children[0][0].depth < self._bottom

    def _own(self, place: Place) -> Price:
        return self.prices.domain(place) if isinstance(place, DomainNode) else self.prices.node(place)

    def _offer(self, child: Place, entry: TableEntry, need: Vector, price: Price) -> ChildOffer[Place]:
        points: dict[int, tuple[Points, Any]] = {}
        plain = np.array(price, dtype=np.int64)[:, None]
        beside = self._beside
        if beside is not None and isinstance(child, DomainNode) and child.depth == beside.depth:
            price = self.prices.domain(child, beside.requests(child), crowded=not self._leaves_room(child))
        of_unit = np.array(price, dtype=np.int64)[:, None]
        for mask, table in entry.tables.items():
            own = of_unit if beside is not None and mask & beside.group else plain
            priced = None
            if isinstance(child, DomainNode) and child.depth < self._bottom:
                priced = self._price_list(child, table, mask, need)
            elif isinstance(child, DomainNode) and self._hosts:
                priced = self._by_steps(child, mask, need)
            if priced is None:
                flat = self._flat(child, table, need)
                points[mask] = (flat, own.repeat(len(flat.rows), axis=1))
            else:
                points[mask] = (priced[0], priced[1] + own)
        return ChildOffer(child, points)

    def _by_steps(self, child: DomainNode, mask: int, need: Vector) -> tuple[Points, Any]:
        """The largest vectors that a bottom domain takes with 0, 1, 2 … wholly free hosts broken into, so priced."""
        steps = self.engine.breaking(child, self.view)
        key = (child.depth, steps.number, mask, need)
        cached = self.engine.points.get(key)
        if cached is None:
            taken: dict[Vector, int] = {}
            for number, entry in steps.offers:
                for point in clip(entry.tables[mask].points, need) if mask in entry.tables else ():
                    taken.setdefault(point, number)
            cached = (Points(list(taken), need), np.array([*taken.values()], dtype=np.int64))
            self._remember(key, cached, cached[0])
        points, numbers = cached
        return points, self._one_host * numbers

    def _leaves_room(self, domain: DomainNode) -> bool:
        if domain.path not in self._roomy:
            self._roomy[domain.path] = self._beside is None or self._beside.leaves_room(domain)
        return self._roomy[domain.path]

    def _flat(self, child: Place, table: Table, need: Vector) -> Points:
        """The largest vectors that a child takes of a need; remembered, as equal tables come again and again."""
        depth = child.depth if isinstance(child, DomainNode) else self._bottom + 1
        key = (depth, table.number, need)
        points: Points | None = self.engine.points.get(key)
        if points is None:
            points = Points(clip(table.points, need), need)
            self._remember(key, points, points)
        return points

    def _remember(self, key: Hashable, content: Any, points: Points) -> None:
        self.engine.points_size += points.rows.size
        if self.engine.points_size > _POINTS:
            self.engine.points.clear()
            self.engine.points_size = points.rows.size
        self.engine.points[key] = content

    def _price_list(self, child: DomainNode, table: Table, mask: int, need: Vector) -> tuple[Points, Any] | None:
        """Points of a domain with finer domains inside, each at its own price; None when the list would be long."""
        box = tuple(map(min, table.extent, need))
        below = self.vector_below(child, box)
        if max(prod(n + 1 for n in box), prod(n + 1 for n in below)) > _PRICE_CELLS:
            return None
        cells = np.indices([n + 1 for n in box]).reshape(len(box), -1).T
        inside = table.hold(cells)
        demand = self.view.mandatory.get(child.path)
        needs = cells @ self.engine.takes(child.depth)
        if demand is not None:
            needs = needs + np.array(self.engine.demand(child.depth + 1, demand))
        cover = self._cover(child, below)
        if not isinstance(cover, Cover):
            return None
        prices = cover.prices(needs, mask & ~self._groups_at(child.depth))
        prices[0] = np.where(inside, prices[0], NO_WAY)
        keep = (prices[0] < NO_WAY) & cells.any(axis=1)
        grid = prices.reshape(len(prices), *(n + 1 for n in box))
        for axis in range(len(box)):  # a larger vector at no higher price makes the smaller one superfluous
            larger = np.full_like(grid, NO_WAY)
            before = (slice(None),) * (axis + 1)
            larger[(*before, slice(0, -1))] = grid[(*before, slice(1, None))]
            keep &= lower(grid, larger).reshape(-1)
        return Points(cells[keep], need), prices[:, keep]


def counted_depths(engine: Engine, host: int | None) -> range:
    """The depths inside the scope whose domains are counted: all that are looked at, hosts aside."""
    structure = engine.structure
    return range(structure.scope + 1, structure.bottom + 1 if structure.bottom != host else structure.bottom)


@lru_cache(maxsize=65_536)
def order(place: Place) -> tuple[Any, ...]:
    """Position of a domain or node among its siblings."""
    return natural(place.path[-1] if isinstance(place, DomainNode) and place.path else getattr(place, "name", None))
