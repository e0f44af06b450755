"""Counting whether who waits has room, on clusters made by hand."""

from __future__ import annotations

from typing import Any

from soak.calm import Listed
from soak.room import overlooked
from unit.soak.histories import GATED, Json, node, pod, resource, role

RUNS = pod("0/prefill/0/0", node="n0", ready=True, gpus=0)


def listed(*pods: Json, nodes: dict[str, str] | None = None, **fields: Any) -> Listed:
    """Nodes of 8 GPUs by their rack; one role with replicas of two pods beside a prefill replica that runs."""
    roles = [role("prefill"), role("decode", 2, size=2, **fields)]
    racks = nodes or {"n0": "rack-0", "n1": "rack-0"}
    return Listed.of([resource(*roles)], [RUNS, *pods], {}, [node(name, rack=rack) for name, rack in racks.items()])


def waiting(number: int = 0, gpus: int = 8) -> list[Json]:
    return [pod(f"0/decode/{number}/{index}", size=2, gpus=gpus, gates=GATED) for index in range(2)]


def test_room_for_the_only_one_that_waits() -> None:
    [told] = overlooked(listed(*waiting()))
    assert "decode 0 waits, and has room" in told


def test_room_that_is_taken() -> None:
    taken = pod("9/other/0/0", uid="stranger", owned=False, gpus=1, node="n1")
    assert overlooked(listed(*waiting(), taken)) == []
    assert overlooked(listed(*waiting(gpus=4), taken))


def test_room_in_pieces() -> None:
    apart = {"n0": "rack-0", "n1": "rack-1"}
    assert overlooked(listed(*waiting(), nodes=apart))
    assert overlooked(listed(*waiting(), nodes=apart, topology={"required": "rack"})) == []
