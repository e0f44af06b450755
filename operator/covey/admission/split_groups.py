"""Groups whose bound members lie in several domains of the level that they require: told in the root's status. Pure.

The planner places nothing more under such a group (``placement.question.torn``). A unit whose minimum is bound is
admitted all the same, so it says there why its surplus and its replacements do not come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from covey.admission.gangs import UnplannableError, levels
from covey.admission.nodes import TreeNode
from covey.admission.tree import Unit
from covey.api import core
from covey.model import podstate
from covey.placement.model import Path, Topology, where


def find_split_groups(unit: Unit, topology: Topology, path_of: Callable[[str], Path]) -> Iterator[str]:
    """A sentence for each group that is apart.

    Args:
        unit: the unit.
        topology: the one that it is planned in.
        path_of: a node's domain path; empty when the node is unknown.
    """
    for node in unit.tree.walk():
        level = _required_level(node, topology)
        if level is None:
            continue
        depth = topology.depth(level) + 1
        pods = unit.followers() if node is unit.tree else _pods_below(node)
        bound = (pod.spec.node_name for pod in pods if podstate.occupies_node(pod))
        places = sorted({where(path[:depth]) for name in bound if name and (path := path_of(name))})
        if len(places) > 1:
            names = " and ".join(places[:5])
            yield (
                f"group {node.group.metadata.name} requires one {level}, but has members in {names}: nothing more is"
                " placed under it"
            )


def _required_level(node: TreeNode, topology: Topology) -> str | None:
    try:
        return levels(node.group, topology, "Group")[0]
    except UnplannableError:  # its own condition says so
        return None


def _pods_below(node: TreeNode) -> Iterable[core.Pod]:
    return (pod for below in node.walk() for pod in below.pods)
