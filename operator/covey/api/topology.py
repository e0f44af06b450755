"""``ClusterTopology``: which node labels make up the levels of the network, from broad to narrow."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from covey.api.model import BY_NAME, LIVE, SET, LevelName, Model, NodeLabelKey, ObjectMeta, Rule


class TopologyLevel(Model):
    """One level."""

    name: Annotated[LevelName, LIVE]
    """The name that resources use, such as block or rack; a lower-case DNS label."""
    keys: Annotated[tuple[NodeLabelKey, ...], SET, LIVE, Field(min_length=1, max_length=8)]
    """Keys of node labels; the first that a node carries gives its domain. 1 to 8."""
    optional: Annotated[bool, LIVE] = False
    """True: nodes that lack the level cause no warning. Default: false."""


class ClusterTopologySpec(Model):
    """The levels."""

    RULES: ClassVar = (
        Rule(
            "self.levels.all(a, self.levels.all(b, a.name == b.name || !a.keys.exists(k, k in b.keys)))",
            "a label key belongs to two levels, which would make them the same: remove it from one of them",
            at=".levels",
        ),
    )

    levels: Annotated[tuple[TopologyLevel, ...], BY_NAME, Field(min_length=1, max_length=10)]
    """The levels, from broad to narrow. 1 to 10."""


class ClusterTopology(Model):
    """The levels of a cluster's network, by node labels.

    The annotation scheduling.covey.dev/default: "true" marks the one that is used by resources which name none.
    """

    api_version: Literal["scheduling.covey.dev/v1alpha1"] = "scheduling.covey.dev/v1alpha1"
    kind: Literal["ClusterTopology"] = "ClusterTopology"
    metadata: ObjectMeta
    spec: ClusterTopologySpec
    """The levels."""
