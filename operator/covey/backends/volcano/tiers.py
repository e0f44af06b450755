"""Which tier of Volcano's HyperNodes a level of the topology is.

A level's HyperNodes are those whose ``tierName`` is the level's name or one of its node labels: Volcano's own
discovery by labels writes the label there (``pkg/controllers/hypernode/discovery/label``).

Volcano fails open: to it, an unknown tier name is no constraint, and any HyperNode of the allowed tier or below it
will do, whatever it stands for. So a level counts only where the HyperNodes leave nothing open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from covey.api import core
from covey.compile import Levels

#: Nothing has this tier or a lower one, so that nothing fits: what a level means whose HyperNodes have gone.
NOWHERE = 0


@dataclass(frozen=True, slots=True)
class Tiers:
    """The tiers of a topology's levels.

    Args:
        levels: from broad to narrow, with their label keys; empty where no ClusterTopology was chosen.
        hyper_nodes: those of the cluster.
    """

    levels: Levels
    hyper_nodes: Sequence[core.HyperNode]

    def of(self, level: str) -> int | str:
        """The tier of a level, or what is wrong with it, in words that follow its name."""
        names = {level, *self.levels.get(level, ())}
        own = [each for each in self.hyper_nodes if each.spec.tier_name in names]
        if not own:
            return f"no HyperNode has the tierName {' or '.join(sorted(names))}: name the tier so"
        tiers = sorted({each.spec.tier for each in own})
        if len(tiers) > 1:
            found = ", ".join(map(str, tiers))
            return f"its HyperNodes are of the tiers {found}, and Volcano takes a lower one for closer: give them one"
        return self._wrong(own, tiers[0]) or tiers[0]

    def _wrong(self, own: Sequence[core.HyperNode], tier: int) -> str | None:
        if twice := _twice(self.hyper_nodes):
            return f"HyperNode {twice} is a member of two others, with which Volcano places nothing: remove it from one"
        if tier <= NOWHERE:
            return f"its HyperNodes are of tier {tier}: give them tiers from 1"
        within = _within(own, {each.metadata.name: each for each in self.hyper_nodes})
        stray = next(
            (each for each in self.hyper_nodes if each.spec.tier <= tier and each.metadata.name not in within), None
        )
        if stray is not None:
            name = stray.metadata.name
            return f"HyperNode {name} of tier {stray.spec.tier} lies in none of them, and Volcano would take it for one"
        return None


def inverted(levels: Levels, tiers: Mapping[str, int]) -> tuple[str, str] | None:
    """Two levels, the broader first, whose tiers say otherwise."""
    ordered = [level for level in levels if level in tiers]
    return next(((one, two) for one, two in zip(ordered, ordered[1:], strict=False) if tiers[one] <= tiers[two]), None)


def _within(own: Sequence[core.HyperNode], known: Mapping[str, core.HyperNode]) -> set[str]:
    """Names of these HyperNodes and of all below them."""
    found: set[str] = set()
    waiting = list(own)
    while waiting:
        each = waiting.pop()
        if each.metadata.name not in found:
            found.add(each.metadata.name)
            waiting += [known[name] for member in each.spec.members if (name := member.hyper_node) in known]
    return found


def _twice(hyper_nodes: Sequence[core.HyperNode]) -> str | None:
    members = Counter(
        name for each in hyper_nodes for name in {member.hyper_node for member in each.spec.members} if name
    )
    return next((name for name, count in members.items() if count > 1), None)
