"""Rounds: priority, then age; every minimum before any surplus; reservations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from builders.requests import make_gang, make_inventory, make_role, make_shape
from covey.admission.reservation import Kept
from covey.admission.round import Outcome, plan_round
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Plan, Refusal
from covey.placement.question.demands import place


def named(gang: Gang) -> Gang:
    """The gang with pod keys of its own."""
    roles = tuple(
        replace(
            role,
            replicas=tuple(
                replace(r, pods=tuple(replace(p, key=f"{gang.name}/{p.key}") for p in r.pods)) for r in role.replicas
            ),
        )
        for role in gang.roles
    )
    return replace(gang, roles=roles)


def make(name: str, desired: int, minimum: int, **more: object) -> Gang:
    return named(
        replace(make_gang(make_role("w", desired, minimum), required="block", name=name), **{"uid": name, **more})
    )  # type: ignore[arg-type]


def placed(outcomes: list[Outcome]) -> dict[str, int]:
    return {outcome.gang.name: len(outcome.assignments) for outcome in outcomes}


def kept(block: str, inventory: Inventory, gang: Gang) -> Kept:
    """All nodes of a block, kept for a gang."""
    return Kept(gang, frozenset(name for name in inventory.nodes if name.startswith(f"{block}-")))


def test_surplus_of_a_higher_priority_comes_before_minimums_of_a_lower() -> None:
    gangs = [make("low", 2, 2, priority=1, created="1"), make("high", 4, 1, priority=2, created="2")]
    outcomes = plan_round(gangs, make_inventory({"r1": [8] * 4}))
    assert placed(outcomes) == {"high": 4, "low": 0}
    assert isinstance(outcomes[1].plan, Refusal)


def test_a_reserved_domain_is_kept_for_the_gang_that_waits() -> None:
    inventory = make_inventory({"b1/r1": [8] * 3, "b2/r1": [8]})
    waiting, late = make("waiting", 4, 4, created="1"), make("late", 3, 1, created="2")
    outcomes = plan_round([waiting, late], inventory, reserved=[kept("b1", inventory, waiting)])
    assert placed(outcomes) == {"waiting": 0, "late": 1}
    assert {node for outcome in outcomes for node in outcome.assignments.values()} == {"b2-r1-n0"}


def test_the_owner_of_a_reservation_and_its_elders_may_use_it() -> None:
    inventory = make_inventory({"b1/r1": [8] * 6})
    elder, waiting = make("elder", 3, 1, created="1"), make("waiting", 4, 4, created="2")
    outcomes = plan_round([waiting, elder], inventory, reserved=[kept("b1", inventory, waiting)])
    assert placed(outcomes) == {"elder": 1, "waiting": 4}


def test_its_owner_may_use_a_reservation_also_when_its_place_in_the_queue_has_changed() -> None:
    inventory = make_inventory({"b1/r1": [8] * 4})
    waiting = make("waiting", 4, 2, created="2")
    outcomes = plan_round([waiting], inventory, reserved=[kept("b1", inventory, replace(waiting, created="1"))])
    assert placed(outcomes) == {"waiting": 4}


def test_a_gang_that_runs_in_a_reserved_domain_replaces_what_it_lost() -> None:
    inventory = make_inventory({"b1/r1": [8] * 4})
    waiting, running = make("waiting", 9, 9, created="1"), make("running", 2, 2, created="2")
    running = place(running, {"running/w-0-0": "b1-r1-n0"})
    outcomes = plan_round([waiting, running], inventory, reserved=[kept("b1", inventory, waiting)])
    assert placed(outcomes) == {"waiting": 0, "running": 1}


def test_a_reservation_closes_its_domain_to_no_surplus_of_a_higher_priority() -> None:
    inventory = make_inventory({"b1/r1": [8] * 4})
    waiting, urgent = make("waiting", 9, 9), make("urgent", 3, 1, priority=1)
    outcomes = plan_round([waiting, urgent], inventory, reserved=[kept("b1", inventory, waiting)])
    assert placed(outcomes) == {"waiting": 0, "urgent": 3}


def test_two_gangs_may_keep_one_domain() -> None:
    inventory = make_inventory({"b1/r1": [8] * 4})
    first, second, late = make("a", 9, 9, created="1"), make("b", 9, 9, created="3"), make("c", 1, 1, created="2")
    outcomes = plan_round(
        [first, second, late], inventory, reserved=[kept("b1", inventory, first), kept("b1", inventory, second)]
    )
    assert placed(outcomes) == {"a": 0, "b": 0, "c": 0}


@given(st.data())
@settings(max_examples=40)
def test_a_round_when_all_fits_as_minimums_places_all_with_any_lower_minimums(data: st.DataObject) -> None:
    """Replicas beyond a minimum cost nobody a place: each minimum goes where the whole unit fits beside the others'.

    Which domain that is may differ, and with it how full they get, where pods are of several sizes: hosts that surplus
    will break into are not broken yet. So units have pods of one size here, or all units are alike.
    """
    nodes = st.lists(st.sampled_from([8, 8, 4]), min_size=1, max_size=3)
    racks = {f"b1/r{n}": free for n, free in enumerate(data.draw(st.lists(nodes, min_size=2, max_size=4)))}
    sizes = st.sampled_from([1, 2, 4, 8])
    alike = data.draw(st.booleans())
    gpus = sizes if alike else st.just(data.draw(sizes))
    unit = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2), gpus), min_size=1, max_size=2)  # replicas, size
    number = st.integers(2, 5)
    units = [data.draw(unit)] * data.draw(number) if alike else data.draw(st.lists(unit, min_size=2, max_size=5))
    minimums = [[data.draw(st.integers(1, replicas)) for replicas, _, _ in roles] for roles in units]
    router = make_role("router", 1, shape=make_shape(0), follow_unit=False)
    routers = [router] if data.draw(st.booleans()) else []

    def plan(minimums: Sequence[Sequence[int | None]]) -> dict[str, int]:
        gangs = []
        for number, (roles, least) in enumerate(zip(units, minimums, strict=True)):
            made = [
                make_role(f"w{i}", replicas, minimum, size=size, shape=make_shape(gpus))
                for i, ((replicas, size, gpus), minimum) in enumerate(zip(roles, least, strict=True))
            ]
            gang = make_gang(*made, *routers, required="rack", name=f"u{number}")
            gangs.append(named(replace(gang, uid=gang.name, created=gang.name)))
        return placed(plan_round(gangs, make_inventory(racks)))

    pods = {
        f"u{number}": len(routers) + sum(replicas * size for replicas, size, _ in roles)
        for number, roles in enumerate(units)
    }
    assume(plan([[None] * len(roles) for roles in units]) == pods)
    assert plan(minimums) == pods


@given(st.data())
@settings(max_examples=60)
def test_units_alike_are_whole_in_any_order_of_arrival_where_anybody_could_place_them(data: st.DataObject) -> None:
    """Pods of one size: each rack has so many slots, and no order of whole units does better than to use all of them up.

    Where not all fit, as many minimums are there as there could be, and no surplus costs one its place.
    """
    racks = data.draw(st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=3), min_size=1, max_size=4))
    gpus = data.draw(st.sampled_from([1, 2, 3, 8]))
    roles = data.draw(
        st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2)), min_size=1, max_size=2)
    )  # replicas, size
    whole = sum(replicas * size for replicas, size in roles)
    slots = [sum(free // gpus for free in rack) for rack in racks]
    inventory = make_inventory({f"b1/r{n}": free for n, free in enumerate(racks)})
    least = [data.draw(st.integers(1, replicas)) for replicas, _ in roles]

    def unit(number: int, minimums: Sequence[int]) -> Gang:
        made = [
            make_role(f"w{i}", replicas, minimum, size=size, shape=make_shape(gpus))
            for i, ((replicas, size), minimum) in enumerate(zip(roles, minimums, strict=True))
        ]
        gang = make_gang(*made, required="rack", name=f"u{number}")
        return named(replace(gang, uid=gang.name, created=f"{number:03}"))

    fit = sum(rack // whole for rack in slots)
    arrivals = data.draw(st.lists(st.integers(1, 3), max_size=4))
    number = 0
    for together in arrivals:  # each with a minimum of its own
        group = range(number, min(number + together, fit))
        minimums = [[data.draw(st.integers(1, replicas)) for replicas, _ in roles] for _ in group]
        found = plan_round([unit(n, own) for n, own in zip(group, minimums, strict=True)], inventory)
        assert placed(found) == {f"u{n}": whole for n in group}
        number += len(group)
    if number == 0:
        count = data.draw(st.integers(1, 6))
        found = plan_round([unit(n, least) for n in range(count)], inventory)
        minimum = sum(replicas * size for replicas, (_, size) in zip(least, roles, strict=True))
        started = sum(isinstance(outcome.minimum, Plan) for outcome in found)
        assert started == min(count, sum(rack // minimum for rack in slots))


@pytest.mark.parametrize("level", ["rack", "block"])
def test_units_when_each_is_required_in_one_domain_get_their_surplus_where_one_has_room(level: str) -> None:
    """All in the tightest domain have their minimum there, and no more than that."""
    racks = {"b1/r1": [8] * 6, "b2/r1": [8] * 7, "b3/r1": [8] * 8}
    gangs = [
        named(replace(make_gang(make_role("w", 4, 1), required=level, name=f"u{n}"), uid=f"u{n}", created=f"{n}"))
        for n in range(4)
    ]
    assert placed(plan_round(gangs, make_inventory(racks))) == dict.fromkeys(("u0", "u1", "u2", "u3"), 4)


@pytest.mark.parametrize("minimum", [0, 1])
def test_units_with_a_router_elsewhere_get_their_surplus_where_a_domain_has_room(minimum: int) -> None:
    """Its role does not follow the unit, so the unit's domain is one inside the whole cluster."""
    racks = {"b1/r1": [8] * 6, "b2/r1": [8] * 7, "b3/r1": [8] * 8, "b4/r1": [8] * 9}
    router = make_role("router", 1, minimum, shape=make_shape(0), follow_unit=False)
    gangs = [
        named(replace(make_gang(make_role("w", 4, 1), router, required="rack", name=name), uid=name, created=name))
        for name in ("a", "b", "c", "d")
    ]
    assert placed(plan_round(gangs, make_inventory(racks))) == dict.fromkeys(("a", "b", "c", "d"), 5)


def test_a_unit_when_another_of_a_broader_level_lacks_surplus_leaves_it_the_domain() -> None:
    inventory = make_inventory({"b1/r1": [8] * 2, "b1/r2": [8] * 2, "b2/r1": [8] * 4})
    wide = named(replace(make_gang(make_role("w", 4, 1), required="block", name="wide"), uid="wide", created="1"))
    narrow = named(replace(make_gang(make_role("w", 2, 1), required="rack", name="narrow"), uid="narrow", created="2"))
    assert placed(plan_round([wide, narrow], inventory)) == {"wide": 4, "narrow": 2}


def test_a_round_leaves_nothing_outstanding() -> None:
    inventory = make_inventory({"r1": [8] * 3})
    gangs = [make("g", 4, 1, created="1"), make("h", 3, 2, created="2")]
    torn = place(make("torn", 9, 9), {"torn/w-0-0": "b-r1-n0"})
    plan_round([*gangs, torn], inventory)
    assert not inventory.outstanding


def test_what_is_planned_is_held_at_once() -> None:
    inventory = make_inventory({"r1": [8] * 2})
    (outcome,) = plan_round([make("g", 2, 1)], inventory)
    assert isinstance(outcome.plan, Plan)
    assert {r.replica for r in outcome.plan.replicas} == {0, 1}
    assert all(inventory.holder(pod) == node for pod, node in outcome.assignments.items())
    assert inventory.trees["dc"].root.broken == 2
