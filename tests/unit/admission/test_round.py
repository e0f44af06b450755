"""Rounds: priority, then age; every minimum before any surplus; reservations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from builders.requests import make_gang, make_inventory, make_role, make_shape
from covey.placement.model import Gang, Plan
from rounds import Outcome, plan_round


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


def placed(outcomes: list[Outcome]) -> dict[str, int]:
    return {outcome.gang.name: len(outcome.assignments) for outcome in outcomes}


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
