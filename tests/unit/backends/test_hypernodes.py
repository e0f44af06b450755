"""Which HyperNodes stand for a level: those that leave Volcano nothing to choose wrongly."""

import pytest

from covey.backends import Cluster
from covey.backends.hypernodes import HyperNodes, find_inverted_levels
from covey.backends.volcano import Volcano
from unit.backends.volcano.objects import DISCOVERED, LEVELS, hyper_node, kthena

NAMED = (
    hyper_node("b", 7, "block", children=("x", "y")),
    hyper_node("x", 4, "rack", nodes="x.*"),
    hyper_node("y", 4, "rack", nodes="y.*"),
)


@pytest.mark.parametrize(("level", "tier"), [("block", 2), ("rack", 1)])
def test_discovery_by_labels_names_tiers_by_the_labels(level: str, tier: int) -> None:
    assert HyperNodes(DISCOVERED).tier(level, LEVELS) == tier


@pytest.mark.parametrize(
    ("hyper_nodes", "level", "words"),
    [
        ((), "block", "no HyperNode has the tierName block or cloud.provider.com/topology-block"),
        (DISCOVERED, "zone", "no HyperNode has the tierName topology.kubernetes.io/zone or zone"),
        # Without a name nobody knows what a tier is.
        ((hyper_node("a", 1, nodes=".*"),), "rack", "no HyperNode has the tierName"),
        ((*NAMED, hyper_node("z", 5, "rack", nodes="z.*")), "rack", "are of the tiers 4, 5"),
        # Volcano takes any HyperNode of an allowed tier, whatever its name.
        ((*NAMED, hyper_node("other", 2, "fabric", nodes=".*")), "rack", "HyperNode other of tier 2 lies in none"),
        ((*NAMED, hyper_node("c", 8, "zone", children=("x",))), "rack", "HyperNode x is a member of two others"),
        ((hyper_node("x", 0, "rack", nodes="x.*"),), "rack", "of tier 0: give them tiers from 1"),
    ],
)
def test_what_leaves_something_open_is_no_level(hyper_nodes: tuple[object, ...], level: str, words: str) -> None:
    found = HyperNodes(hyper_nodes).tier(level, LEVELS)  # type: ignore[arg-type] # built from JSON
    assert isinstance(found, str)
    assert words in found


def test_a_circle_of_hyper_nodes_ends() -> None:
    circle = (hyper_node("a", 2, "block", children=("b",)), hyper_node("b", 1, "rack", children=("a",)))
    assert HyperNodes(circle).tier("block", LEVELS) == 2


def test_tiers_that_grow_the_wrong_way_are_found() -> None:
    assert find_inverted_levels(LEVELS, {"block": 2, "rack": 1}) is None
    assert find_inverted_levels(LEVELS, {"rack": 2, "block": 1}) == ("block", "rack")
    assert find_inverted_levels(LEVELS, {"zone": 2, "rack": 2}) == ("zone", "rack")


def written(backend: Volcano) -> object:
    return next(backend.compile(kthena(topology={"required": "block"}), levels=LEVELS).objects())["spec"][
        "networkTopology"
    ]


def test_nothing_fits_where_the_tiers_have_gone() -> None:
    """Volcano would place a gang anywhere that asks for a tier which it does not know."""
    assert written(Volcano().within(Cluster(hyper_nodes=HyperNodes()))) == {"mode": "hard", "highestTierAllowed": 0}
