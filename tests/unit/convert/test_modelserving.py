"""ModelServing: groups are units, and the minimum is the gang policy's."""

from typing import Any

import pytest

from builders.conversions import roles, said
from covey.convert import ConversionError, Converted, Levels, convert
from foreign_workloads import Object, model_serving


def shapes(found: Converted) -> dict[str, tuple[int, int, int]]:
    return {name: (each["replicas"], each["minReplicas"], each["size"]) for name, each in roles(found).items()}


def first(document: Object) -> Any:
    return document["spec"]["template"]["roles"][0]


def test_an_entry_and_its_workers_are_a_replica() -> None:
    found = convert(model_serving())
    assert shapes(found) == {"prefill": (2, 2, 2), "decode": (2, 1, 2)}
    assert set(said(found)) == {"spec.schedulerName", "spec.template.restartGracePeriodSeconds"}
    (leader,) = roles(found)["prefill"]["leaderTemplate"]["spec"]["containers"]
    assert {"name": "ENTRY_ADDRESS", "value": "$(COVEY_LEADER_ADDRESS)"} in leader["env"]


@pytest.mark.parametrize(
    ("policy", "minimums"),
    [(None, (2, 2)), ({"minRoleReplicas": {"decode": 1}}, (2, 1)), ({"minRoleReplicas": {"prefill": 5}}, (2, 2))],
)
def test_what_no_policy_names_is_needed_whole(policy: Object | None, minimums: tuple[int, int]) -> None:
    found = shapes(convert(model_serving(gangPolicy=policy)))
    assert tuple(minimum for _, minimum, _ in found.values()) == minimums


def test_workers_need_a_template() -> None:
    document = model_serving()
    del first(document)["workerTemplate"]
    with pytest.raises(ConversionError) as refused:
        convert(document)
    assert refused.value.path == "spec.template.roles[0].workerTemplate.spec"


@pytest.mark.parametrize(
    ("recovery", "policy"),
    [("RoleRecreate", "RecreateReplica"), ("ServingGroupRecreate", "RecreateUnit"), ("None", "None")],
)
def test_recovery_is_the_restart_of_roles(recovery: str, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.convert.draft.unsupported_fields", lambda _: [])
    document = model_serving()
    document["spec"]["recoveryPolicy"] = recovery
    assert {each["restart"]["policy"] for each in roles(convert(document)).values()} == {policy}


@pytest.mark.parametrize("by_role", [True, False])
def test_budgets_of_roles_count_where_roles_are_updated(by_role: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001 - a parameter of the test
    monkeypatch.setattr("covey.convert.draft.unsupported_fields", lambda _: [])
    document = model_serving()
    document["spec"]["rolloutStrategy"] = {"type": "RoleRollingUpdate" if by_role else "ServingGroupRollingUpdate"}
    first(document)["maxUnavailable"] = 1
    found = convert(document)
    assert ("update" in roles(found)["prefill"]) is by_role
    assert ("spec.template.roles[0].maxUnavailable" in said(found)) is not by_role


def test_a_tier_with_the_name_of_a_level_is_that_level() -> None:
    soft = {"mode": "soft", "highestTierName": "rack"}
    document = model_serving(networkTopology={"groupPolicy": {"highestTierName": "block"}, "rolePolicy": soft})
    found = convert(document, Levels({"example.com/block": "block", "example.com/rack": "rack"}))
    assert found.body["spec"]["topology"] == {"required": "block"}
    assert {str(each["topology"]) for each in roles(found).values()} == {"{'preferred': 'rack'}"}
    assert "tier block of HyperNodes is no level" in str(said(convert(document)))


def test_a_role_of_single_pods_has_no_leader() -> None:
    document = model_serving()
    first(document)["workerReplicas"] = 0
    found = convert(document)
    assert shapes(found)["prefill"] == (2, 2, 1)
    assert "leaderTemplate" not in roles(found)["prefill"]
    assert "is not used" in said(found)["spec.template.roles[0].workerTemplate"]
