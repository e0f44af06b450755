"""LeaderWorkerSet and DisaggregatedSet: groups become replicas of a role, or units where they are kept apart."""

from typing import Any

import pytest

from builders.conversions import said
from covey.api.inference import DisaggregatedInference
from covey.api.unsupported import unsupported_fields
from covey.convert import Converted, Levels, convert
from foreign_workloads import Object, disaggregated_set, leader_worker_set, template

RACKS = Levels({"example.com/rack": "rack"})
EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"


def role_of(found: Converted, number: int = 0) -> Any:
    return found.body["spec"]["roles"][number]


def exclusive(document: Object, key: str = "example.com/rack") -> Object:
    document["metadata"]["annotations"] = {EXCLUSIVE: key}
    return document


def test_a_group_becomes_a_replica_with_its_leader() -> None:
    found = convert(leader_worker_set())
    role = role_of(found)
    assert found.body["metadata"] == {"name": "vllm"}
    assert (role["replicas"], role["minReplicas"], role["size"]) == (2, 1, 2)
    assert role["leaderTemplate"]["metadata"] == {"labels": {"role": "leader"}}
    assert role["template"] == template("worker")
    assert role["restart"] == {"policy": "RecreateReplica"}, "the default of several pods, which this release honours"
    assert not found.remarks


def test_an_exclusive_topology_makes_each_group_a_unit_of_its_own() -> None:
    found = convert(exclusive(leader_worker_set(replicas=3)), RACKS)
    spec = found.body["spec"]
    assert (spec["replicas"], spec["topology"]) == (3, {"required": "rack"})
    assert spec["spread"] == {"level": "rack", "mode": "Required", "maxPerDomain": 1}
    assert role_of(found)["replicas"] == 1
    assert "annotations" not in found.body["metadata"]
    assert "pods of others may still lie" in said(found)[f"metadata.annotations[{EXCLUSIVE}]"]


@pytest.mark.parametrize(
    ("path", "change", "key", "value"),
    [
        ("spec.startupPolicy", {"startupPolicy": "LeaderReady"}, "startup", "LeaderReady"),
        (
            "spec.networkConfig.subdomainPolicy",
            {"networkConfig": {"subdomainPolicy": "UniquePerReplica"}},
            "network",
            {"subdomain": "UniquePerReplica"},
        ),
        (
            "spec.rolloutStrategy.rollingUpdateConfiguration.maxUnavailable",
            {"rolloutStrategy": {"rollingUpdateConfiguration": {"maxUnavailable": "25%", "partition": 0}}},
            "update",
            {"maxUnavailable": "25%"},
        ),
    ],
)
def test_what_the_release_would_refuse_is_left_out_and_named(
    path: str, change: Object, key: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.convert.draft.unsupported_fields", lambda _: [])
    found = convert(leader_worker_set(**change))
    assert role_of(found) == role_of(convert(leader_worker_set())) | {key: value}, "an honoured field carries over"
    assert said(found) == {}
    monkeypatch.setattr("covey.convert.draft.unsupported_fields", lambda spec: [] if spec.roles[0].restart else ["no"])
    found = convert(leader_worker_set(**change))
    assert role_of(found) == role_of(convert(leader_worker_set()))
    assert list(said(found)) == [path]
    assert f"stands for {key}" in said(found)[path]
    assert "which this release does not support yet" in said(found)[path]


def test_no_conversion_makes_what_this_release_refuses() -> None:
    document = leader_worker_set(startupPolicy="LeaderReady", networkConfig={"subdomainPolicy": "UniquePerReplica"})
    document["spec"]["leaderWorkerTemplate"]["restartPolicy"] = "None"
    assert unsupported_fields(DisaggregatedInference.model_validate(convert(document).body).spec) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("startupPolicy", "LeaderCreated"),
        ("networkConfig", {"subdomainPolicy": "Shared"}),
        ("rolloutStrategy", {"type": "RollingUpdate", "rollingUpdateConfiguration": {"partition": 0}}),
    ],
)
def test_what_happens_anyway_is_no_matter(field: str, value: Any) -> None:
    assert convert(leader_worker_set(**{field: value})).remarks == ()


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("spec.startupPolicy", {"startupPolicy": "LeaderFirst"}),
        ("spec.rolloutStrategy.type", {"rolloutStrategy": {"type": "Recreate"}}),
        ("spec.replica", {"replica": 3}),
    ],
)
def test_unknown_values_and_fields_are_named(path: str, change: Object) -> None:
    assert said(convert(leader_worker_set(**change))) == {path: "has no counterpart; left out "}


def test_subgroups_have_no_counterpart() -> None:
    document = leader_worker_set()
    document["spec"]["leaderWorkerTemplate"]["subGroupPolicy"] = {"subGroupSize": 2}
    assert list(said(convert(document))) == ["spec.leaderWorkerTemplate.subGroupPolicy"]


def test_a_claim_template_becomes_a_volume_that_goes_with_its_pod() -> None:
    document = leader_worker_set()
    source = document["spec"]["leaderWorkerTemplate"]
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Ti"}}}
    source["volumeClaimTemplates"] = [{"metadata": {"name": "dshm"}, "spec": claim}]
    found = convert(document)
    volume = {"name": "dshm", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    for key in ("template", "leaderTemplate"):
        assert role_of(found)[key]["spec"]["volumes"] == [volume], "it takes precedence over one of the same name"
    assert "goes with its pod" in said(found)["spec.leaderWorkerTemplate.volumeClaimTemplates[0]"]


def test_fields_of_pods_that_are_coveys_own_are_taken_out() -> None:
    document = leader_worker_set()
    worker = document["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    worker["spec"] |= {"schedulerName": "volcano", "subdomain": "x", "hostname": None}
    worker["metadata"] = {"name": "w", "labels": {"covey.dev/unit": "0", "app": "a"}, "creationTimestamp": None}
    found = convert(document)
    assert role_of(found)["template"] == {"metadata": {"labels": {"app": "a"}}, **template("worker")}
    prefix = "spec.leaderWorkerTemplate.workerTemplate"
    assert set(said(found)) == {
        f"{prefix}.spec.schedulerName",
        f"{prefix}.spec.subdomain",
        f"{prefix}.metadata.name",
        f"{prefix}.metadata.labels[covey.dev/unit]",
    }


def test_one_priority_of_all_pods_is_that_of_the_gang() -> None:
    document = leader_worker_set()
    source = document["spec"]["leaderWorkerTemplate"]
    for key in ("leaderTemplate", "workerTemplate"):
        source[key]["spec"]["priorityClassName"] = "high"
    found = convert(document)
    assert found.body["spec"]["priorityClassName"] == "high"
    assert found.remarks == ()
    source["leaderTemplate"]["spec"]["priorityClassName"] = "low"
    found = convert(document)
    assert "priorityClassName" not in found.body["spec"]
    assert [path.split(".")[2] for path in said(found)] == ["leaderTemplate", "workerTemplate"]


def test_names_that_only_the_source_sets_are_found_in_templates() -> None:
    document = leader_worker_set()
    worker = document["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    path = "metadata.labels['leaderworkerset.sigs.k8s.io/{}']"
    worker["spec"]["containers"][0]["env"] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path.format(name)}}}
        for name in ("worker-index", "subgroup-index")
    ]
    remarks = [remark for remark in convert(document).remarks if remark.path.endswith("workerTemplate")]
    assert [remark.what.partition("/")[2] for remark in remarks] == [
        "worker-index is set by Covey on request only",
        "subgroup-index is not set by Covey",
    ]
    assert "compat.lwsLabels" in remarks[0].instead


def test_slices_are_units_and_roles_stay_roles() -> None:
    found = convert(disaggregated_set())
    assert found.body["metadata"] == {"name": "pd", "namespace": "default"}
    assert found.body["spec"]["replicas"] == 2
    shapes = [
        (each["name"], each["replicas"], each["minReplicas"], each["size"]) for each in found.body["spec"]["roles"]
    ]
    assert shapes == [("prefill", 2, 1, 1), ("decode", 2, 1, 2)]
    assert list(said(found)) == ["spec.roles"], "a gang is more than the source has"


@pytest.mark.parametrize(("kind", "remarked"), [("ExclusiveSlice", False), ("ExclusiveTopology", True)])
def test_a_slice_has_a_domain_of_its_own(kind: str, remarked: bool) -> None:  # noqa: FBT001 - a parameter of the test
    found = convert(disaggregated_set(placementPolicy={"type": kind, "topology": "example.com/rack"}), RACKS)
    assert found.body["spec"]["topology"] == {"required": "rack"}
    assert found.body["spec"]["spread"]["maxPerDomain"] == 1
    assert ("spec.placementPolicy.type" in said(found)) is remarked


def test_a_placement_of_a_kind_that_is_not_known_is_named_whole() -> None:
    found = convert(disaggregated_set(placementPolicy={"type": "Packed", "topology": "example.com/rack"}), RACKS)
    assert {"spec.placementPolicy.type", "spec.placementPolicy.topology"} <= set(said(found))


def test_a_long_name_is_shortened_and_two_stay_two() -> None:
    document = disaggregated_set()
    for number, role in enumerate(document["spec"]["roles"]):
        role["name"] = f"a-rather-long-name-of-a-role-{number}"
    found = convert(document)
    assert [each["name"] for each in found.body["spec"]["roles"]] == ["a-rather-long-name-o", "a-rather-long-name-2"]
    assert "it is called a-rather-long-name-o" in said(found)["spec.roles[0].name"]


def test_a_set_that_is_scaled_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.convert.draft.unsupported_fields", lambda spec: ["no"] if spec.roles[0].scaling else [])
    document = disaggregated_set()
    document["spec"]["roles"][0]["scaling"] = {"mode": "External"}
    document["spec"]["roles"][1]["scaling"] = {"mode": "Static"}
    document["spec"]["roles"][1]["metadata"] = {"annotations": {EXCLUSIVE: "example.com/rack"}, "labels": {"a": "b"}}
    found = convert(document, RACKS)
    assert role_of(found, 1)["topology"] == {"required": "rack"}
    assert set(said(found)) == {
        "spec.roles",
        "spec.roles[0].scaling.mode",
        "spec.roles[1].scaling.mode",
        f"spec.roles[1].metadata.annotations[{EXCLUSIVE}]",
        "spec.roles[1].metadata.labels",
    }


def test_a_node_label_of_no_level_is_named() -> None:
    found = convert(exclusive(leader_worker_set(), "cloud.google.com/gke-nodepool"), RACKS)
    assert "topology" not in found.body["spec"]
    assert "cloud.google.com/gke-nodepool is in no level" in said(found)[f"metadata.annotations[{EXCLUSIVE}]"]
