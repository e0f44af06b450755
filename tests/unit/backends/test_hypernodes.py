"""Which HyperNodes stand for a level: those that leave Volcano nothing to choose wrongly."""

from dataclasses import replace

import pytest

from covey.backends import Cluster
from covey.backends.hypernodes import HyperNodes, find_inverted_levels
from covey.backends.volcano import Volcano
from covey.compile import Levels
from unit.backends.volcano.objects import DISCOVERED, LEVELS, hyper_node, kthena

NAMED = (
    hyper_node("b", 7, "block", children=("x", "y")),
    hyper_node("x", 4, "rack", nodes="x.*"),
    hyper_node("y", 4, "rack", nodes="y.*"),
)


@pytest.mark.parametrize(("level", "tier"), [("block", 2), ("rack", 1)])
def test_discovery_by_labels_names_tiers_by_the_labels(level: str, tier: int) -> None:
    assert HyperNodes(DISCOVERED).tier(level, LEVELS) == tier


@pytest.mark.parametrize("levels", [LEVELS, {}])
@pytest.mark.parametrize(("level", "tier"), [("block", 7), ("rack", 4)])
def test_a_tier_may_be_named_like_the_level(levels: Levels, level: str, tier: int) -> None:
    assert HyperNodes(NAMED).tier(level, levels) == tier


def test_finer_domains_inside_a_level_do_no_harm() -> None:
    finer = hyper_node("n", 1, "nvlink", nodes="x-1.*")
    racks = (hyper_node("x", 4, "rack", children=("n",)), hyper_node("y", 4, "rack", nodes="y.*"))
    assert HyperNodes((NAMED[0], *racks, finer)).tier("rack", LEVELS) == 4


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


def test_a_level_is_written_as_the_tier_that_the_cluster_has_now() -> None:
    cluster = Cluster(hyper_nodes=HyperNodes(DISCOVERED))
    assert written(Volcano().within(cluster)) == {"mode": "hard", "highestTierAllowed": 2}
    assert written(Volcano().within(replace(cluster, hyper_nodes=HyperNodes(NAMED)))) == {
        "mode": "hard",
        "highestTierAllowed": 7,
    }


def test_nothing_fits_where_the_tiers_have_gone() -> None:
    """Volcano would place a gang anywhere that asks for a tier which it does not know."""
    assert written(Volcano().within(Cluster(hyper_nodes=HyperNodes()))) == {"mode": "hard", "highestTierAllowed": 0}


def test_whoever_only_prints_gets_names() -> None:
    assert written(Volcano()) == {"mode": "hard", "highestTierName": "block"}
