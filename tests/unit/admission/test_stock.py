"""What is free where kube-scheduler binds: bound pods count where they are, let go ones where they may go."""

from __future__ import annotations

from typing import Any

import pytest

from builders.members import GATE, START, pod
from builders.requests import GPU, make_node
from covey.admission.stock import PATIENCE, Stock, is_let_go
from covey.api import core
from covey.api.constants import ANNOTATION_RELEASE, LABEL_INFERENCE

OURS = {LABEL_INFERENCE: "llama"}


def ours(name: str, **fields: Any) -> core.Pod:
    return pod(name, labels=OURS, **fields)


def stock(*nodes: core.Node) -> Stock:
    found = Stock()
    for node in nodes or (make_node("n1"), make_node("n2")):
        found.set_node(node)
    found.take_freed()
    return found


def free(found: Stock) -> dict[str, int]:
    return {name: state.free[GPU] for name, state in found.inventory.nodes.items()}


@pytest.mark.parametrize(
    "other",
    [
        pod("foreign", gpus=8),
        ours("gated", gpus=8, gates=["example.com/quota"]),
        ours("started", gpus=8, gates=[START]),
        ours("dying", gpus=8, deleted=True),
        ours("released", gpus=8, annotations={ANNOTATION_RELEASE: "Timeout"}),
        ours("ended", gpus=8, phase="Failed"),
        ours("extender", gpus=8, group="llama-0"),
        ours("volcano", gpus=8, annotations={"scheduling.k8s.io/group-name": "llama-0"}),
    ],
    ids=lambda each: each.metadata.name,
)
def test_who_takes_nothing(other: core.Pod) -> None:
    found = stock()
    found.set_pod(other)
    found.settle(0.0)
    assert not is_let_go(other)
    assert free(found) == {"n1": 8, "n2": 8}


def test_a_promise_counts_at_once_and_ends_when_the_gate_stays() -> None:
    found = stock()
    waiting = ours("a", gates=[GATE], gpus=8)
    found.set_pod(waiting)
    found.promise({"uid-a": "n2"}, [waiting], 100.0)
    found.set_pod(waiting)
    found.settle(100.0 + PATIENCE)
    assert free(found) == {"n1": 8, "n2": 0}
    found.settle(101.0 + PATIENCE)
    assert free(found) == {"n1": 8, "n2": 8}
    assert set(found.take_freed()) == {"n2"}


def test_somebody_else_takes_the_room() -> None:
    """A pod that was to have it is looked another place for; it takes nothing where there is none."""
    found = stock()
    found.set_pod(ours("a", gpus=8))
    found.settle(0.0)
    assert free(found) == {"n1": 0, "n2": 8}
    found.set_pod(pod("thief", gpus=4, node="n1"))
    found.settle(0.0)
    assert free(found) == {"n1": 4, "n2": 0}
    found.set_pod(pod("second", gpus=1, node="n2"))
    found.settle(0.0)
    assert free(found) == {"n1": 4, "n2": 7}
    found.remove_pod("uid-thief")
    found.settle(0.0)
    assert free(found) == {"n1": 0, "n2": 7}


def test_a_node_that_leaves_is_nobodys_place() -> None:
    found = stock()
    found.set_pod(ours("a", gpus=8))
    found.settle(0.0)
    found.set_node(make_node("n1", cordoned=True))
    found.settle(0.0)
    assert free(found) == {"n1": 8, "n2": 0}
    found.remove_node("n2")
    found.settle(0.0)
    assert free(found) == {"n1": 8}


def test_what_is_withdrawn_comes_back_unless_it_is_promised_anew() -> None:
    found = stock()
    waiting = ours("a", gates=[GATE], gpus=8)
    found.promise({"uid-a": "n2"}, [waiting], 0.0)
    restore = found.withdraw(["uid-a", "unknown"])
    assert free(found) == {"n1": 8, "n2": 8}
    restore()
    assert free(found) == {"n1": 8, "n2": 0}
    found.withdraw(["uid-a"])
    found.promise({"uid-a": "n1"}, [waiting], 0.0)
    assert free(found) == {"n1": 0, "n2": 8}
