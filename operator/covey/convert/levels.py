"""From the names that others have for parts of a cluster to the levels of a ClusterTopology."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Levels:
    """Levels and topologies of the cluster, as far as they are known when a document is converted.

    ``by_key``: the key of a node label → the level that has it. ``topologies``: names of the ClusterTopologies there
    are.
    """

    by_key: Mapping[str, str] = field(default_factory=dict)
    topologies: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """The levels there are."""
        return frozenset(self.by_key.values())
