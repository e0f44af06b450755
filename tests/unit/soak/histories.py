"""Pods, nodes and resources as JSON, and histories of them, for the tests of the soak's checker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from builders.pods import pod_body
from soak.checker import Checker
from soak.invariants import Violation
from soak.world import GRACE

Json = dict[str, Any]
GATED = ("scheduling.covey.dev/gang",)
UID = "uid-of-llm"


def pod(
    place: str,
    *,
    uid: str = "",
    node: str = "",
    gates: tuple[str, ...] = (),
    ready: bool = False,
    size: int = 1,
    gpus: int = 4,
    owned: bool = True,
    scheduler: str = "covey-scheduler",
    **more: Any,
) -> Json:
    """A pod at a place ``unit/role/replica/index``."""
    parts = dict(zip(("unit", "role", "replica", "index"), place.split("/"), strict=True))
    labels = {f"covey.dev/{key}": value for key, value in ({"inference": "llm"} | parts).items()}
    owner = {"kind": "DisaggregatedInference", "uid": UID, "controller": True, "name": "llm"}
    container = {
        "name": "engine",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
        "env": [{"name": "COVEY_SIZE", "value": str(size)}],
    }
    return pod_body(
        uid or place,
        namespace="soak",
        uid=uid or place,
        labels=labels | more.get("labels", {}),
        annotations=more.get("annotations"),
        node=node,
        spec={
            "containers": [container],
            "schedulingGates": [{"name": gate} for gate in gates],
            "schedulerName": scheduler,
            "subdomain": more.get("subdomain", ""),
        },
        status={"conditions": [{"type": "Ready", "status": str(ready)}], "phase": more.get("phase", "Pending")},
        **({"ownerReferences": [owner]} if owned else {}),
        resourceVersion=str(more.get("version", 0)),
        **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if more.get("going") else {}),
    )


def node(name: str, *, rack: str = "rack-0", cordoned: bool = False, gpus: int = 8, version: int = 0) -> Json:
    labels = {"cloud.provider.com/topology-rack": rack, "cloud.provider.com/topology-block": "block-0"}
    status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"nvidia.com/gpu": str(gpus)}}
    return {
        "metadata": {"name": name, "labels": labels, "resourceVersion": str(version)},
        "spec": {"unschedulable": cordoned},
        "status": status,
    }


def resource(
    *roles: Mapping[str, Any], generation: int = 1, hold: str = "", conditions: tuple[Json, ...] = (), **spec: Any
) -> Json:
    return {
        "metadata": {"namespace": "soak", "name": "llm", "uid": UID, "generation": generation},
        "spec": {"roles": list(roles), **spec},
        "status": {"conditions": list(conditions)} | ({"rollout": {"hold": {"gate": hold}}} if hold else {}),
    }


def role(name: str, replicas: int = 1, **fields: Any) -> Json:
    return {"name": name, "replicas": replicas, **fields}


class History:
    """Events, one after the other."""

    def __init__(self, *roles: Mapping[str, Any], **spec: Any) -> None:
        self.checker = Checker()
        self.at = 0.0
        self.wanted(*roles, **spec)
        for number in range(4):
            self.checker.take("Node", "ADDED", node(f"n{number}", rack=f"rack-{number % 2}"), self.at)
        self.wait()

    def wanted(self, *roles: Mapping[str, Any], **spec: Any) -> None:
        self.checker.take("DisaggregatedInference", "MODIFIED", resource(*roles, **spec), self.at)

    def wait(self, seconds: float = GRACE + 1) -> list[Violation]:
        self.at += seconds
        return self.checker.tick(self.at)

    def see(self, place: str, **fields: Any) -> list[str]:
        """A pod was changed; the rules that it broke."""
        return [each.rule for each in self.checker.take("Pod", "MODIFIED", pod(place, **fields), self.at)]

    def delete(self, place: str, *, by_operator: bool = True, **fields: Any) -> list[str]:
        body = pod(place, **fields)
        if by_operator:
            self.checker.world.condemned.add(("soak", body["metadata"]["name"]))
        return [each.rule for each in self.checker.take("Pod", "DELETED", body, self.at)]
