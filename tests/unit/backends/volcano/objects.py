"""Objects as others write them: Kthena's example, HyperNodes of Volcano's discovery, PodGroups of its scheduler."""

from typing import Any

import msgspec

from builders.inferences import inference, role
from covey.api import core
from covey.api.inference import DisaggregatedInference
from covey.compile import Levels

#: As in examples/topology.yaml.
LEVELS: Levels = {
    "zone": ("topology.kubernetes.io/zone",),
    "block": ("cloud.provider.com/topology-block",),
    "rack": ("cloud.provider.com/topology-rack",),
    "host": ("kubernetes.io/hostname",),
}


def template(requests: dict[str, Any] | None = None, **pod: Any) -> dict[str, Any]:
    container = {"name": "engine", "image": "engine:1", "resources": {"requests": requests or {"cpu": "100m"}}}
    return {"spec": {"containers": [container], **pod}}


def workers(name: str, **fields: Any) -> dict[str, Any]:
    """A role whose pods ask for something."""
    return role(name, **{"template": template(), **fields})


def kthena(**spec: Any) -> DisaggregatedInference:
    """Kthena's ``examples/model-serving/gangPolicy.yaml``: entry and worker of 100m each, minimums 2 and 1."""
    return inference(
        workers("prefill", replicas=2, size=2, minReplicas=2),
        workers("decode", replicas=2, size=2, minReplicas=1),
        **{"backend": "Volcano", **spec},
    )


def hyper_node(name: str, tier: int, tier_name: str = "", *, nodes: str = "", children: tuple[str, ...] = ()) -> Any:
    members: list[dict[str, Any]] = [
        {"type": "HyperNode", "selector": {"exactMatch": {"name": child}}} for child in children
    ]
    if nodes:
        members.append({"type": "Node", "selector": {"regexMatch": {"pattern": nodes}}})
    spec = {"tier": tier, **({"tierName": tier_name} if tier_name else {}), "members": members}
    return msgspec.convert(
        {
            "apiVersion": "topology.volcano.sh/v1alpha1",
            "kind": "HyperNode",
            "metadata": {"name": name, "resourceVersion": "1"},
            "spec": spec,
            "status": {"nodeCount": 4},
        },
        core.HyperNode,
    )


#: What discovery by labels makes of two blocks of two racks; it writes the label's key as the tier's name.
DISCOVERED: tuple[core.HyperNode, ...] = (
    hyper_node("hypernode-net-tier2-aaaaa", 2, "cloud.provider.com/topology-block", children=("r0", "r1")),
    hyper_node("hypernode-net-tier2-bbbbb", 2, "cloud.provider.com/topology-block", children=("r2", "r3")),
    *(hyper_node(f"r{n}", 1, "cloud.provider.com/topology-rack", nodes=f"n-{n}-.*") for n in range(4)),
)
