"""The traps of the field: each was seen to defeat a live scheduler or a plausible planner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from typing import Final

import pytest

from covey.placement.model import Gang, Plan, Refusal, Verdict
from covey.placement.planner import plan_minimum, plan_surplus
from oracle import facts
from oracle.build import case, full, nodes, role
from oracle.case import Case, Hold
from oracle.checker import check, score
from oracle.written import shape
from rounds import plan_round


def planned(asked: Case) -> Case:
    """The case after a checked plan of minimum and surplus."""
    first = plan_minimum(asked.gang, asked.inventory())
    assert isinstance(first, Plan), first
    assert check(asked, first, "minimum") == []
    middle = asked.after(first.assignments)
    growth = plan_surplus(middle.gang, middle.inventory())
    assert check(middle, growth, "surplus") == []
    return middle.after(growth.assignments)


def refused(asked: Case) -> Refusal:
    answer = plan_minimum(asked.gang, asked.inventory())
    assert isinstance(answer, Refusal)
    assert answer.verdict is Verdict.INFEASIBLE
    return answer


#: Replicas that each role gets, or None where the gang is refused.
Trap = tuple[Case, tuple[int, ...] | None]
PAIR: Final = [role("prefill", minimum=1, desired=4), role("decode", minimum=1, desired=2)]
WIDE_PAIR: Final = [role("prefill", minimum=3, desired=9), role("decode", minimum=3, desired=9)]
PARTIAL: Final = nodes(racks=4, per_rack=2)
PIECES: Final = [Hold(f"s-{node.metadata.name}", node.metadata.name, shape(6)) for node in PARTIAL]
HALF: Final = [Hold(f"s{number}", f"b0-r{number}-n0", shape(4)) for number in range(2)]
LED: Final = [role("a", size=2, minimum=2, leader=shape(4), required="rack")]
TWO_BLOCKS: Final = nodes(blocks=2, racks=1, per_rack=2)
LONELY: Final = replace(shape(1), host_ports=(("0.0.0.0", "TCP", 8000),))
OUTSIDE: Final = [role("router", minimum=0, desired=2), role("prefill", minimum=2), role("decode", minimum=1)]
SETS: Final = [role(name, minimum=1, desired=2, together={1: "new"}) for name in ("prefill", "decode")]
MISSING: Final = role("a", size=3, minimum=1, required="rack", placed={(0, 1): "b0-r0-n2", (0, 2): "b0-r0-n3"})
BROKEN: Final = role(
    "a",
    size=3,
    minimum=2,
    required="rack",
    placed={(0, 1): "b0-r0-n2", (1, 1): "b0-r0-n3", (0, 2): "b0-r0-n4"},
)


def traps() -> Iterator[tuple[str, Trap]]:
    for sizes in sorted(set(permutations((2, 3, 2, 3, 2)))):
        groups = [role(f"g{number}", size=size, required="rack") for number, size in enumerate(sizes)]
        floor, name = nodes(racks=2, per_rack=6), f"racks of 6 for groups of {sizes}"
        yield name, (case(floor, groups), (1, 1, 1, 1, 1))
        yield f"{name} in one block", (case(floor, groups, required="block"), (1, 1, 1, 1, 1))
        yield f"{name} without a node", (case(floor[1:], groups), None)
    # With one place to spare the emptier role gets it.
    for room, expected in ((1, None), (2, (1, 1)), (3, (2, 1)), (4, (2, 2)), (5, (3, 2)), (6, (4, 2))):
        yield f"4 and 2 on {room}", (case(nodes(per_rack=room), PAIR), expected)
        yield f"4 and 2 on {room} in one block", (case(nodes(per_rack=room), PAIR, required="block"), expected)
    for declared in (WIDE_PAIR, WIDE_PAIR[::-1]):
        yield f"{declared[0].name} first, surplus", (case(nodes(per_rack=8), declared), (4, 4))
        yield f"{declared[0].name} first, minimum", (case(nodes(per_rack=6), declared), (3, 3))
    # Racks of 7 and 7: the two smaller ones must share a rack, whoever comes first.
    for order in permutations((2, 5, 7)):
        siblings = [role(f"size-{size}", size=size, required="rack") for size in order]
        yield f"siblings of {order}", (case(nodes(racks=2, per_rack=7), siblings, required="block"), (1, 1, 1))
    # 16 free GPUs in pieces: one pod a GPU fits, and what asks for a piece too large does not.
    yield "pods of one GPU over pieces", (case(PARTIAL, [role("a", minimum=16, wants=shape(1))], holds=PIECES), (16,))
    wide = role("a", size=5, wants=shape(1), required="rack")
    yield "a replica wider than the pieces of a rack", (case(PARTIAL, [wide], holds=PIECES), None)
    yield "a rack's name under two blocks", (case(TWO_BLOCKS, [role("a", size=3, required="rack")]), None)
    settled = role("a", minimum=1, desired=4, placed={(0, 0): "b0-r0-n0"})
    yield "a pinned unit grows where it is", (case(TWO_BLOCKS, [settled], required="block"), (2,))
    # Its block is gone, and with it the node of the first pod.
    orphan = role("a", minimum=2, placed={(0, 0): "b0-r0-n0"})
    yield "a pinned domain that is gone", (case(TWO_BLOCKS[2:], [orphan], required="block"), (2,))
    # The tightest block takes the minimum alone; the other takes everything.
    uneven = [*nodes(blocks=1, racks=1, per_rack=2), *nodes(blocks=2, racks=1, per_rack=4)[4:]]
    grows = [role(name, minimum=1, desired=2) for name in "ab"]
    yield "the domain is chosen for the surplus", (case(uneven, grows, required="block"), (2, 2))
    floor = nodes(racks=2, per_rack=2)
    yield "a replica of two shapes in a rack", (case(floor, LED, holds=HALF), (2,))
    yield (
        "a replica of two shapes in no rack",
        (case(floor, LED, holds=[*HALF, Hold("s2", "b0-r1-n0", shape(1))]), None),
    )
    yield "as many exclusive pods as hosts", (case(floor, [role("a", minimum=4, wants=LONELY)]), (4,))
    yield "an exclusive pod without a host", (case(floor, [role("a", minimum=5, wants=LONELY)]), None)
    yield "a role outside the gang has no room", (case(nodes(per_rack=3), OUTSIDE), (0, 2, 1))
    yield "a role outside the gang has the rest", (case(nodes(per_rack=4), OUTSIDE), (1, 2, 1))
    yield "half a set", (case(nodes(per_rack=3), SETS), (1, 1))
    yield "a whole set", (case(nodes(per_rack=4), SETS), (2, 2))
    # Two nodes of the rack died, and lost pods come back in it, never in the other one, though that is free.
    left = nodes(racks=2, per_rack=6)[2:]
    yield "lost pods come back in their rack", (case(left, [MISSING]), (1,))
    yield "three lost pods and one free node", (case(left, [BROKEN]), None)
    yield "lost pods whose rack is full", (case(left, [MISSING], holds=full("b0-r0-n4", "b0-r0-n5")), None)


TRAPS: Final = dict(traps())


@pytest.mark.parametrize("name", TRAPS)
def test_planner_in_a_trap_admits_what_fits(name: str) -> None:
    asked, admitted = TRAPS[name]
    if admitted is None:
        refused(asked)
    else:
        assert score(asked, planned(asked)).admitted == admitted


def test_pods_of_one_gpu_when_a_rack_is_in_use_leave_the_others_whole() -> None:
    taken = [Hold(f"s{number}", f"b0-r1-n{number}", shape(6)) for number in range(2)]
    after = planned(case(nodes(racks=3, per_rack=2), [role("a", minimum=4, wants=shape(1))], holds=taken))
    assert {pod.node for pod in facts.pods_of(after.gang.roles)} == {"b0-r1-n0", "b0-r1-n1"}


def test_refusal_when_pieces_are_too_small_names_what_is_short() -> None:
    reason = refused(case(PARTIAL, [role("a", wants=shape(3))], holds=PIECES)).reasons[0]
    assert (reason.resource, reason.requested, reason.short) == ("nvidia.com/gpu", "3", "1")


def gang(name: str, wants: dict[str, int], *, day: int = 1, priority: int = 0, required: str | None = None) -> Gang:
    near = "rack" if wants.get("size") else None
    roles = (role(name, **wants, required=near),)
    created = f"2026-01-0{day}T00:00:00Z"
    return Gang("default", name, 0, roles, "floor", required=required, created=created, priority=priority)


RACE: Final = {"size": 2, "minimum": 2}
GROWING: Final = {"minimum": 1, "desired": 3}
LAST_BLOCK: Final = case(nodes(blocks=2, racks=2, per_rack=2), (), holds=full("b0-r0-n0"))


@pytest.mark.parametrize(
    ("floor", "gangs", "pods"),
    [
        (
            LAST_BLOCK,
            [gang("new", RACE, day=2, required="block"), gang("old", RACE, required="block")],
            {"old": 4, "new": None},
        ),
        (
            LAST_BLOCK,
            [gang("old", RACE, required="block"), gang("urgent", RACE, day=2, priority=1, required="block")],
            {"urgent": 4, "old": None},
        ),
        (case(nodes(per_rack=1), ()), [gang("new", GROWING, day=2), gang("old", GROWING)], {"old": 1, "new": None}),
        (case(nodes(per_rack=2), ()), [gang("new", GROWING, day=2), gang("old", GROWING)], {"old": 1, "new": 1}),
        (case(nodes(per_rack=6), ()), [gang("new", GROWING, day=2), gang("old", GROWING)], {"old": 3, "new": 3}),
    ],
    ids=["the older first", "the more urgent first", "one minimum", "two minimums", "surplus for both"],
)
def test_gangs_of_one_round_when_there_is_little_room_come_in_order(
    floor: Case, gangs: list[Gang], pods: dict[str, int | None]
) -> None:
    outcomes = plan_round(gangs, floor.inventory())
    assert [
        (outcome.gang.name, len(outcome.assignments) if isinstance(outcome.plan, Plan) else None)
        for outcome in outcomes
    ] == list(pods.items())
