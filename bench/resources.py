"""What a person applies: DisaggregatedInferences; and beside them what a client without one has to write itself."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from bench.trees import NAMESPACE, TREE_LABEL, Objects, Tree
from covey.kube.client import Client
from covey.kube.resources import DISAGGREGATED_INFERENCES, PODS, SERVICES


def resource_of(tree: Tree, namespace: str = NAMESPACE) -> dict[str, Any]:
    """The DisaggregatedInference that expands to such a tree: one role for each group, all its pods are the minimum."""
    roles = [
        {
            "name": group.name,
            "replicas": group.pods,
            "minReplicas": group.min_count,
            "template": {"spec": _pod_spec(group.gpus)},
        }
        for group in tree.groups
    ]
    spec: dict[str, Any] = {"roles": roles} | ({"topology": {"required": tree.level}} if tree.level else {})
    if tree.priority:
        spec |= {"priorityClassName": tree.priority, "preemption": {"delaySeconds": 0, "minRunSeconds": 0}}
    return {"metadata": {"name": tree.name, "namespace": namespace}, "spec": spec}


async def create_resources(
    client: Client,
    trees: Sequence[Tree],
    namespaces: Sequence[str] = (NAMESPACE,),
    width: int = 48,
) -> Mapping[str, float]:
    """Create one resource for each tree, over the namespaces by turns; when each was sent, by name."""
    sent: dict[str, float] = {}
    places = dict(zip((tree.name for tree in trees), itertools.cycle(namespaces), strict=False))

    async def create(tree: Tree) -> None:
        sent[tree.name] = time.monotonic()
        await client.create(DISAGGREGATED_INFERENCES, resource_of(tree, places[tree.name]))

    await _each(create, trees, width)
    return sent


async def write_trees(
    client: Client, objects: Objects, trees: Sequence[Tree], width: int = 48, *, services: bool = False
) -> Mapping[str, float]:
    """Create groups and pods, one tree after the other, a number of trees at a time; when each was begun, by name.

    ``services``: each tree gets a headless Service, by which its members find each other, as Covey's resources have.
    """
    begun: dict[str, float] = {}

    async def create(tree: Tree) -> None:
        begun[tree.name] = time.monotonic()
        for resource, bodies in objects.groups([tree]):
            for body in bodies:
                await client.create(resource, body)
        if services:
            spec = {"clusterIP": "None", "selector": {TREE_LABEL: tree.name}, "publishNotReadyAddresses": True}
            await client.create(SERVICES, {"metadata": {"name": tree.name, "namespace": NAMESPACE}, "spec": spec})
        for pod in objects.pods(tree):
            await client.create(PODS, pod)

    await _each(create, trees, width)
    return begun


async def _each(create: Callable[[Tree], Awaitable[None]], trees: Sequence[Tree], width: int) -> None:
    waiting = iter(trees)

    async def work() -> None:
        for tree in waiting:
            await create(tree)

    async with asyncio.TaskGroup() as group:
        for _ in range(width):
            group.create_task(work())


def _pod_spec(gpus: int) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "example.com/none:1",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    return {"containers": [container], "terminationGracePeriodSeconds": 0}
