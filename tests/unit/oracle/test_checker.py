"""The checker itself: it accepts a right plan, and rejects each way of being wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from builders import pods
from covey.api import core
from covey.placement.model import (
    Assignment,
    Domain,
    Path,
    Plan,
    PreferenceOutcome,
    ReplicaPlan,
    RolesTogether,
    Shape,
    Spread,
)
from oracle import facts
from oracle.build import RACKS, TOPOLOGY, WHOLE, case, full, nodes, role
from oracle.case import Case, Hold
from oracle.checker import Phase, check, placement_of, violations
from oracle.written import node, shape

FLOOR = nodes(blocks=2, racks=2, per_rack=3)
PREFILL = role("prefill", size=2, minimum=1, desired=2, required="rack")
DECODE = role("decode", size=1, minimum=1, desired=2)
CASE = case(FLOOR, [PREFILL, DECODE], required="block", preferred="rack")
LAYOUT = {"prefill-0-0": "b0-r0-n0", "prefill-0-1": "b0-r0-n1", "decode-0-0": "b0-r1-n0"}
BLOCK = (Domain("block", ("b0",)),)


def rack(name: str) -> tuple[Domain, ...]:
    return (*BLOCK, Domain("rack", ("b0", name)))


def assignments(found: Case, layout: Mapping[str, str]) -> tuple[Assignment, ...]:
    return tuple(Assignment(pod, name, facts.path_of(TOPOLOGY, found.node[name])) for pod, name in layout.items())


PLAN = Plan(
    assignments(CASE, LAYOUT),
    (
        ReplicaPlan("prefill", 0, minimum=True, placement=rack("r0")),
        ReplicaPlan("decode", 0, minimum=True, placement=rack("r1")),
    ),
    BLOCK,
    (PreferenceOutcome("unit", "rack", achieved=False, reached="block"),),
)


def test_a_right_plan_is_right() -> None:
    assert check(CASE, PLAN, "minimum") == []


def moved(pod: str, name: str, path: Path | None = None) -> Plan:
    moved_to = {**LAYOUT, pod: name}
    found = [replace(entry, path=path) if path and entry.pod == pod else entry for entry in assignments(CASE, moved_to)]
    return replace(PLAN, assignments=tuple(found))


def without(pod: str) -> Plan:
    return replace(PLAN, assignments=tuple(entry for entry in PLAN.assignments if entry.pod != pod))


BROKEN: dict[str, tuple[Plan, str]] = {
    "half a replica": (without("prefill-0-1"), "prefill/0 is placed in part"),
    "no minimum": (without("decode-0-0"), "decode/0 belongs to the minimum"),
    "one node twice": (moved("prefill-0-1", "b0-r0-n0"), "b0-r0-n0 has 8 nvidia.com/gpu free, asked 16"),
    "two racks": (moved("prefill-0-1", "b0-r1-n1"), "prefill/0 is not in one rack"),
    "two blocks": (moved("decode-0-0", "b1-r1-n0"), "the unit is not in one block"),
    "a pod twice": (replace(PLAN, assignments=(*PLAN.assignments, PLAN.assignments[0])), "assigned twice"),
    "a pod of nobody": (
        replace(PLAN, assignments=(*PLAN.assignments, Assignment("x", "b0-r1-n1", ("b0", "r1")))),
        "x is no pod",
    ),
    "a node of nobody": (
        replace(PLAN, assignments=(*PLAN.assignments[:2], Assignment("decode-0-0", "x", ("b0", "r1")))),
        "node x does not exist",
    ),
    "surplus too soon": (
        replace(PLAN, assignments=assignments(CASE, {**LAYOUT, "decode-1-0": "b0-r1-n1"})),
        "decode/1 is surplus",
    ),
    "wrong path": (moved("decode-0-0", "b0-r1-n0", ("b0", "r0")), "is not that of b0-r1-n0"),
    "replica not reported": (replace(PLAN, replicas=PLAN.replicas[:1]), "replicas reported"),
    "replica reported twice": (replace(PLAN, replicas=(*PLAN.replicas, PLAN.replicas[0])), "replicas reported"),
    "replica made up": (
        replace(PLAN, replicas=(*PLAN.replicas, ReplicaPlan("decode", 1, minimum=False, placement=rack("r1")))),
        "replicas reported",
    ),
    "not called minimum": (
        replace(PLAN, replicas=(replace(PLAN.replicas[0], minimum=False), PLAN.replicas[1])),
        "minimum is reported as False",
    ),
    "a coarser placement than it has": (
        replace(PLAN, replicas=(replace(PLAN.replicas[0], placement=BLOCK), PLAN.replicas[1])),
        "placement is reported",
    ),
    "a finer unit than it has": (replace(PLAN, placement=rack("r0")), "the unit's placement is reported"),
    "no unit placement": (replace(PLAN, placement=()), "the unit's placement is reported"),
    "a preference left out": (replace(PLAN, preferred=()), "preferences reported"),
    "a preference claimed": (
        replace(PLAN, preferred=(PreferenceOutcome("unit", "rack", achieved=True, reached="rack"),)),
        "block is reached",
    ),
    "a preference denied": (
        replace(PLAN, preferred=(PreferenceOutcome("unit", "rack", achieved=False, reached=None),)),
        "block is reached",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plan_is_rejected(name: str) -> None:
    plan, complaint = BROKEN[name]
    found = check(CASE, plan, "minimum")
    assert any(complaint in text for text in found), found


# --- what nodes forbid

GATED = core.Taint(key="nvidia.com/gpu", value="present", effect="NoSchedule")
SELECTED = core.NodeSelector((core.NodeSelectorTerm(match_expressions=(core.Requirement("pool", "In", ("gpu",)),)),))


def tolerating(value: str) -> Shape:
    return replace(WHOLE, tolerations=(core.Toleration(key="nvidia.com/gpu", value=value),))


ANY_TAINT = replace(WHOLE, tolerations=(core.Toleration(operator="Exists"),))


@pytest.mark.parametrize(
    ("found", "wants", "allowed"),
    [
        (node("n", cordoned=True), WHOLE, False),
        (node("n", cordoned=True), ANY_TAINT, False),
        (node("n", ready=False), ANY_TAINT, False),
        (node("n", taints=(GATED,)), WHOLE, False),
        (node("n", taints=(GATED,)), tolerating("x"), False),
        (node("n", taints=(GATED,)), tolerating("present"), True),
        (node("n", taints=(core.Taint(key="k", effect="PreferNoSchedule"),)), WHOLE, True),
        (node("n", {"pool": "cpu"}), replace(WHOLE, node_selector=(("pool", "gpu"),)), False),
        (node("n"), replace(WHOLE, node_affinity=SELECTED), False),
        (node("n", {"pool": "gpu"}), replace(WHOLE, node_affinity=SELECTED), True),
        (node("n"), replace(WHOLE, node_affinity=core.NodeSelector((core.NodeSelectorTerm(),))), False),
        (node("n", gpus=7), WHOLE, False),
        (node("n", gpus=0), WHOLE, False),
        (node("n", pods=0), WHOLE, False),
        (node("n", cpu="500m"), WHOLE, False),
        (node("n", memory="1000M"), WHOLE, False),
        (node("n", memory="1024Mi", cpu="1", gpus=8), WHOLE, True),
    ],
)
def test_a_node_is_used_only_where_it_allows_it(found: core.Node, wants: Shape, *, allowed: bool) -> None:
    assert (violations(case([found], [role("a", wants=wants)]), {"a-0-0": "n"}, "minimum") == []) is allowed


# --- what pods forbid each other, and what members pin

PORT = replace(shape(1), host_ports=(("0.0.0.0", "TCP", 80),))
BOUND_TO = replace(shape(1), host_ports=(("10.0.0.1", "TCP", 80),))


@pytest.mark.parametrize(
    ("one", "other", "allowed"),
    [
        (PORT, PORT, False),
        (PORT, BOUND_TO, False),
        (BOUND_TO, replace(shape(1), host_ports=(("10.0.0.2", "TCP", 80),)), True),
        (PORT, replace(shape(1), host_ports=(("0.0.0.0", "UDP", 80),)), True),
    ],
)
def test_two_pods_on_one_node(one: Shape, other: Shape, *, allowed: bool) -> None:
    pair = case(nodes(), [role("a", wants=one), role("b", wants=other)])
    assert (violations(pair, {"a-0-0": "b0-r0-n0", "b-0-0": "b0-r0-n0"}, "minimum") == []) is allowed
    alone_there = pair.placed({"a-0-0": "b0-r0-n0"})
    assert (violations(alone_there, {"b-0-0": "b0-r0-n0"}, "minimum") == []) is allowed


def pod(app: str, away_from: str | None = None, namespace: str = "default") -> core.Pod:
    """A pod of an app that keeps away from the pods of another on the host, if that is said."""
    selector = core.LabelSelector(match_labels={"app": away_from or ""})
    term = core.PodAffinityTerm(topology_key="kubernetes.io/hostname", label_selector=selector)
    affinity = core.Affinity(pod_anti_affinity=core.PodAffinity(required=(term,))) if away_from else None
    resources = core.Resources(requests={"nvidia.com/gpu": 1, "cpu": "1", "memory": "1Gi"})
    spec = {"containers": [core.Container(resources=resources)], "affinity": affinity}
    return pods.pod(namespace=namespace, labels={"app": app}, spec=spec)


@pytest.mark.parametrize(
    ("one", "other", "allowed"),
    [
        (pod("a", "a"), pod("a", "a"), False),
        (pod("a", "b"), pod("b"), False),
        (pod("a", "b"), pod("b", "c"), False),
        (pod("a", "a"), pod("b"), True),
        (pod("a", "b"), pod("b", namespace="other"), True),
    ],
)
def test_anti_affinity_on_one_node(one: core.Pod, other: core.Pod, *, allowed: bool) -> None:
    written = {"a-0-0": one, "b-0-0": other}
    pair = replace(case(nodes(), [role("a", wants=shape(1)), role("b", wants=shape(1))]), pods=written)
    assert (violations(pair, dict.fromkeys(written, "b0-r0-n0"), "minimum") == []) is allowed
    for first, second in (("a-0-0", "b-0-0"), ("b-0-0", "a-0-0")):
        found = violations(pair.placed({first: "b0-r0-n0"}), {second: "b0-r0-n0"}, "minimum")
        assert (found == []) is allowed


def test_what_a_pod_asks_for_is_counted_from_the_pod() -> None:
    written = replace(case(nodes(), [role("a", wants=shape(2))]), pods={"a-0-0": pod("a")})
    rejected(written, {"a-0-0": "b0-r0-n0"}, "the planner counts")


def test_a_stranger_keeps_pods_off_all_nodes_that_share_a_label() -> None:
    hermit = pod("b", "a")
    assert hermit.spec.affinity is not None
    assert hermit.spec.affinity.pod_anti_affinity is not None
    (term,) = hermit.spec.affinity.pod_anti_affinity.required or ()
    wide = core.PodAffinityTerm(topology_key=RACKS, label_selector=term.label_selector)
    affinity = core.Affinity(pod_anti_affinity=core.PodAffinity(required=(wide,)))
    hermit = core.Pod(metadata=hermit.metadata, spec=core.PodSpec(affinity=affinity))
    floor = nodes(racks=2, per_rack=2)
    holds = [Hold("hermit", "b0-r0-n0", shape(), hermit)]
    written = replace(case(floor, [role("a", wants=shape(1))], holds=holds), pods={"a-0-0": pod("a")})
    rejected(written, {"a-0-0": "b0-r0-n1"}, "kept off the domain")
    assert violations(written, {"a-0-0": "b0-r1-n0"}, "minimum") == []


def rejected(found: Case, layout: Mapping[str, str], complaint: str, phase: Phase = "minimum") -> None:
    told = violations(found, layout, phase)
    assert any(complaint in text for text in told), told


NEAR, APART = RolesTogether(("a", "b"), "rack", required=True), Spread("block", required=True, occupied={("b0",): 1})
BARE = [node("n", {"example.com/block": "b0"})]
HALF = role("a", size=2, required="rack", placed={(0, 0): "b0-r0-n0"})
GROWN = role("a", minimum=1, desired=2, placed={(0, 0): "b0-r0-n0"})
MARKED = [role(name, minimum=0, desired=1, together={0: "new"}) for name in ("a", "b")]
TWO = [role("a"), role("b")]
HERE, SPLIT = {"a-0-0": "b0-r0-n0"}, {"a-0-0": "b0-r0-n0", "b-0-0": "b0-r1-n0"}


@pytest.mark.parametrize(
    ("found", "layout", "complaint", "phase"),
    [
        (case(nodes(), [role("a")], holds=full("b0-r0-n0")), HERE, "free, asked 8", "minimum"),
        (case(nodes(), [role("a")], excluded_nodes={"b0-r0-n0": "volume"}), HERE, "excluded for this gang", "minimum"),
        (case(FLOOR, [GROWN]), {"a-0-0": "b0-r0-n1"}, "must not be moved", "minimum"),
        (case(FLOOR, [HALF]), {"a-0-1": "b1-r0-n0"}, "not in one rack", "minimum"),
        (case(FLOOR, [GROWN], required="block"), {"a-1-0": "b1-r0-n0"}, "not in one block", "surplus"),
        (case(FLOOR, MARKED), HERE, "the set new is placed in part", "surplus"),
        (case(BARE, [role("a", required="rack")]), {"a-0-0": "n"}, "not in one rack", "minimum"),
        (case(BARE, [role("a", required="block")]), {"a-0-0": "n"}, "", "minimum"),
        (case(FLOOR, TWO, proximity=(NEAR,)), SPLIT, "are not in one rack", "minimum"),
        (case(FLOOR, TWO, proximity=(replace(NEAR, required=False),)), SPLIT, "", "minimum"),
        (case(FLOOR, TWO, spread=APART), SPLIT, "has its share", "minimum"),
        (case(FLOOR, TWO, spread=replace(APART, max_per_domain=2)), SPLIT, "", "minimum"),
    ],
    ids=[
        "a stranger has the room",
        "the node is excluded",
        "a bound pod moves",
        "a bound pod pins its replica",
        "a bound pod pins its unit",
        "half a set",
        "a node without the level",
        "a node with a broader level",
        "roles apart",
        "roles apart that were to be near",
        "a domain has its share",
        "a domain has not its share",
    ],
)
def test_a_layout_is_rejected_by_the_rule_that_it_breaks(
    found: Case, layout: Mapping[str, str], complaint: str, phase: Phase
) -> None:
    if complaint:
        rejected(found, layout, complaint, phase)
    else:
        assert violations(found, layout, phase) == []


def test_a_role_that_does_not_follow_is_free_of_the_unit() -> None:
    router = role("router", follow_unit=False)
    apart = case(FLOOR, [role("a"), router], required="rack")
    assert violations(apart, {"a-0-0": "b0-r0-n0", "router-0-0": "b1-r0-n0"}, "minimum") == []
    after = apart.placed({"a-0-0": "b0-r0-n0", "router-0-0": "b1-r0-n0"})
    assert placement_of(after, facts.pods_of(facts.followers(after.gang))) == rack("r0")


def test_bound_replicas_are_the_minimum_before_lower_numbers() -> None:
    asked = role("a", minimum=2, desired=4, size=2, placed={(3, 0): "b0-r0-n0", (3, 1): "b0-r0-n1", (2, 0): "b0-r0-n2"})
    assert [replica.replica for replica in facts.minimum_of(asked)] == [3, 2]
