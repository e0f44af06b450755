"""Only groups are made anew: a Service that somebody edited is applied in place."""

from __future__ import annotations

import msgspec

from covey.backends import BACKENDS, Cluster
from unit.compile.inferences import inference, role
from unit.operator.world import World


def test_an_edited_service_takes_no_unit_down() -> None:
    network = {"subdomain": "UniquePerReplica"}
    world = World(inference(role("prefill", size=2, network=network), role("decode"), backend="Kubernetes"))
    world.cluster = Cluster(kept=frozenset(probe.name for each in BACKENDS for probe in each.probes()))
    world.settle()
    for key, owned in world.objects.items():
        if key[0].startswith("Service"):
            metadata = msgspec.structs.replace(
                owned.metadata, labels={**(owned.metadata.labels or {}), "covey.dev/role": "x"}
            )
            spec = {**owned.spec, "type": "ClusterIP", "sessionAffinity": "None"}
            world.objects[key] = msgspec.structs.replace(owned, metadata=metadata, spec=spec)
    actions = world.plan().actions
    assert not actions.delete_pods
    assert not actions.delete_objects
    assert any(body["kind"] == "Service" for level in actions.apply for body in level)
