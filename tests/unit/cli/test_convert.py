"""`covey convert`, and `covey plan` on workloads of other projects."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders.files import (
    EXAMPLES,
    cluster,
    conforms,
    covey,
    plan,
    roles_of,
    write,
)
from covey.api.inference import DisaggregatedInference
from covey.api.schema import structural
from covey.api.unsupported import unsupported_fields
from foreign_workloads import EVERY, Object, leader_worker_set, model_serving

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


def test_a_minimum_that_does_not_fit_is_no_plan(file: Any, tmp_path: Path) -> None:
    """Two whole prefills and one whole decode, of a node a pod: six nodes, and with five nothing."""
    path = file(model_serving())
    for count, pods, status in ((12, 8, 0), (6, 6, 0), (5, 0, 3)):
        nodes = write(tmp_path / "nodes.json", cluster(count))
        answer = plan("-f", path, "--nodes", nodes)
        instances = [one for each in roles_of(answer["workloads"][0]).values() for one in each["instances"]]
        assert sum(len(one["pods"]) for one in instances) == pods
        assert covey("plan", "-f", path, "--nodes", nodes).exit_code == status


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


@pytest.mark.parametrize("arguments", [("-f", EXAMPLES / "topology.yaml"), ("-f", EXAMPLES / "disaggregated.yaml")])
def test_a_file_without_any_names_what_is_understood(arguments: Any) -> None:
    result = covey("convert", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "holds nothing that can be converted; give one of DisaggregatedSet, DynamoGraphDeployment, " in result.stderr
