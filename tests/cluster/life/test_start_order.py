"""The order of starts: the whole gang has its nodes first, then each waits for whom it depends on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from cluster.serving import AddNodes, Event, Serving, check_history, serving, workers
from cluster.workbench import label, uid_of
from scheduler_trees import node_of, pin_of

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")


def is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


def check_order(events: Iterable[Event], role: str, index: str, *, after: tuple[str, str]) -> int:
    """No pod of this role and index was bound before all of the other role and index were Ready; how many were bound."""
    pods: dict[str, Mapping[str, Any]] = {}
    bound: set[str] = set()
    for _, pod in events:
        name = pod["metadata"]["name"]
        pods[name] = pod
        if node_of(pod) and name not in bound and (label(pod, "role"), label(pod, "index")) == (role, index):
            others = [each for each in pods.values() if (label(each, "role"), label(each, "index")) == after]
            assert others, f"{name} was bound before there was any {after}"
            assert all(map(is_ready, others)), f"{name} was bound before {after} was Ready"
            bound.add(name)
    return len(bound)


def test_decode_starts_when_prefill_is_ready(serving: Serving, nodes: AddNodes) -> None:
    nodes(racks=1, nodes=4)
    roles = [
        workers("prefill", replicas=2, minReplicas=2),
        workers("decode", replicas=2, minReplicas=2, dependsOn=[{"role": "prefill", "condition": "Ready"}]),
    ]
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.create(*roles, topology={"required": "rack"})
        serving.await_bound(4)
        recording.wait(lambda events: len({uid_of(pod) for _, pod in events if is_ready(pod)}) == 4, 60)
        assert check_order(recording.events, "decode", "0", after=("prefill", "0")) == 2
        # Their places were reserved before anybody started: pinned, and held by nothing but the start gate.
        first = next(number for number, (_, pod) in enumerate(recording.events) if node_of(pod))
        pinned = {
            pod["metadata"]["name"]
            for _, pod in recording.events[:first]
            if label(pod, "role") == "decode" and pin_of(pod)
        }
        assert len(pinned) == 2
    serving.await_condition("Available", "True", "Available")


def test_workers_start_when_their_leader_is_ready(serving: Serving, nodes: AddNodes) -> None:
    nodes(racks=1, nodes=4)
    roles = [workers("decode", replicas=1, size=4, startup="LeaderReady", topology={"required": "rack"})]
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.create(*roles)
        serving.await_bound(4)
        recording.wait(lambda events: len({uid_of(pod) for _, pod in events if is_ready(pod)}) == 4, 60)
        for index in "123":
            assert check_order(recording.events, "decode", index, after=("decode", "0")) == 1
        assert check_history(recording.events, *roles) >= 0
    serving.await_condition("Available", "True", "Available")


def test_roles_that_wait_for_each_other_are_refused(serving: Serving) -> None:
    serving.create(
        workers("a", dependsOn=[{"role": "b", "condition": "Ready"}]),
        workers("b", dependsOn=[{"role": "a", "condition": "Ready"}]),
    )
    message = serving.await_condition("Admitted", "False", "Invalid")
    assert message == "dependsOn: a, b depend on each other in a circle: break it"
    assert not serving.all("Pod")
