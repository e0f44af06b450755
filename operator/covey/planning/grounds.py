"""Capacity of every node and what is taken of it, counted as the planner counts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from covey.admission import podstate
from covey.api import core
from covey.picture.floor import Ground
from covey.placement.cluster import resources
from covey.placement.cluster.admits import state_cause
from covey.placement.model import Path


def survey(
    nodes: Iterable[core.Node],
    pods: Iterable[core.Pod],
    path_of: Callable[[str], Path],
    leave_out: Collection[str] = (),
) -> list[Ground]:
    """The nodes with their capacity and what pods hold of it.

    Args:
        nodes: all nodes.
        pods: all pods; those without a place hold nothing.
        path_of: a node's domain path.
        leave_out: UIDs of pods that are drawn apart.
    """
    used: dict[str, dict[str, int]] = {}
    for pod in pods:
        node = podstate.holding(pod)
        if node is None or pod.metadata.uid in leave_out:
            continue
        amounts = used.setdefault(node, {})
        for name, amount in resources.pod_requests(pod).items():
            amounts[name] = amounts.get(name, 0) + amount
    return [
        Ground(
            node.metadata.name,
            path_of(node.metadata.name),
            resources.amounts(node.status.allocatable),
            used.get(node.metadata.name, {}),
            state_cause(node),
        )
        for node in nodes
    ]
