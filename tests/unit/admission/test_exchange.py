"""Which replicas of a unit give way to others of it, held against all sets that could."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from builders import gangs
from builders.gangs import gang_of, nodes_in
from covey.admission.exchange import PLANS, ExchangeTerms, Judgement, judge_exchange
from covey.admission.growth import Own, Site, template
from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Plan
from covey.placement.planner import plan_minimum

GPUS = {"prefill": 4, "decode": 8}


def racks(*counts: int) -> Inventory:
    """Nodes of eight devices: so many in each rack."""
    return nodes_in({f"r{rack}n{number}": f"r{rack}" for rack, count in enumerate(counts) for number in range(count)})


def at(role: str, replica: int, place: str | None, **state: Any) -> core.Pod:
    return gangs.at(role, replica, place, gpus=GPUS[role], **state)


def judge(found: Site, inventory: Inventory, **wanted: int) -> Judgement:
    """The judgement, which leaves no trace."""
    before = {name: dict(inventory.free(name)) for name in inventory.nodes}
    models = {role.name: template([role], lambda pod: pod.shape) for role in found.gang.roles}
    plans = 0

    def pause() -> None:
        nonlocal plans
        plans += 1

    terms = ExchangeTerms({name: model for name, model in models.items() if model is not None}, pause=pause)
    judgement = judge_exchange(found, wanted, inventory, terms)
    assert {name: dict(inventory.free(name)) for name in inventory.nodes} == before
    assert plans <= PLANS
    return judgement


def donors(judgement: Judgement) -> set[tuple[str, int]]:
    return {(each.role, each.replica) for each in judgement.donors}


def test_without_room_the_nearest_vectors_are_named() -> None:
    inventory = racks(3)
    pods = [at("prefill", 0, "r0n0"), at("prefill", 1, "r0n0"), at("prefill", 2, "r0n1"), at("decode", 0, "r0n2")]
    judgement = judge(Site(gang_of(inventory, *pods)), inventory, prefill=2, decode=3)
    assert not judgement.feasible
    assert judgement.message == "no capacity for 2 decode"
    assert list(judgement.nearest) == [{"prefill": 2, "decode": 2}]


def test_what_gives_way_to_this_root_already_goes_first_and_may_be_pardoned() -> None:
    inventory = racks(3)
    marks = {"labels": {"covey.dev/draining": "true"}, "annotations": {"covey.dev/claimed-by": "uid-root"}}
    pods = [at("prefill", 0, "r0n0", **marks), at("prefill", 1, "r0n1"), at("decode", 0, "r0n2")]
    found = Site(gang_of(inventory, *pods))
    assert donors(judge(found, inventory, prefill=1, decode=2)) == {("prefill", 0)}
    assert judge(found, inventory, prefill=2, decode=1) == Judgement(feasible=True)


places = st.lists(st.tuples(st.sampled_from(["prefill", "decode"]), st.integers(0, 4)), min_size=2, max_size=7)


@given(places, st.integers(1, 4), st.integers(1, 4))
def test_a_set_is_found_exactly_where_there_is_one(found: list[tuple[str, int]], prefill: int, decode: int) -> None:
    inventory, pods, room = racks(3, 2), [at("prefill", 0, "r0n0"), at("decode", 0, "r0n1")], {"r0n0": 4, "r0n1": 0}
    numbers = {"prefill": 1, "decode": 1}
    names = list(inventory.nodes)
    for name, place in found:
        left = room.get(names[place], 8)
        if left >= GPUS[name]:
            room[names[place]] = left - GPUS[name]
            pods.append(at(name, numbers[name], names[place]))
            numbers[name] += 1
    mine = Site(gang_of(inventory, *pods))
    judgement = judge(mine, inventory, prefill=prefill, decode=decode)
    assert judgement.feasible == brute(mine, inventory, prefill=prefill, decode=decode)
    if judgement.feasible:
        gone = {name: sum(each.role == name for each in judgement.donors) for name in numbers}
        wanted = {"prefill": prefill, "decode": decode}
        assert gone == {name: max(0, numbers[name] - wanted[name]) for name in numbers}, "a smallest set"


def brute(found: Site, inventory: Inventory, **wanted: int) -> bool:
    """Whether any set of those that are too many leaves room for those that are too few."""
    sides = {role.name: role for role in found.gang.roles}
    coming = {name: number - len(sides[name].replicas) for name, number in wanted.items()}
    giving = [name for name, count in coming.items() if count < 0]
    getting = [name for name, count in coming.items() if count > 0]
    if len(getting) != 1:
        # Of one that grows by itself the planner is asked; of both head-room is, one after the other.
        return not getting or all_fit(inventory, coming)
    for gone in combinations(sides[giving[0]].replicas, -coming[giving[0]]) if giving else [()]:
        keys = [pod for each in gone for pod in each.pods]
        for pod in keys:
            inventory.release(pod.key)
        fits = grows(found, inventory, getting[0], coming[getting[0]])
        for pod in keys:
            inventory.hold(pod.key, pod.node or "", pod.shape, pod.meta)
        if fits:
            return True
    return False


def grows(found: Site, inventory: Inventory, name: str, count: int) -> bool:
    request = found.request(name)
    assert request is not None
    model = template([request], lambda pod: pod.shape)
    assert model is not None
    own = Own.of(request)
    return isinstance(plan_minimum(own.asking(found, own.candidates(count, model), must=True), inventory), Plan)


def all_fit(inventory: Inventory, coming: dict[str, int]) -> bool:
    """Both roles grow: whole nodes for decode first, then halves for prefill."""
    free = [inventory.free(name)["nvidia.com/gpu"] for name in inventory.nodes]
    whole = sum(each == 8 for each in free)
    halves = sum(each // 4 for each in free) - 2 * coming["decode"]
    return whole >= coming["decode"] and halves >= coming["prefill"]


def test_no_role_goes_below_its_minimum() -> None:
    inventory = racks(3)
    pods = [at("prefill", 0, "r0n0"), at("prefill", 1, "r0n0"), at("decode", 0, "r0n2")]
    found = Site(gang_of(inventory, *pods, minimums={"prefill": 2}))
    assert judge(found, inventory, prefill=1, decode=2).message == "prefill needs 2 at least"
