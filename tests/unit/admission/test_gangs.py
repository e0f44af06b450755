from __future__ import annotations

from typing import Any

import msgspec
import pytest

from builders.members import GATE, START, group, member, pin_terms, role_groups, unit
from covey.admission import gangs, podstate
from covey.admission.gangs import Surroundings, UnplannableError, build_gang
from covey.admission.tree import Unit
from covey.api import core
from covey.placement.cluster.shape import shape_of
from covey.placement.model import Gang, Level, Topology

TOPOLOGY = Topology("t", (Level("block", ("block",)), Level("rack", ("rack", "old-rack")), Level("host", ("host",))))


def build(found: Unit, **around: Any) -> Gang:
    return build_gang(found, TOPOLOGY, shape_of, Surroundings(**around))


def tree(pods: list[core.Pod], *, root: core.Group | None = None, size: int = 2) -> Unit:
    top = root or group("root", composite=True, minimum=1, labels={"covey.dev/unit": "2"})
    return unit(top, role_groups("decode", replicas=3, minimum=2, size=size), pods)


def gated(replica: int, index: int, **state: Any) -> core.Pod:
    return member("decode", replica, index, size=2, **({"gates": (GATE,)} | state))


def test_places_are_facts() -> None:
    pods = [
        gated(0, 0, gates=(), node="n1"),
        gated(0, 1, gates=(START,), pin="n2"),
        gated(1, 0),
        gated(1, 1),
        gated(2, 0),
    ]
    gang = build(tree(pods), assumed={pods[2].metadata.uid: "n3"}, priority=7)
    [decode] = gang.roles
    assert [[pod.node for pod in replica.pods] for replica in decode.replicas] == [["n1", "n2"], ["n3", None]]
    assert (decode.minimum, decode.desired, gang.unit, gang.priority) == (2, 3, 2, 7)
    assert [[pod.index for pod in replica.pods] for replica in decode.replicas] == [[0, 1], [0, 1]]


def test_a_member_that_pins_itself_has_no_place_and_skips_no_queue() -> None:
    own = gated(0, 0, gates=(), spec={"affinity": pin_terms("n1")})
    found = tree([own, gated(0, 1), gated(1, 0), gated(1, 1)])
    gang = build(found)
    assert not any(pod.node for replica in gang.roles[0].replicas for pod in replica.pods)
    assert "root-decode-0-0 lost its scheduling gate without a decision" in (gangs.missing(found, gang) or "")
    proper = gated(0, 0, name="proper", created="2027-01-01T00:00:00Z")
    beside = tree([own, proper, gated(0, 1), gated(1, 0), gated(1, 1)])
    assert gangs.missing(beside, build(beside)) is None, "a pod that can be planned stands for the place"


def test_units_of_one_workload_are_taken_by_number() -> None:
    def numbered(number: int) -> Gang:
        found = group(f"llm-{number}", composite=True, minimum=1, labels={"covey.dev/unit": str(number)})
        spec = msgspec.structs.replace(found.spec, workload_ref=core.WorkloadReference(workload_name="llm"))
        return build(tree([], root=msgspec.structs.replace(found, spec=spec)))

    gangs_by_age = sorted(map(numbered, (10, 2, 1)), key=lambda gang: gang.order)
    assert [gang.unit for gang in gangs_by_age] == [1, 2, 10]


def test_what_is_missing_is_said() -> None:
    found = tree([gated(0, 0), gated(0, 1), gated(1, 0)])
    assert gangs.missing(found, build(found)) == "decode: 1 of 2 pods of replica 1 exist"
    held = tree([gated(0, 0), gated(0, 1), gated(1, 0), gated(1, 1, gates=(GATE, "example.com/q"))])
    assert "example.com/q" in (gangs.missing(held, build(held)) or "")
    none = tree([])
    assert gangs.missing(none, build(none)) == "decode: 0 of 2 pods of replica 0 exist"
    whole = tree([gated(0, 0), gated(0, 1), gated(1, 0), gated(1, 1)])
    assert gangs.missing(whole, build(whole)) is None


def test_whose_scheduler_is_not_served_is_said() -> None:
    found = tree([gated(0, 0), gated(0, 1)])
    gang = build(found, obstacle=lambda pod: podstate.obstacle(pod, ("gangs",)))
    assert "is for scheduler covey-scheduler; served are gangs" in (gangs.missing(found, gang) or "")


def test_groups_that_do_not_exist_yet_are_missing() -> None:
    found = unit(group("root", composite=True, minimum=2), role_groups("decode", replicas=1, minimum=1, size=1), [])
    assert gangs.missing(found, build(found)) == "1 of the unit's groups do not exist yet"


def test_what_the_planner_must_do() -> None:
    waiting = [gated(0, 0), gated(0, 1), gated(1, 0), gated(1, 1)]
    assert gangs.wants_minimum(build(tree(waiting)))
    placed = [gated(r, i, gates=(), node="n") for r in range(2) for i in range(2)]
    assert not gangs.wants_minimum(build(tree(placed)))
    assert not gangs.wants_surplus(build(tree(placed)))
    assert gangs.wants_surplus(build(tree([*placed, gated(2, 0), gated(2, 1)])))
    assert not gangs.wants_surplus(build(tree([*placed, gated(2, 0)])))


def constrained(*topology: dict[str, str], **more: Any) -> core.Group:
    return group("root", composite=True, minimum=1, constraints={"topology": list(topology), **more})


def test_levels_are_names_or_keys_and_the_narrowest_counts() -> None:
    root = constrained({"level": "block"}, {"key": "old-rack"}, {"level": "host", "mode": "Preferred"})
    gang = build(tree([], root=root))
    assert (gang.required, gang.preferred) == ("rack", "host")


def test_a_replicas_level_comes_from_its_own_group() -> None:
    rack = {"topology": [{"level": "rack"}]}
    labels = {"covey.dev/role": "decode"}
    groups = [
        group("root-decode", composite=True, parent="root", minimum=1, labels=labels),
        group(
            "root-decode-0",
            parent="root-decode",
            minimum=2,
            labels=labels | {"covey.dev/replica": "0"},
            constraints=rack,
        ),
    ]
    found = unit(group("root", composite=True, minimum=1), groups, [gated(0, 0), gated(0, 1)])
    assert [(role.required, role.follow_unit) for role in build(found).roles] == [("rack", True)]


def test_rules_between_roles_and_units_are_carried() -> None:
    root = constrained(
        proximity=[{"roles": ["a", "b"], "level": "rack", "mode": "Required"}],
        spread={"level": "block", "mode": "Required", "maxPerDomain": 2},
    )
    gang = build(tree([], root=root), occupied={("b1",): 2})
    assert gang.proximity[0].required
    assert gang.spread is not None
    assert (gang.spread.level, gang.spread.max_per_domain, gang.spread.occupied) == ("block", 2, {("b1",): 2})


@pytest.mark.parametrize("topology", [{"level": "spine"}, {"key": "no.such/label"}])
def test_an_unknown_level_is_refused_with_its_name(topology: dict[str, str]) -> None:
    with pytest.raises(UnplannableError) as refused:
        build(tree([], root=constrained(topology)))
    assert refused.value.reason == "InvalidTopology"
    assert next(iter(topology.values())) in refused.value.message


def test_what_comes_together_waits_for_all_of_it() -> None:
    """The pods of one set are created one after the other: the first of them must not go alone."""
    marks = {"scheduling.covey.dev/together": "new", "scheduling.covey.dev/together-count": "2"}
    minimum = [gated(n, index, gates=(), node="n1") for n in (0, 1) for index in (0, 1)]
    first = [gated(2, index, labels=marks) for index in (0, 1)]
    second = [gated(3, index, labels=marks) for index in (0, 1)]
    groups = role_groups("decode", replicas=4, minimum=2, size=2)
    for each in groups:
        if each.metadata.name.endswith(("-2", "-3")):
            assert each.metadata.labels is not None
            each.metadata.labels.update(marks)
    top = group("root", composite=True, minimum=1)
    assert [each.replica for each in build(unit(top, groups, [*minimum, *first])).roles[0].replicas] == [0, 1]
    whole = build(unit(top, groups, [*minimum, *first, *second])).roles[0].replicas
    assert [(each.replica, each.together) for each in whole] == [(0, None), (1, None), (2, "new"), (3, "new")]
