from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.members import GATE, group, member, role_groups, unit
from covey.admission.preferred_levels import Preference, PreferenceScope
from covey.admission.status import Decision, observed_status, statuses
from covey.admission.tree import Unit
from covey.api import core
from covey.placement.model import Level, Path, Topology

TOPOLOGY = Topology("t", (Level("block", ("block",)), Level("rack", ("rack",))))
PATHS: dict[str, Path] = {"n1": ("b1", "r1"), "n2": ("b1", "r1"), "n3": ("b1", "r2"), "n4": ("b2", None)}
NOW = "2026-02-02T00:00:00Z"


def tree(places: dict[tuple[int, int], dict[str, Any]], root: core.Group | None = None) -> Unit:
    pods = [member("decode", replica, index, size=2, **state) for (replica, index), state in places.items()]
    return unit(
        root or group("root", composite=True, minimum=1), role_groups("decode", replicas=2, minimum=1, size=2), pods
    )


def status(found: Unit, decision: Decision | None = None, name: str = "root") -> dict[str, Any]:
    wanted = statuses(found, decision or Decision(topology=TOPOLOGY), lambda node: PATHS.get(node, ()), NOW)
    return next(each for group_, each in wanted if group_.metadata.name == name)


def condition(of: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(each for each in of["conditions"] if each["type"] == kind)


def preferring(level: str, minimum: int = 1) -> core.Group:
    return group(
        "root", composite=True, minimum=minimum, constraints={"topology": [{"level": level, "mode": "Preferred"}]}
    )


def test_what_was_never_true_is_dated_by_the_creation() -> None:
    """So a gang that was never admitted can be told from one that has lost its places."""
    gated = {(0, 0): {"gates": (GATE,)}, (0, 1): {"gates": (GATE,)}}
    new = status(tree(gated))
    assert {each["lastTransitionTime"] for each in new["conditions"]} == {"2026-01-01T00:00:00Z"}
    old = [
        {"type": kind, "status": "True", "reason": kind, "lastTransitionTime": NOW}
        for kind in ("Admitted", "Scheduled")
    ]
    lost = status(tree(gated, group("root", composite=True, minimum=1, status={"conditions": old})))
    assert {each["lastTransitionTime"] for each in lost["conditions"]} == {NOW}


def test_what_the_planner_does_not_model_is_said() -> None:
    claim = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
    said = condition(status(tree({(0, 0): {"pin": "n1", "spec": claim}, (0, 1): {"gates": (GATE,)}})), "Admitted")
    assert said["message"].endswith("does not model: persistentVolumeClaim")


DEEP = Topology("t", tuple(Level(name, (name,)) for name in ("zone", "block", "rack")))


def preference(level: str, *sets: list[Path]) -> Preference:
    return Preference(PreferenceScope.UNIT, "", level, sets)


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


@pytest.mark.parametrize(("mode", "said"), [("Preferred", True), ("Required", False)])
def test_what_is_required_is_no_preference(mode: str, *, said: bool) -> None:
    near = {"proximity": [{"roles": ["decode"], "level": "rack", "mode": mode}]}
    found = tree(
        {(0, 0): {"node": "n1"}, (0, 1): {"node": "n3"}}, group("root", composite=True, minimum=1, constraints=near)
    )
    types = {each["type"] for each in status(found)["conditions"]}
    assert ("TopologySatisfied" in types) is said


def test_what_was_written_is_recognised() -> None:
    excluded = core.ExcludedNode(node="n9", reason="volume", until=NOW)
    decision = Decision(
        topology=TOPOLOGY, excluded=(excluded,), claim=core.Claim(path=("b1", None), since=NOW, level="rack")
    )
    places = {(0, 0): {"node": "n1"}, (0, 1): {"node": "n2"}}
    written = status(tree(places), decision)
    stored = msgspec.structs.replace(tree(places).root, status=msgspec.convert(written, core.GroupStatus))
    assert observed_status(stored) == written
    later = statuses(tree(places, stored), decision, lambda node: PATHS.get(node, ()), "2030-01-01T00:00:00Z")
    assert later[0][1] == written
