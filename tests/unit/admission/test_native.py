"""Kubernetes' own groups and their pods as Covey's."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from covey.admission.native import MemberPod, StoredGroup, adapt, find_unread, obstacle
from covey.admission.nodes import grow
from covey.admission.tree import Unit, build_unit
from covey.api import core
from covey.scheduler.index import Index

GATES = [{"name": "scheduling.covey.dev/gang"}]
GANG = {"gang": {"minCount": 2}}
ONE = core.GangPolicy(min_count=1)


def pod(name: str, group: str = "g", **fields: Any) -> MemberPod:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", **fields.pop("metadata", {})}
    gates = [] if "nodeName" in fields else GATES
    spec = {"schedulingGroup": {"podGroupName": group}, "schedulingGates": gates, **fields}
    if "nodeName" in fields:
        metadata.setdefault("annotations", {"scheduling.covey.dev/pinned": metadata["uid"]})
    return msgspec.json.decode(json.dumps({"metadata": metadata, "spec": spec}), type=MemberPod)


def group(name: str, policy: Any, parent: str = "", **fields: Any) -> core.NativeGroup:
    kind = "CompositePodGroup" if "minGroupCount" in str(policy) or fields.pop("composite", False) else "PodGroup"
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{kind}-{name}"}
    above = {"parentCompositePodGroupName": parent} if parent else {}
    status = fields.pop("status", {})
    spec = {"schedulingPolicy": policy, **above, **fields}
    body = json.dumps({"metadata": metadata, "spec": spec, "status": status})
    return adapt(kind, "scheduling.k8s.io/v1beta1", msgspec.json.decode(body, type=StoredGroup))


def unit_of(*parts: core.Group | core.Pod) -> Unit:
    """The unit of a tree, whatever comes first."""
    index = Index()
    for each in parts:
        if isinstance(each, core.Group):
            index.set_group(each)
        else:
            index.set_pod(each)
    [root] = index.roots()
    unit = index.unit(root)
    assert unit is not None
    return unit


def always(_pod: core.Pod) -> bool:
    return True


@pytest.mark.parametrize(
    ("fields", "label"),
    [
        ({}, "scheduling.k8s.io/g"),
        ({"schedulingGates": []}, None),
        ({"schedulingGates": [{"name": "example.com/wait"}]}, None),
        ({"schedulingGroup": None}, None),
        ({"schedulingGroup": {}}, None),
        (
            {"schedulingGates": [], "metadata": {"annotations": {"scheduling.covey.dev/pinned": "uid-a"}}},
            "scheduling.k8s.io/g",
        ),
        ({"schedulingGates": [], "metadata": {"annotations": {"scheduling.covey.dev/pinned": "another's"}}}, None),
        ({"metadata": {"labels": {"scheduling.covey.dev/pod-group": "own"}}}, "own"),
        ({"metadata": {"labels": {"covey.dev/inference": "llm"}}}, None),
        (
            {
                "schedulingGates": [],
                "metadata": {
                    "labels": {"covey.dev/inference": "forged"},
                    "annotations": {"scheduling.covey.dev/pinned": "uid-a"},
                },
            },
            "scheduling.k8s.io/g",
        ),
    ],
    ids=[
        "gated",
        "ungated",
        "another gate",
        "no group",
        "empty",
        "let go",
        "a copied mark",
        "a member of Covey's",
        "the operator's, for kube-scheduler",
        "let go, whatever its labels say later",
    ],
)
def test_a_pod_is_a_member_by_its_group_and_by_covey_s_gate(fields: Any, label: str | None) -> None:
    assert pod("a", **fields).metadata.label("scheduling.covey.dev/pod-group") == label


def test_an_ordinary_pod_is_read_as_ever() -> None:
    """Where native groups are off nothing is a member by its group."""
    body = json.dumps(
        {"metadata": {"name": "a"}, "spec": {"schedulingGroup": {"podGroupName": "g"}, "schedulingGates": GATES}}
    )
    assert msgspec.json.decode(body, type=core.Pod).metadata.labels is None


def test_what_has_a_place_counts_however_few_a_group_wants() -> None:
    """Else whoever lowers desiredCount would have the others free of quota."""
    spec = core.GroupSpec(membership="Namespace", desired_count=1)
    found = group("g", GANG)
    bound = [pod("a", nodeName="n"), pod("b", nodeName="n")]
    small = msgspec.structs.replace(found, spec=spec)
    assert {each.metadata.name for each in grow(small, lambda _: [], lambda _: [pod("c"), *bound], {}).pods} == {
        "a",
        "b",
    }
    assert len(grow(small, lambda _: [], lambda _: [pod("c"), pod("d")], {}).pods) == 1


@pytest.mark.parametrize(
    ("fields", "unread"),
    [
        ({}, True),
        ({"schedulingGates": []}, False),
        ({"workloadRef": None}, False),
        ({"metadata": {"labels": {"scheduling.covey.dev/pod-group": "own"}}}, False),
        ({"metadata": {"labels": {"covey.dev/inference": "llm"}}}, False),
    ],
)
def test_a_pod_of_kubernetes_135_is_refused_by_name(fields: dict[str, Any], *, unread: bool) -> None:
    """But for one with a group of Covey's, and those of the backend Kubernetes, whose gate the operator lifts."""
    reference = {"name": "train", "podGroup": "workers", "podGroupReplicaKey": "0"}
    found = pod("a", **{"schedulingGroup": None, "workloadRef": reference, **fields})
    said = find_unread(found)
    assert (said is not None) == unread
    if said is not None:
        assert said.startswith("spec.workloadRef names workers of Workload train: ")
        assert found.metadata.label("scheduling.covey.dev/pod-group") is None


def test_basic_below_another_group_is_a_minimum_of_one() -> None:
    """As upstream's scheduler counts it (``isCPGTreeReady``)."""
    unit = unit_of(
        group("top", {"gang": {"minGroupCount": 1}}),
        group("middle", {"basic": {}}, "top", composite=True),
        group("g", {"basic": {}}, "middle"),
        group("h", {"basic": {}}, "middle"),
        pod("a"),
    )
    assert unit.problem is None
    assert unit.minimum_met(always)


def test_a_flat_group_is_a_gang_until_it_is_bound() -> None:
    """Of three pods one has ended: the successor of another is placed by itself."""
    bound = pod("a", nodeName="n")
    assert unit_of(group("g", {"gang": {"minCount": 3}}), pod("a"), pod("b")).absent == 0
    assert not unit_of(group("g", {"gang": {"minCount": 3}}), pod("a"), pod("b")).minimum_met(always)
    unit = unit_of(group("g", {"gang": {"minCount": 3}}), bound, pod("b"))
    assert unit.one_by_one
    going = pod("a", nodeName="n", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert not unit_of(group("g", {"gang": {"minCount": 3}}), going, pod("b")).one_by_one


def test_a_native_group_when_one_of_its_pods_has_succeeded_is_a_gang_for_those_that_wait() -> None:
    """A suspended Job has such pods until they are collected; fewer pods than the minimum are the rest of what has run."""
    ended = pod("old", nodeName="n1")
    ended = msgspec.structs.replace(ended, status=msgspec.structs.replace(ended.status, phase="Succeeded"))
    waiting = [pod(f"new-{number}") for number in range(4)]
    assert unit_of(group("g", {"gang": {"minCount": 4}}), ended, *waiting).root.spec.scheduling_policy.gang
    rest = unit_of(group("g", {"gang": {"minCount": 5}}), ended, *waiting)
    assert rest.root.spec.scheduling_policy.gang is None
    first = unit_of(group("g", {"gang": {"minCount": 5}}), *waiting)
    assert first.root.spec.scheduling_policy.gang == core.GangPolicy(min_count=5)


def test_a_tree_of_many_groups_costs_no_look_at_every_name_for_each() -> None:
    """Ten thousand groups under one, which whoever makes native groups can have, held up the process for 10 s."""
    looks = 0

    class Name(str):
        __slots__ = ()

        def __hash__(self) -> int:
            nonlocal looks
            looks += 1
            return super().__hash__()

    children = [
        core.Group(core.Meta(name=Name(f"g{number}")), "PodGroup", spec=core.GroupSpec(core.SchedulingPolicy(ONE)))
        for number in range(300)
    ]
    top = group("top", {"gang": {"minGroupCount": 300}})
    unit = build_unit(top, lambda each: children if each is top else [], lambda _: [])
    assert len(unit.roles) == 300
    assert looks < 10 * 300


def test_numbers_that_anybody_writes_on_members_hide_none_of_them() -> None:
    """Of pods that our operator has numbered alike one counts: the others would be free of quota."""
    alike = {"labels": {"covey.dev/replica": "0", "covey.dev/index": "0"}}
    unit = unit_of(group("g", GANG), *(pod(name, nodeName="n", metadata=dict(alike)) for name in "abc"))
    assert {each.metadata.name for each in unit.pods()} == set("abc")


def test_beside_a_kube_scheduler_of_the_user_s_members_are_refused_by_name() -> None:
    """Its feature gates cannot be seen."""
    said = obstacle(pod("a", schedulerName="covey-scheduler")) or ""
    assert said.startswith(
        "pod a is of a group of scheduling.k8s.io, which the kube-scheduler that calls Covey may plan"
    )
    assert obstacle(pod("a", schedulingGroup=None)) is None


@pytest.mark.parametrize("where", ["root", "leaf"])
def test_claims_that_pods_share_are_refused_by_name(where: str) -> None:
    claims = {"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}
    if where == "root":
        unit = unit_of(group("g", GANG, **claims))
    else:
        unit = unit_of(group("top", {"gang": {"minGroupCount": 1}}), group("g", GANG, "top", **claims))
    assert (unit.problem or "").startswith("spec.resourceClaims of PodGroup g: Covey plans no claims")
