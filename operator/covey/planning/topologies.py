"""Topology and levels of each workload, as the scheduler chooses them; unknown levels are bad input here.

Upstream groups name label keys, not levels. A key that is in no level becomes a level of its own, put as deep as its
values nest inside the broader levels, so that a domain of it is exactly the nodes with one value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from covey.api import core
from covey.manifests.errors import InputError, Problem
from covey.placement.cluster.inventory import path_of
from covey.placement.cluster.presets import choose
from covey.placement.model import Level, Path, Topology
from covey.planning.facts import Facts
from covey.planning.workload import Mention, Workload


def choose_topologies(workloads: Sequence[Workload], facts: Facts) -> list[Topology]:
    """A topology for each workload, in their order.

    Raises:
        InputError: the choice is not clear, or a workload names a level that its topology lacks.
    """
    return [_extended(workload, _chosen(workload, facts), facts.nodes) for workload in workloads]


def default_topology(facts: Facts) -> Topology:
    """Return the topology of workloads that name none.

    Raises:
        InputError: several, and none is marked default.
    """
    try:
        return choose(None, facts.named_topologies(), facts.default_topologies(), facts.nodes)
    except LookupError as error:
        raise InputError("--topology", _text(error), "mark one as default") from None


def topology_of(root: core.Group, facts: Facts) -> Topology:
    """The topology of a root of the cluster.

    Raises:
        LookupError: the choice is not clear.
    """
    constraints = root.spec.scheduling_constraints
    name = constraints.topology_name if constraints else None
    return choose(name, facts.named_topologies(), facts.default_topologies(), facts.nodes)


def _chosen(workload: Workload, facts: Facts) -> Topology:
    try:
        found = choose(workload.topology_name, facts.named_topologies(), facts.default_topologies(), facts.nodes)
    except LookupError as error:
        what = _text(error)
        raise InputError(workload.place, what, "give the ClusterTopology with --topology, or name one") from None
    known = {level.name for level in found.levels}
    problems = [
        Problem(mention.place, f"topology {found.name} has no level {mention.level}", f"use one of {_names(found)}")
        for mention in workload.mentions
        if mention.level and mention.level not in known
    ]
    problems += [
        Problem(
            mention.place, f"{mention.level} is coarser than {mention.within}, which is required", "prefer a finer one"
        )
        for mention in workload.mentions
        if {mention.level, mention.within} <= known and _coarser(found, mention)
    ]
    if problems:
        raise InputError.of(problems)
    return found


def _coarser(topology: Topology, mention: Mention) -> bool:
    return mention.within is not None and topology.depth(mention.level) < topology.depth(mention.within)


def _extended(workload: Workload, topology: Topology, nodes: Sequence[core.Node]) -> Topology:
    """The topology with a level for each label key that the workload names and no level has."""
    for key in dict.fromkeys(mention.key for mention in workload.mentions if mention.key):
        if any(key in level.keys for level in topology.levels):
            continue
        depth = _depth(key, topology, nodes)
        levels = (*topology.levels[:depth], Level(key, (key,)), *topology.levels[depth:])
        topology = Topology(f"{topology.name}+{key}", levels)
    return topology


def _depth(key: str, topology: Topology, nodes: Iterable[core.Node]) -> int:
    """Compute how many levels may stand above a key without splitting the nodes of one of its values."""
    seen: dict[str, Path] = {}
    depth = len(topology.levels)
    for node in nodes:
        labels = node.metadata.labels or {}
        value = labels.get(key)
        if value is not None:
            path = path_of(topology, labels)
            first = seen.setdefault(value, path)
            depth = min(depth, _common(first, path))
    hosts = [number for number, level in enumerate(topology.levels) if level.name == "host"]
    return min([depth, *hosts])


def _common(one: Path, other: Path) -> int:
    return next((index for index, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]), len(one))


def _names(topology: Topology) -> str:
    return ", ".join(level.name for level in topology.levels)


def _text(error: LookupError) -> str:
    return str(error.args[0]) if error.args else "the topology is not clear"
