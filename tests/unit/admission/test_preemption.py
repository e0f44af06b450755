"""Who gives way to a gang that found no room: the least that provably suffices, in whole replicas and units."""

from __future__ import annotations

from typing import Any

import pytest

from builders.requests import TOPOLOGY, make_gang, make_node, make_role, make_shape
from builders.victims import NOW, hold, serving
from covey.admission.preemption import MOST_BYTES, Nobody, Taking, search
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


def test_the_sentence_names_victims_and_room() -> None:
    """The minimum of chat has just loaded its weights, so chat gives its surplus only."""
    chat = serving(
        "chat-0", {"prefill": (1, [["r1-n0"]]), "decode": (0, [["r0-n1"], ["r0-n2"]])}, served={("prefill", 0): 10.0}
    )
    batch = serving("batch-1", {"decode": (1, [["r0-n3"]])})
    inventory = hold(racks(3, 1), chat, batch)
    inventory.set_node(make_node("r0-n3", labels={"zone": "z", "block": "b", "rack": "r0"}))
    inventory.set_node(make_node("r0-n0", labels={"zone": "z", "block": "b", "rack": "r0"}, cordoned=True))
    found = search(wants(3, required="rack"), inventory, [chat, batch], TERMS)
    assert isinstance(found, Taking)
    assert found.sentence == (
        "takes decode/0 of ns/chat-0, decode/1 of ns/chat-0 and all of ns/batch-1: 24 nvidia.com/gpu in rack z/b/r0"
    )
    assert found.nodes == ("r0-n1", "r0-n2", "r0-n3")
    assert [(each.kind, each.name, each.role, each.replica) for each in (step.victim() for step in found.steps)] == [
        ("Replica", "chat-0", "decode", 0),
        ("Replica", "chat-0", "decode", 1),
        ("Unit", "batch-1", "", None),
    ]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"foreign": True}, Verdict.INFEASIBLE),  # nobody would take it down whole
        ({"inference": "g"}, Verdict.INFEASIBLE),  # a unit of the same resource
        ({"served": 599.0}, Verdict.INFEASIBLE),
        ({"served": 601.0}, {"decode/1 of ns/chat-0"}),
        ({"served": 601.0, "preemption": {"minRunSeconds": 1000}}, Verdict.INFEASIBLE),
        ({"served": 5.0, "preemption": {"minRunSeconds": 0}}, {"decode/1 of ns/chat-0"}),
        ({"served": 1801.0, "preemption": {"minRunSeconds": 86400}}, {"decode/1 of ns/chat-0"}),  # the cap
        ({"served": {("decode", 1): 5.0}}, {"decode/0 of ns/chat-0"}),
        ({"unready": [("decode", 1)]}, {"decode/1 of ns/chat-0"}),  # the only one that serves stays
        ({"unready": [("decode", 0)]}, {"decode/0 of ns/chat-0"}),
        ({"draining": [("decode", 1)]}, {"all of ns/chat-0"}),  # the other is the minimum now
    ],
)
def test_terms_of_a_unit_with_one_surplus_replica(state: dict[str, Any], expected: Any) -> None:
    chat = serving("chat-0", {"decode": (1, [["r0-n0"], ["r0-n1"]])}, **state)
    assert taken(racks(2), wants(1), chat) == expected


def test_pods_of_no_interest_stay() -> None:
    """The rack is blocked by GPUs; who has none of them is not in the way (kueue#10497)."""
    cpu = serving("cpu-0", {"web": (0, [["r0-n0"], ["r0-n0"]])}, gpus=0)
    gpu = serving("gpu-0", {"decode": (1, [["r0-n0"]])})
    assert taken(racks(1), wants(1), cpu, gpu) == {"all of ns/gpu-0"}


def test_a_search_that_runs_out_of_plans_takes_nobody() -> None:
    chat = serving("chat-0", {"decode": (1, [["r0-n0"], ["r0-n1"]])})
    assert taken(racks(2), wants(1), chat, plans=1) is Verdict.UNKNOWN


def test_search_when_what_would_go_is_more_than_an_object_can_name_takes_nobody() -> None:
    """Eight pods whose names, and so their UIDs here, are too long for the status of a group."""
    places = {"decode": (1, [["r0-n0"] * 8])}
    tiny = serving("chat-0", places, gpus=1)
    huge = serving("c" * (MOST_BYTES // 8), places, gpus=1)
    assert taken(racks(1), wants(1), tiny) == {"all of ns/chat-0"}
    found = search(wants(1), hold(racks(1), huge), [huge], TERMS)
    assert isinstance(found, Nobody)
    assert (found.verdict, found.is_too_large) == (Verdict.UNKNOWN, True)
