"""Free capacity of nodes and domains, kept up to date event by event.

A node or pod event touches one node and its ancestors in each topology, never more: at 5,000 nodes an event costs
microseconds. Each domain carries a version, so that a planner recomputes only the domains that changed since it last
looked (``memo`` is where it keeps what it learned).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, Final

from covey.api import constants, core
from covey.placement.anti_affinity import EXCLUSIVE_CLIQUE, Term, TermCounts
from covey.placement.cluster.domains import DomainNode, DomainTree, Held, NodeState, devices_of
from covey.placement.cluster.node_filters import state_cause
from covey.placement.cluster.outstanding import Outstanding
from covey.placement.cluster.shape import ANTI_AFFINITY, EXCLUSIVE_CLIQUE_TAKEN, NO_CLIQUE, clique_of
from covey.placement.model import Clique, Path, Shape, Topology

UNKNOWN_NODE: Final = "node not found"
#: The tree without levels, for gangs that ask for none.
NO_TOPOLOGY: Final = Topology("", ())


class Inventory:
    """Incremental capacity of nodes by topology. Single-threaded."""

    def __init__(self, topologies: Iterable[Topology] = ()) -> None:
        self.nodes: dict[str, NodeState] = {}
        self.topologies: dict[str, Topology] = {}
        self.trees: dict[str, DomainTree] = {}
        #: What planners remember between plans; emptied when the topologies change.
        self.memo: dict[Hashable, Any] = {}
        #: Changes with every node that appears, changes or goes; not with pods.
        self.facts = 0
        #: How many nodes have no room for a further pod, whatever it asks.
        self.full = 0
        #: The anti-affinity of all holders.
        self.terms = TermCounts()
        #: What units lack in the domains that they are pinned to, for the ranking of domains alone.
        self.outstanding = Outstanding()
        self._holds: dict[str, tuple[str, Held]] = {}
        self._on: dict[str, dict[str, Held]] = {}
        #: Terms on domains broader than a host → the nodes of their holders.
        self._wide: dict[Term, Counter[str]] = {}
        #: Names of the nodes of each clique, and by node the interconnects that holders there join.
        self._cliques: dict[str, set[str]] = {}
        self._joined: dict[str, Counter[Clique]] = {}
        self._versions = count(1)
        self.set_topologies(topologies)

    def set_topologies(self, topologies: Iterable[Topology]) -> None:
        """Replace the topologies; the trees are rebuilt when they differ from the present ones."""
        wanted = {topology.name: topology for topology in (NO_TOPOLOGY, *topologies)}
        if wanted == self.topologies:
            return
        self.topologies = wanted
        self.trees = {name: DomainTree(topology) for name, topology in wanted.items()}
        self.memo.clear()
        for state in self.nodes.values():
            state.leaves = {}
            self._join(state)

    def set_node(self, node: core.Node) -> None:
        """Take over a node as it is now. Nearly free when nothing changed that placements depend on."""
        name = node.metadata.name
        known = self.nodes.get(name)
        if known is not None:
            if _same(known.node, node):
                known.node = node
                return
            if self._stays(known, node):
                self._renew(known, node)
                return
            self._leave(known)
        state = NodeState(node, self._on.setdefault(name, {}))
        self.nodes[name] = state
        self._join(state)

    def remove_node(self, name: str) -> None:
        """Forget a node. What is held there stays known, in case the node comes back."""
        state = self.nodes.pop(name, None)
        if state is not None:
            self._leave(state)
            if not self._on[name]:
                del self._on[name]

    def hold(self, key: str, node: str, shape: Shape, meta: core.Meta | None = None) -> None:
        """Record the capacity that a pod holds on a node, known or not; the same key again moves it.

        Args:
            key: names the holder.
            node: where.
            shape: what is held.
            meta: the pod's namespace and labels; without them anti-affinity of others does not see it.
        """
        before = self._holds.get(key)
        if before is not None:
            if before[0] == node and before[1].shape == shape and _alike(before[1].meta, meta):
                return
            self.release(key)
        held = Held(shape, meta)
        self._holds[key] = (node, held)
        self._on.setdefault(node, {})[key] = held
        self._charge(node, key, shape, 1)
        self._note_terms(node, held, 1)

    def release(self, key: str) -> None:
        """Give back what a pod held; unknown keys are ignored."""
        hold = self._holds.pop(key, None)
        if hold is None:
            return
        node, held = hold
        del self._on[node][key]
        if not self._on[node] and node not in self.nodes:
            del self._on[node]
        self._charge(node, key, held.shape, -1)
        self._note_terms(node, held, -1)

    def kept_off(self, shape: Shape) -> Mapping[str, str]:
        """Return the nodes that holders in a broader domain keep free of the shape, with the cause.

        These are anti-affinity of a holder, and cliques that the shape's interconnect may not share.
        """
        closed: dict[str, str] = {}
        for term in shape.matched & self._wide.keys():
            labels = (self.nodes[name].node.metadata.label(term.key) for name in self._wide[term] if name in self.nodes)
            values = set(labels) - {None}
            names = (name for name, node in self.nodes.items() if node.node.metadata.label(term.key) in values)
            closed |= dict.fromkeys(names, ANTI_AFFINITY)
        if shape.clique is not None:
            closed |= dict.fromkeys(self._cliques.get("", ()) if shape.clique.exclusive else (), NO_CLIQUE)
            for value, mates in self._cliques.items():
                if self._is_shut(shape.clique, value):
                    closed |= dict.fromkeys(mates, EXCLUSIVE_CLIQUE_TAKEN)
        return closed

    def clique_mates(self, nodes: Iterable[str]) -> set[str]:
        """Return the names of all nodes in the cliques of these."""
        values = {_clique(self.nodes[name].node) for name in nodes if name in self.nodes} - {""}
        return {name for value in values for name in self._cliques[value]}

    def holder(self, key: str) -> str | None:
        """The node on which a key holds capacity, or None."""
        held = self._holds.get(key)
        return held[0] if held else None

    def holders(self, node: str) -> Mapping[str, Held]:
        """All that is held on a node, by key."""
        return self._on.get(node, {})

    def hold_of(self, key: str) -> tuple[str, Held] | None:
        """The node on which a key holds capacity, and what it holds there; None for an unknown key."""
        return self._holds.get(key)

    def fits(self, shape: Shape, node: str, meta: core.Meta | None = None, without: Collection[str] = ()) -> str | None:
        """Return None when one more pod of the shape fits the node now, else the cause.

        Args:
            shape: what the pod is.
            node: the node's name.
            meta: the pod's namespace and labels.
            without: keys of holders that are judged as if they held nothing.
        """
        state = self.nodes.get(node)
        if state is None:
            return UNKNOWN_NODE
        cause = state.static_cause(shape) or state.conflict(shape, meta, without)
        cause = cause or self._cause_of_clique(state, clique_of(shape, meta), without)
        if cause is not None:
            return cause
        short = state.short(shape, without)
        return None if short is None else f"insufficient {short}"

    def offered(self) -> Iterator[tuple[Mapping[str, str], Mapping[str, int]]]:
        """The labels of each node, and what it offers (``resources.measure``)."""
        return ((state.node.metadata.labels or {}, state.allocatable) for state in self.nodes.values())

    def free(self, node: str) -> Mapping[str, int]:
        """Return what is free on a node, in integers; negative where it is over-committed, empty when it is unknown."""
        state = self.nodes.get(node)
        return {} if state is None else state.free

    def path(self, topology: str, node: str) -> Path:
        """The node's domain path, one value for each level; empty when node or topology is unknown."""
        state = self.nodes.get(node)
        leaf = state.leaves.get(topology) if state else None
        return leaf.path if leaf else ()

    def warnings(self, topology: str) -> tuple[str, ...]:
        """Report what is wrong with the labels: values under several parents, levels that nodes lack."""
        tree = self.trees[topology]
        texts = [f"{twins}: to placement they are one host" for twins in self._find_twins()]
        for depth, level in enumerate(tree.topology.levels):
            parents: dict[str, set[Path]] = {}
            lacking = 0
            for domain in tree.root.descend(depth + 1):
                value = domain.path[-1]
                if value is None:
                    lacking += len(domain.nodes)
                else:
                    parents.setdefault(value, set()).add(domain.path[:-1])
            split = sorted(value for value, paths in parents.items() if len(paths) > 1)
            if split:
                texts.append(
                    f"labels do not nest: {level.name} {split[0]!r}"
                    + (f" and {len(split) - 1} more values lie" if len(split) > 1 else " lies")
                    + " under several broader domains; they are taken as different domains"
                )
            if lacking and not level.optional:
                texts.append(f"{lacking} of {len(self.nodes)} nodes have no level {level.name}")
        return tuple(texts)

    def _find_twins(self) -> Iterator[str]:
        """Tell of nodes that share the label of a hostname."""
        names: dict[str, list[str]] = {}
        for name, state in self.nodes.items():
            if value := state.node.metadata.label(constants.HOSTNAME_LABEL):
                names.setdefault(value, []).append(name)
        for value, twins in sorted(names.items()):
            if len(twins) > 1:
                yield f"nodes {', '.join(sorted(twins)[:3])} all have the label {constants.HOSTNAME_LABEL}={value}"

    def split_label(self, topology: str, level: str) -> str:
        """Tell of a domain of a level that is several, as some of its nodes lack the label of a broader one; else empty."""
        tree = self.trees[topology]
        memo: dict[Hashable, tuple[int, str]] = self.memo.setdefault("split labels", {})
        known = memo.get((topology, level))
        if known is None or known[0] != self.facts:
            known = memo[topology, level] = (self.facts, _find_split_label(tree, tree.topology.depth(level)))
        return known[1]

    def _stays(self, state: NodeState, node: core.Node) -> bool:
        """Tell whether a changed node keeps its capacity and its domains: then no sum of any domain changes."""
        labels = node.metadata.labels or {}
        if _clique(state.node) != _clique(node) or state.devices != devices_of(node):
            return False
        return state.node.status.allocatable == node.status.allocatable and all(
            leaf.path == path_of(self.topologies[name], labels) for name, leaf in state.leaves.items()
        )

    def _renew(self, state: NodeState, node: core.Node) -> None:
        """Take over a changed node that stays: only the shapes that it admits may differ."""
        version = state.version = state.facts = self.facts = next(self._versions)
        state.admit_as(node)
        for leaf in state.leaves.values():
            for domain in leaf.ancestors():
                domain.version = version

    def _join(self, state: NodeState) -> None:
        labels = state.node.metadata.labels or {}
        version = state.version = state.facts = self.facts = next(self._versions)
        self.full += state.full
        self._cliques.setdefault(_clique(state.node), set()).add(state.name)
        for name, tree in self.trees.items():
            leaf = tree.domain(path_of(tree.topology, labels))
            state.leaves[name] = leaf
            for domain in leaf.ancestors():
                domain.nodes[state.name] = state
                domain.version = version
                domain.broken += bool(state.in_use)
                for resource, value in state.free.items():
                    domain.free[resource] = domain.free.get(resource, 0) + max(value, 0)

    def _leave(self, state: NodeState) -> None:
        version = self.facts = next(self._versions)
        self.full -= state.full
        mates = self._cliques[_clique(state.node)]
        mates.discard(state.name)
        if not mates:
            del self._cliques[_clique(state.node)]
        for name, leaf in state.leaves.items():
            for domain in leaf.ancestors():
                del domain.nodes[state.name]
                domain.version = version
                domain.broken -= bool(state.in_use)
                for resource, value in state.free.items():
                    domain.free[resource] -= max(value, 0)
            self.trees[name].drop_empty(leaf)

    def _is_shut(self, own: Clique, value: str, without: Collection[str] = ()) -> bool:
        """Tell whether a clique has another owner's interconnect in it, and one of the two shares none."""
        if not value:
            return False
        joined = {member for name in self._cliques[value] for member in self._joined.get(name, ())}
        rivals = {member for member in joined if member.owner != own.owner and (member.exclusive or own.exclusive)}
        if not rivals or not without:
            return bool(rivals)
        held = (
            occupant for name in self._cliques[value] for key, occupant in self._on[name].items() if key not in without
        )
        return any(clique_of(shape, meta) in rivals for shape, meta in held)

    def _cause_of_clique(self, state: NodeState, own: Clique | None, without: Collection[str]) -> str | None:
        if own is None:
            return None
        value = _clique(state.node)
        if own.exclusive and not value:
            return NO_CLIQUE
        return EXCLUSIVE_CLIQUE_TAKEN if self._is_shut(own, value, without) else None

    def _note_terms(self, node: str, held: Held, sign: int) -> None:
        shape, clique = held.shape, clique_of(*held)
        if clique is not None:
            joined = self._joined.setdefault(node, Counter())
            joined[clique] += sign
            if not joined[clique]:
                del joined[clique]
            if not joined:
                del self._joined[node]
        for term in (*shape.anti_affinity, *shape.wide_terms, *((EXCLUSIVE_CLIQUE,) if shape.exclusive_clique else ())):
            if sign > 0:
                self.terms.add(term)
            else:
                self.terms.remove(term)
        for term in shape.wide_terms:
            nodes = self._wide.setdefault(term, Counter())
            nodes[node] += sign
            if not nodes[node]:
                del nodes[node]
            if not nodes:
                del self._wide[term]

    def _charge(self, node: str, key: str, shape: Shape, sign: int) -> None:
        state = self.nodes.get(node)
        if state is None:
            return
        used_before, full_before = bool(state.in_use), state.full
        before = [max(state.free.get(name, 0), 0) for name, _ in shape.requests]
        state._count(key, shape, sign)  # noqa: SLF001 - the node's sums and its domains' change together
        flipped = bool(state.in_use) - used_before
        self.full += state.full - full_before
        version = state.version = next(self._versions)
        more = [(name, max(state.free[name], 0) - had) for (name, _), had in zip(shape.requests, before, strict=True)]
        for leaf in state.leaves.values():
            domain: DomainNode | None = leaf
            while domain is not None:
                domain.version = version
                domain.broken += flipped
                free = domain.free
                for name, value in more:
                    free[name] = free.get(name, 0) + value
                domain = domain.parent


def _find_split_label(tree: DomainTree, depth: int) -> str:
    whole: dict[str, list[DomainNode]] = {}
    # In an order that no order of nodes changes: the same question has the same answer.
    for domain in sorted(tree.at(depth), key=lambda domain: tuple(value or "" for value in domain.path)):
        whole.setdefault(domain.path[-1] or "", []).append(domain)
    levels = tree.topology.levels
    for value, domains in sorted(whole.items()):
        for lacking in (domain for domain in domains if None in domain.path and len(domains) > 1):
            pairs = ([*zip(lacking.path, other.path, strict=True)] for other in domains if other is not lacking)
            for pair in pairs:
                broader = next((n for n, (one, other) in enumerate(pair) if one is None and other is not None), None)
                if broader is not None and all(one == other or None in (one, other) for one, other in pair):
                    number = len(lacking.nodes)
                    return (
                        f"{levels[depth].name} {value} is taken for several domains, as {number} of its nodes"
                        f" {'have' if number > 1 else 'has'} no label {levels[broader].keys[0]} and others have:"
                        f" label them all, or leave {levels[broader].name} out of a ClusterTopology"
                    )
    return ""


def path_of(topology: Topology, labels: Mapping[str, str]) -> Path:
    """The domain path of a node with these labels: of each level's keys the first one present counts."""
    return tuple(next((labels[key] for key in level.keys if labels.get(key)), None) for level in topology.levels)


def domains_of(topology: Topology, path: Path) -> dict[str, str]:
    """Level → domain value, for the levels that a node has."""
    return {level.name: value for level, value in zip(topology.levels, path, strict=False) if value is not None}


def _clique(node: core.Node) -> str:
    """The clique of a node; empty for one that is in none."""
    return node.metadata.label(constants.LABEL_CLIQUE) or ""


def _alike(one: core.Meta | None, other: core.Meta | None) -> bool:
    """Tell whether selectors see the same labels and namespace, of pods that both stay; nothing else matters."""
    if one is None or other is None or one is other:
        return one is other
    going = (one.deletion_timestamp is None, other.deletion_timestamp is None)
    return one.labels == other.labels and one.namespace == other.namespace and going[0] == going[1]


def _same(old: core.Node, new: core.Node) -> bool:
    return (
        old.metadata.labels == new.metadata.labels
        and old.status.allocatable == new.status.allocatable
        and old.status.declared_features == new.status.declared_features
        and old.spec == new.spec
        and state_cause(old) == state_cause(new)
    )
