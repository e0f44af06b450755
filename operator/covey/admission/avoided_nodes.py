"""Nodes that new pods of a unit keep off because the operator says so on its root: pure.

The scheduler process finds out by itself which nodes fail before a pod is bound (``excludedNodes`` in the status); what
happens to pods afterwards only the operator knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from covey.api import core
from covey.api.annotations import Avoided, read
from covey.api.constants import ANNOTATION_AVOID
from covey.placement.cluster.inventory import path_of
from covey.placement.model import Topology

#: Seconds for which anything is ever avoided: what would last longer was written by another clock.
_LONGEST: Final = 86400.0


def avoided_now(root: core.Group, now: float) -> tuple[Avoided, ...]:
    """The nodes to avoid that a root names, as far as their time has not run out; ``now`` in seconds since the epoch."""
    return tuple(
        each for each in read(root.metadata.annotation(ANNOTATION_AVOID)) if 0.0 < each.until - now <= _LONGEST
    )


def avoided_nodes(avoided: Iterable[Avoided], topology: Topology, nodes: Iterable[core.Node]) -> dict[str, str]:
    """The nodes that are meant, with the reason.

    Args:
        avoided: nodes and domains.
        topology: whose levels the domains are of; one that it does not have is no domain.
        nodes: of the cluster; looked through only where domains are avoided.
    """
    told = tuple(avoided)
    found = {each.node: each.reason for each in told if each.node}
    domains = [each for each in told if not each.node]
    levels = {level.name for level in topology.levels}
    known = [domain for domain in domains if domain.domain.keys() <= levels]
    return {**(dict(_within(known, topology, nodes)) if known else {}), **found}


def _within(domains: Iterable[Avoided], topology: Topology, nodes: Iterable[core.Node]) -> Iterator[tuple[str, str]]:
    wanted = tuple(domains)
    for node in nodes:
        labels: Mapping[str, str] = node.metadata.labels or {}
        path = dict(zip((level.name for level in topology.levels), path_of(topology, labels), strict=True))
        for each in wanted:
            if each.domain.items() <= path.items():
                yield node.metadata.name, f"{each} is avoided: {each.reason}"
