"""Changes of resources and topologies that are a reason to look at a resource."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from covey.api import core
from unit.operator.seen import Seen

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


@pytest.mark.parametrize("foreign", [{}, {**WRITTEN, "units": 9}, {**WRITTEN, "units": "many"}])
def test_what_somebody_else_writes_has_to_be_put_right(foreign: dict[str, Any]) -> None:
    seen = Seen()
    seen.tell(seen.caches.inferences, "llama", generation=1, texts={"status": {}})
    seen.caches.tell("uid-llama", WRITTEN)
    for status in (STORED, foreign, STORED):
        seen.looks.clear()
        seen.tell(seen.caches.inferences, "llama", generation=1, texts={"status": status})
        assert bool(seen.asked) == (status is not STORED)


def test_topology_when_it_is_marked_default_or_no_longer_is_a_reason_to_look_at_every_resource() -> None:
    seen, mark = Seen(), {"scheduling.covey.dev/default": "true"}
    seen.tell(seen.caches.inferences, "llama")
    levels = {"spec": {"levels": [{"name": "zone", "keys": ["zone"]}]}}
    found = []
    for marks in ({}, mark, {**mark, "note": "x"}, {}):
        seen.looks.clear()
        seen.tell(seen.caches.topologies, "network", namespace="", texts=levels, annotations=marks)
        found.append(len(seen.asked))
    assert found == [1, 1, 0, 1]


def show_pod(seen: Seen, kind: str, **fields: Any) -> float:
    """Show a pod; the seconds until its resource is looked at."""
    status = {"phase": "Pending"} | fields.pop("status", {})
    metadata = {"name": "a", "namespace": KEY[0], "uid": "a", "labels": {"covey.dev/inference": KEY[1]}}
    metadata |= fields.pop("metadata", {})
    seen.watch(
        seen.caches.pods, msgspec.convert({"metadata": metadata, "spec": fields, "status": status}, core.Pod), kind
    )
    return seen.looks[-1][1]


def test_pod_when_it_only_gets_its_place_is_looked_at_later_than_when_it_is_lost() -> None:
    gated, bound = {"schedulingGates": [{"name": "covey.dev/gang"}]}, {"nodeName": "n1"}
    seen = Seen()
    progress = [show_pod(seen, "ADDED", **gated), show_pod(seen, "MODIFIED"), show_pod(seen, "MODIFIED", **bound)]
    ready = show_pod(
        seen, "MODIFIED", **bound, status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    )
    failed = show_pod(seen, "MODIFIED", **bound, status={"phase": "Failed"})
    gone = show_pod(seen, "DELETED", **bound, status={"phase": "Failed"})
    assert min(progress) > max(ready, failed, gone)


def test_pod_when_its_deletion_was_asked_for_is_looked_at_at_once() -> None:
    seen = Seen()
    first = show_pod(seen, "ADDED", schedulingGates=[{"name": "covey.dev/gang"}])
    assert show_pod(seen, "MODIFIED", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}) < first
