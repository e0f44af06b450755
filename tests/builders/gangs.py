"""A unit of prefill and decode in racks, as admission reads it from its groups and pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from builders.holds import hold_all
from builders.members import GATE, group, member, node, role_groups, unit
from covey.admission.gangs import Surroundings, build_gang
from covey.admission.taken_room import counted_shape
from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Level, Topology

RACK: Final = "cloud.provider.com/topology-rack"
TOPOLOGY: Final = Topology("t", (Level("rack", (RACK,)),))
IN_ONE_RACK: Final = {"schedulingConstraints": {"topology": [{"level": "rack", "mode": "Required"}]}}


def nodes_in(racks: Mapping[str, str], gpus: Mapping[str, int] | None = None) -> Inventory:
    """Nodes and their racks, each with eight devices unless another number is given."""
    inventory = Inventory([TOPOLOGY])
    for name, rack in racks.items():
        inventory.set_node(node(name, gpus=(gpus or {}).get(name, 8), labels={RACK: rack}))
    return inventory


def at(role: str, replica: int, place: str | None, index: int = 0, **state: Any) -> core.Pod:
    """A pod on a node, or one that waits; it asks for a whole node unless another number is given."""
    gates = (GATE,) if place is None else ()
    return member(role, replica, index, node=place, gates=gates, **{"gpus": 8, **state})


def gang_of(
    inventory: Inventory,
    *pods: core.Pod,
    number: int = 0,
    replicas: int = 9,
    sizes: Mapping[str, int] | None = None,
    minimums: Mapping[str, int] | None = None,
    **root: Any,
) -> Gang:
    """The gang of a unit with these pods, which hold what they ask for; the root of another unit has its number."""
    hold_all(inventory, pods, counted_shape)
    name = f"root{number}" if number else "root"
    least = {"prefill": 1, "decode": 1, **(minimums or {})}
    labels = {"covey.dev/unit": str(number)}
    top = group(name, composite=True, minimum=sum(map(bool, least.values())), desired=2, labels=labels, **root)
    groups = [
        each
        for role, minimum in least.items()
        for each in role_groups(role, replicas=replicas, minimum=minimum, size=(sizes or {}).get(role, 1), root=name)
    ]
    return build_gang(unit(top, groups, pods), TOPOLOGY, counted_shape, Surroundings())
