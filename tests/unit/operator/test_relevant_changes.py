"""Changes of resources and topologies that are a reason to look at a resource."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest

from covey.api import core
from covey.kube.client import Client
from covey.kube.clock import SYSTEM
from covey.operator.observe.caches import Caches
from covey.operator.observe.watched import Requeue

KEY = ("ml", "llama")
WRITTEN: dict[str, Any] = {
    "observedGeneration": 1,
    "conditions": [
        {"type": kind, "status": "True", "reason": "X", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind in ("Admitted", "Scheduled")
    ],
    "units": 1,
}
#: As the API server may give it back: lists that are maps in another order.
STORED = {**WRITTEN, "conditions": list(reversed(WRITTEN["conditions"]))}


class Seen:
    """Caches with one resource; ``asked`` counts how often it was to be looked at."""

    def __init__(self) -> None:
        self.asked = 0
        nobody = cast("Client", None)  # no reflector runs
        self.caches = Caches(nobody, Requeue(self._ask, lambda key, _: self._ask(key)), clock=SYSTEM)
        self._version = 0
        self.show()
        self.asked = 0

    def _ask(self, key: tuple[str, str]) -> None:
        assert key == KEY
        self.asked += 1

    def show(self, status: dict[str, Any] | None = None, kind: str = "MODIFIED", **meta: Any) -> int:
        self._version += 1
        fields = {"uid": "uid-llama", "generation": 1, **meta}
        metadata = core.Meta(name=KEY[1], namespace=KEY[0], resource_version=str(self._version), **fields)
        shallow = {"metadata": msgspec.to_builtins(metadata), "status": json.dumps(status or {})}
        self.caches.inferences.take({"type": kind, "object": shallow})
        return self.asked


@pytest.mark.parametrize("foreign", [{}, {**WRITTEN, "units": 9}, {**WRITTEN, "units": "many"}])
def test_what_somebody_else_writes_has_to_be_put_right(foreign: dict[str, Any]) -> None:
    seen = Seen()
    seen.caches.tell("uid-llama", WRITTEN)
    seen.show(STORED)
    assert seen.show(foreign) == 1
    assert seen.show(STORED) == 1


class SeenTopologies:
    """Caches with one resource; ``asked`` counts how often it was to be looked at."""

    def __init__(self) -> None:
        self.asked = 0
        self._version = 0
        self.caches = Caches(cast("Client", None), Requeue(resource_after=lambda *_: self._count()), clock=SYSTEM)
        self.caches.inferences.take({"type": None, "object": {"metadata": self._metadata("ml", "llama")}})

    def _count(self) -> None:
        self.asked += 1

    def _metadata(self, namespace: str, name: str) -> dict[str, str]:
        self._version += 1
        return {"namespace": namespace, "name": name, "uid": f"uid-{name}", "resourceVersion": str(self._version)}

    def show(self, kind: str | None, name: str, *keys: str, annotations: Mapping[str, str] | None = None) -> int:
        """Show a topology with levels of these label keys; how often the resource was to be looked at so far."""
        spec = json.dumps({"levels": [{"name": f"level-{key}", "keys": [key]} for key in keys]})
        metadata = {**self._metadata("", name), "annotations": annotations or {}}
        self.caches.topologies.take({"type": kind, "object": {"metadata": metadata, "spec": spec}})
        return self.asked


def test_topology_when_it_is_marked_default_or_no_longer_is_a_reason_to_look_at_every_resource() -> None:
    seen, mark = SeenTopologies(), {"scheduling.covey.dev/default": "true"}
    assert seen.show(None, "network", "zone") == 1
    assert seen.show("MODIFIED", "network", "zone", annotations=mark) == 2
    assert seen.show("MODIFIED", "network", "zone", annotations={**mark, "note": "x"}) == 2
    assert seen.show("MODIFIED", "network", "zone") == 3


class SeenPods:
    """Caches with one resource, and the seconds after which each event had it looked at."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.caches = Caches(
            cast("Client", None), Requeue(resource_after=lambda _, delay: self.delays.append(delay)), clock=SYSTEM
        )

    def show(self, kind: str, **fields: Any) -> float:
        """Show the pod; the seconds until the resource is looked at."""
        status = {"phase": "Pending"} | fields.pop("status", {})
        metadata = {"name": "a", "namespace": KEY[0], "uid": "a", "labels": {"covey.dev/inference": KEY[1]}}
        metadata |= fields.pop("metadata", {})
        pod = msgspec.convert({"metadata": metadata, "spec": fields, "status": status}, core.Pod)
        self.caches.pods.reflectors[0]._take(kind, pod)  # type: ignore[arg-type] # one of the kinds
        return self.delays[-1]


def test_pod_when_it_only_gets_its_place_is_looked_at_later_than_when_it_is_lost() -> None:
    gated, bound = {"schedulingGates": [{"name": "covey.dev/gang"}]}, {"nodeName": "n1"}
    seen = SeenPods()
    progress = [seen.show("ADDED", **gated), seen.show("MODIFIED"), seen.show("MODIFIED", **bound)]
    ready = seen.show(
        "MODIFIED", **bound, status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    )
    failed = seen.show("MODIFIED", **bound, status={"phase": "Failed"})
    gone = seen.show("DELETED", **bound, status={"phase": "Failed"})
    assert min(progress) > max(ready, failed, gone)


def test_pod_when_its_deletion_was_asked_for_is_looked_at_at_once() -> None:
    seen = SeenPods()
    first = seen.show("ADDED", schedulingGates=[{"name": "covey.dev/gang"}])
    assert seen.show("MODIFIED", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}) < first
