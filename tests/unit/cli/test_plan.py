"""What `covey plan` answers: the stable JSON, the exit status, the order of workloads."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.kai_shape import DECODE, FRONTEND, PREFILL, Floor, Placement, Spot
from bench.trees import GroupSpec
from builders.files import (
    SCHEMA,
    Object,
    admitted,
    cluster,
    conforms,
    covey,
    inference,
    member,
    node,
    plan,
    pod,
    role,
    roles_of,
    workload,
    write,
)
from covey.api import core
from covey.api.inference import DisaggregatedInference
from covey.watching.usage import find_topology_name


@pytest.fixture
def files(tmp_path: Path) -> Any:
    def make(nodes: list[Any], *manifests: Any, pods: list[Any] | None = None) -> list[object]:
        arguments: list[object] = ["-f", write(tmp_path / "in.json", manifests)]
        arguments += ["--nodes", write(tmp_path / "nodes.json", nodes)]
        return [*arguments, "--pods", write(tmp_path / "pods.json", pods)] if pods is not None else arguments

    return make


def check(answer: Any, nodes: list[Any], taken: Counter[str] | None = None) -> None:
    """The answer has the documented shape, and what it says can be true."""
    conforms(answer, SCHEMA)
    labels = {each["metadata"]["name"]: each["metadata"]["labels"] for each in nodes}
    keys = {level["name"]: level["keys"] for level in answer["topology"]["levels"]}
    used = Counter(taken or {})
    names: Counter[str] = Counter()
    for found in answer["workloads"]:
        assert (found["verdict"] == "Admitted") == all(unit["admitted"] for unit in found["units"])
        for unit in found["units"]:
            for each in unit["roles"]:
                assert len(each["instances"]) == each["admitted"] <= each["replicas"]
                minimum = sum(instance["minimum"] for instance in each["instances"])
                assert minimum == (each["minReplicas"] if unit["admitted"] else 0)
                for instance in each["instances"]:
                    placed = [placed["node"] for placed in instance["pods"]]
                    used.update(placed)
                    names.update(each["name"] for each in instance["pods"])
                    for domain in [*instance["placement"], *unit["placement"]]:
                        values = {
                            next(labels[n][key] for key in keys[domain["level"]] if key in labels[n]) for n in placed
                        }
                        assert values == {domain["domain"]} == {domain["path"][-1]}
    assert all(count == 1 for count in names.values())
    assert all(count == 1 for count in used.values()), "these tests ask for whole nodes"


def test_an_admitted_gang_says_where_everything_lies(files: Any) -> None:
    nodes = cluster(4, 4, blocks=2)
    gang = inference(
        "llm",
        role("prefill", 2, 1, size=2, topology={"required": "rack"}),
        role("decode", 1, 1, size=4, topology={"required": "rack"}),
        topology={"required": "block"},
    )
    arguments = files(nodes, gang)
    answer = plan(*arguments)
    check(answer, nodes)
    assert covey("plan", *arguments).exit_code == 0
    assert answer["topology"]["name"] == "kueue"
    found = workload(answer, "llm")
    assert (found["verdict"], found["namespace"], found["reasons"]) == ("Admitted", "default", [])
    assert admitted(found) == {"prefill": 2, "decode": 1}
    assert "block" in {each["level"] for each in found["units"][0]["placement"]}
    first = roles_of(found)["prefill"]["instances"][0]
    assert [each["name"] for each in first["pods"]] == ["llm-0-prefill-0-0", "llm-0-prefill-0-1"]
    assert {"block", "rack"} <= {each["level"] for each in first["placement"]}


def test_preferences_are_listed_reached_or_not(files: Any) -> None:
    nodes = cluster(2, 1)
    gang = inference(
        "llm",
        role("a", 1, 1, size=2, topology={"preferred": "rack"}),
        role("b", 1, 1),
        topology={"required": "block", "preferred": "rack"},
        proximity=[{"roles": ["a", "b"], "level": "rack"}],
    )
    answer = plan(*files(nodes, gang))
    check(answer, nodes)
    wishes = {each["scope"]: each for each in workload(answer, "llm")["units"][0]["preferred"]}
    assert {scope: (each["achieved"], each["reached"]) for scope, each in wishes.items()} == {
        "unit": (False, "block"),
        "role/a": (True, "rack"),
        "proximity/0": (False, "block"),
    }


def test_a_role_that_does_not_follow_takes_no_share_of_the_spread(files: Any) -> None:
    """The router of the first unit runs where the second unit goes."""
    nodes = cluster(1, 2)
    router = role("router", gpus=0, topology={"followUnit": False})
    router["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": nodes[1]["metadata"]["name"]}
    spread = {"level": "rack", "mode": "Required"}
    answer = plan(*files(nodes, inference("llm", role("w"), router, replicas=2, spread=spread)))
    assert [unit["admitted"] for unit in workload(answer, "llm")["units"]] == [True, True]


def test_warnings_name_what_is_odd(files: Any) -> None:
    nodes = [*cluster(1, blocks=2), node("bare")]
    gang = inference("llm", role("w"))
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    warnings = " | ".join(plan(*files([*nodes, nodes[0]], gang, service))["warnings"])
    for words in ("do not nest", "have no level", "skipped 1 Service", "given twice"):
        assert words in warnings


def test_a_topology_may_be_given_and_a_level_nobody_carries_is_infeasible(files: Any, tmp_path: Path) -> None:
    topology = {
        "apiVersion": "scheduling.covey.dev/v1alpha1",
        "kind": "ClusterTopology",
        "metadata": {"name": "mine"},
        "spec": {"levels": [{"name": "hall", "keys": ["hall"]}, {"name": "row", "keys": ["row"]}]},
    }
    nodes = [node("a", labels={"hall": "h1"}), node("b", labels={"hall": "h1"})]
    given = ["--topology", write(tmp_path / "topology.json", [topology])]
    gang = inference("llm", role("w", size=2), topology={"required": "hall"})
    answer = plan(*files(nodes, gang), *given)
    check(answer, nodes)
    assert answer["topology"] == {
        "name": "mine",
        "levels": [{"name": "hall", "keys": ["hall"]}, {"name": "row", "keys": ["row"]}],
    }
    gang["spec"]["topology"] = {"required": "row"}
    result = covey("plan", *files(nodes, gang), *given, "-o", "json")
    assert result.exit_code == 3
    assert "row" in workload(json.loads(result.stdout), "llm")["reasons"][0]["message"]


@pytest.mark.parametrize("size", [3, 1])
def test_the_best_domain_is_where_most_pods_fit_and_not_where_most_is_free_and_closed(
    tmp_path: Path, size: int
) -> None:
    closed = [each for each in cluster(3, 6) if "-1-" in each["metadata"]["name"]]
    for each in closed:
        each["spec"]["taints"] = [{"key": "pool", "value": "training", "effect": "NoSchedule"}]
    nodes = [*cluster(3), *closed]
    busy = [pod(f"busy-{number}", f"n0-0-{number}") for number in (1, 2)]
    gang = inference("big", role("prefill", 4 - size, 4 - size, size=size), topology={"required": "rack"})
    given = [write(tmp_path / f"{name}.json", each) for name, each in zip("gnp", ([gang], nodes, busy), strict=True)]
    (reason,) = workload(plan("-f", given[0], "--nodes", given[1], "--pods", given[2]), "big")["reasons"]
    assert reason["bestDomain"][-1] == "r0", reason["message"]


FLOOR_OF_NODES = Floor()
FIRST_RACK = ("node-0-0-0-0", "node-0-0-0-1")


def spots(group: GroupSpec, *nodes: str, tree: str = "kai-0") -> Iterator[Spot]:
    return (Spot(tree, group.name, node) for node in nodes)


def placement(prefill: tuple[str, ...], decode: tuple[str, ...]) -> Placement:
    front_ends = spots(FRONTEND, *FIRST_RACK)
    return Placement(FLOOR_OF_NODES, (*spots(PREFILL, *prefill), *spots(DECODE, *decode), *front_ends))


RACKED = {"cloud.provider.com/topology-block": "b", "cloud.provider.com/topology-rack": "r0"}
CLIQUE = {"nvidia.com/gpu.clique": "c.1"}


def nodes() -> list[Object]:
    """A rack of two nodes whose clique has three nodes more, which are in no rack."""
    return [node(f"n{i}", labels={**RACKED, **CLIQUE}) for i in range(2)] + [
        node(f"new{i}", labels=CLIQUE) for i in range(3)
    ]


def root(name: str = "llm-0", **status: Any) -> Object:
    """The root of a unit that runs."""
    return {
        "apiVersion": "scheduling.covey.dev/v1alpha1",
        "kind": "CompositePodGroup",
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"covey.dev/unit": name[-1]}},
        "spec": {"schedulingPolicy": {"gang": {"minGroupCount": 1}}},
        "status": {"admitted": 1, **status},
    }


def running(told: Mapping[str, str]) -> Object:
    """A pod of the resource on the first node, with the domains of its pin."""
    found = member("llm", "decode", 0, 0, "n0")
    found["metadata"]["annotations"] = {f"topology.covey.dev/{level}": value for level, value in told.items()}
    return found


def test_the_topology_of_a_resource_is_what_the_root_of_its_first_unit_tells() -> None:
    made = DisaggregatedInference.model_validate(inference("llm", role("decode")))
    made = made.model_copy(update={"metadata": made.metadata.model_copy(update={"uid": "u"})})
    owner = {"apiVersion": "inference.covey.dev/v1alpha1", "kind": "DisaggregatedInference", "name": "llm", "uid": "u"}

    def owned(name: str, **status: Any) -> core.Group:
        body = root(name, **status)
        body["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        return msgspec.convert(body, core.Group)

    stranger = msgspec.convert(root("x-0", topology="gke"), core.Group)
    roots = [stranger, owned("llm-1", topology="halls"), owned("llm-0", topology="kueue")]
    assert find_topology_name(made, roots) == "kueue"
    assert find_topology_name(made, [stranger, owned("llm-0")]) is None


def test_yaml_output_is_the_same_document(files: Any) -> None:
    arguments = files(cluster(2), inference("llm", role("a")))
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load(covey("plan", *arguments, "-o", "yaml").stdout)
    conforms(found, SCHEMA)
