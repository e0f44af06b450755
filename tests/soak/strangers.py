"""Choices of others: ordinary pods that come and go, and objects that look like ours."""

from __future__ import annotations

import random
from typing import Any, Final

from kubernetes.client import ApiException

from soak.choices import choice
from soak.settings import NAMESPACES
from soak.stage import OVER_QUOTA, Stage

_MOST: Final = 40
#: GPUs that strangers may take together; what is left is enough for all resources.
_GPUS: Final = 24


def _body(stage: Stage, *, gpus: int = 0, **spec: Any) -> dict[str, Any]:
    stage.counter += 1
    limits = {"cpu": "50m"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    container = {"name": "job", "image": "registry.test/job:1", "resources": {"limits": limits}}
    return {
        "metadata": {"name": f"stranger-{stage.counter}", "labels": {"app": "stranger"}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }


def _create(stage: Stage, generator: random.Random, body: dict[str, Any]) -> str:
    namespace = generator.choice(NAMESPACES)
    if _post(stage, f"/api/v1/namespaces/{namespace}/pods", body) is None:
        return f"{namespace}/{body['metadata']['name']}, which is refused"
    stage.strangers.append((namespace, body["metadata"]["name"]))
    return f"{namespace}/{body['metadata']['name']}"


def _post(stage: Stage, path: str, body: dict[str, Any]) -> Any:
    """Create an object; None where a quota refuses it."""
    try:
        return stage.api("POST", path, body)
    except ApiException as error:
        if OVER_QUOTA in str(error.body):
            return None
        raise


def _taken(stage: Stage) -> int:
    with stage.watching.lock:
        return sum(pod.gpus for pod in stage.checker.world.pods.values() if pod.labels.get("app") == "stranger")


@choice("strangers", 6)
def create_ordinary_pods(stage: Stage, generator: random.Random) -> str | None:
    if len(stage.strangers) >= _MOST:
        return None
    names = [_create(stage, generator, _body(stage)) for _ in range(generator.randint(1, 4))]
    return ", ".join(names)


@choice("strangers", 3)
def create_an_ordinary_pod_with_gpus(stage: Stage, generator: random.Random) -> str | None:
    """It comes through Covey's kube-scheduler, so that the guard keeps it off what is reserved."""
    gpus = generator.choice([1, 1, 2, 4])
    if len(stage.strangers) >= _MOST or _taken(stage) + gpus > _GPUS:
        return None
    return f"{_create(stage, generator, _body(stage, gpus=gpus, schedulerName='covey-scheduler'))} takes {gpus}"


@choice("strangers", 2)
def take_room_without_asking(stage: Stage, generator: random.Random) -> str | None:
    """A pod that somebody binds past every scheduler, where there is room for it now."""
    gpus = generator.choice([1, 2])
    with stage.watching.lock:
        world = stage.checker.world
        room = sorted(
            name
            for name, node in world.nodes.items()
            if node.fit
            and sum(pod.gpus for pod in world.on_node.get(name, {}).values() if not pod.ended) + gpus <= node.gpus
        )
    if not room or len(stage.strangers) >= _MOST or _taken(stage) + gpus > _GPUS:
        return None
    node = generator.choice(room)
    return f"{_create(stage, generator, _body(stage, gpus=gpus, nodeName=node))} takes {gpus} of {node}"


@choice("strangers", 6)
def delete_an_ordinary_pod(stage: Stage, generator: random.Random) -> str | None:
    if not stage.strangers:
        return None
    namespace, name = stage.strangers.pop(generator.randrange(len(stage.strangers)))
    stage.api("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}")
    return f"{namespace}/{name}"


@choice("strangers", 1)
def create_what_looks_like_ours(stage: Stage, generator: random.Random) -> str | None:
    """An object with a resource's labels that the resource does not own: nobody may touch it."""
    if len(stage.foreign) >= 6 or not stage.specs:
        return None
    owner = generator.choice(sorted(stage.specs))
    stage.counter += 1
    name = f"alike-{stage.counter}"
    labels = {
        "covey.dev/inference": owner.name,
        "covey.dev/unit": "0",
        "covey.dev/role": "decode",
        "covey.dev/replica": "0",
        "covey.dev/index": "0",
    }
    group = "/apis/scheduling.covey.dev/v1alpha1"
    kind = generator.choice(["pods", "services", "podgroups"])
    path = f"{'/api/v1' if kind != 'podgroups' else group}/namespaces/{owner.namespace}/{kind}"
    spec: dict[str, Any] = {
        "pods": _body(stage)["spec"] | {"hostname": "0-decode-0-0", "subdomain": "nowhere"},
        "services": {"clusterIP": "None", "ports": [{"port": 80}]},
        "podgroups": {"schedulingPolicy": {"gang": {"minCount": 1}}},
    }[kind]
    body: dict[str, Any] = {"metadata": {"name": name, "labels": labels}, "spec": spec}
    if kind == "podgroups":
        body |= {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "PodGroup"}
    made = _post(stage, path, body)
    if made is None:
        return None
    stage.foreign[f"{path}/{name}"] = made["metadata"]["uid"]
    return f"{kind} {owner.namespace}/{name} as of {owner.name}"
