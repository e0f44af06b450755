"""Ordinary pods that give way: which may, what they cost beside replicas, and how refused evictions are remembered."""

from __future__ import annotations

from typing import Any

import pytest

from builders.requests import TOPOLOGY, make_gang, make_node, make_role, make_shape
from builders.victims import NOW, hold, ordinary
from covey.admission.ordinary import OrdinaryPod, is_evictable
from covey.admission.preemption import Taking, search
from covey.admission.victims import Candidate, Terms
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang

TERMS = Terms(NOW)


def nodes(count: int, *, cpu: int = 64_000) -> Inventory:
    inventory = Inventory([TOPOLOGY])
    for number in range(count):
        labels = {"zone": "z", "block": "b", "rack": "r0"}
        inventory.set_node(make_node(f"n{number}", 8, labels=labels, extra={"cpu": f"{cpu}m"}))
    return inventory


def wants(replicas: int, *, gpus: int = 8, cpu: int = 100, priority: int = 10) -> Gang:
    return make_gang(make_role("decode", replicas, shape=make_shape(gpus, extra={"cpu": cpu})), priority=priority)


def taken(inventory: Inventory, gang: Gang, *candidates: Candidate | OrdinaryPod, terms: Terms = TERMS) -> Any:
    """The steps that are taken, as people write them; or the verdict where nobody gives way."""
    units = [each for each in candidates if isinstance(each, Candidate)]
    pods = [each for each in candidates if isinstance(each, OrdinaryPod)]
    found = search(gang, hold(inventory, *candidates), units, terms, ordinary=pods)
    return {step.text for step in found.steps} if isinstance(found, Taking) else found.verdict


@pytest.mark.parametrize(
    ("state", "may_go"),
    [
        ({}, True),
        ({"owner": ""}, True),
        ({"node": None}, False),
        ({"owner": "DaemonSet"}, False),
        ({"owner": "Node"}, False),
        ({"annotations": {"kubernetes.io/config.mirror": "x"}}, False),
        ({"deletionTimestamp": "2026-01-02T00:00:00Z"}, False),
        ({"labels": {"scheduling.covey.dev/pod-group": "g"}}, False),  # whoever only says so is nobody to evict either
        ({"labels": {"covey.dev/inference": "llama"}}, False),  # of another backend
        ({"annotations": {"scheduling.k8s.io/group-name": "g"}}, False),
        ({"spec": {"schedulingGroup": {"podGroupName": "g"}}}, False),
        ({"spec": {"priorityClassName": "system-node-critical"}}, False),
        ({"spec": {"priorityClassName": "batch"}}, True),
    ],
)
def test_pods_that_may_be_evicted(state: dict[str, Any], may_go: bool) -> None:  # noqa: FBT001 - a table
    assert is_evictable(ordinary("web", state.pop("node", "n0"), **state)) is may_go


def test_pods_without_what_the_gang_lacks_stay() -> None:
    """kueue#10497: those beside the devices take only processor time, of which there is enough."""
    web, agent = OrdinaryPod(ordinary("web", "n0")), OrdinaryPod(ordinary("agent", "n0", gpus=0))
    assert taken(nodes(1), wants(1), web, agent) == {"pod ns/web"}
