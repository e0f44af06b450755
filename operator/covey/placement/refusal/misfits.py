"""What no node could give, however empty it were: said in place of a shortage, which more of such nodes would not cure.

A pod that no node can hold, for want of a resource, of size or of a label; and pods that must share a host, and ask for
more than the largest has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Final

from covey.api import constants, core
from covey.placement.cluster import resources
from covey.placement.cluster.domains import NodeState
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.node_filters import state_cause
from covey.placement.model import Level, Shape

#: Values of a label, or resources, that are listed.
_LISTED: Final = 8
_REMEMBERED: Final = 256


def find_misfit(inventory: Inventory, shapes: Iterable[Shape]) -> str | None:
    """Say why no node could hold a pod of one of these shapes if it were empty; None where some could hold each.

    Args:
        inventory: all nodes.
        shapes: the shapes of a role's pods.
    """
    memo: dict[Hashable, tuple[int, str | None]] = inventory.memo.setdefault("misfits", {})
    for shape in dict.fromkeys(shapes):
        facts, sentence = memo.get(shape, (-1, None))
        if facts != inventory.facts:
            if len(memo) >= _REMEMBERED:
                memo.clear()
            sentence = _misfit(inventory, shape)
            memo[shape] = (inventory.facts, sentence)
        if sentence is not None:
            return sentence
    return None


def find_too_wide(inventory: Inventory, shapes: Sequence[Shape], level: Level) -> str | None:
    """Say by which resource pods that must share one domain ask for more than any host has; None where that is not so.

    Only of a level that is a host: others may grow.
    """
    if constants.HOSTNAME_LABEL not in level.keys:
        return None
    asked = Counter[str]()
    for shape in shapes:
        asked.update(dict(shape.requests))
    usable = [node for node in inventory.nodes.values() if all(node.static_cause(shape) is None for shape in shapes)]
    for name in sorted(asked, key=resources.rank):
        largest = _largest(usable, name)
        if usable and asked[name] > largest:
            what = f"{resources.text(name, asked[name])} {name} in one {level.name}"
            return f"{what}, and the largest has {resources.text(name, largest)}"
    return None


def _misfit(inventory: Inventory, shape: Shape) -> str | None:
    nodes = list(inventory.nodes.values())
    for name, value in sorted(shape.requests, key=lambda request: resources.rank(request[0])):
        if nodes and value > 0 and resources.is_extended(name) and not _largest(nodes, name):
            return f"no node has {name}{_offered(nodes)}"
    usable = [node for node in nodes if node.static_cause(shape) is None]
    if not usable:
        return _unselected([node.node for node in nodes if state_cause(node.node) is None], shape)
    # Those that have enough of what is looked for first are the nodes that are meant.
    fit = usable
    for name, value in sorted(shape.requests, key=lambda request: resources.rank(request[0])):
        largest = _largest(fit, name)
        if value > largest:
            which = "the largest node" if len(usable) == len(nodes) else "the largest node that it may use"
            if value <= _largest(usable, name):
                which += " with enough of the rest"
            asked = f"a pod asks for {resources.text(name, value)} {name}"
            return f"{asked}, and {which} has {resources.text(name, largest)}"
        fit = [node for node in fit if node.allocatable.get(name, 0) >= value]
    return None


def _largest(nodes: Iterable[NodeState], resource: str) -> int:
    return max((node.allocatable.get(resource, 0) for node in nodes), default=0)


def _offered(nodes: Iterable[NodeState]) -> str:
    """``; nodes have nvidia.com/gpu, rdma/ib``, devices first."""
    names = {
        name for node in nodes for name, value in node.allocatable.items() if value and resources.is_extended(name)
    }
    if not names:
        return ", or any other device: see whether the device plugin runs"
    return f"; nodes have {_list(sorted(names, key=resources.rank))}"


def _unselected(nodes: Sequence[core.Node], shape: Shape) -> str | None:
    """Say which label of the node selector, or of the node affinity, no node has, and which values there are."""
    if not nodes:
        return None
    for key, value in shape.node_selector:
        if not any((node.metadata.labels or {}).get(key) == value for node in nodes):
            return f"no node has the label {key}={value} of its node selector; {_values(nodes, key)}"
    labels = [node.metadata.labels or {} for node in nodes]
    if shape.node_selector and not any(
        all(own.get(key) == value for key, value in shape.node_selector) for own in labels
    ):
        wanted = ", ".join(f"{key}={value}" for key, value in shape.node_selector)
        return f"no node has all labels of its node selector: {wanted}"
    unmet = [_unmet(nodes, term) for term in shape.node_affinity.node_selector_terms] if shape.node_affinity else []
    return next(iter(unmet), None) if all(unmet) else None


def _unmet(nodes: Sequence[core.Node], term: core.NodeSelectorTerm) -> str | None:
    """Say which requirement ``In`` or ``Exists`` of a term no node meets."""
    for requirement in term.match_expressions or ():
        key, values = requirement.key, requirement.values or ()
        there = {(node.metadata.labels or {}).get(key) for node in nodes} - {None}
        if requirement.operator == "In" and not there.intersection(values):
            return f"no node has the label {key} in ({_list(values)}) of its node affinity; {_values(nodes, key)}"
        if requirement.operator == "Exists" and not there:
            return f"no node has the label {key} of its node affinity"
    return None


def _values(nodes: Iterable[core.Node], key: str) -> str:
    values = sorted({value for node in nodes if (value := (node.metadata.labels or {}).get(key)) is not None})
    return f"nodes have {key}: {_list(values)}" if values else f"no node has a label {key}"


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
