"""What a unit is charged for room that is held for its lost pods: each pod once, wherever it was."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.members import GATE, cache, group, member, node, queue, role_groups, root_key
from covey.admission.charges import Ground, charges
from covey.admission.ledger import Flavor, Policy
from covey.admission.losses import Hold, place_of
from covey.admission.tree import Unit
from covey.api import core
from covey.placement.cluster.shape import shape_of

POLICY = Policy.of(queue("team", 100))
#: A pod is bound, lost, lost with a successor that waits, or was never there; on a node of the flavor, or of none.
STATES = ["bound", "lost", "followed", "absent"]
states = st.lists(st.lists(st.tuples(st.sampled_from(STATES), st.booleans()), min_size=2, max_size=2), max_size=4)


def made_of(replicas: list[list[tuple[str, bool]]], minimum: int = 1) -> tuple[Unit, Ground]:
    size, pods, held = max(map(len, replicas), default=2), list[core.Pod](), list[Hold]()
    for number, places in enumerate(replicas):
        for index, (state, counted) in enumerate(places):
            at = f"{'counted' if counted else 'other'}-{number}-{index}"
            pod = member("decode", number, index, size=size, root="svc", node=at, gpus=1)
            if state in {"lost", "followed"}:
                key = f"held/{number}-{index}"
                held.append(Hold(key, root_key("svc"), place_of(pod), at, shape_of(pod), pod.metadata, 1e9))
            if state == "followed":
                pods.append(member("decode", number, index, size=size, root="svc", gates=(GATE,), gpus=1))
            elif state == "bound":
                pods.append(pod)
    groups = role_groups("decode", replicas=len(replicas), minimum=minimum, size=size, root="svc")
    unit = cache(group("svc", composite=True, minimum=1, desired=1), *groups, *pods).index.unit(root_key("svc"))
    assert unit is not None

    def flavor(node: str) -> Flavor | None:
        return () if node.startswith("counted") else None

    return unit, Ground(POLICY, lambda pod: pod.spec.node_name, flavor, lambda pod: shape_of(pod).requests, held)


def expected(places: list[tuple[str, bool]]) -> int:
    """Devices that one replica is charged for."""
    bound = {counted for state, counted in places if state == "bound"}
    if not bound:
        return sum(counted for state, counted in places if state in {"lost", "followed"})
    found = sum(counted for state, counted in places if state in {"bound", "lost"})
    return found + (sum(state == "followed" for state, _ in places) if True in bound else 0)


@given(states, st.integers(0, 4))
def test_what_is_held_is_charged_once_and_its_successor_not_beside_it(
    replicas: list[list[tuple[str, bool]]], minimum: int
) -> None:
    unit, ground = made_of(replicas, min(minimum, len(replicas)))
    found = charges(unit, ground)
    assert len({each.member for each in found}) == len(found)
    total = Counter[str]()
    for each in found:
        total.update({pool.resource: amount for pool, amount in each.amounts})
        amounts = dict(each.amounts)
        assert all(amount <= amounts[pool] for pool, amount in each.spare)
    assert total["nvidia.com/gpu"] == sum(map(expected, replicas))


def running(
    asked: str, allocated: str | None, actual: str | None, *, infeasible: bool = False, name: str = "main"
) -> core.Pod:
    status: dict[str, Any] = {"name": name}
    if allocated is not None:
        status["allocatedResources"] = {"cpu": allocated}
    if actual is not None:
        status["resources"] = {"requests": {"cpu": actual}}
    pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    body = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": {"requests": {"cpu": asked}}}]},
        "status": {"phase": "Running", "containerStatuses": [status], "conditions": [pending] if infeasible else []},
    }
    return msgspec.convert(body, core.Pod)


@pytest.mark.parametrize(
    ("found", "counted"),
    [
        (running("2", "2", "2"), 2),
        (running("1", "4", "4"), 4),  # it shrinks, and has not yet
        (running("1", "1", "4"), 4),
        (running("4", "1", "1"), 4),  # it grows
        (running("4", "1", "1", infeasible=True), 1),
        (running("4", None, None, infeasible=True), 4),
        (running("2", "8", "8", name="other"), 2),
    ],
)
def test_the_largest_of_asked_allocated_and_actual_counts(found: core.Pod, counted: int) -> None:
    made = cache(node("n1"), found)
    assert made.capacity.room.free("n1")["cpu"] == (64 - counted) * 1000
