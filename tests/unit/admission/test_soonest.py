"""Which domain a gang waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import pytest

from builders.requests import GPU, make_gang, make_inventory, make_node, make_role, make_shape
from covey.admission.reservation import EARLIER, Choice, Ending, choose
from covey.admission.wake import ask_for_minimum
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

    steps = choose(ask_for_minimum(gang, inventory), inventory, ending, current, excluded=excluded)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: Choice | None = done.value
            return found


def rack(number: int, block: str = "b1") -> Path:
    return ("z", block, f"r{number}")


def test_the_domain_with_the_fewest_pods_to_wait_for() -> None:
    inventory = make_inventory({"b1/r1": [0, 0, 0], "b1/r2": [0, 8, 0], "b1/r3": [0, 0, 4]})
    found = chosen(inventory)
    assert found is not None
    assert (found.path, found.resource) == (rack(2), GPU)
    assert found.wait.pods == 1


def test_pods_whose_end_is_known_are_no_wait_without_end() -> None:
    ending = {"b1-r1-n0": Ending(30.0), "b1-r1-n1": Ending(4000.0)}
    found = chosen(full("b1/r1", "b1/r2"), ending)
    assert found is not None
    assert found.path == rack(1)
    assert (found.wait.pods, found.wait.seconds) == (0, 4000.0)
    sooner = {**ending, "b1-r2-n0": Ending(10.0), "b1-r2-n1": Ending(20.0)}
    found = chosen(full("b1/r1", "b1/r2"), sooner)
    assert found is not None
    assert found.path == rack(2)


def test_the_least_important_pods_then_those_that_have_run_longest() -> None:
    ends = {f"b1-r{number}-n{index}": Ending(None, 10 - number) for number in (1, 2) for index in (0, 1)}
    found = chosen(full("b1/r1", "b1/r2"), ends)
    assert found is not None
    assert found.path == rack(2)
    ran = {f"b1-r{number}-n{index}": Ending(None, 0, 100.0 * number) for number in (1, 2) for index in (0, 1)}
    found = chosen(full("b1/r1", "b1/r2"), ran)
    assert found is not None
    assert found.path == rack(2)


def test_only_the_pods_in_whose_way_it_is_are_counted() -> None:
    inventory = make_inventory({"b1/r1": [8, 8], "b1/r2": [0, 0]})
    for number in range(5):
        inventory.hold(f"held/cpu{number}", "b1-r1-n0", make_shape(0))
    found = chosen(inventory)
    assert found is not None
    assert (found.path, found.wait.pods) == (rack(1), 0)


def test_nodes_kept_for_others_are_left_to_them() -> None:
    found = chosen(full("b1/r1", "b1/r2"), excluded=["b1-r1-n0"])
    assert found is not None
    assert found.path == rack(2)
    assert chosen(full("b1/r1", "b1/r2"), excluded=["b1-r1-n0", "b1-r2-n1"]) is None


def test_a_domain_that_could_not_take_it_empty_is_no_choice() -> None:
    inventory = make_inventory({"b1/r1": [8], "b1/r2": [0, 0], "b2/r1": [0, 0]})
    inventory.set_node(make_node("b1-r2-n0", labels={"zone": "z", "block": "b1", "rack": "r2"}, cordoned=True))
    found = chosen(inventory)
    assert found is not None
    assert found.path == rack(1, "b2")
    assert chosen(inventory, gang=make_gang(make_role("w", 3), required="rack")) is None


def test_without_a_required_level_the_finest_that_holds_it() -> None:
    found = chosen(full("b1/r1", "b1/r2", "b2/r1"), gang=make_gang(make_role("w", 3)))
    assert found is not None
    assert found.path == ("z", "b1")


@pytest.mark.parametrize(("seconds", "expected"), [(EARLIER - 1, 1), (EARLIER + 1, 2)])
def test_it_changes_over_only_for_something_that_counts(seconds: float, expected: int) -> None:
    ends = {f"b1-r1-n{index}": Ending(100.0) for index in (0, 1)}
    ends |= {f"b1-r2-n{index}": Ending(100.0 - seconds) for index in (0, 1)}
    found = chosen(full("b1/r1", "b1/r2"), ends, current=rack(1))
    assert found is not None
    assert found.path == rack(expected)


def test_others_get_a_chance_at_every_domain_however_small() -> None:
    inventory = full(*(f"b1/r{number}" for number in range(30)))
    steps = choose(ask_for_minimum(RACK, inventory), inventory, lambda _key: Ending(None))
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
    steps = choose(ask_for_minimum(gang, inventory), inventory, ending)
    assert sum(1 for _ in steps) <= 2 * len(inventory.nodes)
    assert max(asked.values()) <= len(inventory.trees[gang.topology].topology.levels)
