"""Objects as an API server has them, for the UI's tests."""

from __future__ import annotations

from typing import Any

import msgspec

from builders.files import GPU, Object, cluster, inference, role
from covey.api import core
from covey.api.constants import INFERENCE_API
from covey.api.inference import DisaggregatedInference
from covey.compile import compile_inference
from covey.manifests.documents import convert
from covey.operator.model.objects import Inference
from covey.ui.view_state import WatchedObject


def nodes(*racks: int, blocks: int = 1) -> list[core.Node]:
    return [convert(each, core.Node) for each in cluster(*racks, blocks=blocks)]


def expanded(name: str, *roles: Object, created: str = "2026-01-01T00:00:00Z", **spec: Any) -> dict[str, WatchedObject]:
    """A resource right after it was expanded, by the names of its objects; its own is ``""``."""
    body = inference(name, *(roles or (role("prefill", 2, 1), role("decode", 1, 1))), namespace="default", **spec)
    body["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": created}
    found: dict[str, WatchedObject] = {"": convert(body, Inference)}
    for each in compile_inference(DisaggregatedInference.model_validate(body)).objects():
        each["metadata"]["uid"] = each["metadata"]["name"]
        if each["kind"] == "Pod":
            found[each["metadata"]["name"]] = convert(each, core.Pod)
        elif each["kind"].endswith("PodGroup"):
            found[each["metadata"]["name"]] = convert(each, core.Group)
    return found


def bound(pod: WatchedObject, node: str, *, ready: bool = True, **labels: str) -> core.Pod:
    """The pod on its node."""
    assert isinstance(pod, core.Pod)
    raw = _plain(pod)
    raw["metadata"]["labels"] = {**raw["metadata"].get("labels", {}), **labels}
    raw["spec"] |= {"nodeName": node, "schedulingGates": []}
    time = "2026-01-01T00:00:05Z"
    raw["status"] = {
        "phase": "Running",
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": time},
            {"type": "Ready", "status": str(ready), "lastTransitionTime": time},
        ],
    }
    return convert(raw, core.Pod)


def stranger(name: str, node: str, gpus: int = 8) -> core.Pod:
    container = {"name": "c", "resources": {"requests": {GPU: str(gpus)}}}
    meta = {"name": name, "namespace": "others", "uid": name}
    return convert({"metadata": meta, "spec": {"nodeName": node, "containers": [container]}}, core.Pod)


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)


def told(thing: WatchedObject, **status: Any) -> Any:
    """The resource or the group with another status."""
    raw = _plain(thing)
    return convert({**raw, "status": status}, type(thing))


def owned(group: WatchedObject, name: str | None) -> core.Group:
    """The group with another resource of ``expanded`` for an owner, or (None) without one."""
    assert isinstance(group, core.Group)
    owner = core.OwnerReference(
        kind="DisaggregatedInference", name=name or "", uid=f"uid-{name}", controller=True, api_version=INFERENCE_API
    )
    meta = msgspec.structs.replace(group.metadata, owner_references=(owner,) if name else ())
    return msgspec.structs.replace(group, metadata=meta)


def condition(kind: str, status: str, reason: str, message: str = "") -> Object:
    return {
        "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:09Z",
    }  # fmt: skip
