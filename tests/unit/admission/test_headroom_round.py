"""Head-room of several units against a whole round of admission: so many get places, and one more waits."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import event, given
from hypothesis import strategies as st

from builders.members import pod
from covey.admission.headroom import Site, most_feasible
from covey.admission.losses import counted_shape, hold_all
from covey.admission.round import plan_round
from covey.compile.revision import shares
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, ReplicaRequest
from oracle.exploring import PROFILE
from unit.admission.test_headroom import IN_ONE_RACK, at, racks, site

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


@PROFILE
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
