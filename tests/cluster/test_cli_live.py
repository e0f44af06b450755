"""`covey explain`, `status`, `top`, `version` and `plan --cluster` against a real control plane."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders import files
from builders.files import GPU, inference, role, workload, write
from localcluster import Cluster, eventually

Run = Callable[..., Any]
QUEUES = "/apis/scheduling.covey.dev/v1alpha1/queues"
PATH = "/apis/inference.covey.dev/v1alpha1/namespaces/{}/disaggregatedinferences"


@pytest.fixture
def run(cluster: Cluster, namespace: str) -> Run:
    """`run("status", "llm") -> JSON`, of the test's namespace."""

    def call(*arguments: object, status: int = 0, form: str = "json") -> Any:
        result = files.covey(*arguments, "-n", namespace, "--kubeconfig", cluster.kubeconfig, "-o", form)
        assert result.exit_code == status, result.output
        return json.loads(result.stdout) if form == "json" else result.stdout

    return call


@pytest.fixture
def create(cluster: Cluster, namespace: str, covey: object) -> Callable[..., None]:
    assert covey

    def post(name: str, *roles: Any, **spec: Any) -> None:
        cluster.api("POST", PATH.format(namespace), inference(name, *roles, **spec))

    return post


GANG = (role("prefill", 2, 1, size=2, topology={"required": "rack"}), role("decode", 1, 1))


BLOCK = {"required": "block"}


def complete(branch: Any) -> bool:
    return branch["state"] == "ready" and branch["ready"] == branch["total"] and all(map(complete, branch["children"]))


def reasons(branch: Any) -> str:
    return " | ".join(filter(None, [branch["reason"], *map(reasons, branch["children"])]))


def test_a_running_one_has_a_whole_tree_and_nothing_to_explain(run: Run, create: Any, nodes: Any) -> None:
    names = nodes(racks=2, nodes=3)
    create("llm", *GANG, topology={"required": "block"})
    # The operator's own status follows a moment after the pods.
    tree = eventually(lambda: found if complete(found := run("status", "llm")) and not reasons(found) else None, 60)
    (unit,) = tree["children"]
    assert {each["name"]: (each["ready"], each["total"]) for each in unit["children"]} == {
        "prefill": (2, 2),
        "decode": (1, 1),
    }
    assert "block" in unit["placement"]
    pods = [pod for each in unit["children"] for replica in each["children"] for pod in replica["children"]]
    assert len(pods) == 5
    assert {pod["placement"] for pod in pods} <= set(names)

    def whole() -> str:
        # What the resource says of its surplus follows a moment after the pods, too.
        found = run("explain", "llm", form="tree")
        assert "prefill" not in found, "explain leaves out what is well"
        return str(found)

    assert "1/1 units serve" in eventually(whole, 60, "nothing is left to explain")
    assert "prefill" in run("status", "dinf/llm", form="tree")
    (one,) = run("status")["items"]
    assert one["name"] == tree["name"]
    assert {one["name"]} <= {each["name"] for each in run("status", "-A")["items"]}
    name = run("status", form="name").strip()
    assert name == "disaggregatedinference.inference.covey.dev/llm"
    assert run("status", name)["name"] == one["name"], "what is printed is taken, as by kubectl"
    assert run("status", "--no-headers", form="table").split() == [*one["name"].split("/"), "1/1", "ready"]
    drawn = run("status", "llm", form="picture")
    assert all(pod["placement"][-9:] in drawn for pod in pods), "long names keep their end"


def test_one_that_does_not_fit_is_explained_as_the_scheduler_said(run: Run, create: Any, nodes: Any) -> None:
    nodes(racks=2, nodes=1)
    create("big", *GANG, topology={"required": "block"})
    tree = eventually(lambda: found if "Infeasible" in reasons(found := run("explain", "big")) else None, 60)
    assert tree["state"] == "waiting"
    assert "prefill" in tree["children"][0]["reason"]
    pods = [
        pod for each in tree["children"][0]["children"] for replica in each["children"] for pod in replica["children"]
    ]
    assert {pod["reason"] for pod in pods} == {"no place yet"}
    assert "Infeasible" in run("explain", "big", form="tree")


def test_plan_counts_what_runs_and_knows_its_members(run: Run, create: Any, nodes: Any, tmp_path: Path) -> None:
    names = nodes(racks=1, nodes=4)
    create("llm", *GANG, topology={"required": "block"})
    eventually(lambda: run("status", "llm")["state"] == "ready", 60)
    same = write(tmp_path / "same.json", [inference("llm", *GANG, topology={"required": "block"})])
    known = workload(run("plan", "-f", same, "--cluster"), "llm")
    assert known["verdict"] == "Admitted"
    placed = {pod["name"] for each in known["units"][0]["roles"] for one in each["instances"] for pod in one["pods"]}
    live = run("status", "llm")["children"][0]
    running = {pod["name"] for each in live["children"] for replica in each["children"] for pod in replica["children"]}
    assert placed == {name for name in running if name in placed}
    assert len(placed) >= 3
    lost = write(tmp_path / "lost.json", [inference("lost", role("w"), queue="none")])
    (reason,) = workload(run("plan", "-f", lost, "--cluster", status=3), "lost")["reasons"]
    assert reason["message"].startswith("there is no Queue none")
    more = write(tmp_path / "more.json", [inference("more", role("w", 2, 2))])
    assert workload(run("plan", "-f", more, "--cluster", status=3), "more")["verdict"] == "Infeasible"
    answer = run("plan", "-f", more, "--cluster", "--add-nodes", f"{names[0]}=2")
    assert workload(answer, "more")["verdict"] == "Admitted"
    assert answer["addedNodes"][0]["used"]


def test_plan_says_of_quota_what_the_scheduler_says(
    run: Run, create: Any, nodes: Any, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    nodes(racks=1, nodes=4)
    tenant = files.queue(f"only-{namespace}", 16)
    tenant["spec"]["namespaces"] = {"selector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    cluster.api("POST", QUEUES, tenant)
    try:
        create("llm", role("w", 1, 1))
        eventually(lambda: run("status", "llm")["state"] == "ready", 60)
        create("more", role("w", 2, 2))
        same = write(tmp_path / "same.json", [inference("more", role("w", 2, 2))])
        eventually(lambda: "short" in reasons(run("explain", "more")), 60)
        (reason,) = workload(run("plan", "-f", same, "--cluster", status=3), "more")["reasons"]
        assert reason["message"].startswith(f"8 of 16 {GPU} of queue only-{namespace} are in use; 8 short")
        assert reason["message"] in reasons(run("explain", "more"))
    finally:
        cluster.api("DELETE", f"{QUEUES}/only-{namespace}")


def test_top_counts_the_cluster(run: Run, create: Any, nodes: Any) -> None:
    added = nodes(racks=1, nodes=3)
    create("llm", role("w", 1, 1, gpus=2))
    eventually(lambda: run("status", "llm")["state"] == "ready", 60)
    report = run("top")
    assert report["resource"] == GPU
    whole = report["domains"][0]
    assert (whole["nodes"], whole["capacity"], whole["used"], whole["stranded"]) == (len(added), 24, 2, 6)


def test_version_names_the_server(run: Run) -> None:
    assert run("version")["serverVersion"].startswith("v1.")


def test_a_name_that_is_not_there(cluster: Cluster, namespace: str) -> None:
    result = files.covey("explain", "nobody", "-n", namespace, "--kubeconfig", cluster.kubeconfig)
    assert result.exit_code == 1
    assert f"there is no DisaggregatedInference {namespace}/nobody" in result.stderr


def test_explain_says_what_reasons_mean_and_what_to_do(run: Run, create: Any, nodes: Any) -> None:
    create("llm", *GANG, topology={"required": "block"})
    nodes(racks=1, nodes=1)

    def explained(name: str, reason: str, remedy: str = "") -> str:
        found = run("explain", name)
        assert reason in [each["reason"] for each in found["advice"]], str(found)
        # Lines are broken where they end.
        text = " ".join(run("explain", name, form="tree").split())
        assert reason in text
        assert remedy in text
        assert next(each["meaning"] for each in found["advice"] if each["reason"] == reason)[:40] in text
        return text

    eventually(lambda: explained("llm", "Infeasible", "covey plan tries changes without making them"), 60)
    create("far", *GANG, topology={"required": "shelf"})
    eventually(lambda: explained("far", "InvalidTopology"), 60)
    create("off", *GANG, suspend=True)
    eventually(lambda: explained("off", "Suspended", "Set spec.suspend to false"), 60)
    nodes(racks=2, nodes=3)

    def quiet() -> bool:
        assert run("explain", "llm")["advice"] == []
        return True

    eventually(quiet, 60)
    assert "→" not in run("explain", "llm", form="tree")


def test_budgets_are_released_and_those_of_others_stay(cluster: Cluster, namespace: str) -> None:
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    for name, manager in (("llm-gang", "covey"), ("old-gang", "covey"), ("theirs", "Helm"), ("nobodys", "")):
        labels = {"app.kubernetes.io/managed-by": manager, "covey.dev/inference": "llm"}
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"a": name}}}
        cluster.api("POST", path, {"metadata": {"name": name, "labels": labels}, "spec": spec})

    def release() -> str:
        result = files.covey("release-budgets", "-n", namespace, "--kubeconfig", cluster.kubeconfig)
        assert result.exit_code == 0, result.output
        return str(result.output)

    assert release().splitlines() == [
        f'poddisruptionbudget.policy "{name}" deleted from {namespace} namespace' for name in ("llm-gang", "old-gang")
    ]
    assert {each["metadata"]["name"] for each in cluster.api("GET", path)["items"]} == {"theirs", "nobodys"}
    assert release() == "No budget of Covey's found.\n"


def test_plan_plans_the_change_of_what_runs_and_not_what_the_api_server_has_written_out(
    run: Run, create: Any, nodes: Any, tmp_path: Path
) -> None:
    """Of the successors of what runs the exit status is, not of what runs."""
    nodes(racks=1, nodes=6)
    create("llm", *GANG, topology={"required": "block"})
    eventually(lambda: run("status", "llm")["state"] == "ready", 60)

    def changed(name: str, **spec: Any) -> list[Any]:
        prefill, decode = (dict(each) for each in GANG)
        decode["template"] = {"spec": {**decode["template"]["spec"], **spec}}
        return ["plan", "--cluster", "-f", write(tmp_path / name, [inference("llm", prefill, decode, topology=BLOCK)])]

    assert run(*changed("same.json"))["changes"] == []
    (change,) = run(*changed("grace.json", terminationGracePeriodSeconds=5))["changes"]
    assert (change["verdict"], change["roles"]) == ("Admitted", ["decode"])
    found = run(*changed("wrong.json", nodeSelector={"pool": "none"}), status=3)
    assert "node selector" in workload(found, "llm")["reasons"][0]["message"]
