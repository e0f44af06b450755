"""Pods on nodes that will not come back."""

from __future__ import annotations

import dataclasses

import pytest

from builders.inferences import inference, role
from covey.api import core
from covey.operator.repair.lost_nodes import find_stranded
from unit.operator.world import World

OUT = core.Taint("node.kubernetes.io/out-of-service", "NoExecute")
UNREACHABLE = core.Taint("node.kubernetes.io/unreachable", "NoExecute")


@pytest.mark.parametrize(
    ("taints", "gone", "stranded"),
    [
        pytest.param((OUT,), None, True, id="out of service"),
        pytest.param((), 0.0, True, id="deleted"),
        pytest.param((UNREACHABLE,), None, False, id="unreachable, and may come back"),
        pytest.param((), None, False, id="well"),
        pytest.param(None, None, False, id="not known"),
        pytest.param((), -1e9, False, id="another one of its name was deleted before the pods were made"),
    ],
)
def test_pods_on_nodes_that_do_not_come_back_are_deleted(
    taints: tuple[core.Taint, ...] | None, gone: float | None, *, stranded: bool
) -> None:
    """``gone``: the node was deleted so many seconds from now."""
    observed = World.serving(inference(role("prefill", replicas=2, size=2), role("decode"))).observe()
    node = core.Node(core.Meta(name="node-1"), core.NodeSpec(taints=taints))
    nodes = {"node-1": node} if taints is not None and gone is None else {}
    deleted = {"node-1": observed.now + gone} if gone is not None else {}
    found = find_stranded(dataclasses.replace(observed, nodes=nodes, gone=deleted))
    assert len(found.actions.delete_pods) == (5 if stranded else 0)
