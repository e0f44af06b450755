"""Masks: every rule by which a node is out, and its name in reasons."""

from __future__ import annotations

import pytest

from builders.requests import make_node, make_shape
from covey.api import core
from covey.placement.cluster.node_filters import static_cause

GPU_TAINT = core.Taint(key="nvidia.com/gpu", value="present", effect="NoSchedule")


def affinity(*requirements: core.Requirement, fields: tuple[core.Requirement, ...] | None = None) -> core.NodeSelector:
    term = core.NodeSelectorTerm(match_expressions=requirements or None, match_fields=fields)
    return core.NodeSelector(node_selector_terms=(term,))


def requirement(operator: str, *values: str, key: str = "gen") -> core.Requirement:
    return core.Requirement(key=key, operator=operator, values=values or None)


def sla(value: str) -> core.Taint:
    return core.Taint(key="sla", value=value, effect="NoSchedule")


@pytest.mark.parametrize(
    ("taint", "toleration", "tolerated"),
    [
        (GPU_TAINT, core.Toleration(operator="Exists"), True),
        (GPU_TAINT, core.Toleration(key="nvidia.com/gpu", operator="Exists"), True),
        (GPU_TAINT, core.Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule"), True),
        (GPU_TAINT, core.Toleration(key="nvidia.com/gpu", value="present"), True),
        (GPU_TAINT, core.Toleration(key="other", operator="Exists"), False),
        (GPU_TAINT, core.Toleration(key="nvidia.com/gpu", value="absent"), False),
        (GPU_TAINT, core.Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoExecute"), False),
        (GPU_TAINT, core.Toleration(value="present"), False),
        (core.Taint(key="x", effect="PreferNoSchedule"), core.Toleration(key="other", operator="Exists"), True),
        # KEP-5471: the taint's number is greater, or less, than that of the toleration.
        (sla("950"), core.Toleration(key="sla", operator="Gt", value="750"), True),
        (sla("950"), core.Toleration(key="sla", operator="Gt", value="950"), False),
        (sla("3"), core.Toleration(key="sla", operator="Lt", value="5"), True),
        (sla("5"), core.Toleration(key="sla", operator="Lt", value="3"), False),
        (sla("high"), core.Toleration(key="sla", operator="Gt", value="750"), False),
        (sla("5"), core.Toleration(key="sla", operator="Lt", value=""), False),
    ],
)
def test_a_taint_excludes_unless_it_is_soft_or_tolerated(
    taint: core.Taint, toleration: core.Toleration, *, tolerated: bool
) -> None:
    cause = static_cause(make_shape(tolerations=(toleration,)), make_node("n", taints=[taint]))
    assert cause == (None if tolerated else f"taint {taint.key}:NoSchedule")


def test_cordoned_and_not_ready_nodes_are_out_whatever_is_tolerated() -> None:
    anything = make_shape(tolerations=(core.Toleration(operator="Exists"),))
    assert static_cause(anything, make_node("n", cordoned=True)) == "cordoned"
    assert static_cause(anything, make_node("n", ready=False)) == "not ready"
    for key, cause in (
        ("node.kubernetes.io/unschedulable", "cordoned"),
        ("node.kubernetes.io/not-ready", "not ready"),
        ("node.kubernetes.io/unreachable", "not ready"),
    ):
        taint = core.Taint(key=key, effect="NoExecute")
        assert static_cause(anything, make_node("n", taints=[taint])) == cause


def test_a_node_that_says_nothing_about_readiness_is_ready() -> None:
    assert static_cause(make_shape(), core.Node(metadata=core.Meta(name="n"))) is None


def test_the_node_selector_must_match_whole() -> None:
    node = make_node("n", labels={"gen": "7", "pool": "a"})
    assert static_cause(make_shape(node_selector=(("gen", "7"), ("pool", "a"))), node) is None
    assert static_cause(make_shape(node_selector=(("gen", "7"), ("pool", "b"))), node) == "node selector"


@pytest.mark.parametrize(
    ("operator", "values", "matches"),
    [
        ("In", ("7", "8"), True),
        ("In", ("8",), False),
        ("NotIn", ("8",), True),
        ("NotIn", ("7",), False),
        ("Exists", (), True),
        ("DoesNotExist", (), False),
        ("Gt", ("6",), True),
        ("Gt", ("7",), False),
        ("Lt", ("8",), True),
        ("Lt", ("seven",), False),
        ("Near", ("7",), False),
    ],
)
def test_operators_of_node_affinity(operator: str, values: tuple[str, ...], *, matches: bool) -> None:
    node = make_node("n", labels={"gen": "7"})
    shape = make_shape(node_affinity=affinity(requirement(operator, *values)))
    assert static_cause(shape, node) == (None if matches else "node affinity")


def test_an_absent_label_matches_only_its_absence() -> None:
    node = make_node("n")
    for operator, matches in (("In", False), ("NotIn", True), ("Exists", False), ("DoesNotExist", True), ("Gt", False)):
        shape = make_shape(node_affinity=affinity(requirement(operator, "1")))
        assert (static_cause(shape, node) is None) == matches


def test_terms_are_alternatives_and_an_empty_one_matches_nothing() -> None:
    node = make_node("n", labels={"gen": "7"})
    empty = core.NodeSelectorTerm()
    match = core.NodeSelectorTerm(match_expressions=(requirement("In", "7"),))
    assert static_cause(make_shape(node_affinity=core.NodeSelector(node_selector_terms=(empty, match))), node) is None
    assert (
        static_cause(make_shape(node_affinity=core.NodeSelector(node_selector_terms=(empty,))), node) == "node affinity"
    )


def test_a_node_is_matched_by_its_name() -> None:
    field = core.Requirement(key="metadata.name", operator="In", values=("n1",))
    shape = make_shape(node_affinity=affinity(fields=(field,)))
    assert static_cause(shape, make_node("n1")) is None
    assert static_cause(shape, make_node("n2")) == "node affinity"
