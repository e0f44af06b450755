"""What a tree of groups must look like to be planned."""

from __future__ import annotations

import pytest

from builders.members import GATE, group, node, pod, root_key, unit
from covey.admission.gangs import Surroundings
from covey.admission.queue import Want, assess
from covey.admission.status import Decision
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import shape_of
from covey.placement.model import Topology
from covey.placement.planner import plan_surplus
from covey.scheduler.barrier import Call, releasable


def test_two_roles_of_one_name_are_said() -> None:
    role = {"covey.dev/role": "decode"}
    groups = [group(name, parent="root", minimum=1, labels=role) for name in ("a", "b")]
    found = unit(group("root", composite=True, minimum=2), groups, [])
    assert found.problem == "groups a and b are both role decode: give each its own name in the label covey.dev/role"


@pytest.mark.parametrize(("one", "other", "number"), [("1", "1", 1), ("first", "second", 0)])
def test_two_replicas_of_one_number_are_said(one: str, other: str, number: int) -> None:
    root = group("root", composite=True, minimum=1)
    groups = [
        group("decode", composite=True, parent="root", minimum=1),
        group("a", parent="decode", minimum=1, labels={"covey.dev/replica": one}),
        group("b", parent="decode", minimum=1, labels={"covey.dev/replica": other}),
    ]
    assert unit(root, groups, []).problem == (
        f"groups a and b are both replica {number} of role decode: give each its own number, from 0, in the label"
        " covey.dev/replica"
    )


def test_pods_of_one_group_are_told_apart_by_their_places() -> None:
    root = group("root", composite=True, minimum=1)
    assert unit(root, [group("decode", parent="root", minimum=2)], []).problem is None


def test_pods_of_a_basic_group_alone_are_placed_and_bound_one_by_one() -> None:
    lone = group("lone", desired=2)
    waiting = unit(lone, [], [pod(name, group="lone", gates=(GATE,), gpus=8) for name in ("a", "b")])
    assert waiting.problem is None
    topology = Topology("", ())
    entry = assess(waiting, topology, Surroundings(), shape_of, None, Decision(), 0.0)
    assert entry.want is Want.SURPLUS
    assert entry.gang is not None
    inventory = Inventory((topology,))
    inventory.set_node(node("n1"))
    plan = plan_surplus(entry.gang, inventory)
    assert [(each.pod, each.node) for each in plan.assignments] == [("uid-a", "n1")]
    pinned = pod("a", group="lone", pin="n1")
    call = Call("uid-a", "ns", "a", "n1", root_key("lone", composite=False), 1, 0.0)
    found = unit(lone, [], [pinned, pod("b", group="lone", gates=(GATE,))])
    assert releasable(found, {"uid-a": call}) == [pinned]
