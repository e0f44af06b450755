"""Counts of the nodes that a role may not use, by cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from covey.placement.cluster.domains import NodeState
from covey.placement.cluster.inventory import Inventory
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
    if not different or not all(map(is_choosy, different)):
        return {}
    afar = [inventory.kept_off(shape) for shape in different]
    by_cause: dict[str, list[str]] = {}
    for name, state in inventory.nodes.items():
        causes = [closed.get(name) or state.conflict(shape) for shape, closed in zip(different, afar, strict=True)]
        if None not in causes:
            by_cause.setdefault(causes[0] or "", []).append(name)
    return by_cause


def is_choosy(shape: Shape) -> bool:
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
