"""Choices that take pods away, or what a kubelet says of them."""

from __future__ import annotations

import random
from typing import Any

from kubernetes.client import ApiException

from soak.choices import choice
from soak.facts import Pod
from soak.stage import Stage


def _pod(stage: Stage, generator: random.Random, *, bound: bool = True) -> Pod | None:
    found = [pod for pod in stage.pods() if pod.node or not bound]
    return generator.choice(found) if found else None


def _path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"


def _delete(stage: Stage, pod: Pod, grace: int | None) -> None:
    stage.touch(pod)
    body: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
    if grace is not None:
        body["gracePeriodSeconds"] = grace
    stage.api("DELETE", _path(pod), body)


@choice("deaths", 6)
def delete_a_pod(stage: Stage, generator: random.Random) -> str | None:
    pod = _pod(stage, generator, bound=generator.random() < 0.8)
    if pod is None:
        return None
    grace = generator.choice([0, None])
    _delete(stage, pod, grace)
    return f"{pod.name}{' at once' if grace == 0 else ''}"


@choice("deaths", 2)
def delete_a_replica(stage: Stage, generator: random.Random) -> str | None:
    pod = _pod(stage, generator)
    if pod is None:
        return None
    members = [each for each in stage.pods() if each.replica == pod.replica]
    for each in members:
        _delete(stage, each, 0)
    return f"{pod.name} and its replica, {len(members)} pods"


@choice("deaths", 1)
def delete_a_unit(stage: Stage, generator: random.Random) -> str | None:
    pod = _pod(stage, generator)
    if pod is None or pod.replica is None:
        return None
    side = pod.replica.side
    members = [
        each
        for each in stage.pods()
        if each.replica and (each.replica.side.owner, each.replica.side.unit) == (side.owner, side.unit)
    ]
    for each in members:
        _delete(stage, each, 0)
    return f"{side.owner.namespace}/{side.owner.name} unit {side.unit}, {len(members)} pods"


@choice("deaths", 5)
def fail_a_pod(stage: Stage, generator: random.Random) -> str | None:
    """As a kubelet says of a pod that it has had to end."""
    pod = _pod(stage, generator)
    if pod is None:
        return None
    stage.touch(pod)
    status = {"phase": "Failed", "reason": "Error", "message": "the soak says so"}
    stage.api("PATCH", f"{_path(pod)}/status", {"metadata": {"uid": pod.uid}, "status": status})
    return pod.name


@choice("deaths", 3)
def evict_a_pod(stage: Stage, generator: random.Random) -> str | None:
    pod = _pod(stage, generator)
    return None if pod is None else f"{pod.name}: {evict(stage, pod)}"


def evict(stage: Stage, pod: Pod) -> str:
    """Ask the eviction API once; what it said."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }

    def ask() -> str:
        try:
            stage.cluster.api("POST", f"{_path(pod)}/eviction", body)
        except ApiException as error:
            if error.status == 429:
                stage.spare(pod)
                return "a budget forbids it"
            raise
        return "done"

    stage.touch(pod)
    return stage.patiently(ask) or "it had gone"


@choice("deaths", 3)
def let_a_pod_be_unready(stage: Stage, generator: random.Random) -> str | None:
    pod = _pod(stage, generator)
    if pod is None or not pod.ready:
        return None
    seconds = generator.uniform(0.2, 6)
    stage.set_ready(pod, "False")
    stage.later(seconds, f"make {pod.name} Ready", lambda: stage.set_ready(pod, "True"))
    return f"{pod.name} for {seconds:.1f} s"


@choice("deaths", 4)
def restart_a_container(stage: Stage, generator: random.Random) -> str | None:
    """As a kubelet says that a container has ended and was started again, with the pod being unready for a moment."""
    pod = _pod(stage, generator)
    if pod is None or pod.replica is None or not pod.ready:
        return None
    for each in stage.pods():
        if each.replica == pod.replica:
            stage.touch(each)
    found = stage.api("GET", _path(pod))
    told = (found or {}).get("status", {}).get("containerStatuses")
    if not told:
        return None
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:00:00Z"}}
    count = told[0].get("restartCount", 0) + 1
    status = {"containerStatuses": [{**told[0], "restartCount": count, "lastState": ended}]}
    stage.api("PATCH", f"{_path(pod)}/status", {"metadata": {"uid": pod.uid}, "status": status}, patch="strategic")
    return f"{pod.name}, {count} times"


@choice("deaths", 2)
def let_a_pod_have_requests(stage: Stage, generator: random.Random) -> str | None:
    """It has requests in flight for a while, for which a drain waits."""
    pod = _pod(stage, generator)
    if pod is None:
        return None
    seconds = generator.uniform(1, 8)

    def say(count: int) -> None:
        body = {"metadata": {"uid": pod.uid, "annotations": {"covey.dev/in-flight": str(count)}}}
        stage.api("PATCH", _path(pod), body)

    say(3)
    stage.later(seconds, f"let {pod.name} have no requests", lambda: say(0))
    return f"{pod.name} for {seconds:.1f} s"
