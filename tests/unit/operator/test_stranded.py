"""Pods on nodes that will not come back."""

from __future__ import annotations

import dataclasses

from builders.inferences import inference, role
from covey.api import core
from covey.operator.model.observed import Observed
from covey.operator.repair.minimum import find_stranded
from unit.operator.world import World

OUT = core.Taint("node.kubernetes.io/out-of-service", "NoExecute")
UNREACHABLE = core.Taint("node.kubernetes.io/unreachable", "NoExecute")


def serving() -> World:
    return World.serving(inference(role("prefill", replicas=2, size=2), role("decode")))


def node(*taints: core.Taint) -> core.Node:
    return core.Node(core.Meta(name="node-1"), core.NodeSpec(taints=taints))


def seen(world: World, *, taints: tuple[core.Taint, ...] = (), gone: float | None = None) -> Observed:
    """The snapshot with the one node as it is; deleted at a time if one is given."""
    observed = world.observe()
    if gone is not None:
        return dataclasses.replace(observed, nodes={}, gone={"node-1": gone})
    return dataclasses.replace(observed, nodes={"node-1": node(*taints)})


def test_a_node_that_is_out_of_service_or_deleted() -> None:
    world = serving()
    assert len(find_stranded(seen(world, taints=(OUT,))).actions.delete_pods) == 5
    assert len(find_stranded(seen(world, gone=world.now)).actions.delete_pods) == 5


def test_a_node_that_may_come_back_or_is_not_known() -> None:
    world = serving()
    assert not find_stranded(seen(world, taints=(UNREACHABLE,))).actions
    assert not find_stranded(seen(world)).actions
    assert not find_stranded(dataclasses.replace(world.observe(), nodes={})).actions


def test_a_younger_pod_is_on_the_node_that_came_after() -> None:
    world = serving()
    begun = core.seconds(next(iter(world.pods.values())).metadata.creation_timestamp) or 0.0
    assert not find_stranded(seen(world, gone=begun - 1.0)).actions
