"""Which domain a gang waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import pytest

from builders.requests import make_gang, make_inventory, make_role, make_shape
from covey.admission.hints import hint_for_minimum
from covey.admission.reservation import Choice, Ending, choose
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Path

RACK = make_gang(make_role("w", 2), required="rack")


def full(*racks: str, nodes: int = 2) -> Inventory:
    """Racks whose nodes are taken by one pod each."""
    return make_inventory({name: [0] * nodes for name in racks})


def chosen(
    inventory: Inventory,
    ends: Mapping[str, Ending] | None = None,
    gang: Gang = RACK,
    excluded: Collection[str] = (),
    current: Path | None = None,
) -> Choice | None:
    def ending(key: str) -> Ending:
        return (ends or {}).get(key.removeprefix("held/"), Ending(None))

    steps = choose(hint_for_minimum(gang, inventory), inventory, ending, current, excluded=excluded)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: Choice | None = done.value
            return found


def rack(number: int, block: str = "b1") -> Path:
    return ("z", block, f"r{number}")


def test_only_the_pods_in_whose_way_it_is_are_counted() -> None:
    inventory = make_inventory({"b1/r1": [8, 8], "b1/r2": [0, 0]})
    for number in range(5):
        inventory.hold(f"held/cpu{number}", "b1-r1-n0", make_shape(0))
    found = chosen(inventory)
    assert found is not None
    assert (found.path, found.wait.pods) == (rack(1), 0)


def test_others_get_a_chance_at_every_domain_however_small() -> None:
    inventory = full(*(f"b1/r{number}" for number in range(30)))
    steps = choose(hint_for_minimum(RACK, inventory), inventory, lambda _key: Ending(None))
    assert sum(1 for _ in steps) >= 30


@pytest.mark.parametrize("pods", [2, 60, 61])
def test_the_work_is_bounded_by_holders_and_levels(pods: int) -> None:
    """Law L8: also where the whole cluster is looked at, and where nothing would do."""
    inventory = full(*(f"b1/r{number}" for number in range(30)))
    asked: Counter[str] = Counter()

    def ending(key: str) -> Ending:
        asked[key] += 1
        return Ending(None)

    gang = make_gang(make_role("w", pods))
    steps = choose(hint_for_minimum(gang, inventory), inventory, ending)
    assert sum(1 for _ in steps) <= 2 * len(inventory.nodes)
    assert max(asked.values()) <= len(inventory.trees[gang.topology].topology.levels)
