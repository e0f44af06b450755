"""By which one resource things are measured: GPUs, beside huge pages in bytes and network cards by the thousand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from builders.requests import GPU, TOPOLOGY, make_gang, make_node, make_role, make_shape
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.presets import LabelCounts
from covey.placement.cluster.resources import find_devices
from covey.placement.model import Plan
from covey.placement.planner import plan_minimum

EFA, SHARE, PAGES, MIG, FUSE = (
    "vpc.amazonaws.com/efa",
    "rdma/hca_shared_devices_a",
    "hugepages-2Mi",
    "nvidia.com/mig-1g.10gb",
    "example.com/fuse",
)
NPU, PRODUCT = "example.com/npu", {"example.com/npu.product": "N1"}
NODE = {"cpu": 64_000, "memory": 2**40, "pods": 110, PAGES: 2**33}

Amounts = Mapping[str, int]


@pytest.mark.parametrize(
    ("offered", "labels", "devices"),
    [
        ({GPU: 8, EFA: 32, SHARE: 1000, FUSE: 5000}, {}, {GPU}),
        ({GPU: 4, MIG: 28}, {}, {GPU, MIG}),
        ({NPU: 8, FUSE: 5000}, {}, {NPU, FUSE}),
        ({NPU: 8, FUSE: 5000}, PRODUCT, {NPU}),
        ({SHARE: 1000}, {}, set()),
        ({GPU: 4, "mig.nvidia.com.deviceclass.resource.k8s.io/devices": 2}, {}, None),
    ],
)
def test_a_node_when_it_offers_several_resources_is_measured_by_its_devices(
    offered: Amounts, labels: Mapping[str, str], devices: set[str] | None
) -> None:
    """Parts of devices are devices, too."""
    assert find_devices(labels, NODE | offered) == (offered.keys() if devices is None else devices)


@pytest.mark.parametrize(("resource", "offered", "taken"), [(PAGES, 2**34, 2**31), (SHARE, 1000, 1)])
def test_a_rack_when_only_daemons_lie_there_is_left_whole(resource: str, offered: int, taken: int) -> None:
    inventory = Inventory([TOPOLOGY])
    for rack in ("r0", "r1"):
        for number in range(2):
            name = f"{rack}-{number}"
            labels = {"zone": "z", "block": "b", "rack": rack}
            inventory.set_node(make_node(name, labels=labels, extra={resource: offered}))
            inventory.hold(f"daemon-{name}", name, make_shape(0, extra={resource: taken}))
    inventory.hold("job", "r1-0", make_shape(8))
    plan = plan_minimum(make_gang(make_role("w", 1), required="rack"), inventory)
    assert isinstance(plan, Plan)
    assert {each.node for each in plan.assignments} == {"r1-1"}


def test_nodes_when_they_offer_network_cards_alone_have_no_devices() -> None:
    """Pods without devices go there first, and their labels do not decide on the topology beside those of GPU nodes."""
    label = "cloud.provider.com/topology-rack"
    storage = make_node("storage", 0, labels={label: "r"}, extra={SHARE: 1000})
    counts = LabelCounts([storage, make_node("gpu", labels={label: "r"})])
    assert (counts.present[label], counts.on_devices[label]) == (2, 1)
