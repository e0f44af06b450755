from __future__ import annotations

from typing import Any

import msgspec

from builders.members import GATE, START, group, member, pin_terms, role_groups, unit
from covey.admission import gangs
from covey.admission.gangs import Surroundings, build_gang
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


def test_a_replica_that_lacks_a_pod_when_the_other_is_bound_keeps_its_domain_and_when_pinned_does_not() -> None:
    whole = [gated(1, 0), gated(1, 1), gated(2, 0), gated(2, 1)]

    def kept(pod: core.Pod) -> list[str | None]:
        found = build(tree([pod, *whole])).roles
        return [one.node for role in found if "incomplete" in role.name for one in role.replicas[0].pods]

    assert kept(gated(0, 0, gates=(), node="n1")) == ["n1"]
    assert kept(gated(0, 0, gates=(), pin="n1")) == []


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
