"""Flags of each release's programs, and the nodes of a cluster."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from localcluster import NATIVE_GROUPS, Gates, components, native_groups
from localcluster.binaries import RELEASES
from localcluster.nodes import Nodes

VERSIONS = {
    "1.37": ("scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha3"),
    "1.36": ("scheduling.k8s.io/v1alpha2",),
    "1.35": ("scheduling.k8s.io/v1alpha1",),
    "1.30": (),
}


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_serves_its_own_version_of_the_groups(release: str) -> None:
    gates = native_groups(release)
    assert gates.runtime_config == VERSIONS[release]
    assert all(gates.features.values())
    assert ("GenericWorkload" in gates.features) == bool(VERSIONS[release])


def test_the_newest_release_is_meant_where_none_is_named() -> None:
    assert native_groups("1.37") == NATIVE_GROUPS
    assert native_groups("1.30") == Gates()


def test_volcano_is_told_of_topology_and_of_one_plugin_once() -> None:
    config = yaml.safe_load(components.volcano_config())
    plugins = [plugin["name"] for tier in config["tiers"] for plugin in tier["plugins"]]
    assert set(plugins) == {
        "priority",
        "gang",
        "conformance",
        "predicates",
        "nodeorder",
        "binpack",
        "network-topology-aware",
    }
    assert len(plugins) == 7


def test_the_oldest_scheduler_is_asked_for_what_it_serves() -> None:
    assert [components.scheduler_health(release) for release in ("1.37", "1.30")] == ["/readyz", "/healthz"]


COUNT = st.integers(1, 3)
BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"


def labels(nodes: Nodes) -> list[dict[str, str]]:
    return [node["metadata"]["labels"] for node in nodes.manifests()]


@given(zones=COUNT, blocks=COUNT, racks=COUNT, nodes=COUNT, local=st.booleans())
def test_every_level_has_as_many_domains_as_described(
    *, zones: int, blocks: int, racks: int, nodes: int, local: bool
) -> None:
    described = Nodes(blocks=blocks, racks=racks, nodes=nodes, zones=zones, local_racks=local)
    found = labels(described)

    assert len(described) == len(found) == len({each["kubernetes.io/hostname"] for each in found})
    assert described.names == [each["kubernetes.io/hostname"] for each in found]
    assert len({each["topology.kubernetes.io/zone"] for each in found}) == zones
    assert len({each[BLOCK] for each in found}) == zones * blocks
    assert len({(each[BLOCK], each[RACK]) for each in found}) == zones * blocks * racks
    assert len({each[RACK] for each in found}) == (racks if local else zones * blocks * racks)


def test_sets_with_different_prefixes_share_no_name_and_no_domain() -> None:
    one, other = labels(Nodes(prefix="a-")), labels(Nodes(prefix="b-"))
    for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone", BLOCK, RACK):
        assert {each[key] for each in one}.isdisjoint(each[key] for each in other)


@pytest.mark.parametrize(
    ("preset", "keys"),
    [
        ("kueue", {BLOCK, RACK}),
        (
            "topograph",
            {"fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1", "accelerator.topograph.run/domain"},
        ),
        ("clique", {"nvidia.com/gpu.clique"}),
    ],
)
def test_only_the_labels_of_the_preset_are_there(preset: str, keys: set[str]) -> None:
    everywhere = set(labels(Nodes(preset="kueue"))[0]) - {BLOCK, RACK}
    assert set(labels(Nodes(preset=preset))[0]) - everywhere == keys  # type: ignore[arg-type] # parametrized


def test_a_clique_is_one_rack() -> None:
    found = [each["nvidia.com/gpu.clique"] for each in labels(Nodes(racks=2, nodes=2, preset="clique"))]
    assert found[0] == found[1] != found[2] == found[3]


def test_labels_are_added_replaced_and_taken_away() -> None:
    [found] = labels(Nodes(labels={"pool": "a", "kubernetes.io/os": "windows", RACK: None}))
    assert (found["pool"], found["kubernetes.io/os"]) == ("a", "windows")
    assert RACK not in found
    assert BLOCK in found


def test_a_node_without_gpus_says_nothing_of_gpus() -> None:
    [node] = Nodes(gpus=0).manifests()
    assert "nvidia.com" not in str(node)


@pytest.mark.parametrize(
    ("taint", "expected"),
    [
        ("a=b:NoSchedule", {"key": "a", "value": "b", "effect": "NoSchedule"}),
        ("x.io/a:NoExecute", {"key": "x.io/a", "effect": "NoExecute"}),
        ({"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}),
    ],
)
def test_taints_are_written_as_kubectl_does(taint: str | dict[str, str], expected: dict[str, str]) -> None:
    [node] = Nodes(taints=[taint]).manifests()
    assert node["spec"]["taints"] == [expected]


def test_more_resources_are_there_with_the_others() -> None:
    [found] = Nodes(resources={"rdma/ib": "8"}).manifests()
    assert found["status"]["allocatable"]["rdma/ib"] == found["status"]["allocatable"]["nvidia.com/gpu"] == "8"
