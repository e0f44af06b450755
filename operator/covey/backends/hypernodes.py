"""Tier of Volcano's HyperNodes for each level of the topology.

A level's HyperNodes are those whose ``tierName`` is the level's name or one of its node labels: Volcano's own
discovery by labels writes the label there (``pkg/controllers/hypernode/discovery/label``).

Volcano fails open: to it, an unknown tier name is no constraint, and any HyperNode of the allowed tier or below it
will do, whatever it stands for. So a level counts only where the HyperNodes leave nothing open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

from covey.api import core
from covey.compile import Levels

#: No HyperNode may have this tier or a lower one, so that nothing fits.
NOWHERE: Final = 0


class HyperNodes:
    """The HyperNodes of a cluster. What is found out is kept: there may be thousands, and every pass asks.

    Args:
        items: all of them.
    """

    def __init__(self, items: Iterable[core.HyperNode] = ()) -> None:
        self._by_name = {hyper_node.metadata.name: hyper_node for hyper_node in items}
        self._found: dict[frozenset[str], int | str] = {}

    def tier(self, level: str, levels: Levels) -> int | str:
        """Return the tier of a level, or what is wrong with it, in words that follow its name.

        Args:
            level: its name.
            levels: label keys by level; empty where no ClusterTopology was chosen.
        """
        names = frozenset({level, *levels.get(level, ())})
        if names not in self._found:
            self._found[names] = self._find(names)
        return self._found[names]

    def _find(self, names: frozenset[str]) -> int | str:
        own = [hyper_node for hyper_node in self._by_name.values() if hyper_node.spec.tier_name in names]
        if not own:
            return f"no HyperNode has the tierName {' or '.join(sorted(names))}: name the tier so"
        tiers = sorted({hyper_node.spec.tier for hyper_node in own})
        if len(tiers) > 1:
            listed = ", ".join(map(str, tiers))
            return f"its HyperNodes are of the tiers {listed}, and Volcano takes a lower one for closer: give them one"
        return self._wrong(own, tiers[0]) or tiers[0]

    def _wrong(self, own: Iterable[core.HyperNode], tier: int) -> str | None:
        if tier <= NOWHERE:
            return f"its HyperNodes are of tier {tier}: give them tiers from 1"
        if twice := self._twice():
            return f"HyperNode {twice} is a member of two others, with which Volcano places nothing: remove it from one"
        within = self._within(own)
        stray = next(
            (
                hyper_node
                for hyper_node in self._by_name.values()
                if hyper_node.spec.tier <= tier and hyper_node.metadata.name not in within
            ),
            None,
        )
        if stray is not None:
            where = f"HyperNode {stray.metadata.name} of tier {stray.spec.tier} lies in none of them"
            return f"{where}, and Volcano would take it for one: give it a higher tier"
        return None

    def _within(self, own: Iterable[core.HyperNode]) -> set[str]:
        """Return the names of these and of all below them."""
        within: set[str] = set()
        waiting = list(own)
        while waiting:
            hyper_node = waiting.pop()
            if hyper_node.metadata.name not in within:
                within.add(hyper_node.metadata.name)
                waiting += [self._by_name[name] for name in _child_names(hyper_node) if name in self._by_name]
        return within

    def _twice(self) -> str | None:
        parents = Counter(name for hyper_node in self._by_name.values() for name in _child_names(hyper_node))
        return next((name for name, count in parents.items() if count > 1), None)


def find_inverted_levels(levels: Levels, tiers: Mapping[str, int]) -> tuple[str, str] | None:
    """Return two levels, the broader first, whose tiers contradict their order, or None."""
    ordered = [level for level in levels if level in tiers]
    return next(((one, two) for one, two in pairwise(ordered) if tiers[one] <= tiers[two]), None)


def _child_names(hyper_node: core.HyperNode) -> frozenset[str]:
    return frozenset(member.hyper_node for member in hyper_node.spec.members if member.hyper_node is not None)
