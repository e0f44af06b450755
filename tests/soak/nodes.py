"""Choices that make nodes ill; each recovers after a while, and never are many of them ill."""

from __future__ import annotations

import random
from typing import Any, Final

from soak.choices import choice
from soak.deaths import evict
from soak.settings import NODES
from soak.stage import Stage

#: Nodes that may be ill at a time, of 40.
_MOST: Final = 5


def _node(stage: Stage, generator: random.Random) -> str | None:
    """A node that is well, rather one with pods of resources."""
    if len(stage.fleet.ill) >= _MOST:
        return None
    used = sorted({pod.node for pod in stage.pods() if pod.node} - stage.fleet.ill.keys())
    well = [name for name in NODES.names if name not in stage.fleet.ill]
    return generator.choice(used if used and generator.random() < 0.8 else well)


def _touch(stage: Stage, name: str) -> None:
    """What has a pod there is lost, though the last that a kubelet said of it is that it is Ready."""
    pods = stage.pods()
    lost = {pod.replica for pod in pods if pod.node == name}
    for pod in pods:
        if pod.replica in lost:
            stage.touch(pod)


def _strike(stage: Stage, name: str, what: str, seconds: float) -> str:
    stage.fleet.ill[name] = what
    stage.later(seconds, f"return {name}", lambda: stage.fleet.restore(name))
    return f"{name} for {seconds:.1f} s"


def _spec(stage: Stage, name: str, spec: dict[str, Any]) -> None:
    if "unschedulable" in spec:
        stage.stir_node(name)
    stage.api("PATCH", f"/api/v1/nodes/{name}", {"spec": spec})


@choice("nodes", 3)
def cordon_a_node(stage: Stage, generator: random.Random) -> str | None:
    name = _node(stage, generator)
    if name is None:
        return None
    _spec(stage, name, {"unschedulable": True})
    return _strike(stage, name, "cordoned", generator.uniform(2, 20))


@choice("nodes", 4)
def drain_a_node(stage: Stage, generator: random.Random) -> str | None:
    """As ``kubectl drain``: cordon it, and ask for each pod to be evicted, again and again while a budget forbids it."""
    name = _node(stage, generator)
    if name is None:
        return None
    _spec(stage, name, {"unschedulable": True})
    seconds = generator.uniform(5, 25)

    def ask() -> None:
        left = [pod for pod in stage.pods() if pod.node == name]
        for pod in left:
            evict(stage, pod)
        if left and stage.fleet.ill.get(name) == "drained":
            stage.later(3, f"drain {name} on", ask, heals=False)

    told = _strike(stage, name, "drained", seconds)
    ask()
    return told


@choice("nodes", 2)
def taint_a_node(stage: Stage, generator: random.Random) -> str | None:
    name = _node(stage, generator)
    if name is None:
        return None
    effect = generator.choice(["NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule"])
    found = stage.api("GET", f"/api/v1/nodes/{name}")
    if found is None:
        return None
    taint = {"key": "soak", "value": "tainted", "effect": effect}
    if effect == "NoExecute":
        _touch(stage, name)
    _spec(stage, name, {"taints": [*(found["spec"].get("taints") or ()), taint]})
    return f"{effect} {_strike(stage, name, 'tainted', generator.uniform(2, 20))}"


@choice("nodes", 2)
def delete_a_node(stage: Stage, generator: random.Random) -> str | None:
    name = _node(stage, generator)
    if name is None:
        return None
    _touch(stage, name)
    stage.api("DELETE", f"/api/v1/nodes/{name}")
    return _strike(stage, name, "deleted", generator.choice([generator.uniform(0, 3), generator.uniform(10, 30)]))


@choice("nodes", 3)
def let_a_node_be_not_ready(stage: Stage, generator: random.Random) -> str | None:
    name = _node(stage, generator)
    if name is None:
        return None
    _touch(stage, name)
    stage.patiently(lambda: stage.cluster.fail_node(name))
    return _strike(stage, name, "not ready", generator.uniform(3, 25))


@choice("nodes", 1)
def cordon_a_rack(stage: Stage, generator: random.Random) -> str | None:
    name = _node(stage, generator)
    if name is None:
        return None
    rack = name.rpartition("-")[0]
    seconds, names = generator.uniform(2, 10), [each for each in NODES.names if each.rpartition("-")[0] == rack]
    for each in names:
        if each not in stage.fleet.ill:
            _spec(stage, each, {"unschedulable": True})
            _strike(stage, each, "cordoned", seconds)
    return f"{rack} for {seconds:.1f} s"
