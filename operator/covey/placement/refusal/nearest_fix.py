"""Additions that would make more pods fit: the nearest fix, found greedily on copies of the nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from covey.placement.cluster.domains import NodeState
from covey.placement.cluster.resources import rank
from covey.placement.cluster.shape import (
    cause_of_conflict,
)
from covey.placement.model import Shape
from covey.placement.refusal.exclusions import is_choosy
from covey.placement.refusal.shortage import Shortage

#: Smaller is nearer: even all other pods' room would not do, what is missing, what would be left, the node's name.
_Gap = tuple[bool, float, float, str]


class Bench:
    """Copies of the free capacity of some nodes, on which pods are tried."""

    def __init__(
        self,
        nodes: Iterable[NodeState],
        taken: Mapping[str, Sequence[Shape]],
        own: Mapping[str, Sequence[Shape]] | None = None,
        kept_off: Callable[[Shape], Mapping[str, str]] = lambda _shape: {},
    ) -> None:
        """Take the nodes as they are after ``taken``.

        ``own`` are bound pods of the gang, which stay as well; ``kept_off`` names the nodes that others keep free of a
        shape from afar.
        """
        self._nodes = list(nodes)
        self._kept_off = kept_off
        self._free: dict[str, dict[str, int]] = {}
        #: What is there for the gang when all others have left.
        self._could: dict[str, dict[str, int]] = {}
        self._on: dict[str, list[Shape]] = {}
        #: The nodes that a shape may use, each with what keeps it off there.
        self._usable: dict[Shape, list[tuple[str, str | None]]] = {}
        #: How near a node is to having room for a shape, until something is put onto it.
        self._gaps: dict[Shape, dict[str, _Gap]] = {}
        for node in self._nodes:
            self._free[node.name], self._could[node.name] = dict(node.free), dict(node.allocatable)
            self._on[node.name] = list(taken.get(node.name, ()))
            for shape in self._on[node.name]:
                _take(self._free[node.name], shape)
            for shape in (*self._on[node.name], *(own or {}).get(node.name, ())):
                _take(self._could[node.name], shape)

    def copy(self) -> Bench:
        """Return a copy in the same state."""
        copied = Bench((), {})
        copied._nodes, copied._usable, copied._kept_off = self._nodes, self._usable, self._kept_off
        copied._free = {name: dict(free) for name, free in self._free.items()}
        copied._could = {name: dict(could) for name, could in self._could.items()}
        copied._on = {name: list(on) for name, on in self._on.items()}
        copied._gaps = {shape: dict(gaps) for shape, gaps in self._gaps.items()}
        return copied

    def lack(self, shapes: Sequence[Shape]) -> Shortage:
        """Compute what is missing for these pods, each put where the least is missing. Uses the capacity up."""
        missing: dict[str, int] = {}
        asked: dict[str, int] = {}
        nowhere = pods = apart = 0
        large = False
        cause: str | None = None
        for shape in shapes:
            node, kept = self._best(shape)
            if node is None:
                nowhere += kept is None
                apart += kept is not None
                cause = cause or kept
                continue
            free = self._free[node]
            short = {name: value - free.get(name, 0) for name, value in shape.requests if free.get(name, 0) < value}
            pods += bool(short)
            large |= bool(short) and not self._can(node, shape)
            for name, gap in short.items():
                missing[name] = missing.get(name, 0) + gap
                asked[name] = dict(shape.requests)[name]
                free[name] = asked[name]
            _take(free, shape)
            _take(self._could[node], shape)
            self._on[node].append(shape)
            for gaps in self._gaps.values():
                gaps.pop(node, None)
        first = min(missing, key=rank, default=None)
        return Shortage(
            first,
            asked[first] if first else 0,
            missing[first] if first else 0,
            nowhere,
            pods,
            large,
            sure=len(missing) == 1 and not nowhere and not apart and not large,
            apart=apart,
            cause=cause,
        )

    def _can(self, node: str, shape: Shape) -> bool:
        """Tell whether a pod would fit next to the gang's own pods if all others left."""
        could = self._could[node]
        return all(value <= could.get(name, 0) for name, value in shape.requests)

    def _best(self, shape: Shape) -> tuple[str | None, str | None]:
        """The node where the least is missing; or None, and what keeps the pod off the nodes that have room."""
        usable = self._usable.get(shape)
        if usable is None:
            afar = self._kept_off(shape)
            usable = self._usable[shape] = [
                (node.name, afar.get(node.name) or node.conflict(shape))
                for node in self._nodes
                if node.static_cause(shape) is None
            ]
        here = [(name, cause or self._among(name, shape)) for name, cause in usable]
        gaps = self._gaps.setdefault(shape, {})
        free = [name for name, cause in here if cause is None]
        for name in free:
            if name not in gaps:
                gaps[name] = self._gap(name, shape)
        best = min(free, key=gaps.__getitem__, default=None)
        if best is None or self._short(best, shape):
            kept = next((cause for name, cause in here if cause is not None and not self._short(name, shape)), None)
            if kept is not None:
                return None, kept
        return best, None

    def _among(self, node: str, shape: Shape) -> str | None:
        """Return why a pod may not join those of its gang that were put onto a node, or None."""
        if not is_choosy(shape):
            return None
        return next((cause for other in self._on[node] if (cause := cause_of_conflict(shape, other))), None)

    def _short(self, node: str, shape: Shape) -> bool:
        free = self._free[node]
        return any(free.get(name, 0) < value for name, value in shape.requests)

    def _gap(self, node: str, shape: Shape) -> _Gap:
        free, gap, left = self._free[node], 0.0, 0.0
        for name, value in shape.requests:
            have = free.get(name, 0)
            if have < value:
                gap += 1 - have / value
            left += have / value
        return (gap > 0 and not self._can(node, shape), gap, left, node)


def _take(free: dict[str, int], shape: Shape) -> None:
    for name, value in shape.requests:
        free[name] = free.get(name, 0) - value
