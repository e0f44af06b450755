"""Pods as an API server has them: the one place in which unit tests say what a pod is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from covey.api import core

Json = dict[str, Any]


def pod_body(
    name: str = "p",
    *,
    namespace: str = "ns",
    uid: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    node: str | None = None,
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> Json:
    """A Pod object; what else there is of ``metadata`` has the names that the API gives it."""
    known = {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}"}
    marks = {"labels": dict(labels or {}), "annotations": dict(annotations or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": known | {key: value for key, value in marks.items() if value} | metadata,
        "spec": {"nodeName": node, **(spec or {})} if node else dict(spec or {}),
        "status": dict(status or {}),
    }


def pod(name: str = "p", **fields: Any) -> core.Pod:
    """The same as a watch delivers it; values of ``core`` may stand in it for what they are on the wire."""
    return msgspec.convert(msgspec.to_builtins(pod_body(name, **fields)), core.Pod)
