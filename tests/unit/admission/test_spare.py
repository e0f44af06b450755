"""What is to spare beside minimums that are about to come: never more than leaves each of them its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.members import GATE, group, member, node, role_groups, unit
from covey.admission.gangs import Surroundings, build_gang
from covey.admission.spare import count_spare
from covey.admission.tree import Unit
from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import shape_of
from covey.placement.model import Gang, Level, Plan, Topology
from covey.placement.planner import plan_minimum

TOPOLOGY = Topology("t", (Level("rack", ("rack",)),))


def cluster(racks: int, per_rack: int) -> Inventory:
    inventory = Inventory([TOPOLOGY])
    for number in range(racks * per_rack):
        inventory.set_node(node(f"n{number}", labels={"rack": f"r{number // per_rack}"}))
    return inventory


def coming(name: str, minimum: int, gpus: int, rack: str | None = None, there: int = 1) -> tuple[Unit, Gang]:
    """A unit that asks for pods on its way, of which some are there."""
    constraints = {"topology": [{"level": rack, "mode": "Required"}]} if rack else {}
    root = group(name, composite=True, minimum=1, constraints=constraints)
    pods = [member("decode", number, root=name, gates=(GATE,), gpus=gpus) for number in range(there)]
    found = unit(root, role_groups("decode", replicas=minimum, minimum=minimum, size=1, root=name), pods)
    return found, build_gang(found, TOPOLOGY, shape_of, Surroundings())


@given(
    racks=st.integers(1, 4),
    per_rack=st.integers(1, 3),
    minimums=st.lists(st.tuples(st.integers(1, 3), st.sampled_from([1, 4, 8])), min_size=1, max_size=3),
    rack=st.sampled_from([None, "rack"]),
    data=st.data(),
)
def test_spare_pods_wherever_they_go_leave_every_minimum_its_place(
    racks: int, per_rack: int, minimums: list[tuple[int, int]], rack: str | None, data: st.DataObject
) -> None:
    inventory = cluster(racks, per_rack)
    units = [coming(f"g{number}", size, gpus, rack) for number, (size, gpus) in enumerate(minimums)]
    spare = count_spare(units, inventory, most=8)
    if not spare:
        return  # it may well be that they do not fit
    for number in range(spare):
        name = data.draw(st.sampled_from(sorted(inventory.nodes)))
        surplus = shape_of(member("more", number, gpus=8))
        if inventory.fits(surplus, name) is None:
            inventory.hold(f"surplus-{number}", name, surplus)
    for number, (size, gpus) in enumerate(minimums):
        _, gang = coming(f"g{number}", size, gpus, rack, there=size)
        plan = plan_minimum(gang, inventory)
        assert isinstance(plan, Plan)
        shapes = {pod.key: pod.shape for role in gang.roles for replica in role.replicas for pod in replica.pods}
        for each in plan.assignments:
            inventory.hold(f"{number}/{each.pod}", each.node, shapes[each.pod])


@pytest.mark.parametrize(
    ("rack", "spare"),
    [
        pytest.param(None, 8 - 2 - 3, id="a node for each pod"),
        pytest.param("rack", 2 - 2, id="a rack for each unit"),
    ],
)
def test_spare_pods_are_those_for_which_there_is_more_than_the_minimums_need(rack: str | None, spare: int) -> None:
    units = [coming("g0", 2, 1, rack), coming("g1", 3, 1, rack)]
    assert count_spare(units, cluster(2, 4), most=100) == spare
    assert count_spare(units, cluster(2, 4), most=2) == min(2, spare)


def test_spare_pods_of_a_cluster_in_use_are_none() -> None:
    inventory = cluster(2, 2)
    for name in inventory.nodes:
        inventory.hold(name, name, shape_of(member("decode", 0, gpus=1)))
    assert count_spare([coming("g0", 1, 1)], inventory, most=100) == 0


def test_spare_pods_beside_a_unit_that_cannot_be_judged_are_none() -> None:
    """Of nodes that it may not use none is its own; and of a pod that spreads nobody knows where it may go."""
    inventory = cluster(4, 4)
    known = coming("g0", 1, 1)
    assert count_spare([known], inventory, most=1) == 1
    elsewhere = member("decode", 0, root="g1", gates=(GATE,), gpus=1, spec={"nodeSelector": {"rack": "none"}})
    root = group("g1", composite=True, minimum=1)
    for pod in (elsewhere, None):
        pods: list[core.Pod] = [pod] if pod is not None else []
        found = unit(root, role_groups("decode", replicas=1, minimum=1, size=1, root="g1"), pods)
        other = (found, build_gang(found, TOPOLOGY, shape_of, Surroundings()))
        assert count_spare([other], inventory, most=1) == 0
    assert count_spare([known, coming("g2", 1, 1, "rack")], inventory, most=1) == 0, "levels that differ"
