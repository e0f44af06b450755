"""KAI's scale test leaves no GPU over, so one rack broken too many would show."""

from collections.abc import Iterator

from bench.kai_plan import plan_alone
from bench.kai_shape import DECODE, DEPLOYMENTS, FLOOR, FRONTEND, PREFILL, Floor, Placement, Spot
from bench.trees import GroupSpec

FLOOR_OF_NODES = Floor()
FIRST_RACK = ("node-0-0-0-0", "node-0-0-0-1")
SECOND_RACK = ("node-0-0-1-0", "node-0-0-1-1")


def test_the_planner_gives_every_gpu_away_and_refuses_one_deployment_more() -> None:
    report = plan_alone(DEPLOYMENTS + 1)
    assert report["problems"] == []
    assert (report["deployments"], report["gpus"]) == (DEPLOYMENTS, len(FLOOR) * FLOOR.gpus)
    assert report["decodeInOneBlock"] == DEPLOYMENTS
    assert {reason.partition(":")[0] for reason in report["refused"]} == {f"kai-{DEPLOYMENTS}"}


def spots(group: GroupSpec, *nodes: str, tree: str = "kai-0") -> Iterator[Spot]:
    return (Spot(tree, group.name, node) for node in nodes)


def placement(prefill: tuple[str, ...], decode: tuple[str, ...]) -> Placement:
    front_ends = spots(FRONTEND, *FIRST_RACK)
    return Placement(FLOOR_OF_NODES, (*spots(PREFILL, *prefill), *spots(DECODE, *decode), *front_ends))


def test_a_deployment_in_two_racks_is_whole_and_leaves_room_for_all_others() -> None:
    good = placement(FIRST_RACK, SECOND_RACK * 2)
    assert good.problems() == []
    assert (good.gpus, good.decode_blocks, good.still_fit) == (32, [1], DEPLOYMENTS - 1)


def test_every_broken_rule_is_told() -> None:
    other_zone = ("node-1-0-0-0", "node-1-0-0-1")
    assert placement(("node-0-0-0-0", "node-0-0-1-0"), SECOND_RACK * 2).problems() == [
        "1 nodes over-committed",
        "1 prefills in several racks",
    ]
    assert placement(FIRST_RACK, other_zone * 2).problems() == ["1 deployments in several zones"]
    assert placement(FIRST_RACK, SECOND_RACK).problems() == ["1 deployments bound in part"]


def test_decode_pods_strewn_over_racks_keep_prefills_out() -> None:
    one_of_each_rack = [names[0] for names in FLOOR_OF_NODES.nodes("rack").values()]
    strewn = Placement(FLOOR_OF_NODES, tuple(spots(DECODE, *one_of_each_rack)))
    assert strewn.still_fit == 0
    assert Placement(FLOOR_OF_NODES, ()).still_fit == DEPLOYMENTS
