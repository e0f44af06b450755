"""Capacity of single nodes: tables of the pods that fit together on one.

Nodes with equal free capacity (in the resources that matter) and equal masks have equal tables, so each table is worked
out once. Rules between pods on one host (host ports, anti-affinity, of a shape to itself or to another) are exact here,
as they never reach beyond the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from covey.placement.capacity.frame import Frame, TableEntry
from covey.placement.capacity.tables import (
    ENTRY,
    KEPT,
    NEVER,
    PASS,
    Array,
    Budget,
    Stream,
    Table,
    trim,
)
from covey.placement.cluster.domains import NodeState
from covey.placement.cluster.shape import conflict, exclusive

#: Sums below it are exact in 64 bits.
_SAFE: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Offered:
    """The offer of a node, a number that equal nodes share, and the work of computing it."""

    entry: TableEntry
    number: int
    work: int


class NodeTables:
    """The tables of all nodes for one list of streams."""

    def __init__(self, streams: tuple[Stream, ...], frame: Frame) -> None:
        self._frame = frame
        #: The frame's dimensions are exactly the streams, in the frame's order.
        self._streams = [streams[dimension] for dimension in frame.dimensions]
        self._bits = [1 << dimension for dimension in frame.dimensions]
        self._shapes = [stream.shape for stream in self._streams]
        self._resources = sorted({name for shape in self._shapes for name, _ in shape.requests})
        requests = [dict(shape.requests) for shape in self._shapes]
        self._requests = [[request.get(name, 0) for name in self._resources] for request in requests]
        #: Beyond what all pods ask for together nothing of a resource matters.
        self._most = [
            sum(s.cap * dict(s.shape.requests).get(name, 0) for s in self._streams) for name in self._resources
        ]
        self._asked = list(zip(self._resources, self._most, strict=True))
        self._caps = [1 if exclusive(s.shape) else s.cap for s in self._streams]
        count = len(self._shapes)
        self._terms = any(shape.anti_affinity for shape in self._shapes)
        self._clashes = [(i, j) for i in range(count) for j in range(i) if conflict(self._shapes[i], self._shapes[j])]
        #: By name: the node's version and that of its facts, the streams (bits) that it admits, and what it offers.
        self._known: dict[str, tuple[int, int, int, Offered]] = {}
        self._by_key: dict[tuple[tuple[int, ...], int], Offered] = {}
        self._nothing = Offered(frame.zero, -1, 0)

    @property
    def size(self) -> int:
        """Memory in use, in bytes: an estimate that may be a little low."""
        return ENTRY * len(self._known) + 2 * ENTRY * len(self._by_key)

    def offer(self, node: NodeState, off: int, budget: Budget) -> Offered:
        """Compute what the node offers, with some streams (bits) switched off; the budget is not charged."""
        name = node.node.metadata.name
        known = self._known.get(name)
        if known is not None and known[1] == node.facts:
            if known[0] == node.version and not off:
                return known[3]
            usable = known[2]
        else:
            usable = sum(bit for bit, s in zip(self._bits, self._shapes, strict=True) if node.static_cause(s) is None)
        offered = self._offer(node, usable & ~off, budget)
        if not off:
            self._known[name] = (node.version, node.facts, usable, offered)
        return offered

    def offers(self, nodes: Mapping[str, NodeState], budget: Budget) -> Iterator[Offered]:
        """Yield what each of these nodes (by name) offers with no stream switched off: as `offer`, in less time."""
        known = self._known
        for name, node in nodes.items():
            last = known.get(name)
            yield last[3] if last is not None and last[0] == node.version else self.offer(node, 0, budget)

    def _offer(self, node: NodeState, usable: int, budget: Budget) -> Offered:
        if not usable:
            return self._nothing
        if node.guards or self._terms:
            for bit, shape in zip(self._bits, self._shapes, strict=True):
                if usable & bit and node.conflict(shape):
                    usable &= ~bit
        have = node.free.get
        key = (tuple([min(max(have(name, 0), 0), most) for name, most in self._asked]), usable)
        offered = self._by_key.get(key)
        if offered is None:
            own = Budget(budget.limit)
            entry = self._frame.entry({0: self._table(*key, own)})
            offered = self._by_key[key] = Offered(entry, len(self._by_key), own.spent)
        return offered

    def _table(self, free: tuple[int, ...], usable: int, budget: Budget) -> Table:
        alone = [
            min([cap, *(have // want for have, want in zip(free, wanted, strict=True) if want)]) if usable & bit else 0
            for cap, wanted, bit in zip(self._caps, self._requests, self._bits, strict=True)
        ]
        tables = self._frame.tables
        if len(alone) == 1:
            return tables.intern(np.array(alone[0], dtype=np.int32))
        budget.spend((PASS + KEPT * prod(n + 1 for n in alone[:-1])) * (len(alone) + len(free) + len(self._clashes)))
        grid = np.indices([n + 1 for n in alone[:-1]], dtype=np.int64)
        most = np.full(grid.shape[1:], alone[-1], dtype=np.int64)
        for resource, have in enumerate(free):
            # One stream after another may take all there is, so the sum is at most that, times the number of streams.
            safe = have * len(alone) < _SAFE
            counts = grid if safe else grid.astype(object)
            left = have - sum(counts[i] * self._requests[i][resource] for i in range(len(grid)))
            want = self._requests[-1][resource]
            most = np.minimum(most, left // want) if want else np.where(left < 0, NEVER, most)
        most = np.where(most < 0, NEVER, most)
        return tables.intern(trim(self._without_exclusive_pairs(grid, most).astype(np.int32)))

    def _without_exclusive_pairs(self, grid: Array, most: Array) -> Array:
        """Take out vectors with two streams that may not share a host."""
        last = len(self._shapes) - 1
        for one, other in self._clashes:
            if one == last:
                most = np.where((grid[other] > 0) & (most > 0), 0, most)
            else:
                most = np.where((grid[one] > 0) & (grid[other] > 0), NEVER, most)
        return most
