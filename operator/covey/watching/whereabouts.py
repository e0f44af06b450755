"""Where some nodes lie, in words: the finest domain of each level that holds them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from covey.placement.cluster.inventory import path_of
from covey.placement.cluster.presets import choose
from covey.planning.answer import Teller
from covey.planning.facts import Facts


def whereabouts(name: str | None, facts: Facts) -> Callable[[Sequence[str]], str]:
    """A function from nodes to words; it says nothing where the topology is not clear.

    Args:
        name: the topology that the resource names.
        facts: the cluster.
    """
    try:
        topology = choose(name, facts.named_topologies(), facts.default_topologies(), facts.nodes)
    except LookupError:
        return lambda _nodes: ""
    paths = {node.metadata.name: path_of(topology, node.metadata.labels or {}) for node in facts.nodes}
    teller = Teller(topology, lambda node: paths.get(node, ()), {})

    def words(nodes: Sequence[str]) -> str:
        shared = teller.shared(node for node in nodes if node in paths)
        return ", ".join(f"{each.level} {each.domain}" for each in shared if each.level != "host")

    return words
