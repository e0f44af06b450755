"""A manifest of a resource that runs with another revision: the first step of its rollout is planned."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from builders.files import (
    GPU,
    Object,
    admitted,
    cluster,
    covey,
    inference,
    member,
    plan,
    pod,
    role,
    roles_of,
    workload,
    write,
)
from covey.api.constants import LABEL_REVISION


def old(role_name: str, replica: int, *nodes: str, revision: str = "old") -> list[Object]:
    """The pods of a replica that runs."""
    pods = [member("llm", role_name, replica, index, node) for index, node in enumerate(nodes)]
    for made in pods:
        made["metadata"]["labels"][LABEL_REVISION] = revision
    return pods


def files(tmp_path: Path, nodes: list[Object], pods: list[Object], *roles: Object, **spec: Any) -> list[object]:
    manifest = write(tmp_path / "in.json", [inference("llm", *roles, **spec)])
    given = write(tmp_path / "nodes.json", nodes)
    return ["-f", manifest, "--nodes", given, "--pods", write(tmp_path / "pods.json", pods)]


def test_a_selector_that_no_node_has_is_refused_though_all_of_it_runs(tmp_path: Path) -> None:
    wrong = role("w", 4)
    wrong["template"]["spec"]["nodeSelector"] = {"pool": "none"}
    given = files(tmp_path, cluster(8), [pod for n in range(4) for pod in old("w", n, f"n0-0-{n}")], wrong)
    found = workload(plan(*given), "llm")
    assert (found["verdict"], admitted(found)) == ("Infeasible", {"w": 4})
    assert "the rollout of w would hold, and what runs stays" in found["reasons"][0]["message"]
    assert "node selector" in found["reasons"][0]["message"]
    result = covey("plan", *given)
    assert result.exit_code == 3
    assert "w (new)" in result.stdout


def test_replicas_that_grow_over_their_rack_are_refused(tmp_path: Path) -> None:
    """They were asked to find missing pods in the rack of the others, which nobody had asked for."""
    pods = old("w", 0, "n0-0-0", "n0-0-1")
    found = plan(*files(tmp_path, cluster(6, 6), pods, role("w", size=8, topology={"required": "rack"})))
    (reason,) = workload(found, "llm")["reasons"]
    assert workload(found, "llm")["verdict"] == "Infeasible"
    assert "must join the others" not in reason["message"]


@pytest.mark.parametrize(
    ("least", "update", "gpus", "verdict"),
    [
        (1, {}, 8, "Admitted"),
        (2, {"maxUnavailable": 2}, 8, "Admitted"),
        # Its pods are larger than a node.
        (1, {}, 16, "Infeasible"),
        (4, {}, 8, "Infeasible"),
        # 0 written out is 0.
        (1, {"maxUnavailable": 0}, 8, "Infeasible"),
    ],
)
def test_old_replicas_go_first_on_a_full_cluster_as_far_as_the_budget_lets_them(
    tmp_path: Path, least: int, update: dict[str, int], gpus: int, verdict: str
) -> None:
    pods = [pod for n in range(4) for pod in old("w", n, f"n0-0-{n}")]
    found = plan(*files(tmp_path, cluster(4), pods, role("w", 4, least, gpus=gpus, update=update)))
    (change,) = found["changes"]
    assert change["verdict"] == workload(found, "llm")["verdict"] == verdict
    assert bool(change["leaving"]) == (verdict == "Admitted")


def test_roles_that_change_together_come_together_or_not_at_all(tmp_path: Path) -> None:
    pods = [*old("prefill", 0, "n0-0-0"), *old("decode", 0, "n0-0-1")]
    roles = [role(name) for name in ("prefill", "decode")]
    assert plan(*files(tmp_path, cluster(4), pods, *roles))["changes"][0]["verdict"] == "Admitted"
    found = plan(*files(tmp_path, cluster(3), pods, *roles))
    assert found["changes"][0]["verdict"] == "Infeasible"


def answer(tmp_path: Path, nodes: list[Any], pods: list[Any], *roles: Any, **spec: Any) -> Any:
    files = [write(tmp_path / "in.json", [inference("llm", *roles, **spec)]), write(tmp_path / "nodes.json", nodes)]
    return plan("-f", files[0], "--nodes", files[1], "--pods", write(tmp_path / "pods.json", pods))


def test_a_lost_pod_is_replaced_in_its_replicas_rack_or_not_at_all(tmp_path: Path) -> None:
    pods = [member("llm", "w", 0, 0, "n0-0-0"), pod("stranger", "n0-0-1")]
    one = role("w", 1, 1, size=2, topology={"required": "rack"})
    assert workload(answer(tmp_path, cluster(3, 3), pods, one), "llm")["verdict"] == "Admitted"
    found = workload(answer(tmp_path, cluster(2, 3), pods, one), "llm")
    assert (found["verdict"], admitted(found)) == ("Infeasible", {"w": 0})


def test_owners_must_agree_where_both_are_known(tmp_path: Path) -> None:
    theirs = member("llm", "w", 0, 0, "n0-0-0")
    theirs["metadata"]["ownerReferences"] = [{"kind": "X", "name": "llm", "uid": "old", "controller": True}]
    gang = inference("llm", role("w"))
    gang["metadata"]["uid"] = "new"
    files = [write(tmp_path / "in.json", [gang]), write(tmp_path / "nodes.json", cluster(2))]
    found = workload(plan("-f", files[0], "--nodes", files[1], "--pods", write(tmp_path / "p.json", [theirs])), "llm")
    assert roles_of(found)["w"]["instances"][0]["pods"][0]["node"] == "n0-0-1"


def test_a_role_that_an_autoscaler_sets_has_as_many_replicas_as_there_are(tmp_path: Path) -> None:
    pods = [member("llm", "w", replica, 0, f"n0-0-{replica}") for replica in range(3)]
    found = workload(answer(tmp_path, cluster(4), pods, role("w", 1, 1, scaling={"mode": "External"})), "llm")
    assert {each["replica"] for each in roles_of(found)["w"]["instances"]} == {0, 1, 2}
    new = workload(answer(tmp_path, cluster(4), [], role("w", 2, 1, scaling={"mode": "External"})), "llm")
    assert len(roles_of(new)["w"]["instances"]) == 2


def claim(name: str, volume: str = "") -> dict[str, Any]:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": {"volumeName": volume}}


def local(name: str, node: str) -> dict[str, Any]:
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [here]}}},
    }


def with_claim(name: str) -> Mapping[str, Any]:
    found = role("w")
    found["template"]["spec"]["volumes"] = [{"name": "weights", "persistentVolumeClaim": {"claimName": name}}]
    return found


def answer_with_claim(tmp_path: Path, *others: Mapping[str, Any], volume: str) -> Any:
    manifest = write(tmp_path / "in.json", [inference("llm", with_claim("weights"))])
    nodes = write(tmp_path / "nodes.json", cluster(3))
    given = [claim("weights", volume), local("disk", "n0-0-2"), *others]
    return plan("-f", manifest, "--nodes", nodes, "--pods", write(tmp_path / "pods.json", given))


def test_a_bound_claim_ties_its_pod_to_the_volumes_node(tmp_path: Path) -> None:
    found = answer_with_claim(tmp_path, volume="disk")
    assert roles_of(workload(found, "llm"))["w"]["instances"][0]["pods"][0]["node"] == "n0-0-2"
    assert not [each for each in found["warnings"] if "not modelled" in each or "skipped" in each]
    taken = answer_with_claim(tmp_path, pod("other", "n0-0-2"), volume="disk")
    assert workload(taken, "llm")["verdict"] == "Infeasible"


def test_what_a_pod_takes_while_it_is_resized_counts(tmp_path: Path) -> None:
    small = pod("shrinking", "n0-0-0", gpus=1)
    small["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
    running = {"name": "engine", "resources": {"requests": {"cpu": "64", GPU: "1"}}}
    manifest = inference("llm", role("w", gpus=1))
    manifest["spec"]["roles"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
    files = [write(tmp_path / "in.json", [manifest]), write(tmp_path / "nodes.json", cluster(1))]
    verdicts = []
    for statuses in ([], [running]):
        small["status"] = {"containerStatuses": statuses}
        found = plan("-f", files[0], "--nodes", files[1], "--pods", write(tmp_path / "pods.json", [small]))
        verdicts.append(workload(found, "llm")["verdict"])
    assert verdicts == ["Admitted", "Infeasible"]


def test_a_claim_that_is_not_bound_yet_is_named(tmp_path: Path) -> None:
    found = answer_with_claim(tmp_path, volume="")
    assert workload(found, "llm")["verdict"] == "Admitted"
    assert [each for each in found["warnings"] if "persistentVolumeClaim" in each]
