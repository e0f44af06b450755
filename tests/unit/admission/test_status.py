from __future__ import annotations

from typing import Any

import msgspec
import pytest

from builders.members import GATE, START, group, member, pod, role_groups, unit
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


def test_admitted_is_what_is_written_on_the_pods() -> None:
    half = status(tree({(0, 0): {"pin": "n1"}, (0, 1): {"gates": (GATE,)}}))
    assert condition(half, "Admitted")["status"] == "False"
    whole = status(tree({(0, 0): {"pin": "n1"}, (0, 1): {"pin": "n2", "gates": (START,)}}))
    assert condition(whole, "Admitted")["status"] == "True"
    assert condition(whole, "Scheduled")["status"] == "False"
    bound = status(tree({(0, 0): {"node": "n1"}, (0, 1): {"node": "n2"}}))
    assert condition(bound, "Scheduled")["status"] == "True"


def test_why_not() -> None:
    gated = {(0, 0): {"gates": (GATE,)}, (0, 1): {"gates": (GATE,)}}
    assert condition(status(tree(gated)), "Admitted")["reason"] == "Waiting"
    refused = status(tree(gated), Decision("Infeasible", "8 GPUs are missing"))
    assert condition(refused, "Admitted")["message"] == "8 GPUs are missing"
    below = status(tree({(0, 0): {"node": "n1"}, (0, 1): {"gates": (GATE,)}}))
    assert condition(below, "Admitted")["reason"] == "BelowMinimum"


def test_a_group_without_a_minimum_is_admitted_with_its_first_pod() -> None:
    lone = group("lone", desired=2)
    gated = [pod(name, group="lone", gates=(GATE,)) for name in ("a", "b")]
    waits = status(unit(lone, [], gated), name="lone")
    assert condition(waits, "Admitted")["status"] == condition(waits, "Scheduled")["status"] == "False"
    goes = status(unit(lone, [], [pod("a", group="lone", node="n1"), gated[1]]), name="lone")
    assert condition(goes, "Admitted")["status"] == condition(goes, "Scheduled")["status"] == "True"
    assert (goes["admitted"], goes["scheduled"]) == (1, 1)


def test_the_domains_that_hold_all_pods_are_named() -> None:
    assert status(tree({(0, 0): {"node": "n1"}, (0, 1): {"node": "n2"}}))["placement"] == [
        {"level": "block", "path": ["b1"]},
        {"level": "rack", "path": ["b1", "r1"]},
    ]
    assert status(tree({(0, 0): {"node": "n1"}, (0, 1): {"node": "n3"}}))["placement"] == [
        {"level": "block", "path": ["b1"]}
    ]
    assert "placement" not in status(tree({(0, 0): {"node": "n1"}, (0, 1): {"node": "n4"}}))
    assert "placement" not in status(tree({}))


def test_every_group_is_counted() -> None:
    found = tree({(0, 0): {"node": "n1"}, (0, 1): {"pin": "n2"}, (1, 0): {"gates": (GATE,)}})
    assert (status(found)["admitted"], status(found)["scheduled"]) == (1, 0)
    assert (status(found, name="root-decode")["admitted"], status(found, name="root-decode")["scheduled"]) == (1, 0)
    leaf = status(found, name="root-decode-0")
    assert (leaf["admitted"], leaf["scheduled"]) == (2, 1)
    assert condition(status(found, name="root-decode-1"), "Admitted")["status"] == "False"


def preferring(level: str, minimum: int = 1) -> core.Group:
    return group(
        "root", composite=True, minimum=minimum, constraints={"topology": [{"level": level, "mode": "Preferred"}]}
    )


def test_preferences_are_told_by_the_pods_themselves() -> None:
    near = tree({(0, 0): {"node": "n1"}, (0, 1): {"node": "n2"}}, preferring("rack"))
    assert condition(status(near), "TopologySatisfied")["status"] == "True"
    far = tree({(0, 0): {"node": "n1"}, (0, 1): {"node": "n3"}}, preferring("rack"))
    assert condition(status(far), "TopologySatisfied")["status"] == "False"
    assert all(each["type"] != "TopologySatisfied" for each in status(tree({}))["conditions"])


def satisfied(found: Unit) -> dict[str, Any]:
    return condition(status(found), "TopologySatisfied")


def test_surplus_and_roles_that_go_their_own_way_spoil_no_preference() -> None:
    surplus = {(0, 0): {"node": "n1"}, (0, 1): {"node": "n2"}, (1, 0): {"node": "n3"}, (1, 1): {"node": "n3"}}
    assert satisfied(tree(surplus, preferring("rack")))["status"] == "True"
    loose = group("root-cache", parent="root", minimum=1, constraints={"followUnit": False})
    groups = [*role_groups("decode", replicas=1, minimum=1, size=1), loose]
    pods = [member("decode", 0, node="n1"), pod("c", group="root-cache", node="n3")]
    assert satisfied(unit(preferring("rack", 2), groups, pods))["status"] == "True"
    follows = [groups[0], group("root-cache", parent="root", minimum=1)]
    assert satisfied(unit(preferring("rack", 2), follows, pods))["status"] == "False"


def test_the_narrowest_preferred_level_counts_by_name_or_by_key() -> None:
    far = {(0, 0): {"node": "n1"}, (0, 1): {"node": "n3"}}
    for narrow in ({"level": "rack"}, {"key": "rack"}):
        levels = [narrow | {"mode": "Preferred"}, {"level": "block", "mode": "Preferred"}]
        root = group("root", composite=True, minimum=1, constraints={"topology": levels})
        assert satisfied(tree(far, root))["message"] == "unit: not in one rack"


@pytest.mark.parametrize(("mode", "said"), [("Preferred", True), ("Required", False)])
def test_what_is_required_is_no_preference(mode: str, *, said: bool) -> None:
    near = {"proximity": [{"roles": ["decode"], "level": "rack", "mode": mode}]}
    found = tree(
        {(0, 0): {"node": "n1"}, (0, 1): {"node": "n3"}}, group("root", composite=True, minimum=1, constraints=near)
    )
    types = {each["type"] for each in status(found)["conditions"]}
    assert ("TopologySatisfied" in types) is said


def test_times_change_with_the_answer_only() -> None:
    old = {"type": "Admitted", "status": "False", "reason": "Waiting", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    root = group("root", composite=True, minimum=1, status={"conditions": [old]})
    gated = {(0, 0): {"gates": (GATE,)}, (0, 1): {"gates": (GATE,)}}
    refused = status(tree(gated, root), Decision("Infeasible", "no room"))
    assert condition(refused, "Admitted")["lastTransitionTime"] == "2020-01-01T00:00:00Z"
    admitted = status(tree({(0, 0): {"pin": "n1"}, (0, 1): {"pin": "n1"}}, root))
    assert condition(admitted, "Admitted")["lastTransitionTime"] == NOW


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


def test_what_the_planner_does_not_model_is_said() -> None:
    claim = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
    said = condition(status(tree({(0, 0): {"pin": "n1", "spec": claim}, (0, 1): {"gates": (GATE,)}})), "Admitted")
    assert said["message"].endswith("does not model: persistentVolumeClaim")
