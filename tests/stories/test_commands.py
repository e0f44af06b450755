"""`covey explain`, `status`, `top`, `version`, `plan --cluster` and `release-budgets` against a real control plane."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders import files
from builders.files import GPU, inference, role, workload, write
from covey.kube.resources import QUEUES
from stage import Stage
from stage.play import INFERENCE, run_covey

Run = Callable[..., Any]
Create = Callable[..., None]
BLOCK = {"required": "block"}
GANG = (role("prefill", 2, 1, size=2, topology={"required": "rack"}), role("decode", 1, 1))


@pytest.fixture
def run(stage: Stage) -> Run:
    """`run("status", "llm") -> JSON`, of the story's namespace, at rest."""

    def call(*arguments: object, status: int = 0, form: str = "json") -> Any:
        stage.settle()
        exit_code, output = run_covey(stage, *map(str, arguments), "-n", stage.namespace, "-o", form)
        assert exit_code == status, output
        return json.loads(output) if form == "json" else output

    return call


@pytest.fixture
def create(stage: Stage) -> Create:
    """`create("llm", *roles, **spec)`."""

    def post(name: str, *roles: Any, **spec: Any) -> None:
        stage.claim_nodes()
        stage.cluster.api("POST", stage.path(INFERENCE), inference(name, *roles, **spec))

    return post


def complete(branch: Any) -> bool:
    return branch["state"] == "ready" and branch["ready"] == branch["total"] and all(map(complete, branch["children"]))


def reasons(branch: Any) -> str:
    return " | ".join(filter(None, [branch["reason"], *map(reasons, branch["children"])]))


def pods_of(unit: Any) -> list[Any]:
    return [pod for member in unit["children"] for replica in member["children"] for pod in replica["children"]]


def test_status_of_a_resource_that_serves_is_a_whole_tree_and_nothing_is_to_be_explained(
    stage: Stage, run: Run, create: Create
) -> None:
    names = stage.nodes(racks=2, nodes=3)
    create("llm", *GANG, topology=BLOCK)
    tree = run("status", "llm")
    assert complete(tree)
    assert not reasons(tree)
    [unit] = tree["children"]
    assert {member["name"]: (member["ready"], member["total"]) for member in unit["children"]} == {
        "prefill": (2, 2),
        "decode": (1, 1),
    }
    assert "block" in unit["placement"]
    assert len(pods_of(unit)) == 5
    assert {pod["placement"] for pod in pods_of(unit)} <= set(names)
    explained = run("explain", "llm", form="tree")
    assert "prefill" not in explained, "explain leaves out what is well"
    assert "1/1 units serve" in explained
    [item] = run("status")["items"]
    assert item["name"] == tree["name"]
    assert tree["name"] in {item["name"] for item in run("status", "-A")["items"]}
    name = run("status", form="name").strip()
    assert name == "disaggregatedinference.inference.covey.dev/llm"
    assert run("status", name)["name"] == tree["name"], "what is printed is taken, as by kubectl"
    assert run("status", "--no-headers", form="table").split() == [*tree["name"].split("/"), "1/1", "ready"]
    for form in ("tree", "picture"):
        drawn = run("status", "dinf/llm", form=form)
        assert all(pod["placement"][-9:] in drawn for pod in pods_of(unit)), "long names keep their end"


def test_gang_when_it_does_not_fit_is_explained_as_the_scheduler_says(stage: Stage, run: Run, create: Create) -> None:
    stage.nodes(racks=2, nodes=1)
    create("big", *GANG, topology=BLOCK)
    tree = run("explain", "big")
    assert "Infeasible" in reasons(tree)
    assert tree["state"] == "waiting"
    assert "prefill" in tree["children"][0]["reason"]
    assert {pod["reason"] for pod in pods_of(tree["children"][0])} == {"no node yet"}


def test_explain_says_what_reasons_mean_and_what_to_do(stage: Stage, run: Run, create: Create) -> None:
    stage.nodes(nodes=1)
    create("llm", *GANG, topology=BLOCK)
    create("far", *GANG, topology={"required": "shelf"})
    create("off", *GANG, suspend=True)
    for name, reason, remedy in (
        ("llm", "Infeasible", "covey plan tries changes without making them"),
        ("far", "InvalidTopology", ""),
        ("off", "Suspended", "Set spec.suspend to false"),
    ):
        advice = {each["reason"]: each["meaning"] for each in run("explain", name)["advice"]}
        # Lines are broken where they end.
        text = " ".join(run("explain", name, form="tree").split())
        assert reason in text
        assert remedy in text
        assert advice[reason][:40] in text
    stage.nodes(racks=3, nodes=3)
    assert run("explain", "llm")["advice"] == []
    assert "→" not in run("explain", "llm", form="tree")


def test_plan_counts_what_runs_and_knows_its_members(stage: Stage, run: Run, create: Create, tmp_path: Path) -> None:
    names = stage.nodes(nodes=4)
    create("llm", *GANG, topology=BLOCK)
    same = write(tmp_path / "same.json", [inference("llm", *GANG, topology=BLOCK)])
    known = workload(run("plan", "-f", same, "--cluster"), "llm")
    assert known["verdict"] == "Admitted"
    places = [
        pod["name"] for role_ in known["units"][0]["roles"] for each in role_["instances"] for pod in each["pods"]
    ]
    running = {pod["name"] for pod in pods_of(run("status", "llm")["children"][0])}
    assert set(places) <= running
    assert len(places) >= 3
    lost = write(tmp_path / "lost.json", [inference("lost", role("w"), queue="none")])
    [reason] = workload(run("plan", "-f", lost, "--cluster", status=3), "lost")["reasons"]
    assert reason["message"].startswith("there is no Queue none")
    more = write(tmp_path / "more.json", [inference("more", role("w", 2, 2))])
    assert workload(run("plan", "-f", more, "--cluster", status=3), "more")["verdict"] == "Infeasible"
    answer = run("plan", "-f", more, "--cluster", "--add-nodes", f"{names[0]}=2")
    assert workload(answer, "more")["verdict"] == "Admitted"
    assert answer["addedNodes"][0]["used"]


def test_plan_of_a_change_is_of_the_successors_of_what_runs(
    stage: Stage, run: Run, create: Create, tmp_path: Path
) -> None:
    """What the API server has written out is no change. The exit status is of the successors, not of what runs."""
    stage.nodes(nodes=6)
    create("llm", *GANG, topology=BLOCK)

    def changed(name: str, **spec: Any) -> list[Any]:
        prefill, decode = map(dict, GANG)
        decode["template"] = {"spec": {**decode["template"]["spec"], **spec}}
        return ["plan", "--cluster", "-f", write(tmp_path / name, [inference("llm", prefill, decode, topology=BLOCK)])]

    assert run(*changed("same.json"))["changes"] == []
    [change] = run(*changed("grace.json", terminationGracePeriodSeconds=5))["changes"]
    assert (change["verdict"], change["roles"]) == ("Admitted", ["decode"])
    refused = run(*changed("wrong.json", nodeSelector={"pool": "none"}), status=3)
    assert "node selector" in workload(refused, "llm")["reasons"][0]["message"]


def test_plan_says_of_quota_what_the_scheduler_says(stage: Stage, run: Run, create: Create, tmp_path: Path) -> None:
    stage.nodes(nodes=4)
    tenant = files.queue(f"only-{stage.namespace}", 16)
    tenant["spec"]["namespaces"] = {"selector": {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}}}
    stage.cluster.api("POST", QUEUES.path(None), tenant)
    stage.after(lambda: stage.cluster.api("DELETE", QUEUES.path(None, f"only-{stage.namespace}")))
    create("llm", role("w", 1, 1))
    stage.ready(1)
    create("more", role("w", 2, 2))
    said = reasons(run("explain", "more"))
    same = write(tmp_path / "same.json", [inference("more", role("w", 2, 2))])
    [reason] = workload(run("plan", "-f", same, "--cluster", status=3), "more")["reasons"]
    assert reason["message"].startswith(f"8 of 16 {GPU} of queue only-{stage.namespace} are in use; 8 short")
    assert reason["message"] in said


def test_top_counts_what_is_stranded_and_version_names_the_server(stage: Stage, run: Run, create: Create) -> None:
    stage.nodes(nodes=3)
    create("llm", role("w", 1, 1, gpus=2))
    report = run("top")
    assert report["resource"] == GPU
    whole = report["domains"][0]
    assert (whole["nodes"], whole["capacity"], whole["used"], whole["stranded"]) == (3, 24, 2, 6)
    assert run("version")["serverVersion"].startswith("v1.")


def test_explain_of_a_name_that_is_not_there_says_so(stage: Stage) -> None:
    exit_code, output = run_covey(stage, "explain", "nobody", "-n", stage.namespace)
    assert exit_code == 1
    assert f"there is no DisaggregatedInference {stage.namespace}/nobody" in output


def test_budgets_are_released_and_those_of_others_stay(stage: Stage) -> None:
    for name, manager in (("llm-gang", "covey"), ("old-gang", "covey"), ("theirs", "Helm"), ("nobodys", "")):
        labels = {"app.kubernetes.io/managed-by": manager, "covey.dev/inference": "llm"}
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"a": name}}}
        body = {"metadata": {"name": name, "labels": labels}, "spec": spec}
        stage.cluster.api("POST", stage.path("PodDisruptionBudget"), body)
    stage.settle()
    assert run_covey(stage, "release-budgets", "-n", stage.namespace) == (
        0,
        "".join(
            f'poddisruptionbudget.policy "{name}" deleted from {stage.namespace} namespace\n'
            for name in ("llm-gang", "old-gang")
        ),
    )
    stage.settle()
    assert {budget["metadata"]["name"] for budget in stage.all("PodDisruptionBudget")} == {"theirs", "nobodys"}
    assert run_covey(stage, "release-budgets", "-n", stage.namespace) == (0, "No budget of Covey's found.\n")
