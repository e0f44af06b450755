"""Which changes of a ClusterTopology are a reason to look at resources, and what a pass then finds."""

from __future__ import annotations

import json
from typing import cast

from covey.kube.client import Client
from covey.operator.observe.caches import Caches
from covey.operator.observe.watched import Requeue


class Seen:
    """Caches with one resource; ``asked`` counts how often it was to be looked at."""

    def __init__(self) -> None:
        self.asked = 0
        self._version = 0
        self.caches = Caches(cast("Client", None), Requeue(resource_after=lambda *_: self._count()))
        self.caches.inferences.take({"type": None, "object": {"metadata": self._metadata("ml", "llama")}})

    def _count(self) -> None:
        self.asked += 1

    def _metadata(self, namespace: str, name: str) -> dict[str, str]:
        self._version += 1
        return {"namespace": namespace, "name": name, "uid": f"uid-{name}", "resourceVersion": str(self._version)}

    def show(self, kind: str | None, name: str, *keys: str) -> int:
        """Show a topology with levels of these label keys; how often the resource was to be looked at so far."""
        spec = json.dumps({"levels": [{"name": f"level-{key}", "keys": [key]} for key in keys]})
        self.caches.topologies.take({"type": kind, "object": {"metadata": self._metadata("", name), "spec": spec}})
        return self.asked


def test_other_levels_are_a_reason_to_look_at_every_resource() -> None:
    seen = Seen()
    assert seen.show(None, "network", "zone") == 1
    assert seen.show("MODIFIED", "network", "zone") == 1, "only its metadata have changed"
    assert seen.show("MODIFIED", "network", "zone", "rack") == 2
    assert seen.show("DELETED", "network", "zone", "rack") == 3


def test_a_pass_finds_all_of_them_by_name() -> None:
    seen = Seen()
    seen.show(None, "b", "zone")
    seen.show("ADDED", "a", "rack")
    assert [each.metadata.name for each in seen.caches.find_topologies()] == ["a", "b"]
    seen.show("DELETED", "b", "zone")
    assert [each.metadata.name for each in seen.caches.find_topologies()] == ["a"]
