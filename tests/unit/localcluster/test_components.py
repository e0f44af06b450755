"""Flags of each release's programs, and the nodes of a cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localcluster import NATIVE_GROUPS, Gates, native_groups
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
