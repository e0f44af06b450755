"""Who gives way to a gang that found no room: the least that provably suffices, in whole replicas and units."""

from __future__ import annotations

from typing import Any

import pytest

from builders.requests import TOPOLOGY, make_gang, make_node, make_role, make_shape
from builders.victims import NOW, hold, serving
from covey.admission.preemption import Nobody, Taking, search
from covey.admission.victims import Candidate, Terms
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Verdict

TERMS = Terms(NOW)


def racks(*counts: int, gpus: int = 8) -> Inventory:
    """Nodes ``r0-n0`` …, so many in each rack."""
    inventory = Inventory([TOPOLOGY])
    for rack, count in enumerate(counts):
        for number in range(count):
            labels = {"zone": "z", "block": "b", "rack": f"r{rack}"}
            inventory.set_node(make_node(f"r{rack}-n{number}", gpus, labels=labels))
    return inventory


def wants(replicas: int, *, size: int = 1, gpus: int = 8, priority: int = 10, **more: Any) -> Gang:
    """A gang of one role."""
    shape = make_shape(gpus, extra={"cpu": 100})
    return make_gang(make_role("decode", replicas, size=size, shape=shape), priority=priority, **more)


def taken(inventory: Inventory, gang: Gang, *candidates: Candidate, **more: Any) -> set[str] | Verdict:
    """The steps that are taken, as people write them; or the verdict where nobody gives way."""
    found = search(gang, hold(inventory, *candidates), candidates, more.pop("terms", TERMS), **more)
    return {step.text for step in found.steps} if isinstance(found, Taking) else found.verdict


def test_one_of_ten_surplus_replicas_goes_where_one_is_enough() -> None:
    """Volcano takes all ten (volcano#5984)."""
    chat = serving("chat-0", {"decode": (2, [[f"r0-n{number}"] for number in range(12)])})
    found = taken(racks(12), wants(1), chat)
    assert isinstance(found, set)
    assert len(found) == 1
    assert found.pop().endswith("of ns/chat-0")


def test_a_unit_at_its_minimum_goes_as_a_whole() -> None:
    chat = serving("chat-0", {"prefill": (1, [["r0-n0"]]), "decode": (1, [["r0-n1"]])})
    assert taken(racks(2), wants(1), chat) == {"all of ns/chat-0"}


def test_nobody_goes_where_the_minimum_fits() -> None:
    chat = serving("chat-0", {"decode": (1, [["r0-n0"], ["r0-n1"]])})
    assert taken(racks(3), wants(1), chat) is Verdict.ADMITTED


@pytest.mark.parametrize("priority", [10, 11])
def test_only_lower_priorities_go(priority: int) -> None:
    chat = serving("chat-0", {"decode": (1, [["r0-n0"], ["r0-n1"]])}, priority=priority)
    assert taken(racks(2), wants(1), chat) is Verdict.INFEASIBLE


def test_the_sentence_names_victims_and_room() -> None:
    young = {("decode", 0): 10.0}
    chat = serving("chat-0", {"decode": (1, [["r0-n0"], ["r0-n1"], ["r0-n2"]])}, served=young)
    batch = serving("batch-1", {"decode": (1, [["r0-n3"]])})
    inventory = hold(racks(4), chat, batch)
    found = search(wants(3, required="rack"), inventory, [chat, batch], TERMS)
    assert isinstance(found, Taking)
    assert found.sentence == (
        "takes decode/1 of ns/chat-0, decode/2 of ns/chat-0 and all of ns/batch-1: 24 nvidia.com/gpu in rack z/b/r0"
    )
    assert found.nodes == ("r0-n1", "r0-n2", "r0-n3")
