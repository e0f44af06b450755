"""The plan of a pasted manifest, on what a viewer sees."""

import json
from typing import Any

import msgspec
import pytest

from builders.files import inference, role
from covey.manifests.errors import InputError
from covey.planning.facts import ClusterFacts
from covey.ui import plans
from unit.ui.world import nodes


def plan(*manifests: Any) -> Any:
    facts = ClusterFacts(tuple(nodes(2)))
    answer = plans.plan("\n".join(map(json.dumps, manifests)), "default", facts, (), lambda: 0.0)
    return msgspec.json.decode(msgspec.json.encode(answer))


def test_the_floor_has_roles_pods_and_what_the_verdict_names() -> None:
    found = plan(inference("llm", role("prefill", 2, 1), namespace="default"))
    assert (found["status"], found["sentences"]) == (0, [])
    floor = found["floor"]
    assert floor["roles"] == [{"workload": "default/llm", "role": "prefill", "ink": 0, "letter": "P"}]
    assert [(each["replica"], each["index"], each["cells"]) for each in floor["pods"]] == [(0, 0, 8), (1, 0, 8)]
    assert {mark for _, mark in floor["marks"]} == {"chosen"}


def test_many_small_documents_are_not_a_way_to_take_all_memory() -> None:
    each = [inference(f"llm-{number}", role("w", 9000, 1), namespace="default") for number in range(3)]
    with pytest.raises(InputError, match="27,000 pods in all"):
        plan(*each)
