"""PodCliqueSet: cliques and scaling groups become roles; constraints, order and minimums."""

from typing import Any

import pytest

from builders.conversions import roles, said
from covey.convert import ConversionError, Levels, convert
from foreign_workloads import Object, clique, pod_clique_set


def name_of(template: Object) -> Any:
    return template["spec"]["containers"][0]["name"]


def cliques(document: Object) -> Any:
    return {each["name"]: each for each in document["spec"]["template"]["cliques"]}


def groups(document: Object) -> Any:
    return document["spec"]["template"]["podCliqueScalingGroups"]


def test_a_scaling_group_is_a_role_and_a_clique_alone_is_one_of_single_pods() -> None:
    found = convert(pod_clique_set())
    shapes = {
        name: (each["replicas"], each["minReplicas"], each["size"], name_of(each["template"]))
        for name, each in roles(found).items()
    }
    assert shapes == {
        "frontend": (2, 2, 1, "frontend"),
        "prefill": (2, 1, 5, "pworker"),
        "decode-cluster": (1, 1, 3, "dworker"),
    }
    assert name_of(roles(found)["prefill"]["leaderTemplate"]) == "pleader"
    assert found.remarks == ()


def test_the_minimum_of_a_clique_is_the_source_s() -> None:
    document = pod_clique_set()
    cliques(document)["frontend"]["spec"]["minAvailable"] = 1
    groups(document)[0]["minAvailable"] = 2
    found = roles(convert(document))
    assert (found["frontend"]["minReplicas"], found["prefill"]["minReplicas"]) == (1, 2)


def test_a_replica_of_covey_is_always_whole() -> None:
    document = pod_clique_set()
    cliques(document)["pworker"]["spec"]["minAvailable"] = 3
    found = said(convert(document))
    assert found["spec.template.cliques[2].spec.minAvailable"].startswith("is 3 of 4 pods")


def test_constraints_hold_where_they_stand() -> None:
    document = pod_clique_set(topologyConstraint={"topologyName": "racks", "pack": {"required": "block"}})
    groups(document)[0]["topologyConstraint"] = {"pack": {"required": "rack", "preferred": "host"}}
    groups(document)[1]["topologyConstraint"] = {"packDomain": "rack"}
    cliques(document)["frontend"]["topologyConstraint"] = {"pack": {"preferred": "rack"}}
    found = convert(document, Levels(topologies=frozenset({"racks"})))
    assert found.body["spec"]["topology"] == {"name": "racks", "required": "block"}
    assert roles(found)["prefill"]["topology"] == {"required": "rack", "preferred": "host"}
    assert roles(found)["decode-cluster"]["topology"] == {"required": "rack"}
    assert found.body["spec"]["proximity"] == [{"roles": ["frontend"], "level": "rack", "mode": "Preferred"}]
    assert found.remarks == ()


def test_an_order_is_a_dependency_of_roles_or_waiting_for_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.convert.draft.unsupported_fields", lambda _: [])
    document = pod_clique_set(cliqueStartupType="CliqueStartupTypeExplicit")
    cliques(document)["pworker"]["spec"]["startsAfter"] = ["pleader", "frontend"]
    cliques(document)["dleader"]["spec"]["startsAfter"] = ["dworker", "pleader"]
    found = convert(document)
    assert roles(found)["prefill"]["startup"] == "LeaderReady"
    assert roles(found)["prefill"]["dependsOn"] == [{"role": "frontend", "condition": "Ready"}]
    assert roles(found)["decode-cluster"]["dependsOn"] == [{"role": "prefill", "condition": "Ready"}]
    assert list(said(found)) == ["spec.template.cliques[3].spec.startsAfter"]


def test_in_order_each_clique_follows_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.convert.draft.unsupported_fields", lambda _: [])
    found = roles(convert(pod_clique_set(cliqueStartupType="CliqueStartupTypeInOrder")))
    assert [each["role"] for each in found["decode-cluster"]["dependsOn"]] == ["prefill"]
    assert [each["role"] for each in found["prefill"]["dependsOn"]] == ["frontend"]
    assert found["prefill"]["startup"] == "LeaderReady"


def several_kinds(**group: Any) -> Object:
    document = pod_clique_set(cliques=[clique("a", 1), clique("b", 2, minAvailable=1), clique("c", 3)])
    document["spec"]["template"]["podCliqueScalingGroups"] = [{"name": "sg", "cliqueNames": ["b", "c"], **group}]
    return document


def test_a_group_of_several_kinds_becomes_roles_where_all_of_it_is_needed() -> None:
    found = convert(several_kinds(replicas=2, minAvailable=2))
    shapes = {name: (each["replicas"], each["minReplicas"], each["size"]) for name, each in roles(found).items()}
    assert shapes == {"a": (1, 1, 1), "b": (4, 2, 1), "c": (6, 6, 1)}
    assert "becomes the roles b, c" in said(found)["spec.template.podCliqueScalingGroups[0]"]
    together = convert(several_kinds(topologyConstraint={"pack": {"required": "rack"}}))
    assert together.body["spec"]["proximity"] == [{"roles": ["b", "c"], "level": "rack", "mode": "Required"}]


def test_an_index_of_a_group_is_told_only_where_there_is_a_group() -> None:
    document = several_kinds()
    args = ["$(GROVE_PCSG_INDEX) $(GROVE_PCS_INDEX) $(GROVE_MINE)"]
    container = cliques(document)["b"]["spec"]["podSpec"]["containers"][0]
    container |= {"args": args, "env": [{"name": "GROVE_MINE", "value": "1"}]}
    found = [remark.what.split()[0] for remark in convert(document).remarks if remark.path.endswith("podSpec")]
    assert found == ["GROVE_PCSG_INDEX"]


@pytest.mark.parametrize(
    "group", [{"replicas": 2}, {"replicas": 2, "minAvailable": 2, "topologyConstraint": {"pack": {"required": "rack"}}}]
)
def test_a_group_of_several_kinds_is_refused_where_that_would_mean_something_else(group: Object) -> None:
    with pytest.raises(ConversionError) as refused:
        convert(several_kinds(**group))
    assert refused.value.path == "spec.template.podCliqueScalingGroups[0].cliqueNames"


@pytest.mark.parametrize(
    ("group", "match"),
    [
        ({"cliqueNames": ["nobody"]}, "there is no clique nobody"),
        ({"cliqueNames": ["dleader", "dworker", "pworker"]}, "pworker is in two scaling groups"),
    ],
)
def test_names_have_to_be_those_of_cliques(group: Object, match: str) -> None:
    document = pod_clique_set()
    groups(document)[1] |= group
    with pytest.raises(ConversionError, match=match):
        convert(document)


def test_what_drives_an_autoscaler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.convert.draft.unsupported_fields", lambda _: [])
    document = pod_clique_set(terminationDelay="1h30m")
    groups(document)[0]["scaleConfig"] = {"minReplicas": 1, "maxReplicas": 4, "metrics": [{"type": "Resource"}]}
    found = convert(document)
    assert found.body["spec"]["gang"] == {"terminationDelaySeconds": 5400}
    assert roles(found)["prefill"]["scaling"] == {"mode": "External", "min": 1, "max": 4}
    assert list(said(found)) == ["spec.template.podCliqueScalingGroups[0].scaleConfig.metrics"]


@pytest.mark.parametrize("delay", ["soon", "4", "4h of it"])
def test_a_duration_has_to_be_one(delay: str) -> None:
    with pytest.raises(ConversionError, match="is no duration"):
        convert(pod_clique_set(terminationDelay=delay))
