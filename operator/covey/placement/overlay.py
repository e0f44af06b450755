"""Hypothetical changes of an inventory: pods that are gone, room that is held, undone exactly at the end.

Afterwards nothing differs, the versions of nodes and domains included: a version stands for a content, each is given
out once, and the content is what it was. So whatever a planner has remembered under the versions from before holds
again, and nothing that it remembers under those from meanwhile is ever taken for anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from covey.api import core
from covey.placement.cluster.domains import DomainNode, Held, NodeState
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Shape

V = TypeVar("V")


@contextmanager
def overlay(inventory: Inventory) -> Iterator[Overlay]:
    """Change an inventory for a while. Nobody else may change it meanwhile, but overlays inside this one."""
    changes = Overlay(inventory)
    try:
        yield changes
    finally:
        changes.undo()


@dataclass(frozen=True, slots=True)
class _Node:
    """The sums of a node, and the order of its holders, before it was touched."""

    state: NodeState
    version: int
    free: dict[str, int]
    held: tuple[str, ...]
    guards: tuple[str, ...]


class Overlay:
    """The changes, and all that they touched as it was before."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._holds: dict[str, tuple[str, Held] | None] = {}
        self._nodes: dict[str, _Node] = {}
        self._domains: dict[DomainNode, tuple[int, dict[str, int]]] = {}
        self._terms = inventory.terms.version

    def remove(self, keys: Iterable[str]) -> None:
        """Take these holders away; unknown ones are ignored."""
        for key in keys:
            hold = self._inventory.hold_of(key)
            if hold is not None:
                self._note(key, hold[0])
                self._inventory.release(key)

    def hold(self, key: str, node: str, shape: Shape, meta: core.Meta | None = None) -> None:
        """Hold room on a node; arguments as of `Inventory.hold`."""
        hold = self._inventory.hold_of(key)
        if hold is not None:
            self._note(key, hold[0])
        self._note(key, node)
        self._inventory.hold(key, node, shape, meta)

    def undo(self) -> None:
        """Undo all of it."""
        for key, before in self._holds.items():
            if self._inventory.hold_of(key) != before:
                self._inventory.release(key)
        for key, before in self._holds.items():
            if before is not None:
                self._inventory.hold(key, before[0], before[1].shape, before[1].meta)
        for node in self._nodes.values():
            _restore_node(node)
        for domain, (version, free) in self._domains.items():
            domain.version = version
            _reorder(domain.free, free)
        self._inventory.terms.version = self._terms

    def _note(self, key: str, node: str) -> None:
        if key not in self._holds:
            self._holds[key] = self._inventory.hold_of(key)
        state = self._inventory.nodes.get(node)
        if state is None or node in self._nodes:
            return
        self._nodes[node] = _Node(state, state.version, dict(state.free), tuple(state.held), tuple(state.guards))
        for leaf in state.leaves.values():
            for domain in leaf.ancestors():
                if domain in self._domains:
                    break
                self._domains[domain] = (domain.version, dict(domain.free))


def _restore_node(before: _Node) -> None:
    """Put back the order of the holders, which decides which conflict is named first, and drop zeros that are new."""
    state = before.state
    state.version = before.version
    _reorder(state.free, before.free)
    _reorder(state.held, {key: state.held[key] for key in before.held})
    _reorder(state.guards, {key: state.guards[key] for key in before.guards})


def _reorder(actual: dict[str, V], wanted: dict[str, V]) -> None:
    actual.clear()
    actual.update(wanted)
