"""What would have to be added so that more pods fit: the nearest fix, found greedily on copies of the nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from covey.placement.inventory import NodeState
from covey.placement.model import Shape
from covey.placement.resources import rank
from covey.placement.shape import exclusive


@dataclass(frozen=True, slots=True)
class Shortage:
    """The first resource that is short, what one pod asks of it, and how much is missing in all.

    ``nodes`` counts the pods for which no usable node is left at all.
    """

    resource: str | None
    requested: int
    short: int
    nodes: int

    @property
    def size(self) -> tuple[int, int]:
        """Comparable: the smaller shortage is the nearer fix."""
        return (self.nodes, self.short)


class Bench:
    """Copies of the free capacity of some nodes, on which pods are tried."""

    def __init__(self, nodes: Iterable[NodeState], taken: Mapping[str, Sequence[Shape]]) -> None:
        self._nodes = list(nodes)
        self._free: dict[str, dict[str, int]] = {}
        self._on: dict[str, list[Shape]] = {}
        self._usable: dict[Shape, list[str]] = {}
        for node in self._nodes:
            free = self._free[node.name] = dict(node.free)
            on = self._on[node.name] = list(taken.get(node.name, ()))
            for shape in on:
                for name, value in shape.requests:
                    free[name] = free.get(name, 0) - value

    def lack(self, shapes: Sequence[Shape]) -> Shortage:
        """What is missing for these pods, each put where the least is missing. Uses the capacity up."""
        missing: dict[str, int] = {}
        asked: dict[str, int] = {}
        nowhere = 0
        for shape in shapes:
            node = self._best(shape)
            if node is None:
                nowhere += 1
                continue
            free = self._free[node]
            for name, value in shape.requests:
                have = max(free.get(name, 0), 0)
                if have < value:
                    missing[name] = missing.get(name, 0) + value - have
                    asked[name] = value
                free[name] = max(have - value, 0)
            self._on[node].append(shape)
        first = min(missing, key=rank, default=None)
        return Shortage(first, asked[first] if first else 0, missing[first] if first else 0, nowhere)

    def _best(self, shape: Shape) -> str | None:
        usable = self._usable.get(shape)
        if usable is None:
            usable = self._usable[shape] = [
                node.name for node in self._nodes if node.static_cause(shape) is None and node.conflict(shape) is None
            ]
        if exclusive(shape):
            usable = [name for name in usable if shape not in self._on[name]]
        return min(usable, key=lambda name: self._gap(name, shape), default=None)

    def _gap(self, node: str, shape: Shape) -> tuple[float, float, str]:
        free, gap, left = self._free[node], 0.0, 0.0
        for name, value in shape.requests:
            have = free.get(name, 0)
            if have < value:
                gap += 1 - max(have, 0) / value
            left += have / value
        return (gap, left, node)
