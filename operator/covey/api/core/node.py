"""Nodes, and the domains of Volcano that they lie in."""

from __future__ import annotations

from typing import Any

import msgspec

from covey.api.core.meta import Condition, Meta, Read


class Taint(Read, frozen=True):
    """``Taint``."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class NodeSpec(Read, frozen=True):
    """``NodeSpec``."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class NodeStatus(Read, frozen=True):
    """``NodeStatus``."""

    allocatable: dict[str, str | int | float] | None = None
    conditions: tuple[Condition, ...] | None = None
    declared_features: tuple[str, ...] | None = None


class Node(Read, frozen=True):
    """A node."""

    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class HyperNodeMember(Read, frozen=True):
    """A member of a HyperNode: nodes, or (``type`` ``HyperNode``) another one, which only its exact name selects."""

    type: str = ""
    selector: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def hyper_node(self) -> str | None:
        """The name of the HyperNode that is meant; None when nodes are."""
        exact = self.selector.get("exactMatch")
        return exact.get("name") if self.type == "HyperNode" and isinstance(exact, dict) else None


class HyperNodeSpec(Read, frozen=True):
    """``spec`` of a HyperNode; a lower tier is closer."""

    tier: int = 0
    tier_name: str = ""
    members: tuple[HyperNodeMember, ...] = ()


class HyperNode(Read, frozen=True):
    """A domain of Volcano's network topology (``topology.volcano.sh/v1alpha1``)."""

    metadata: Meta
    spec: HyperNodeSpec = HyperNodeSpec()
