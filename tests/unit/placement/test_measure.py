"""By which one resource things are measured: GPUs, beside huge pages in bytes and network cards by the thousand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from builders.requests import GPU, TOPOLOGY, make_gang, make_node, make_role, make_shape
from covey.admission.reservation import scarce
from covey.admission.wake import ask_for_minimum
from covey.api.constants import RESOURCE_CHANNEL
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.presets import LabelCounts
from covey.placement.cluster.resources import find_devices, measure, rank, text
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
    ("wanted", "offered", "labels", "resource"),
    [
        ({GPU: 8, EFA: 32, PAGES: 5 * 2**30}, {GPU: 8}, {}, GPU),
        ({EFA: 32, "cpu": 1}, {GPU: 8, EFA: 32}, {}, EFA),
        ({PAGES: 2**30, "cpu": 1}, {GPU: 8}, {}, GPU),
        ({GPU: 0, "cpu": 1}, {"amd.com/gpu": 8, SHARE: 1000}, {}, "amd.com/gpu"),
        ({MIG: 1, FUSE: 5}, {}, {}, MIG),
        ({GPU: 1, "nvidia.com/gpumem": 3000}, {}, {}, GPU),
        ({}, {GPU: 8, EFA: 32}, {}, GPU),
        ({}, {GPU: 0, SHARE: 1000}, {}, "cpu"),
        ({}, {MIG: 7, FUSE: 5000}, {}, MIG),
        ({}, {NPU: 8, FUSE: 5000}, {}, FUSE),
        ({}, {NPU: 8, FUSE: 5000}, PRODUCT, NPU),
        ({}, {NPU: 16, SHARE: 1000, RESOURCE_CHANNEL: 2048}, {}, NPU),
        ({}, {}, {}, "cpu"),
    ],
)
def test_what_is_measured_when_there_are_several_resources_is_measured_by_one(
    wanted: Amounts, offered: Amounts, labels: Mapping[str, str], resource: str
) -> None:
    assert measure(wanted, [({}, NODE), (labels, NODE | offered)]) == resource


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


def test_resources_when_they_are_named_come_in_the_order_in_which_people_look_for_them() -> None:
    names = [GPU, EFA, RESOURCE_CHANNEL, SHARE, "cpu", "memory", PAGES, "ephemeral-storage", "pods"]
    assert sorted(sorted(names), key=rank) == [
        GPU,
        RESOURCE_CHANNEL,
        SHARE,
        EFA,
        "cpu",
        "memory",
        PAGES,
        "ephemeral-storage",
        "pods",
    ]
    assert text(PAGES, 5 * 2**30) == "5Gi"


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


def test_a_node_when_its_product_labels_come_is_measured_anew() -> None:
    inventory = Inventory([TOPOLOGY])
    inventory.set_node(make_node("n", 0, extra={NPU: 8, FUSE: 5000}))
    inventory.hold("agent", "n", make_shape(0, extra={FUSE: 1}))
    assert inventory.trees["dc"].root.broken == 1
    inventory.set_node(make_node("n", 0, labels=PRODUCT, extra={NPU: 8, FUSE: 5000}))
    assert inventory.trees["dc"].root.broken == 0
    inventory.release("agent")
    assert inventory.trees["dc"].root.broken == 0


def test_nodes_when_they_offer_network_cards_alone_have_no_devices() -> None:
    """Pods without devices go there first, and their labels do not decide on the topology beside those of GPU nodes."""
    label = "cloud.provider.com/topology-rack"
    storage = make_node("storage", 0, labels={label: "r"}, extra={SHARE: 1000})
    counts = LabelCounts([storage, make_node("gpu", labels={label: "r"})])
    assert (counts.present[label], counts.on_devices[label]) == (2, 1)


def test_a_waiting_pod_when_it_asks_for_huge_pages_waits_for_its_gpus() -> None:
    assert scarce(make_shape(8, extra={PAGES: 2**30, EFA: 32, FUSE: 1})) == GPU
    assert scarce(make_shape(0, extra={"cpu": 1000, PAGES: 2**30})) == "cpu"
    assert scarce(make_shape(0, extra={"memory": 1})) == "memory"


def test_the_most_demanding_pod_when_another_has_more_bytes_is_that_with_more_gpus() -> None:
    pods = make_shape(8), make_shape(1, extra={PAGES: 2**30, EFA: 32})
    gang = make_gang(*(make_role(f"w{number}", 1, shape=shape) for number, shape in enumerate(pods)), required="rack")
    inventory = Inventory([TOPOLOGY])
    inventory.set_node(make_node("n"))
    parts = ask_for_minimum(gang, inventory).parts or ()
    shared = [need.shape for part in parts for need in part.needs if dict(need.sums)[GPU] == 9]
    assert shared
    assert set(shared) == {pods[0]}
