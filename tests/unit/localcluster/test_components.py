"""What each release is told, so that it serves the groups that a backend needs."""

import pytest
import yaml

from localcluster import NATIVE_GROUPS, Gates, components, native_groups
from localcluster.binaries import RELEASES

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
