"""A manifest of a resource that runs with another revision: the first step of its rollout is planned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builders.files import Object, admitted, cluster, covey, inference, member, plan, role, workload, write
from covey.api.constants import LABEL_REVISION
from covey.api.inference import DisaggregatedInference
from covey.compile import Revision


def old(role_name: str, replica: int, *nodes: str, revision: str = "old") -> list[Object]:
    """The pods of a replica that runs."""
    pods = [member("llm", role_name, replica, index, node) for index, node in enumerate(nodes)]
    for pod in pods:
        pod["metadata"]["labels"][LABEL_REVISION] = revision
    return pods


def files(tmp_path: Path, nodes: list[Object], pods: list[Object], *roles: Object, **spec: Any) -> list[object]:
    manifest = write(tmp_path / "in.json", [inference("llm", *roles, **spec)])
    given = write(tmp_path / "nodes.json", nodes)
    return ["-f", manifest, "--nodes", given, "--pods", write(tmp_path / "pods.json", pods)]


def test_successors_have_places_beside_what_runs_when_there_is_room(tmp_path: Path) -> None:
    pods = [pod for n in range(2) for pod in old("w", n, f"n0-0-{n}")]
    found = plan(*files(tmp_path, cluster(3), pods, role("w", 2)))
    (change,) = found["changes"]
    assert (change["verdict"], change["roles"], change["leaving"]) == ("Admitted", ["w"], [])
    assert [pod["node"] for each in change["successors"] for pod in each["pods"]] == ["n0-0-2"]
    assert (workload(found, "llm")["verdict"], admitted(workload(found, "llm"))) == ("Admitted", {"w": 2})


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


def test_as_many_old_replicas_go_as_a_larger_successor_needs(tmp_path: Path) -> None:
    pods = [pod for n in range(4) for pod in old("w", n, f"n0-0-{2 * n}", f"n0-0-{2 * n + 1}")]
    found = plan(*files(tmp_path, cluster(8), pods, role("w", 4, size=5)))
    (change,) = found["changes"]
    assert [each["replica"] for each in change["leaving"]] == [1, 2, 3]
    assert len(change["successors"]) == 1


def test_roles_that_change_together_come_together_or_not_at_all(tmp_path: Path) -> None:
    pods = [*old("prefill", 0, "n0-0-0"), *old("decode", 0, "n0-0-1")]
    roles = [role(name) for name in ("prefill", "decode")]
    assert plan(*files(tmp_path, cluster(4), pods, *roles))["changes"][0]["verdict"] == "Admitted"
    found = plan(*files(tmp_path, cluster(3), pods, *roles))
    assert found["changes"][0]["verdict"] == "Infeasible"


def test_pods_of_the_same_revision_and_of_none_are_no_change(tmp_path: Path) -> None:
    body = inference("llm", role("w", 2))
    revision = Revision.of(DisaggregatedInference.model_validate(body).spec).roles["w"].hash
    pods = [*old("w", 0, "n0-0-0", revision=revision), member("llm", "w", 1, 0, "n0-0-1")]
    found = plan(*files(tmp_path, cluster(2), pods, role("w", 2)))
    assert found["changes"] == []
    assert admitted(workload(found, "llm")) == {"w": 2}


def test_what_waits_with_another_revision_is_planned_with_its_new_template(tmp_path: Path) -> None:
    waits = [member("llm", "w", 0, index, None) for index in range(2)]
    for pod in waits:
        pod["metadata"]["labels"][LABEL_REVISION] = "old"
    found = plan(*files(tmp_path, cluster(1), waits, role("w", size=1)))
    assert (found["changes"], workload(found, "llm")["verdict"]) == ([], "Admitted")


def test_a_rollout_that_is_paused_needs_no_places(tmp_path: Path) -> None:
    found = plan(*files(tmp_path, cluster(1), old("w", 0, "n0-0-0"), role("w", gpus=16), rollout={"paused": True}))
    assert found["changes"] == []
