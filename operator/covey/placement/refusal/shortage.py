"""Shortages and exclusions: the words of a refusal.

Additions that would make more pods fit: the nearest fix, found greedily on copies of the nodes.

Counts of the nodes that a role may not use, by cause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from covey.api.constants import LABEL_CLIQUE
from covey.placement.cluster.domains import NodeState
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.resources import rank, text
from covey.placement.cluster.shape import (
    ANTI_AFFINITY,
    EXCLUSIVE_CLIQUE_TAKEN,
    HOST_PORTS,
    NO_CLIQUE,
    cause_of_conflict,
)
from covey.placement.model import Exclusion, Gang, Shape

EXCLUDED = "excluded"
RESERVED = "reserved for another gang"
#: Nodes of a flavor of which the queue of the gang has no quota left.
OVER_QUOTA = "over the quota of the queue"
POD_LIMIT = "pods limit"
_REMEMBERED: Final = 256


def exclusions(
    gang: Gang,
    inventory: Inventory,
    shapes: Sequence[Shape],
    levels: Sequence[str],
) -> tuple[Exclusion, ...]:
    """The nodes that none of these shapes may use, by the first cause of each; most frequent first.

    Args:
        gang: names the topology and the nodes that failed it before.
        inventory: all nodes.
        shapes: the shapes of a role's pods.
        levels: levels that are required of every node.
    """
    known = _static(gang.topology, inventory, tuple(dict.fromkeys(shapes)), tuple(dict.fromkeys(levels)))
    counts, out = Counter(known.counts), set(known.causes)
    left_out = {name: why for name, why in gang.excluded_nodes.items() if name in inventory.nodes}
    later: dict[str, list[str]] = {EXCLUDED: [], RESERVED: [], OVER_QUOTA: []}
    for name, why in left_out.items():
        later[why if why in later else EXCLUDED].append(name)
    later |= _kept_off(inventory, shapes)
    if inventory.full:
        later[POD_LIMIT] = [name for name, state in inventory.nodes.items() if state.full]
    for cause, names in later.items():
        fresh = set(names) - out  # a node is out once, by its first cause
        counts[cause] += len(fresh)
        out |= fresh
    return tuple(Exclusion(cause, n) for cause, n in sorted(counts.items(), key=lambda c: (-c[1], c[0])) if n)


def _kept_off(inventory: Inventory, shapes: Sequence[Shape]) -> dict[str, list[str]]:
    """The nodes where a host port or anti-affinity of those who are there keeps every one of these shapes off."""
    different = list(dict.fromkeys(shapes))
    if not different or not all(map(_is_choosy, different)):
        return {}
    afar = [inventory.kept_off(shape) for shape in different]
    by_cause: dict[str, list[str]] = {}
    for name, state in inventory.nodes.items():
        causes = [closed.get(name) or state.conflict(shape) for shape, closed in zip(different, afar, strict=True)]
        if None not in causes:
            by_cause.setdefault(causes[0] or "", []).append(name)
    return by_cause


def _is_choosy(shape: Shape) -> bool:
    """Tell whether it can matter who else is on a node, or near it."""
    return bool(shape.host_ports or shape.anti_affinity or shape.matched or shape.clique)


@dataclass(frozen=True, slots=True)
class _Static:
    """Nodes that are out for what they are, each with its cause, and how many by cause; as of a state of the facts."""

    facts: int
    causes: Mapping[str, str]
    counts: Counter[str]


_NOTHING: Final = _Static(-1, {}, Counter())


def _static(topology: str, inventory: Inventory, shapes: tuple[Shape, ...], levels: tuple[str, ...]) -> _Static:
    """The causes that only change with the nodes themselves; until one does, and then for that one alone."""
    memo: dict[Hashable, _Static] = inventory.memo.setdefault("exclusions", {})
    key = (topology, shapes, levels)
    known = memo.get(key, _NOTHING)
    if known.facts != inventory.facts:
        if len(memo) >= _REMEMBERED:
            memo.clear()
        known = memo[key] = _count(topology, inventory, shapes, levels, known)
    return known


def _count(
    topology: str, inventory: Inventory, shapes: tuple[Shape, ...], levels: tuple[str, ...], before: _Static
) -> _Static:
    depths = [(level, inventory.topologies[topology].depth(level)) for level in levels]
    cause_of: dict[str, str] = {}
    for name, state in inventory.nodes.items():
        changed = state.facts > before.facts
        cause = _cause(state, topology, shapes, depths) if changed else before.causes.get(name)
        if cause is not None:
            cause_of[name] = cause
    return _Static(inventory.facts, cause_of, Counter(cause_of.values()))


def _cause(state: NodeState, topology: str, shapes: tuple[Shape, ...], depths: Sequence[tuple[str, int]]) -> str | None:
    causes = [state.static_cause(shape) for shape in shapes]
    if causes and None not in causes:
        return causes[0] or ""
    path = state.leaves[topology].path
    lacking = next((level for level, depth in depths if path[depth] is None), None)
    return None if lacking is None else f"no level {lacking}"


#: What is said of pods that find room, but not among those who are there.
_KEPT_OFF: Final = {
    HOST_PORTS: "for {} a host port that is asked for is taken on every node there with capacity",
    ANTI_AFFINITY: "pod anti-affinity keeps {} off every node there with capacity",
    EXCLUSIVE_CLIQUE_TAKEN: "an interconnect that shares no clique keeps {} off every node there with capacity",
    NO_CLIQUE: f"for {{}} no node there with capacity has the label {LABEL_CLIQUE}, so none is in a clique",
}


@dataclass(frozen=True, slots=True)
class Shortage:
    """The first resource that is short, what one pod asks of it, and how much is missing in all.

    ``nodes`` counts the pods for which no usable node is left at all, ``pods`` the others that lack anything.
    ``large``: some of them would find no room even on nodes that all other pods have left. ``sure``: that much of the
    one resource on the nodes there is all that is missing, for all pods that were asked for. ``apart``: the number of
    pods that lack nothing but a node that others leave to them; ``cause`` is what keeps the first one off (a host port,
    anti-affinity).
    """

    resource: str | None
    requested: int
    short: int
    nodes: int
    pods: int = 0
    large: bool = False
    sure: bool = False
    apart: int = 0
    cause: str | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Key for comparisons: the smaller shortage is the nearer fix."""
        return (self.nodes + self.apart, self.short)

    def plus(self, other: Shortage) -> Shortage:
        """Return the sum of both; what the other lacks of another resource is not counted, but makes it unsure."""
        if self.resource is None and not self.nodes and not self.apart:
            return replace(other, sure=(self.sure or not self.pods) and other.sure)
        same = other.resource in (self.resource, None)
        return Shortage(
            self.resource,
            self.requested,
            self.short + (other.short if same else 0),
            self.nodes + other.nodes,
            self.pods + other.pods,
            self.large or other.large,
            self.sure and same and not other.nodes and not other.apart and (other.sure or not other.pods),
            self.apart + other.apart,
            self.cause or other.cause,
        )

    def scale(self, times: int, by: int) -> Shortage:
        """Estimate the shortage for more replicas than were tried."""
        return replace(
            self,
            short=self.short * times // by,
            nodes=self.nodes * times // by,
            pods=self.pods * times // by,
            apart=self.apart * times // by,
            sure=False,
        )

    def fix(self, *, whole: bool, one: bool = False) -> str:
        """The nearest fix as the end of a sentence; empty when none can be named.

        Args:
            whole: with it the whole minimum fits, as far as this shortage is concerned.
            one: the sentence is about a single replica, for which what is missing is true whatever else is.
        """
        if self.apart:
            return f"; {_KEPT_OFF[self.cause or ANTI_AFFINITY].format(_pods(self.apart))}"
        amount = f"{text(self.resource, self.short)} {self.resource}" if self.resource is not None else ""
        if self.sure and whole:
            return f"; {text(self.resource or '', self.short)} more {self.resource} there would do"
        if not (whole or one):
            return ""
        if self.nodes:
            many = self.nodes > 1
            return f"; {self.nodes} more usable node{'s are' if many else ' is'} missing there"
        if self.large and self.short == self.pods * self.requested:
            many = self.pods > 1
            worth = "pods' worth" if many else "pod's worth"
            return f"; {self.pods} more {worth} ({amount}) {'are' if many else 'is'} missing there"
        return f"; {amount} {'is' if self.short == 1 else 'are'} missing there" if self.large and amount else ""


#: Smaller is nearer: even all other pods' room would not do, what is missing, what would be left, the node's name.
_Gap = tuple[bool, float, float, str]


def _pods(count: int) -> str:
    return f"{count} pod{'s' * (count > 1)}"


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
        if not _is_choosy(shape):
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
