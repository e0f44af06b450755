"""Choices by which tenants contend for room: quotas that shrink and grow, and gangs so large that room is kept for them."""

from __future__ import annotations

import random
from typing import Any, Final

from soak.choices import choice
from soak.facts import GPU, Owner
from soak.settings import CLASSES, NAMESPACES, wait_and_run
from soak.stage import RESOURCES, Stage

_QUOTAS: Final = "/api/v1/namespaces/{}/resourcequotas"
#: Seconds between two quotas of a namespace, so that no replica that has lost a pod waits for a minute.
_PAUSE: Final = 10.0
#: Seconds between two looks at a gang that waits.
_LOOK: Final = 4.0
_ROOTS: Final = ("compositepodgroups", "podgroups")


@choice("tenants", 3)
def set_a_quota(stage: Stage, generator: random.Random) -> str | None:
    """Less than what is there, or a little more, and another number again and again."""
    namespace = generator.choice(NAMESPACES)
    if namespace in stage.limited:
        return None
    resource = generator.choice(["pods", "count/pods", f"requests.{GPU}"])
    with stage.watching.lock:
        pods = [pod for pod in stage.checker.world.pods.values() if pod.namespace == namespace and not pod.ended]
    used = sum(pod.gpus for pod in pods) if "gpu" in resource else len(pods)
    numbers = [max(0, used + generator.randint(-12, 6)) for _ in range(generator.randint(1, 4))]
    body = {"metadata": {"name": "tenants"}, "spec": {"hard": {resource: str(numbers[0])}}}
    if stage.api("POST", _QUOTAS.format(namespace), body) is None:
        return None
    stage.limited.add(namespace)
    path, after = f"{_QUOTAS.format(namespace)}/tenants", 0.0
    for number in numbers[1:]:
        after += generator.uniform(0.5, 5)
        change = {"spec": {"hard": {resource: str(number)}}}
        stage.later(after, "change a quota", lambda change=change: stage.api("PATCH", path, change), heals=False)
    after += generator.uniform(1, 6)
    stage.later(after, "take a quota away", lambda: stage.api("DELETE", path))
    stage.later(after + _PAUSE, "allow another quota", lambda: stage.limited.discard(namespace))
    return f"{namespace} may have {', '.join(map(str, numbers))} {resource}, has {used}, for {after:.1f} s"


def _vast(size: int, replicas: int, level: str) -> dict[str, Any]:
    container = {"name": "engine", "image": "registry.test/engine:1", "resources": {"limits": {GPU: "8"}}}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    role = {"name": "decode", "size": size, "replicas": replicas, "minReplicas": replicas, "template": template}
    return {"replicas": 1, "topology": {"required": level}, "roles": [role]}


@choice("tenants", 4)
def ask_for_much(stage: Stage, generator: random.Random) -> str | None:
    """A gang for a whole rack, for most of a block, or for more than there is: it waits, and room is kept for it."""
    if len(stage.vast) >= len(NAMESPACES):
        return None
    namespace = generator.choice([each for each in NAMESPACES if each not in {owner.namespace for owner in stage.vast}])
    size, replicas, level = generator.choice(
        [(5, 1, "rack"), (1, 12, "block"), (1, 15, "block"), (1, 18, "block"), (5, 2, "rack")]
    )
    stage.counter += 1
    priority = generator.choice(sorted(CLASSES))
    owner, spec, seconds = (
        Owner(namespace, f"vast-{stage.counter}"),
        _vast(size, replicas, level) | {"priorityClassName": priority, "preemption": wait_and_run(1, 0)},
        generator.uniform(6, 25),
    )
    stage.vast.add(owner)
    stage.note(owner, spec)
    body = {
        "apiVersion": "inference.covey.dev/v1alpha1",
        "kind": "DisaggregatedInference",
        "metadata": {"name": owner.name},
    }
    stage.api("POST", RESOURCES.format(namespace), body | {"spec": spec})
    for number in range(1, int(seconds / _LOOK) + 1):
        stage.later(number * _LOOK, f"look at {owner.name}", lambda: _look(stage, owner), heals=False)
    stage.later(seconds, f"end {owner.name}", lambda: _end(stage, owner, spec))
    return (
        f"{namespace}/{owner.name}, {replicas} of {size} nodes in a {level} of priority {priority} for {seconds:.1f} s"
    )


def _look(stage: Stage, owner: Owner) -> None:
    """Say what became of it."""
    with stage.watching.lock:
        resource = stage.checker.world.resources.get(owner)
    said = resource.conditions.get("Admitted", ()) if resource is not None else ()
    kept = _kept_nodes(stage, owner)
    if kept:
        stage.kept.add(owner)
    stage.say(f"{owner.name}: {kept or 'no room'} kept, Admitted {' '.join(said)}")


def _end(stage: Stage, owner: Owner, spec: dict[str, Any]) -> None:
    stage.vast.discard(owner)
    stage.note(owner, spec | {"suspend": True})
    stage.api("DELETE", f"{RESOURCES.format(owner.namespace)}/{owner.name}")


def _kept_nodes(stage: Stage, owner: Owner) -> str:
    """The domain that is kept for a resource."""
    for kind in _ROOTS:
        groups = stage.api("GET", f"/apis/scheduling.covey.dev/v1alpha1/namespaces/{owner.namespace}/{kind}")
        for group in (groups or {"items": []})["items"]:
            found = (group.get("status") or {}).get("claim") or {}
            owners = group["metadata"].get("ownerReferences") or ()
            if found.get("nodes") and any(each["name"] == owner.name for each in owners):
                return f"{len(found['nodes'])} nodes of {'/'.join(each or '-' for each in found['path'])}"
    return ""
