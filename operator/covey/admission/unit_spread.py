"""The spread of a resource's units: in which domains its units lie already. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from covey.admission.tree import Unit
from covey.model import podstate
from covey.placement.model import Gang, Path, Topology


def with_occupied_domains(
    gang: Gang, topology: Topology, siblings: Iterable[Unit], assumed: Mapping[str, str], path_of: Callable[[str], Path]
) -> Gang:
    """A gang that is spread, told in which domains its siblings lie by now; any other as it is.

    Args:
        gang: the gang.
        topology: the one that it is planned in.
        siblings: the other units of its resource.
        assumed: UID → node, of pods whose place was decided and is on no object yet.
        path_of: a node's domain path.
    """
    if gang.spread is None:
        return gang
    depth = topology.depth(gang.spread.level) + 1
    return replace(gang, spread=replace(gang.spread, occupied=count_units_by_domain(siblings, assumed, path_of, depth)))


def count_units_by_domain(
    units: Iterable[Unit], assumed: Mapping[str, str], path_of: Callable[[str], Path], depth: int
) -> Mapping[Path, int]:
    """Count the units in each domain of a level, by the places of their pods, decided ones too.

    A unit is spread, so it lies where the roles lie that follow it.
    """
    count: dict[Path, int] = {}
    for unit in units:
        nodes = {podstate.place_of(pod, assumed) for pod in unit.followers()} - {None}
        for path in {path_of(node)[:depth] for node in nodes if node}:
            if path:
                count[path] = count.get(path, 0) + 1
    return count
