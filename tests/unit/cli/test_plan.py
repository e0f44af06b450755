"""What `covey plan` answers: the stable JSON, the exit status, the order of workloads."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from builders.files import (
    SCHEMA,
    admitted,
    cluster,
    conforms,
    covey,
    inference,
    node,
    plan,
    pod,
    role,
    roles_of,
    workload,
    write,
)
from covey.admission import round as rounds
from covey.api import core
from covey.placement.planner import plan_minimum
from covey.planning.facts import read_facts
from covey.planning.request import read_manifests, workloads_of
from covey.planning.run import plan_all
from localcluster import Nodes


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


def test_the_minimum_comes_before_any_surplus(files: Any) -> None:
    nodes = cluster(2)
    answer = plan(*files(nodes, inference("llm", role("prefill", 4, 1), role("decode", 2, 1))))
    check(answer, nodes)
    assert admitted(workload(answer, "llm")) == {"prefill": 1, "decode": 1}


def test_minimums_of_all_come_before_the_surplus_of_any(files: Any) -> None:
    nodes = cluster(3)
    one, two = (inference(name, role("worker", 3, 1)) for name in ("one", "two"))
    answer = plan(*files(nodes, one, two))
    check(answer, nodes)
    assert admitted(workload(answer, "one")) == {"worker": 2}
    assert admitted(workload(answer, "two")) == {"worker": 1}


def test_units_when_each_is_required_in_one_rack_get_their_surplus_where_a_rack_has_room(files: Any) -> None:
    """Eight GPUs each, two of them the minimum: all minimums in the smallest rack leave no room there for the rest."""
    nodes = Nodes(racks=2, nodes=3).manifests() + Nodes(nodes=2, prefix="small-").manifests()
    parts = [role(name, 4, 1, gpus=1) for name in ("prefill", "decode")]
    units = [inference(f"u{number}", *parts, topology={"required": "rack"}) for number in range(5)]
    answer = plan(*files(nodes, *units))
    counts = [admitted(workload(answer, f"u{number}")) for number in range(5)]
    assert counts == [{"prefill": 4, "decode": 4}] * 5


def test_an_infeasible_one_has_reasons_and_no_pods(files: Any) -> None:
    nodes = cluster(2, 2)
    gang = inference("big", role("decode", 1, 1, size=3, topology={"required": "rack"}))
    arguments = files(nodes, gang, inference("small", role("worker")))
    result = covey("plan", *arguments, "-o", "json")
    assert result.exit_code == 3
    answer = json.loads(result.stdout)
    check(answer, nodes)
    big = workload(answer, "big")
    assert (big["verdict"], big["units"][0]["admitted"], admitted(big)) == ("Infeasible", False, {"decode": 0})
    assert big["reasons"][0]["unit"] == 0
    assert workload(answer, "small")["verdict"] == "Admitted"


def test_the_search_limit_is_unknown_and_exit_status_4(files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "plan_minimum", lambda gang, room, _, **more: plan_minimum(gang, room, 1, **more))
    sizes = [role(f"r{gpus}", gpus=gpus, size=gpus % 3 + 1, topology={"required": "rack"}) for gpus in (1, 2, 3, 5)]
    result = covey(
        "plan", *files(cluster(4, 4), inference("llm", *sizes, topology={"required": "block"})), "-o", "json"
    )
    assert result.exit_code == 4
    answer = json.loads(result.stdout)
    conforms(answer, SCHEMA)
    assert workload(answer, "llm")["verdict"] == "Unknown"


def test_every_unit_is_a_gang_of_its_own(files: Any) -> None:
    nodes = cluster(3)
    answer = plan(*files(nodes, inference("llm", role("a"), role("b"), replicas=2)))
    check(answer, nodes)
    found = workload(answer, "llm")
    assert [unit["admitted"] for unit in found["units"]] == [True, False]
    assert found["verdict"] == "Infeasible"
    assert {each["unit"] for each in found["reasons"]} == {1}


def test_units_are_taken_by_number(files: Any) -> None:
    units = workload(plan(*files(cluster(3), inference("llm", role("w"), replicas=12))), "llm")["units"]
    assert [unit["index"] for unit in units] == list(range(12))
    assert [unit["index"] for unit in units if unit["admitted"]] == [0, 1, 2]


def test_priority_goes_before_document_order_and_age_before_that(files: Any) -> None:
    nodes = cluster(1)
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 9}
    first, second = inference("first", role("w")), inference("second", role("w"), priorityClassName="urgent")
    assert workload(plan(*files(nodes, first, second, urgent)), "second")["verdict"] == "Admitted"
    answer = plan(*files(nodes, first, second))
    assert workload(answer, "first")["verdict"] == "Admitted"
    assert any("urgent" in warning for warning in answer["warnings"])
    second["spec"].pop("priorityClassName")
    second["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    assert workload(plan(*files(nodes, first, second)), "second")["verdict"] == "Admitted"


def test_pods_of_others_hold_capacity_also_when_only_pinned(files: Any) -> None:
    nodes = cluster(3)
    pinned = pod("pinned", labels={"scheduling.covey.dev/pod-group": "other"})
    pinned["metadata"] |= {"uid": "u", "annotations": {"scheduling.covey.dev/pinned": "u"}}
    field = {"key": "metadata.name", "operator": "In", "values": ["n0-0-1"]}
    pinned["spec"]["affinity"] = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}
        }
    }
    done = pod("done", "n0-0-2") | {"status": {"phase": "Succeeded"}}
    answer = plan(*files(nodes, inference("llm", role("w", 3, 1)), pods=[pod("bound", "n0-0-0"), pinned, done]))
    check(answer, nodes)
    assert admitted(workload(answer, "llm")) == {"w": 1}
    assert roles_of(workload(answer, "llm"))["w"]["instances"][0]["pods"][0]["node"] == "n0-0-2"


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


def test_units_are_spread_over_domains(files: Any) -> None:
    nodes = cluster(2, 2)
    spread = {"level": "rack", "mode": "Required"}
    answer = plan(*files(nodes, inference("llm", role("w"), replicas=3, spread=spread)))
    check(answer, nodes)
    units = workload(answer, "llm")["units"]
    assert [unit["admitted"] for unit in units] == [True, True, False]
    racks = [each["domain"] for unit in units[:2] for each in unit["placement"] if each["level"] == "rack"]
    assert sorted(racks) == ["r0", "r1"]


def test_a_role_that_does_not_follow_takes_no_share_of_the_spread(files: Any) -> None:
    """The router of the first unit runs where the second unit goes."""
    nodes = cluster(1, 2)
    router = role("router", gpus=0, topology={"followUnit": False})
    router["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": nodes[1]["metadata"]["name"]}
    spread = {"level": "rack", "mode": "Required"}
    answer = plan(*files(nodes, inference("llm", role("w"), router, replicas=2, spread=spread)))
    assert [unit["admitted"] for unit in workload(answer, "llm")["units"]] == [True, True]


def test_a_role_that_does_not_follow_is_left_out_of_the_units_placement(files: Any) -> None:
    nodes = [*cluster(1, blocks=2), node("plain", 0)]
    router = role("router", 1, 0, gpus=0, topology={"followUnit": False})
    router["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "plain"}
    answer = plan(*files(nodes, inference("llm", role("w"), router, topology={"required": "rack"})))
    unit = workload(answer, "llm")["units"][0]
    assert admitted(workload(answer, "llm")) == {"w": 1, "router": 1}
    assert "rack" in {each["level"] for each in unit["placement"]}


def test_warnings_name_what_is_odd(files: Any) -> None:
    nodes = [*cluster(1, blocks=2), node("bare")]
    gang = inference("llm", role("w"))
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    warnings = " | ".join(plan(*files([*nodes, nodes[0]], gang, service))["warnings"])
    for words in ("do not nest", "have no level", "skipped 1 Service", "given twice"):
        assert words in warnings


def test_the_same_input_gives_the_same_answer(files: Any) -> None:
    arguments = files(cluster(5, 5, blocks=2), inference("llm", role("a", 3, 1, size=2), role("b", 2, 1, size=3)))
    answers = [plan(*arguments) for _ in range(2)]
    for answer in answers:
        answer["workloads"][0].pop("elapsedMs")
    assert answers[0] == answers[1]


def test_yaml_output_is_the_same_document(files: Any) -> None:
    arguments = files(cluster(2), inference("llm", role("a")))
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load(covey("plan", *arguments, "-o", "yaml").stdout)
    conforms(found, SCHEMA)


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


def test_what_is_kept_for_a_waiting_gang_is_closed_to_those_behind_it(files: Any) -> None:
    arguments = files(cluster(2, 2), inference("llm", role("w", 4, 1)))
    manifests = read_manifests([str(arguments[1])], None)
    facts = read_facts([str(arguments[3])], (), ())
    waiting = core.Group(
        metadata=core.Meta(name="big-0", namespace="default", creation_timestamp="2020-01-01T00:00:00Z"),
        kind="CompositePodGroup",
        status=core.GroupStatus(claim=core.Claim((None, "b0", "r0"), "", nodes=("n0-0-0", "n0-0-1"))),
    )
    own = msgspec.structs.replace(waiting, metadata=msgspec.structs.replace(waiting.metadata, name="llm-0"))
    for kept, expected in (((waiting,), 2), ((own,), 4), ((), 4)):
        known = replace(facts, groups=kept)
        found, _ = workloads_of(manifests, known)
        report = plan_all(found, known, lambda: 0.0).report
        assert report.workloads[0].units[0].roles[0].admitted == expected


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
