"""``ClusterTopology``: which node labels make up the levels of the network, from broad to narrow."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from pydantic import Field, WithJsonSchema

from covey.api.constants import SCHEDULING_API
from covey.api.core.meta import Meta, Read
from covey.api.model import ATOMIC, BY_NAME, LIVE, REQUIRED, SET, VERBATIM, CelRule, LevelName, NodeLabelKey, OneOf

_VALUE: Final = "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
_TEXTS: Final[dict[str, Any]] = {
    VERBATIM: True,
    "type": "object",
    "maxProperties": 16,
    "additionalProperties": {"type": "string", "maxLength": 63},
}
Texts = Annotated[dict[str, str], WithJsonSchema(_TEXTS)]


class TopologyLevel(Read, frozen=True):
    """One level."""

    name: Annotated[LevelName, LIVE]
    """The name that resources use, such as block or rack; a lower-case DNS label."""
    keys: Annotated[tuple[NodeLabelKey, ...], SET, LIVE, Field(min_length=1, max_length=8)]
    """Keys of node labels; the first that a node carries gives its domain. 1 to 8."""
    optional: Annotated[bool, LIVE] = False
    """True: nodes that lack the level cause no warning. Default: false."""


class ElasticTaint(Read, frozen=True):
    """A taint of nodes that may come."""

    key: Annotated[NodeLabelKey, LIVE]
    """Its key."""
    effect: Annotated[str, OneOf(("NoSchedule", "PreferNoSchedule", "NoExecute")), LIVE]
    """NoSchedule, PreferNoSchedule or NoExecute."""
    value: Annotated[str, LIVE, Field(max_length=63)] = ""
    """Its value. Default: none."""


class ElasticDomains(Read, frozen=True):
    """Domains of one level that may not exist yet and come whole, all of them alike."""

    level: Annotated[LevelName, LIVE]
    """The level of the topology that they are domains of."""
    names: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=63)], ...], SET, LIVE, Field(min_length=1, max_length=64)
    ]
    """The values of the level's first label key, in the order in which they are asked for. 1 to 64."""
    nodes: Annotated[int, LIVE, Field(ge=1, le=1024)]
    """The number of nodes of each domain. 1 to 1024."""
    allocatable: Annotated[Texts, LIVE]
    """The allocatable resources of one node, pods among them, as quantities."""
    within: Annotated[Texts | None, LIVE] = None
    """The broader domains that they lie in, by the name of the level. Default: none is known."""
    labels: Annotated[Texts | None, LIVE] = None
    """Labels of the nodes in addition to those of their domains. Default: none."""
    taints: Annotated[tuple[ElasticTaint, ...], ATOMIC, Field(max_length=8)] = ()
    """Taints of the nodes. Default: none."""


class ClusterTopologySpec(Read, frozen=True):
    """The levels, and what of them may come."""

    RULES: ClassVar = (
        CelRule(
            "self.levels.all(a, self.levels.all(b, a.name == b.name || !a.keys.exists(k, k in b.keys)))",
            "a label key belongs to two levels, which would make them the same: remove it from one of them",
            at=".levels",
        ),
        CelRule(
            "!has(self.elastic) || self.elastic.all(e, self.levels.exists(l, l.name == e.level)"
            " && (!has(e.within) || e.within.all(k, k != e.level && self.levels.exists(l, l.name == k))))",
            "elastic names a level that is not in levels, or lies within its own: use names of levels",
            at=".elastic",
        ),
        CelRule(
            "!has(self.elastic) || self.elastic.all(e, e.allocatable.all(k, isQuantity(e.allocatable[k])"
            " && !e.allocatable[k].startsWith('-')))",
            "elastic has an allocatable amount that is no quantity: write one such as 8 or 64Gi",
            at=".elastic",
        ),
        CelRule(
            f"!has(self.elastic) || self.elastic.all(e, e.names.all(n, n.matches('{_VALUE}'))"
            f" && (!has(e.within) || e.within.all(k, e.within[k].matches('{_VALUE}'))))",
            "elastic has a name that is no value of a label: use letters, digits, -, _ and ., with a letter or digit at both ends",
            at=".elastic",
        ),
    )

    levels: Annotated[tuple[TopologyLevel, ...], REQUIRED, BY_NAME, Field(min_length=1, max_length=10)] = ()
    """The levels, from broad to narrow. 1 to 10."""
    elastic: Annotated[tuple[ElasticDomains, ...], ATOMIC, Field(max_length=16)] = ()
    """Domains that may not exist yet: an autoscaler is asked for them by name, covey plan adds them. Default: none."""


class ClusterTopology(Read, frozen=True):
    """The levels of a cluster's network, by node labels.

    The annotation scheduling.covey.dev/default: "true" marks the one that is used by resources which name none.
    """

    metadata: Meta
    spec: Annotated[ClusterTopologySpec, REQUIRED] = ClusterTopologySpec()
    """The levels."""
    api_version: Annotated[str, OneOf((SCHEDULING_API,))] = SCHEDULING_API
