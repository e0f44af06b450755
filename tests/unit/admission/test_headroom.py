"""How many replicas of a role could have places now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from builders.gangs import IN_ONE_RACK, at, gang_of, nodes_in
from builders.holds import hold_all
from builders.members import pod
from covey.admission.growth import Site
from covey.admission.headroom import MOST, HeadroomAnswer, most_feasible
from covey.admission.taken_room import counted_shape
from covey.api import core
from covey.compile.layout import shares
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, ReplicaRequest
from rounds import plan_round


def racks(**counts: int) -> Inventory:
    """Nodes of eight devices: so many in each rack."""
    return nodes_in({f"{rack}{number}": rack for rack, count in counts.items() for number in range(count)})


def free(inventory: Inventory) -> dict[str, dict[str, int]]:
    return {name: dict(inventory.free(name)) for name in inventory.nodes}


def site(inventory: Inventory, *pods: core.Pod, **more: Any) -> Site:
    return Site(gang_of(inventory, *pods, **more))


def asked(role: str, inventory: Inventory, *sites: Site, is_shared: bool = False) -> HeadroomAnswer:
    """The answer, which leaves no trace."""
    before = free(inventory)
    answer = most_feasible(role, sites, inventory, is_shared=is_shared)
    assert free(inventory) == before
    return answer


def test_a_replica_that_waits_is_counted_once() -> None:
    inventory = racks(a=4)
    own = site(inventory, at("prefill", 0, "a0"), at("decode", 0, "a1"), at("prefill", 1, None))
    assert asked("prefill", inventory, own) == HeadroomAnswer("prefill", 3)


def pair(inventory: Inventory, **root: Any) -> tuple[Site, Site]:
    """Two units, in racks a and b."""
    one = site(inventory, at("prefill", 0, "a0"), at("decode", 0, "a1"), **root)
    two = [at(role, 0, f"b{number}", root="root1") for number, role in enumerate(("prefill", "decode"))]
    return one, site(inventory, *two, number=1, **root)


def test_a_sum_over_units_is_spread_evenly() -> None:
    """Unit 0 takes one more, unit 1 would take five: a third one more goes to unit 0."""
    inventory = racks(a=3, b=7)
    units = pair(inventory, **IN_ONE_RACK)
    assert asked("prefill", inventory, *units, is_shared=True) == HeadroomAnswer("prefill", 4)
    assert asked("prefill", inventory, *reversed(units), is_shared=True) == HeadroomAnswer("prefill", 4)


def test_never_less_than_what_is_there() -> None:
    """A sum of four would be spread two and two, and unit 0 has room for one; but four have places."""
    inventory = racks(a=2, b=4)
    one, _ = pair(inventory, **IN_ONE_RACK)
    two = [at("prefill", number, f"b{number + 1}", root="root1") for number in range(3)]
    other = site(inventory, *two, at("decode", 0, "b0", root="root1"), number=1, **IN_ONE_RACK)
    assert asked("prefill", inventory, one, other, is_shared=True) == HeadroomAnswer("prefill", 4)


def apart_from(app: str) -> dict[str, Any]:
    """A pod that shares its host with none of an app, which itself is of the app engine."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {"labels": {"app": "engine"}, "spec": {"affinity": affinity}}


def test_anti_affinity_counts_where_it_speaks_of_the_pods_themselves() -> None:
    for app, most in (("noisy", 6), ("engine", 3)):
        inventory = racks(a=3)
        least = at("decode", 0, "a0", gpus=0)
        own = site(inventory, at("prefill", 0, "a0", gpus=4, **apart_from(app)), least)
        assert asked("prefill", inventory, own) == HeadroomAnswer("prefill", most)


SIZE = st.sampled_from([1, 2])


@st.composite
def grounds(draw: st.DrawFn) -> tuple[Inventory, list[Site], int]:
    """Two or three units with their minimum, in racks that strangers use in part; and the size of a prefill replica."""
    count, size = draw(st.integers(2, 3)), draw(SIZE)
    gpus = draw(st.sampled_from([2, 4, 8]))
    names = "abc"
    inventory = racks(**{names[number]: draw(st.integers(size + 1, size + 4)) for number in range(count)})
    shared = draw(st.booleans())
    spread = {} if draw(st.booleans()) else IN_ONE_RACK
    sites = []
    for number in range(count):
        root = f"root{number}" if number else "root"
        rack = names[number]
        own = [at("prefill", 0, f"{rack}{index}", index, size=size, root=root, gpus=gpus) for index in range(size)]
        own.append(at("decode", 0, f"{rack}{size if shared else 0}", root=root, gpus=1 if gpus == 8 else 2))
        sites.append(site(inventory, *own, number=number, sizes={"prefill": size}, **spread))
    for name in sorted(inventory.nodes):
        taken = draw(st.integers(0, 8))
        if taken <= inventory.free(name).get("nvidia.com/gpu", 0):
            hold_all(inventory, [pod(f"stranger-{name}", node=name, gpus=taken)], counted_shape)
    return inventory, sites, size


def grown(gang: Gang, more: int) -> Gang:
    """The gang with further replicas of prefill, as the operator would have made them."""
    (role,) = [each for each in gang.roles if each.name == "prefill"]
    model = role.replicas[0]
    further = tuple(
        ReplicaRequest(
            100 + number,
            tuple(replace(each, key=f"{gang.unit}/{number}/{each.index}", node=None) for each in model.pods),
        )
        for number in range(more)
    )
    new = replace(role, replicas=(*role.replicas, *further), desired=len(role.replicas) + more)
    return replace(gang, roles=tuple(new if each is role else each for each in gang.roles))


def waits(inventory: Inventory, sites: list[Site], wanted: list[int]) -> bool:
    """Somebody waits after a round in which each unit shall have so many."""
    gangs = [grown(each.gang, count - 1) for each, count in zip(sites, wanted, strict=True)]
    keys = {each.key for gang in gangs for role in gang.roles for replica in role.replicas for each in replica.pods}
    before = {key for key in keys if inventory.holder(key)}
    outcomes = plan_round(gangs, inventory)
    for key in keys - before:
        inventory.release(key)
    return any(not replica.placed for each in outcomes for role in each.gang.roles for replica in role.replicas)


@given(grounds())
def test_a_round_gives_so_many_places_and_no_more(ground: tuple[Inventory, list[Site], int]) -> None:
    inventory, sites, _ = ground
    units = len(sites)
    found = most_feasible("prefill", sites, inventory, is_shared=True).replicas
    each = most_feasible("prefill", sites, inventory, is_shared=False).replicas
    assert found is not None
    assert each is not None
    event(f"{found - units} more")
    assert each % units == 0
    assert each <= found
    assert not waits(inventory, sites, shares(found, units, 1))
    assert waits(inventory, sites, shares(found + 1, units, 1))
    assert not waits(inventory, sites, [each // units] * units)
    assert waits(inventory, sites, [each // units + 1] * units)


def test_beyond_the_most_that_is_looked_for_it_is_a_floor() -> None:
    inventory = racks(a=40)
    own = site(inventory, at("prefill", 0, "a0", gpus=0), at("decode", 0, "a1", gpus=0))
    assert asked("prefill", inventory, own) == HeadroomAnswer("prefill", 1 + MOST, is_floor=True)
