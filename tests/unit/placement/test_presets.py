"""Presets: every one is found by its own labels, and the choice of a topology is never a guess."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.requests import make_node
from covey.api import core
from covey.placement.cluster.inventory import path_of
from covey.placement.cluster.presets import PRESETS, LabelCounts, choose, detect, topology_of
from covey.placement.model import Topology

ORDER = (
    *("region", "zone", "tier-5", "tier-4", "tier-3"),
    *("superblock", "block", "subblock", "leaf", "rack", "subrack", "host"),
)
#: What the API lets a ClusterTopology have.
MOST_LEVELS = 10
#: Every key that a vendor's nodes may carry, from far to near.
TIERS = {
    "aws": [
        *(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3, 4)),
        "topology.k8s.aws/ultraserver-id",
    ],
    "coreweave": [
        *(f"backend.coreweave.cloud/{tier}" for tier in ("fabric", "superpod", "leafgroup")),
        "ds.coreweave.com/nvlink.domain",
    ],
    "topograph": [
        *(f"fabric.topograph.run/tier-{tier}" for tier in (5, 4, 3, 2, 1, 0)),
        "accelerator.topograph.run/domain",
        "accelerator.topograph.run/sub-domain",
    ],
    "topograph-legacy": [f"network.topology.nvidia.com/{tier}" for tier in ("core", "spine", "leaf", "accelerator")],
}


def own_labels(preset: Topology) -> dict[str, str]:
    return {key: f"{level.name}-1" for level in preset.levels for key in level.keys[:1]}


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_each_preset_is_detected_from_its_labels(preset: Topology) -> None:
    assert detect([make_node("n", labels=own_labels(preset))]) == preset


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_levels_have_the_common_names_from_broad_to_narrow(preset: Topology) -> None:
    names = [level.name for level in preset.levels]
    assert set(names) <= set(ORDER)
    assert names == sorted(names, key=ORDER.index)
    assert len(set(names)) == len(names) <= MOST_LEVELS


def preset_of(name: str) -> Topology:
    return next(preset for preset in PRESETS if preset.name == name)


@pytest.mark.parametrize(("name", "key"), [(name, key) for name, keys in TIERS.items() for key in keys])
def test_a_node_that_lacks_a_tier_keeps_the_others(name: str, key: str) -> None:
    rest = [other for other in TIERS[name] if other != key]
    path = path_of(preset_of(name), {other: other for other in rest})
    assert [value for value in path if value is not None] == rest


def test_a_preset_when_one_node_has_the_labels_of_another_alone_then_still_holds() -> None:
    aws, clique = own_labels(preset_of("aws")), {"nvidia.com/gpu.clique": "u.1"}
    nodes = [make_node(f"n{i}", labels={**aws, **clique}) for i in range(4)]
    assert detect([*nodes, make_node("new", labels=clique)]) == preset_of("aws")
    assert detect([*nodes, *(make_node(f"new{i}", labels=clique) for i in range(5))]) == preset_of("nvidia-clique")


RACK, CLIQUE = {"cloud.provider.com/topology-rack": "r"}, {"nvidia.com/gpu.clique": "u.1"}


def test_a_preset_in_use_when_more_nodes_have_other_labels_then_stays() -> None:
    nodes = [make_node("k", labels=RACK), *(make_node(f"c{i}", labels=CLIQUE) for i in range(3))]
    assert detect(nodes) == preset_of("nvidia-clique")
    assert detect(nodes, {"kueue": 1}) == preset_of("kueue")
    assert detect(nodes, {"kueue": 1, "gke": 9}) == preset_of("kueue")


def test_a_preset_in_use_when_only_nodes_without_devices_have_its_labels_then_goes() -> None:
    nodes = [make_node("cpu", 0, labels=RACK), *(make_node(f"c{i}", labels=CLIQUE) for i in range(3))]
    assert detect(nodes, {"kueue": 1}) == preset_of("nvidia-clique")
    assert detect(nodes[:1], {"kueue": 1}) == preset_of("kueue")


def test_the_common_levels_in_use_when_a_vendors_labels_come_then_go() -> None:
    """Or whoever labels racks would have to stop all that runs first."""
    assert detect([make_node("k", labels=RACK)], {"kubernetes": 5}) == preset_of("kueue")


def test_a_label_without_a_value_says_nothing() -> None:
    """CoreWeave's nodes without a backend fabric carry its keys all the same."""
    nodes = [make_node(f"cpu{i}", labels={"backend.coreweave.cloud/fabric": ""}) for i in range(2)]
    assert detect([*nodes, make_node("n", labels={"nvidia.com/gpu.clique": "u.1"})]) == preset_of("nvidia-clique")
    assert detect([core.Node(metadata=core.Meta(name="n", labels={"topology.kubernetes.io/zone": ""}))]) is None


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("aws", "topology.k8s.aws/capacity-block-id", "topology.k8s.aws/ultraserver-id"),
        *(
            ("coreweave", f"ib.coreweave.cloud/{tier}", f"backend.coreweave.cloud/{tier}")
            for tier in ("fabric", "superpod", "leafgroup")
        ),
    ],
)
def test_a_level_that_has_two_keys_takes_either(name: str, old: str, new: str) -> None:
    preset = preset_of(name)
    assert path_of(preset, {old: "a"}) == path_of(preset, {new: "a"}) == path_of(preset, {new: "a", old: "b"})
    assert "a" in path_of(preset, {old: "a"})


def test_superpods_of_two_fabrics_are_two() -> None:
    one, other = (
        {"backend.coreweave.cloud/fabric": fabric, "backend.coreweave.cloud/superpod": "1"} for fabric in "ab"
    )
    preset = preset_of("coreweave")
    assert path_of(preset, one)[:3] != path_of(preset, other)[:3]


def resource(name: str) -> core.ClusterTopology:
    level = core.TopologyLevel(name="rack", keys=("r",), optional=True)
    return core.ClusterTopology(metadata=core.Meta(name=name), spec=core.ClusterTopologySpec(levels=(level,)))


def test_an_unclear_choice_is_refused() -> None:
    one, two = topology_of(resource("one")), topology_of(resource("two"))
    with pytest.raises(LookupError, match="no ClusterTopology 'three'; there are: one, two"):
        choose("three", [one, two], [], [])
    with pytest.raises(LookupError, match="none marked default: one, two"):
        choose(None, [one, two], [], [])
    with pytest.raises(LookupError, match="several ClusterTopologies are marked default: one, two"):
        choose(None, [one, two], ["one", "two"], [])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["n1", "n2", "n3"]),
            st.none()
            | st.dictionaries(
                st.sampled_from([*(key for keys in TIERS.values() for key in keys), "other"]),
                st.sampled_from(["", "v"]),
            ),
        ),
        max_size=30,
    )
)
def test_nodes_counted_one_by_one_show_the_same_as_all_at_once(events: list[tuple[str, dict[str, str] | None]]) -> None:
    counts, there = LabelCounts(), dict[str, core.Node]()
    for name, labels in events:
        before = +counts.present
        if labels is None:
            there.pop(name, None)
        else:
            there[name] = core.Node(metadata=core.Meta(name=name, labels=labels))
        changed = counts.note(name, there.get(name))
        assert changed or +counts.present == before
        assert +counts.present == LabelCounts(there.values()).present
        assert detect(counts) == detect(there.values())
