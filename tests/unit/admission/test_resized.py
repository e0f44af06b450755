"""What a pod counts while it is resized in place, as kube-scheduler has it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from builders.members import cache, node, put
from covey.admission.nodes import counted_spec
from covey.api import core


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


def test_room_comes_back_when_the_kubelet_has_let_it_go() -> None:
    made = cache(node("n1"), running("1", "4", "4"))
    put(made, running("1", "1", "1"))
    assert made.capacity.room.free("n1")["cpu"] == 63_000


def test_statuses_that_say_nothing_new_are_not_kept() -> None:
    calm, resized = running("2", "2", "2"), running("1", "4", "4")
    assert calm.status.container_statuses is None
    assert counted_spec(calm) is calm.spec
    assert resized.status.container_statuses is not None
