"""Choices by which gangs of several priorities and queues arrive, fill what is idle, and go."""

from __future__ import annotations

import random
from typing import Any, Final

from soak.choices import choice
from soak.facts import GPU, Owner
from soak.settings import CLASSES, NAMESPACES, wait_and_run
from soak.stage import RESOURCES, Stage

#: Gangs that are there at a time, the share of them that come where a filler is, and the GPUs that a filler asks for.
_MOST: Final = 8
_CROWDED: Final = 0.7
_FILL: Final = 160


@choice("claims", 5)
def bring_a_gang(stage: Stage, generator: random.Random) -> str | None:
    """A minimum of whole nodes or halves, of any priority; it takes room from others where there is none."""
    size, replicas, gpus, level = generator.choice(
        [(1, 1, 8, ""), (2, 1, 8, "rack"), (1, 4, 4, "block"), (3, 1, 8, "rack"), (1, 6, 4, "rack")]
    )
    priority = generator.choice(["high", "high", *CLASSES])
    role = _role(size, replicas, gpus, minimum=replicas)
    return _arrive(stage, generator, f"gang-{size}x{replicas}x{gpus}", role, priority, level, generator.uniform(8, 25))


@choice("claims", 5)
def fill_what_is_idle(stage: Stage, generator: random.Random) -> str | None:
    """One replica by right, and surplus as far as there is room and quota: of low priority, mostly borrowed."""
    gpus = generator.choice([2, 4, 8])
    role = _role(1, _FILL // gpus, gpus, minimum=1)
    return _arrive(stage, generator, f"filler-{gpus}", role, "low", "", generator.uniform(30, 60))


def _role(size: int, replicas: int, gpus: int, *, minimum: int) -> dict[str, Any]:
    container = {"name": "engine", "image": "registry.test/engine:1", "resources": {"limits": {GPU: str(gpus)}}}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    return {"name": "decode", "size": size, "replicas": replicas, "minReplicas": minimum, "template": template}


def _arrive(
    stage: Stage, generator: random.Random, name: str, role: dict[str, Any], priority: str, level: str, seconds: float
) -> str | None:
    if len(stage.arrived) >= _MOST:
        return None
    # Priority counts inside a Queue: most come where there is something that may give way.
    crowded = sorted(each.namespace for each in stage.arrived if each.name.startswith("filler"))
    namespace = generator.choice(crowded if crowded and generator.random() < _CROWDED else NAMESPACES)
    stage.counter += 1
    owner = Owner(namespace, f"{name}-{stage.counter}")
    spec: dict[str, Any] = {
        "replicas": 1,
        "priorityClassName": priority,
        "preemption": wait_and_run(generator.choice([0, 1, 3]), generator.choice([0, 0, 10])),
        "topology": {"required": level} if level else {},
        "roles": [role],
    }
    body = {
        "apiVersion": "inference.covey.dev/v1alpha1",
        "kind": "DisaggregatedInference",
        "metadata": {"name": owner.name},
    }
    stage.arrived.add(owner)
    stage.note(owner, spec)
    stage.api("POST", RESOURCES.format(namespace), body | {"spec": spec})
    stage.later(seconds, f"end {owner.name}", lambda: _end(stage, owner, spec))
    return f"{namespace}/{owner.name} of priority {priority} for {seconds:.1f} s"


def _end(stage: Stage, owner: Owner, spec: dict[str, Any]) -> None:
    stage.arrived.discard(owner)
    stage.note(owner, spec | {"suspend": True})
    stage.api("DELETE", f"{RESOURCES.format(owner.namespace)}/{owner.name}")
