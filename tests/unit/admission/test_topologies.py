"""The topology of a unit: what runs keeps its own, whatever the nodes and the ClusterTopologies show by now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from builders.members import GATE, group, member, role_groups, unit
from builders.requests import make_node
from covey.admission.topologies import TopologyChoice
from covey.admission.tree import Unit
from covey.placement.cluster.presets import LabelCounts
from covey.placement.model import Level, Topology

IN_RACK = {"topology": [{"level": "rack", "mode": "Required"}]}
RACKED = {
    "topology.kubernetes.io/zone": "z",
    "cloud.provider.com/topology-block": "b",
    "cloud.provider.com/topology-rack": "r",
}
BOTH = {**RACKED, "nvidia.com/gpu.clique": "c.1"}
CLIQUE = {"topology.kubernetes.io/zone": "z", "nvidia.com/gpu.clique": "c.1"}
#: As a pin writes them: of a node `a` with racks by hand, and of one in its clique.
IN_A_RACK = {"zone": "z", "block": "b", "rack": "r", "host": "a"}
IN_A_CLIQUE = {"zone": "z", "rack": "c.1", "host": "a"}
#: The same levels as the preset `kueue`.
OWN = Topology(
    "own",
    (
        Level("zone", ("topology.kubernetes.io/zone",), optional=True),
        Level("block", ("cloud.provider.com/topology-block",), optional=True),
        Level("rack", ("cloud.provider.com/topology-rack",)),
        Level("host", ("kubernetes.io/hostname",)),
    ),
)
HALLS = Topology("halls", (Level("hall", ("example.com/hall",)),))


def told(domains: Mapping[str, str]) -> dict[str, str]:
    """The annotations of a pinned pod."""
    return {f"topology.covey.dev/{level}": value for level, value in domains.items()}


def make_unit(
    pods: Sequence[Mapping[str, Any]], *, constraints: Mapping[str, Any] = IN_RACK, status: str | None = None
) -> Unit:
    """A unit of single-pod replicas whose status names a topology."""
    state = {"topology": status, "admitted": 1} if status else {}
    root = group("root", composite=True, minimum=1, desired=1, constraints=constraints, status=state)
    groups = role_groups("decode", replicas=len(pods), minimum=1, size=1)
    return unit(root, groups, [member("decode", number, **pod) for number, pod in enumerate(pods)])


def choice(*known: Topology, default: str = "", nodes: Mapping[str, Mapping[str, str]], **more: Any) -> TopologyChoice:
    """What a cluster of these nodes and ClusterTopologies chooses by."""
    counts = LabelCounts(make_node(name, labels=labels) for name, labels in nodes.items())
    return TopologyChoice({t.name: t for t in known}, [default] if default else [], counts, **more)


def choose(made: Unit, nodes: Mapping[str, Mapping[str, str]], *known: Topology, **more: Any) -> str:
    labels = {name: {"kubernetes.io/hostname": name, **own} for name, own in nodes.items()}
    return choice(*known, nodes=nodes, **more).of_unit(made, labels.get).name


#: Most nodes are in a clique, and in no rack.
FLIPPED = {"a": BOTH, "new": CLIQUE, "newer": CLIQUE}


def test_a_unit_whose_named_topology_is_not_there_then_is_refused_before_it_has_pods() -> None:
    named = {**IN_RACK, "topologyName": "gone"}
    with pytest.raises(LookupError, match="no ClusterTopology 'gone'"):
        choose(make_unit([{"gates": (GATE,)}], constraints=named), {"a": BOTH})


@pytest.mark.parametrize(
    ("domains", "known", "expected"),
    [
        (IN_A_RACK, (), "kueue"),
        (IN_A_CLIQUE, (), "nvidia-clique"),
        (IN_A_RACK, (OWN,), "own"),
        ({"zone": "z", "host": "a"}, (), "kubernetes"),
        (IN_A_RACK, (HALLS,), "kueue"),
        ({}, (), "nvidia-clique"),
    ],
    ids=["racks", "clique", "a ClusterTopology", "no levels of a vendor", "none of the default", "nothing told"],
)
def test_a_unit_of_a_former_release_then_takes_the_topology_that_its_pods_tell(
    domains: Mapping[str, str], known: Sequence[Topology], expected: str
) -> None:
    made = make_unit([{"node": "a", "annotations": told(domains)}])
    assert choose(made, FLIPPED, *known) == expected


def test_a_unit_of_a_former_release_of_two_that_agree_then_takes_the_one_with_all_its_levels() -> None:
    """A node that has got a label since lies in more domains than its pod tells of."""
    wide = Topology("wide", OWN.levels[:2])
    made = make_unit([{"node": "a", "annotations": told(IN_A_RACK)}])
    assert choose(made, {"a": RACKED}, OWN, wide, default="wide") == "own"
    fresh = make_unit([{"node": "a", "annotations": told({"zone": "z", "rack": "r", "host": "a"})}])
    assert choose(fresh, {"a": RACKED}) == "kueue"


def test_a_unit_of_a_former_release_with_pods_of_two_topologies_then_is_not_placed_by_levels() -> None:
    """As one was left by a release that read its levels anew when a node joined."""
    pods = [
        {"node": "a", "annotations": told(IN_A_RACK)},
        {"node": "new", "annotations": told({**IN_A_CLIQUE, "host": "new"})},
    ]
    with pytest.raises(LookupError, match="create a ClusterTopology with these levels"):
        choose(make_unit(pods), FLIPPED)
    spread = {"spread": {"level": "rack", "mode": "Required"}}
    with pytest.raises(LookupError, match="create a ClusterTopology with these levels"):
        choose(make_unit(pods, constraints=spread), FLIPPED)
    assert choose(make_unit(pods, constraints={}), FLIPPED) == "nvidia-clique"
