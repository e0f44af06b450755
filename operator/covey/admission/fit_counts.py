"""Upper bounds on the pods of a shape that the nodes of a domain could take: pure, kept up change by change.

It is what decides cheaply that a gang need not be planned again. Counted is each node by itself: what it has free,
whether it admits the shape at all, whether a holder keeps the shape off the host. Anti-affinity over broader domains,
kept nodes and the other pods of the gang are left out, so the true number is never higher.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from covey.placement.cluster.domains import DomainTree, NodeState
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import exclusive
from covey.placement.model import Path, Shape

#: Nodes that are counted between two chances for others.
_STEP: Final = 250


#: Shapes that are kept; the one that was asked for longest ago goes first.
_SHAPES: Final = 512


@dataclass(slots=True)
class _Counted:
    """One shape: what each node takes, and the sums of the domains of each topology. ``seen``: changes counted."""

    seen: int
    nodes: dict[str, tuple[int, tuple[tuple[str, Path], ...]]] = field(default_factory=dict)
    sums: dict[tuple[str, Path], int] = field(default_factory=dict)


class FitCounts:
    """The counts over an inventory whose changes are told."""

    def __init__(self) -> None:
        self._counted: dict[Shape, _Counted] = {}
        #: Names of changed nodes, oldest first; counts that have not seen the first of them begin again.
        self._changes: list[str] = []
        self._offset = 0
        self._trees: dict[str, DomainTree] = {}

    def note_changes(self, nodes: Iterable[str]) -> None:
        """Something about nodes has changed: what is free, their labels, that they are there at all."""
        self._changes.extend(nodes)

    def clear(self) -> None:
        """Nobody waits: count nothing any more."""
        self._counted.clear()
        self._offset += len(self._changes)
        self._changes.clear()
        self._trees = {}

    def prepare(self, shape: Shape, inventory: Inventory) -> Iterator[None]:
        """Count a shape for the first time, with pauses."""
        self._trim(inventory)
        if shape in self._counted:
            return
        found = _Counted(self._offset + len(self._changes))
        for number, name in enumerate(list(inventory.nodes), start=1):
            _count(found, shape, name, inventory)
            if number % _STEP == 0:
                yield
        if inventory.trees is not self._trees:
            return  # the world was changed meanwhile
        while len(self._counted) >= _SHAPES:
            del self._counted[next(iter(self._counted))]
        self._counted[shape] = found

    def at(self, shape: Shape, topology: str, path: Path, inventory: Inventory) -> int:
        """The most pods of a shape that the nodes of a domain could take."""
        self._trim(inventory)
        found = self._counted.pop(shape, None)
        if found is None or found.seen < self._offset:
            for _ in self.prepare(shape, inventory):
                pass
            found = self._counted.pop(shape)
        self._counted[shape] = found
        end = self._offset + len(self._changes)
        if found.seen < end:
            for name in dict.fromkeys(self._changes[found.seen - self._offset :]):
                _count(found, shape, name, inventory)
            found.seen = end
        return found.sums.get((topology, path), 0)

    def _trim(self, inventory: Inventory) -> None:
        if inventory.trees is not self._trees:
            self._trees = inventory.trees
            self._counted.clear()
        if len(self._changes) > max(2 * len(inventory.nodes), _STEP):
            self._offset += len(self._changes)
            self._changes.clear()
            self._counted = {shape: each for shape, each in self._counted.items() if each.seen >= self._offset}


def _count(found: _Counted, shape: Shape, name: str, inventory: Inventory) -> None:
    """Count one node anew."""
    state = inventory.nodes.get(name)
    takes = room_for(state, shape) if state is not None else 0
    before = found.nodes.get(name)
    if before is None and not takes:
        return
    places = tuple((topology, leaf.path) for topology, leaf in state.leaves.items()) if state is not None else ()
    if before is not None:
        if before == (takes, places):
            return
        _add(found.sums, before[1], -before[0])
        del found.nodes[name]
    if takes:
        found.nodes[name] = (takes, places)
        _add(found.sums, places, takes)


def _add(sums: dict[tuple[str, Path], int], places: tuple[tuple[str, Path], ...], more: int) -> None:
    for topology, path in places:
        for end in range(len(path) + 1):
            key = (topology, path[:end])
            sums[key] = sums.get(key, 0) + more


def room_for(state: NodeState, shape: Shape) -> int:
    """Pods of a shape that a node takes now, looked at alone.

    A shape that keeps to itself because of anti-affinity is known for it once the gang is told (``with_terms``).
    """
    free = state.free
    takes = min((free.get(name, 0) // amount for name, amount in shape.requests if amount > 0), default=0)
    if takes <= 0 or state.static_cause(shape) is not None or state.conflict(shape) is not None:
        return 0
    return 1 if exclusive(shape) else takes
