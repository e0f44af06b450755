"""`covey convert`, and `covey plan` on workloads of other projects."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders.files import (
    EXAMPLES,
    admitted,
    cluster,
    conforms,
    covey,
    inference,
    plan,
    role,
    roles_of,
    workload,
    write,
)
from covey.api.inference import DisaggregatedInference
from covey.api.rules import unsupported_fields
from covey.api.schema import structural
from foreign_workloads import EVERY, Object, dynamo_components, leader_worker_set, model_serving, pod_clique_set

EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"
SCHEMA = structural(DisaggregatedInference)
RACK = "cloud.provider.com/topology-rack"


@pytest.fixture
def file(tmp_path: Path) -> Any:
    return lambda *documents: write(tmp_path / "in.json", documents)


def topology(name: str, **levels: str) -> Object:
    return {
        "apiVersion": "scheduling.covey.dev/v1alpha1",
        "kind": "ClusterTopology",
        "metadata": {"name": name},
        "spec": {"levels": [{"name": level, "keys": [key]} for level, key in levels.items()]},
    }


@pytest.mark.parametrize("name", EVERY)
def test_what_comes_out_is_valid_compiles_and_finds_its_place(name: str, file: Any, tmp_path: Path) -> None:
    document = EVERY[name]()
    result = covey("convert", "-f", file(document))
    assert result.exit_code == 0, result.stderr
    (body,) = yaml.safe_load_all(result.stdout)
    conforms(body, SCHEMA)
    assert unsupported_fields(DisaggregatedInference.model_validate(body).spec) == [], "the operator runs it"

    compiled = covey("compile", "-f", "-", "-o", "json", stdin=result.stdout)
    assert compiled.exit_code == 0, compiled.stderr
    pods = [each for each in json.loads(compiled.stdout)["items"] if each["kind"] == "Pod"]
    spec = body["spec"]
    units = spec.get("replicas", 1)
    assert len(pods) == units * sum(each["replicas"] * each.get("size", 1) for each in spec["roles"])

    nodes = write(tmp_path / "nodes.json", cluster(len(pods), 2))
    planned = plan("-f", "-", "--nodes", nodes, stdin=result.stdout)
    (found,) = planned["workloads"]
    assert (found["verdict"], len(found["units"])) == ("Admitted", units)
    direct = plan("-f", file(document), "--nodes", nodes)
    placed = [
        {key: value for key, value in each["workloads"][0].items() if key != "elapsedMs"} for each in (planned, direct)
    ]
    assert placed[0] == placed[1], "plan takes the source itself"
    assert len(direct["warnings"]) >= result.stderr.count("warning: ")


def test_remarks_are_warnings_with_file_document_and_field(file: Any) -> None:
    path = file(leader_worker_set(replica=3))
    result = covey("convert", "-f", path)
    where = f"{path}, document 1, items[0].spec.replica"
    assert result.stderr == f"warning: {where}: has no counterpart; left out\n"
    assert "replica: 3" not in result.stdout


def test_plan_warns_of_the_same(file: Any, tmp_path: Path) -> None:
    path, nodes = file(leader_worker_set(replica=3)), write(tmp_path / "nodes.json", cluster(4))
    warning = f"{path}, document 1, items[0].spec.replica: has no counterpart; left out"
    assert warning in plan("-f", path, "--nodes", nodes)["warnings"]
    assert f"warning: {warning}\n" in covey("plan", "-f", path, "--nodes", nodes).stderr


def test_a_minimum_that_does_not_fit_is_no_plan(file: Any, tmp_path: Path) -> None:
    """Two whole prefills and one whole decode, of a node a pod: six nodes, and with five nothing."""
    path = file(model_serving())
    for count, pods, status in ((12, 8, 0), (6, 6, 0), (5, 0, 3)):
        nodes = write(tmp_path / "nodes.json", cluster(count))
        answer = plan("-f", path, "--nodes", nodes)
        instances = [one for each in roles_of(answer["workloads"][0]).values() for one in each["instances"]]
        assert sum(len(one["pods"]) for one in instances) == pods
        assert covey("plan", "-f", path, "--nodes", nodes).exit_code == status


def test_workloads_of_others_are_planned_beside_our_own(file: Any, tmp_path: Path) -> None:
    nodes = write(tmp_path / "nodes.json", cluster(4))
    answer = plan("-f", file(inference("ours", role("prefill", size=2)), leader_worker_set()), "--nodes", nodes)
    assert admitted(workload(answer, "ours")) == {"prefill": 1}
    assert admitted(workload(answer, "vllm")) == {"engine": 1}


def test_levels_are_those_of_the_presets_or_of_a_topology_that_is_given(file: Any, tmp_path: Path) -> None:
    document = leader_worker_set()
    document["metadata"]["annotations"] = {EXCLUSIVE: RACK}
    path, own = (
        file(document),
        write(tmp_path / "topology.json", [topology("ours", cage=RACK, shelf="example.com/shelf")]),
    )
    (found,) = yaml.safe_load_all(covey("convert", "-f", path).stdout)
    assert found["spec"]["topology"] == {"required": "rack"}
    (found,) = yaml.safe_load_all(covey("convert", "-f", path, "--topology", own).stdout)
    assert found["spec"]["topology"] == {"required": "cage"}
    nodes = write(tmp_path / "nodes.json", cluster(2, 2))
    assert plan("-f", path, "--nodes", nodes)["workloads"][0]["verdict"] == "Admitted"
    crowded = write(tmp_path / "nodes.json", cluster(4))
    assert plan("-f", path, "--nodes", crowded)["workloads"][0]["verdict"] == "Infeasible", "a rack for each group"


def test_a_topology_among_the_manifests_counts_whatever_its_place(tmp_path: Path) -> None:
    document = pod_clique_set(topologyConstraint={"topologyName": "ours", "pack": {"required": "cage"}})
    path = write(tmp_path / "in.json", [document, topology("ours", cage=RACK)])
    answer = plan("-f", path, "--nodes", write(tmp_path / "nodes.json", cluster(20)))
    assert answer["topology"]["name"] == "ours"
    assert not [each for each in answer["warnings"] if "topologyName" in each]


def test_a_level_that_no_topology_has_is_bad_input_below_what_was_converted(file: Any, tmp_path: Path) -> None:
    path = file(dynamo_components(topologyConstraint={"packDomain": "cage"}))
    result = covey("plan", "-f", path, "--nodes", write(tmp_path / "nodes.json", cluster(4)))
    assert result.exit_code == 2
    assert (
        f"{path}, document 1, items[0].converted.spec.topology.required: topology kueue has no level cage"
        in result.stderr
    )


def test_every_document_of_a_file_is_converted_and_others_are_named(file: Any) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "leader"}}
    path = file(leader_worker_set(), service, model_serving())
    result = covey("convert", "-f", path, "-o", "json")
    listed = json.loads(result.stdout)
    assert [each["metadata"]["name"] for each in listed["items"]] == ["vllm", "sample"]
    assert f"warning: {path}, document 1, items[1]: skipped Service leader" in result.stderr


@pytest.mark.parametrize("arguments", [("-f", EXAMPLES / "topology.yaml"), ("-f", EXAMPLES / "disaggregated.yaml")])
def test_a_file_without_any_names_what_is_understood(arguments: Any) -> None:
    result = covey("convert", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "holds nothing that can be converted; give one of DisaggregatedSet, DynamoGraphDeployment, " in result.stderr


def test_a_namespace_is_written_only_where_one_is_named(file: Any) -> None:
    path = file(leader_worker_set(), model_serving())
    found = [each["metadata"].get("namespace") for each in yaml.safe_load_all(covey("convert", "-f", path).stdout)]
    assert found == [None, "default"]
    named = covey("convert", "-f", path, "-n", "serving").stdout
    assert [each["metadata"].get("namespace") for each in yaml.safe_load_all(named)] == ["serving", "default"]


@pytest.mark.parametrize(
    ("document", "what"),
    [
        (leader_worker_set(replicas="two"), "items[0].spec.replicas: is not a number"),
        (
            leader_worker_set() | {"apiVersion": "leaderworkerset.x-k8s.io/v9"},
            "items[0].apiVersion: is v9 of LeaderWorker",
        ),
        (
            leader_worker_set() | {"metadata": {"name": "a.b"}},
            "items[0].converted.metadata.name: 'a.b' is no name for it",
        ),
        (leader_worker_set() | {"metadata": {}}, "items[0].metadata.name: is missing"),
        (leader_worker_set(replicas=0), "items[0].spec: every role has 0 replicas"),
        (
            leader_worker_set(leaderWorkerTemplate={"workerTemplate": {"spec": {"containers": "one"}}}),
            "items[0].converted.spec.roles[0].template",
        ),
    ],
)
def test_what_cannot_be_converted_is_refused_with_its_field(document: Object, what: str, file: Any) -> None:
    path = file(document)
    for command in (("convert",), ("plan", "--nodes", EXAMPLES / "offline")):
        result = covey(*command, "-f", path)
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"error: {path}, document 1, {what}" in result.stderr
