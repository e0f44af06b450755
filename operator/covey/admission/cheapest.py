"""The cheapest steps that give a minimum its room, by the bounds of what nodes hold: pure.

Bounds are all but exact where a gang has one shape of pods, and say nothing of a plan. So whatever is found here is
shown to the planner (``accept``); what it refuses is no answer, and the search goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import combinations
from typing import Final, NamedTuple

from covey.admission.slots import Ground, Place
from covey.admission.taking import Cost
from covey.admission.victims import Step

#: Sets that are looked at one by one after a first one was found.
LOOKS: Final = 2500
#: Sets of units that surplus is tried beside, and units that are tried for two others.
_TRIES: Final = 60
_OTHERS: Final = 8
#: Steps beyond which a set is not improved: it costs too much, and gains little.
_MANY: Final = 40


class _Move(NamedTuple):
    """Steps that give a node something that is lacking; ``price`` is by what they give.

    ``tie``: of replicas that cost the same the last go first, as when a role is scaled in.
    """

    price: tuple[float, ...]
    tie: int
    place: str
    steps: tuple[int, ...]


class Cheapest:
    """Search for a cheap set of steps of a ground.

    Args:
        ground: the steps, and what nodes hold without them.
        cost: of some steps.
        accept: whether a set that meets all bounds has a plan; False where that is not known either.
        below: what is found costs less than that.
    """

    def __init__(
        self,
        ground: Ground,
        cost: Callable[[Iterable[Step]], Cost],
        accept: Callable[[int], bool],
        below: Cost | None = None,
    ) -> None:
        self._ground = ground
        self._cost = cost
        self._accept = accept
        self._units: dict[object, int] = {}
        for number, step in enumerate(ground.steps):
            self._units[step.unit] = self._units.get(step.unit, 0) | 1 << number
        self._best = below
        self._mask: int | None = None
        self._looks = 0
        self._most = LOOKS if len(ground.steps) <= _MANY else LOOKS // 5
        self._until = self._most
        #: Every set that costs less than what was found was looked at.
        self.is_complete = False

    def find(self) -> int | None:
        """The cheapest set that was found and accepted; None for none."""
        surplus = sum(1 << number for number, step in enumerate(self._ground.steps) if step.kind != "Unit")
        for allowed in (surplus, self._ground.all):
            mask = self._grow(allowed)
            if mask is not None:
                self._offer(self._shrink(mask))
            if self._mask is not None:
                break
        self.improve()
        return self._mask

    def _offer(self, mask: int) -> bool:
        """Keep a set if it is cheaper than what is known, and accepted."""
        cost = self._cost(self._ground.steps_of(mask))
        if (self._best is not None and cost >= self._best) or not self._accept(mask):
            return False
        self._best, self._mask = cost, mask
        return True

    def _with(self, mask: int, number: int) -> int | None:
        """A set and one more step; None where that may not be taken."""
        step = self._ground.steps[number]
        own = mask & self._units[step.unit]
        if step.kind == "Unit":
            return mask & ~own | 1 << number
        return mask | 1 << number if self._ground.allows(own | 1 << number) else None

    def _grow(self, allowed: int, mask: int = 0) -> int | None:
        """Take what gives most for its price, one node after another, until no bound is broken."""
        for number, (depth, _, count) in enumerate(self._ground.wanted.classes):
            if depth <= self._ground.domain.depth:
                continue
            grown = self._grow_replicas(mask, allowed, number, count)
            if grown is None:
                return None
            mask = grown
        lacks = self._ground.lacks(mask)
        heap = [move for name in self._ground.on if (move := self._move(mask, allowed, name, lacks)) is not None]
        heapify(heap)
        while any(lacks):
            if not heap:
                return None
            again = self._move(mask, allowed, heappop(heap).place, lacks)
            if again is None:
                continue
            if heap and again.price > heap[0].price:
                heappush(heap, again)
                continue
            mask = self._apply(mask, again.steps)
            lacks = self._ground.lacks(mask)
            for name in {again.place, *(name for step in again.steps for name in self._ground.nodes[step])}:
                move = self._move(mask, allowed, name, lacks)
                if move is not None:
                    heappush(heap, move)
        return mask if self._ground.fits(mask) else None

    def _grow_replicas(self, mask: int, allowed: int, number: int, count: int) -> int | None:
        """Take what is needed for so many whole replicas of a class, one after another where it costs least."""
        ground, depth = self._ground, self._ground.wanted.classes[number][0]
        inside: dict[Place, list[str]] = {}
        for name in ground.on:
            for place in ground.places(name):
                if place[0] == depth:
                    inside.setdefault(place, []).append(name)
        steps = {place: self._one_replica(mask, allowed, number, place, inside[place]) for place in inside}
        while ground.replicas(mask, number) < count:
            found = {place: (self._price(mask, more), more) for place, more in steps.items() if more}
            if not found:
                return None
            taken = min(found.values())[1]
            mask = self._apply(mask, taken)
            for place in {each for step in taken for name in ground.nodes[step] for each in ground.places(name)}:
                if place in inside:
                    steps[place] = self._one_replica(mask, allowed, number, place, inside[place])
        return mask

    def _one_replica(self, mask: int, allowed: int, number: int, place: Place, names: Sequence[str]) -> tuple[int, ...]:
        """The steps that make room for one more replica in a domain of its level; none where there are none."""
        ground, grown, taken = self._ground, mask, list[int]()
        have, need = ground.replicas_in(place, mask, number), list(ground.wanted.need)
        moves = {name: self._move(mask, allowed, name, need) for name in names}
        while ground.replicas_in(place, grown, number) <= have:
            best = min((move for move in moves.values() if move is not None), default=None)
            if best is None:
                return ()
            grown = self._apply(grown, best.steps)
            taken += best.steps
            for name in {best.place, *(node for step in best.steps for node in ground.nodes[step])} & moves.keys():
                moves[name] = self._move(grown, allowed, name, need)
        return tuple(taken)

    def _price(self, mask: int, steps: Iterable[int]) -> tuple[int, ...]:
        before, after = (self._cost(self._ground.steps_of(each)) for each in (mask, self._apply(mask, steps)))
        return tuple(new - old for new, old in zip(after[1:], before[1:], strict=True))

    def _apply(self, mask: int, steps: Iterable[int]) -> int:
        for number in steps:
            mask = self._with(mask, number) or mask
        return mask

    def _move(self, mask: int, allowed: int, name: str, lacks: Sequence[int]) -> _Move | None:
        """The cheapest steps at a node that give it something that is lacking."""
        ground = self._ground
        free = [number for number, _ in ground.on.get(name, ()) if allowed >> number & 1 and not mask >> number & 1]
        steps = ground.steps
        orders = {
            tuple(sorted(free, key=lambda number: (steps[number].kind == "Unit", sign * steps[number].count, number)))
            for sign in (1, -1)
        }
        found = [move for order in orders if (move := self._bundle(mask, order, name, lacks)) is not None]
        return min(found, default=None)

    def _bundle(self, mask: int, order: Sequence[int], name: str, lacks: Sequence[int]) -> _Move | None:
        taken: list[int] = []
        grown = mask
        for number in order:
            more = self._with(grown, number)
            if more is None:
                continue
            grown = more
            taken.append(number)
            if self._gain(mask, grown, (name,), lacks):
                break
        else:
            return None
        for number in taken[-2::-1]:  # the last one is needed
            rest = [each for each in taken if each != number]
            if self._gain(mask, self._apply(mask, rest), (name,), lacks):
                taken = rest
        grown = self._apply(mask, taken)
        nodes = {node for number in taken for node in self._ground.nodes[number]}
        gain = self._gain(mask, grown, nodes, lacks) or 1
        before, after = (self._cost(self._ground.steps_of(each)) for each in self._own(mask, grown, taken))
        price = tuple((new - old) / gain for new, old in zip(after[1:], before[1:], strict=True))
        tie = -sum(self._ground.steps[number].replica or 0 for number in taken)
        return _Move(price, tie, name, tuple(taken))

    def _own(self, mask: int, grown: int, taken: Iterable[int]) -> tuple[int, int]:
        """Both sets, as far as the units of some steps are concerned."""
        units = 0
        for number in taken:
            units |= self._units[self._ground.steps[number].unit]
        return mask & units, grown & units

    def _gain(self, mask: int, grown: int, nodes: Iterable[str], lacks: Sequence[int]) -> int:
        """Count what some nodes hold more, of what is lacking."""
        total = [0] * len(lacks)
        for name in nodes:
            before, after = self._ground.vector(name, mask), self._ground.vector(name, grown)
            total = [have + new - old for have, new, old in zip(total, after, before, strict=True)]
        return sum(min(more, lack) for more, lack in zip(total, lacks, strict=True))

    def _shrink(self, mask: int) -> int:
        """Leave out what is not needed, the dearest first."""
        steps = self._ground.steps
        for number in sorted(self._ground.bits(mask), key=lambda number: self._cost([steps[number]]), reverse=True):
            if self._ground.fits(mask & ~(1 << number)):
                mask &= ~(1 << number)
        return mask

    def improve(self) -> int | None:
        """Look for something cheaper: surplus for whole units, then go through the smallest sets of all."""
        while self._mask is not None and self._mask.bit_count() <= _MANY and self._spare_unit(self._mask):
            pass
        if self._mask is None or self._mask.bit_count() <= _MANY:
            self._enumerate()
        return self._mask

    def _spare_unit(self, mask: int) -> bool:
        """Take surplus replicas for one unit, or for one of two others; returns whether that was found."""
        steps, gains = self._ground.steps, self._gains()
        whole = [number for number, step in enumerate(steps) if step.kind == "Unit"]
        surplus = self._ground.all & ~sum(1 << number for number in whole)
        taken = [number for number in whole if mask >> number & 1]
        others = sorted((number for number in whole if number not in taken), key=lambda n: -gains[n])[:_OTHERS]
        tries: list[tuple[tuple[int, ...], tuple[int, ...]]] = [(out, ()) for out in combinations(taken, 1)]
        tries += [(out, (new,)) for out in combinations(taken, 2) for new in others]
        for out, new in tries[:_TRIES]:
            start = sum(1 << number for number in {*taken, *new} - {*out})
            more = self._grow(surplus, start)
            if more is not None and self._offer(self._shrink(more)):
                return True
        return False

    def _gains(self) -> dict[int, int]:
        """The most that each step can give when all others are gone too."""
        peak = {name: self._ground.vector(name, self._ground.all) for name in self._ground.on}
        found: dict[int, int] = {}
        for number, nodes in enumerate(self._ground.nodes):
            pairs = ((peak[name], self._ground.wanted.bases[name]) for name in nodes)
            found[number] = sum(new - old for one, other in pairs for new, old in zip(one, other, strict=True))
        return found

    def _enumerate(self) -> None:
        """Go through the sets by numbers of units and of replicas, as far as the number of looks goes."""
        gains = self._gains()
        order = sorted(gains, key=lambda n: (-gains[n], self._cost([self._ground.steps[n]])))
        whole = sum(step.kind == "Unit" for step in self._ground.steps)
        self._looks, most = 0, len(order) - whole
        for units in range(whole + 1):
            until = self._looks + (self._most - self._looks) // 2
            for replicas in range(units == 0, most + 1):
                if self._best is not None and (units, replicas) > (self._best.units, self._best.replicas):
                    break
                self._until = until if self._best is not None else self._most
                self._descend(order, gains, (units, replicas), 0, 0)
                if self._looks >= self._until:
                    break
        self.is_complete = self._looks < self._most // 2

    def _descend(
        self, order: Sequence[int], gains: dict[int, int], left: tuple[int, int], start: int, mask: int
    ) -> None:
        self._looks += 1
        if left == (0, 0):
            if self._ground.fits(mask):
                self._offer(mask)
            return
        lacks, count = sum(self._ground.lacks(mask)), sum(left)
        for at in range(start, len(order) - count + 1):
            if self._looks >= self._until or sum(gains[number] for number in order[at : at + count]) < lacks:
                return
            whole = self._ground.steps[order[at]].kind == "Unit"
            rest = (left[0] - whole, left[1] - (not whole))
            more = self._with(mask, order[at]) if min(rest) >= 0 else None
            if more is not None and more & mask == mask:
                self._descend(order, gains, rest, at + 1, more)


__all__ = ["LOOKS", "Cheapest"]
