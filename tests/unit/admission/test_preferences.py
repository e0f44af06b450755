"""Which preferred levels were reached, and how they are counted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.admission.levels import Preference, Scope, preferences
from covey.observability import metrics
from covey.placement.model import Level, Path, Topology
from covey.scheduler.lives import count_level
from scrapes import Scrape
from unit.admission.test_status import PATHS, TOPOLOGY, preferring, tree

DEEP = Topology("t", tuple(Level(name, (name,)) for name in ("zone", "block", "rack")))


def preference(level: str, *sets: list[Path]) -> Preference:
    return Preference(Scope.UNIT, "", level, sets)


@pytest.mark.parametrize(
    ("level", "paths", "reached"),
    [
        ("rack", [("z", "b", "r"), ("z", "b", "r")], "rack"),
        ("rack", [("z", "b", "r"), ("z", "b", "s")], "block"),
        ("rack", [("z", "b", "r"), ("z", "c", "r")], "zone"),
        ("rack", [("z", "b", "r"), ("y", "b", "r")], "cluster"),
        # No closer than was asked for, and a level that a node lacks is none that it shares.
        ("block", [("z", "b", "r"), ("z", "b", "r")], "block"),
        ("rack", [("z", "b", None), ("z", "b", None)], "block"),
        ("rack", [("z", "b", "r")], "rack"),
        ("made.up/key", [("z", "b", "r"), ("z", "b", "r")], "rack"),
    ],
)
def test_the_level_that_was_reached(level: str, paths: list[Path], reached: str) -> None:
    found = preference(level, paths)
    assert found.reached_level(DEEP) == reached
    assert found.is_met(DEEP) == (reached == level)


def test_every_set_counts() -> None:
    near, far = [("z", "b", "r")] * 2, [("z", "b", "r"), ("z", "c", "s")]
    assert preference("rack", near, far).reached_level(DEEP) == "zone"
    assert preference("rack", near, []).reached_level(DEEP) == "rack"


paths_of = st.lists(st.tuples(*[st.sampled_from(["a", "b", None])] * 3), max_size=4)


@given(st.sampled_from(["zone", "block", "rack"]), st.lists(paths_of, max_size=3))
def test_as_a_naive_look_at_every_level(level: str, sets: list[Any]) -> None:
    depth = DEEP.depth(level)
    held = [
        name
        for at, name in enumerate(("zone", "block", "rack")[: depth + 1])
        if all(len({path[: at + 1] for path in paths}) <= 1 and all(path[at] for path in paths) for paths in sets)
    ]
    assert preference(level, *sets).reached_level(DEEP) == (held[-1] if held else "cluster")


def test_what_a_unit_prefers() -> None:
    apart = tree({(0, 0): {"node": "n1"}, (0, 1): {"node": "n3"}}, preferring("rack"))
    (found,) = preferences(apart, TOPOLOGY, lambda node: PATHS[node])
    assert (found.scope, found.level, str(found)) == (Scope.UNIT, "rack", "unit")
    assert found.reached_level(TOPOLOGY) == "block"
    assert preferences(tree({}, preferring("rack")), TOPOLOGY, lambda node: PATHS[node]) == []
    assert preferences(tree({(0, 0): {"node": "n1"}}), TOPOLOGY, lambda node: PATHS[node]) == []


def test_how_they_are_counted() -> None:
    def counted(**labels: str) -> float:
        return Scrape.parse(metrics.render().decode())("covey_gang_preferred_levels_total", **labels)

    far = preference("rack", [("z", "b", "r"), ("z", "b", "s")])
    labels = {"scope": "unit", "preferred": "rack", "reached": "block", "satisfied": "false"}
    before = counted(**labels)
    count_level(far, DEEP)
    assert counted(**labels) == before + 1
    count_level(preference("rack", [("z", "b", "r")] * 2), DEEP)
    assert counted(scope="unit", preferred="rack", reached="rack", satisfied="true") >= 1
    # Upstream groups name label keys, which anybody can make up.
    before = counted(preferred="Other", satisfied="false")
    for number in range(5):
        count_level(preference(f"made.up/{number}", [("z", "b", "r")]), DEEP)
    assert counted(preferred="Other", satisfied="false") == before + 5
