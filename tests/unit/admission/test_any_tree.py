"""Trees that somebody else wrote, as the scheduler process sees them: roles, the barrier, levels of pins, status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from builders.members import GATE, group, node, pod, root_key, unit
from covey.admission.entry import QueueStage, assess
from covey.admission.fit_counts import FitCounts
from covey.admission.gangs import Surroundings, build_gang
from covey.admission.hints import hint_for_minimum
from covey.admission.required_levels import astray
from covey.admission.status import Decision, statuses
from covey.admission.tree import Unit
from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import shape_of
from covey.placement.model import Gang, Level, Plan, Refusal, Topology
from covey.placement.planner import plan_minimum, plan_surplus
from covey.scheduler.barrier import Call, releasable


def prefers(level: str) -> dict[str, Any]:
    return {"topology": [{"level": level, "mode": "Preferred"}]}


TOPOLOGY = Topology("t", (Level("block", ("block",)), Level("rack", ("rack",))))
LEAVES = (("a", 4), ("b", 2))
PATHS = {f"{rack}{number}": ("b", rack) for rack in "xyz" for number in range(4)}


def requires(level: str) -> dict[str, Any]:
    return {"topology": [{"level": level, "mode": "Required"}]}


def gated(
    leaf: str, *numbers: int, places: Mapping[int, str] | None = None, pins: Mapping[int, str] | None = None
) -> list[core.Pod]:
    """Pods of a leaf; some are bound (``places``) or pinned."""
    found = []
    for number in numbers:
        place, pin = (places or {}).get(number), (pins or {}).get(number)
        gates = () if place or pin else (GATE,)
        found.append(pod(f"{leaf}-{number}", group=leaf, gates=gates, node=place, pin=pin, gpus=8))
    return found


def gang_of(found: Unit) -> Gang:
    return build_gang(found, TOPOLOGY, shape_of, Surroundings())


def inventory(*pods: core.Pod) -> Inventory:
    """Nodes of one pod each in racks x, y and z, and what is bound there."""
    made = Inventory([TOPOLOGY])
    for name, (block, rack) in PATHS.items():
        made.set_node(node(name, labels={"block": block, "rack": rack}))
    for each in pods:
        if each.spec.node_name:
            made.hold(each.metadata.uid, each.spec.node_name, shape_of(each), each.metadata)
    return made


def role(**state: Any) -> tuple[core.Group, list[core.Group]]:
    """A root, a group that requires one rack, and under it two leaves of two pods."""
    root = group("root", composite=True, minimum=1)
    inner = group(
        "decode", composite=True, parent="root", minimum=state.pop("minimum", 2), constraints=requires("rack")
    )
    return root, [inner, *(group(name, parent="decode", minimum=2) for name in ("d0", "d1"))]


def test_pins_across_two_racks_are_found_for_an_inner_group() -> None:
    root, groups = role()
    pods = [*gated("d0", 0, 1, places={0: "x0", 1: "x1"}), *gated("d1", 0, 1, pins={0: "x2", 1: "y0"})]
    gang = gang_of(unit(root, groups, pods))
    found = astray(gang, TOPOLOGY, PATHS.__getitem__, {"uid-d0-0", "uid-d0-1"}.__contains__)
    assert found is not None
    assert found.pods == ("uid-d1-1",)
    assert found.why == "group decode requires one rack, but is assigned nodes in b/x and b/y"


def test_a_tree_that_no_level_names_is_a_tree_of_the_operator_s_shape() -> None:
    """What is numbered by the operator's labels keeps its numbers, and which come first is theirs to say."""
    root = group("root", composite=True, minimum=1)
    groups = [group("decode", composite=True, parent="root", minimum=1)]
    groups += [
        group(f"d{number}", parent="decode", minimum=size, labels={"covey.dev/replica": str(number)})
        for number, size in ((7, 1), (2, 2))
    ]
    pods = [*gated("d7", 0), *gated("d2", 0, 1)]
    [decode] = gang_of(unit(root, groups, pods)).roles
    assert ([replica.replica for replica in decode.replicas], decode.free) == ([2, 7], False)


def test_a_node_that_only_another_choice_needs_wakes_a_refused_gang() -> None:
    """One of two unlike groups is enough; the first needs four nodes of a rack, the second two."""
    root = group("root", composite=True, minimum=1)
    leaves = [group(name, parent="root", minimum=size, constraints=requires("rack")) for name, size in LEAVES]
    pods = [each for name, size in LEAVES for each in gated(name, *range(size))]
    strangers = [pod(f"s-{name}", node=name, gpus=8) for name in PATHS if not name.endswith("0")]
    room, gang = inventory(*strangers), gang_of(unit(root, leaves, pods))
    assert isinstance(plan_minimum(gang, room), Refusal)
    ask = hint_for_minimum(gang, room)
    room.release("uid-s-x1")
    assert isinstance(plan_minimum(gang, room), Plan)
    assert ask.can_help(room.nodes["x1"], room, FitCounts())
    assert ask.key is None


def test_gangs_whose_groups_say_more_than_their_roles_share_no_answer() -> None:
    """A level over several replicas of a role tells this gang from one that has the same roles without it."""
    keys = []
    for level in (None, requires("rack")):
        root = group("root", composite=True, minimum=1)
        role = group("r", composite=True, parent="root", minimum=2, constraints=level)
        leaves = [group(f"r{number}", parent="r", minimum=2) for number in range(2)]
        found = unit(root, [role, *leaves], [*gated("r0", 0, 1), *gated("r1", 0, 1)])
        keys.append(hint_for_minimum(gang_of(found), inventory()).key)
    assert keys[0] is not None
    assert keys[0] != keys[1]


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


def test_pods_of_a_basic_group_alone_are_placed_and_bound_one_by_one() -> None:
    lone = group("lone", desired=2)
    waiting = unit(lone, [], [pod(name, group="lone", gates=(GATE,), gpus=8) for name in ("a", "b")])
    assert waiting.problem is None
    topology = Topology("", ())
    entry = assess(waiting, topology, Surroundings(), shape_of, None, Decision(), 0.0)
    assert entry.stage is QueueStage.SURPLUS
    assert entry.gang is not None
    inventory = Inventory((topology,))
    inventory.set_node(node("n1"))
    plan = plan_surplus(entry.gang, inventory)
    assert [(each.pod, each.node) for each in plan.assignments] == [("uid-a", "n1")]
    pinned = pod("a", group="lone", pin="n1")
    call = Call("uid-a", "ns", "a", "n1", root_key("lone", composite=False), 1, 0.0)
    found = unit(lone, [], [pinned, pod("b", group="lone", gates=(GATE,))])
    assert releasable(found, {"uid-a": call}) == [pinned]


def test_every_group_of_a_deep_tree_has_a_status() -> None:
    root = group("root", composite=True, minimum=1)
    groups = [
        group("role", composite=True, parent="root", minimum=1),
        group("pair", composite=True, parent="role", minimum=2, constraints=requires("block")),
        group("left", parent="pair", minimum=2, constraints=requires("rack")),
        group("right", parent="pair", minimum=1),
    ]
    pods = [*gated("left", 0, 1, 2, places={0: "x0", 1: "x1"}), *gated("right", 0, places={0: "y0"})]
    found = {
        each.metadata.name: status
        for each, status in statuses(unit(root, groups, pods), Decision(topology=TOPOLOGY), PATHS.__getitem__, "now")
    }
    counts = {name: (status["admitted"], status["scheduled"]) for name, status in found.items()}
    assert counts == {"root": (1, 1), "role": (1, 1), "pair": (2, 2), "left": (2, 2), "right": (1, 1)}
    assert all(status["conditions"][0]["status"] == "True" for status in found.values())
    assert [each["level"] for each in found["pair"]["placement"]] == ["block"]
    assert [each["level"] for each in found["left"]["placement"]] == ["block", "rack"]


def test_a_wish_inside_what_comes_whole_is_named() -> None:
    root = group("root", composite=True, minimum=1)
    groups = [group("role", composite=True, parent="root", minimum=1)]
    for pair in ("p", "q"):
        groups.append(group(pair, composite=True, parent="role", minimum=2))
        groups += [group(f"{pair}{half}", parent=pair, minimum=1, constraints=prefers("rack")) for half in "ab"]
    pods = [each for pair in "pq" for half in "ab" for each in gated(f"{pair}{half}", 0)]
    found = unit(root, groups, pods)
    assert found.untried == ("pa", "pb", "qa", "qb")
    assert isinstance(plan_minimum(gang_of(found), inventory()), Plan)
