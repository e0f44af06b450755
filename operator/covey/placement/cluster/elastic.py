"""Domains that may not exist yet, as a ClusterTopology declares them, and the nodes that they would have. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from covey.api import core
from covey.api.constants import HOSTNAME_LABEL
from covey.placement.cluster.shape import FEATURES

_READY = (core.Condition("Ready", "True"),)


@dataclass(frozen=True, slots=True)
class ElasticDomain:
    """One domain: ``selector`` has the labels that name it, those of its broader domains included."""

    level: str
    name: str
    selector: Mapping[str, str]
    kind: core.ElasticDomains

    def __str__(self) -> str:
        """``rack nvl72-07``."""
        return f"{self.level} {self.name}"

    def make_nodes(self) -> Iterator[core.Node]:
        """Make the nodes that it would have: empty and Ready, each a host of its own. No node has such a name."""
        return (self._node(f"{self.level}/{self.name}/{number}") for number in range(self.kind.nodes))

    def _node(self, name: str) -> core.Node:
        labels = {**(self.kind.labels or {}), **self.selector, HOSTNAME_LABEL: name}
        status = core.NodeStatus(dict(self.kind.allocatable), _READY, declared_features=FEATURES)
        taints = tuple(core.Taint(taint.key, taint.effect, taint.value) for taint in self.kind.taints)
        return core.Node(
            core.Meta(name=name, uid=f"elastic/{name}", labels=labels), core.NodeSpec(taints=taints), status
        )


def expand_elastic(topology: core.ClusterTopology) -> Iterator[ElasticDomain]:
    """Expand the declarations into domains, in their order; the API server lets none name an unknown level."""
    keys = {level.name: level.keys[0] for level in topology.spec.levels}
    for kind in topology.spec.elastic:
        values = {**(kind.within or {}), kind.level: ""}
        for name in kind.names if values.keys() <= keys.keys() else ():
            values[kind.level] = name
            yield ElasticDomain(kind.level, name, {keys[level]: value for level, value in values.items()}, kind)
