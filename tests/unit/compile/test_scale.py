"""How replicas that are counted over all units are spread over them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import inferences
from covey.api.inference import DisaggregatedInference
from covey.compile import Layout, Revision, UnitCount, compile_inference
from covey.compile.layout import RoleCount, Scale, shares

UNITS = st.integers(0, 40)
TOTALS = st.integers(0, 2000)
MINIMA = st.integers(0, 20)


@given(TOTALS, UNITS, MINIMA)
def test_shares_sum_up_and_are_even(total: int, units: int, minimum: int) -> None:
    found = shares(total, units, minimum)
    assert len(found) == units
    assert sum(found) == (max(total, minimum * units) if units else 0)
    assert all(share >= minimum for share in found)
    assert max(found, default=0) - min(found, default=0) <= 1
    assert found == sorted(found, reverse=True)


@given(TOTALS, UNITS, MINIMA)
def test_one_replica_more_changes_one_unit_at_most(total: int, units: int, minimum: int) -> None:
    before, after = shares(total, units, minimum), shares(total + 1, units, minimum)
    changed = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
    assert len(changed) <= 1
    assert all(other == one + 1 for one, other in changed)


@given(TOTALS, UNITS, MINIMA)
def test_no_unit_gets_more_when_there_are_more_units(total: int, units: int, minimum: int) -> None:
    before, after = shares(total, units, minimum), shares(total, units + 1, minimum)
    assert all(other <= one for one, other in zip(before, after, strict=False))


def llama(**spec: Any) -> DisaggregatedInference:
    return inferences.llama({"replicas": 3, "size": 1}, {"replicas": 2, "size": 2}, **spec)


def test_a_total_is_spread_over_units_whatever_their_numbers() -> None:
    scale = Scale.of(llama(replicas=3).spec, {"prefill": 7}).over((9, 2, 4))
    assert [scale.count(unit, "prefill").replicas for unit in (2, 4, 9)] == [3, 2, 2]
    assert [scale.count(unit, "decode").replicas for unit in (2, 4, 9)] == [2, 2, 2]
    assert (scale.total("prefill"), scale.total("decode")) == (7, 6)


def test_groups_are_told_what_their_own_unit_has() -> None:
    resource = llama(replicas=2)
    revision = Revision.of(resource.spec)
    layout = Layout.fresh(Scale.of(resource.spec, {"prefill": 5, "decode": 3}), revision)
    tree = compile_inference(resource, layout=layout, revision=revision)
    wanted = {
        body["metadata"]["name"]: body["spec"].get("desiredCount", body["spec"].get("desiredGroupCount"))
        for level in tree.levels
        for body in level.objects
        if body["kind"] in {"PodGroup", "CompositePodGroup"}
    }
    assert [wanted[f"llama-{unit}-prefill"] for unit in (0, 1)] == [3, 2]
    assert [wanted[f"llama-{unit}-decode"] for unit in (0, 1)] == [2, 1]


def test_group_wants_as_many_as_there_are_when_a_surge_makes_more() -> None:
    resource = llama()
    wanted = Scale.of(resource.spec).count(0, "decode").replicas
    revision = Revision.of(resource.spec).roles["decode"]
    tree = compile_inference(resource, layout=Layout({0: {"decode": dict.fromkeys(range(wanted + 1), revision)}}))
    groups = {body["metadata"]["name"]: body["spec"] for level in tree.levels for body in level.objects}
    assert {groups["llama-0-decode"].get(key) for key in ("desiredCount", "desiredGroupCount")} == {wanted + 1, None}


ROLES = {"prefill": RoleCount(4, 2), "decode": RoleCount(1, 1), "router": RoleCount(2, 0)}


@pytest.mark.parametrize(
    ("counts", "lacking", "told"),
    [
        ({"prefill": 2, "decode": 1}, {}, ""),
        ({"prefill": 4, "decode": 1, "router": 2}, {}, ""),
        ({"prefill": 1, "decode": 1, "router": 2}, {"prefill": (1, 2)}, "prefill 1/2"),
        ({"router": 2}, {"prefill": (0, 2), "decode": (0, 1)}, "prefill 0/2, decode 0/1"),
    ],
)
def test_every_role_is_counted_against_its_own_minimum(
    counts: dict[str, int], lacking: dict[str, tuple[int, int]], told: str
) -> None:
    found = UnitCount.of(counts, ROLES)
    assert found.lacking == lacking
    assert found.has_minimum is not bool(lacking)
    assert str(found) == told
