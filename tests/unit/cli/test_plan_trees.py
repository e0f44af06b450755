"""`covey plan` on ready trees, Covey's own and upstream's; with the traps that the field's schedulers fall into."""

from pathlib import Path
from typing import Any

import pytest

from builders.files import cluster, covey, node, plan, pod_spec, roles_of, workload, write


def root(name: str, count: int, key: str | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {"workloadRef": {"workloadName": "w", "templateName": "unit"}}
    spec["schedulingPolicy"] = {"gang": {"minGroupCount": count}}
    if key:
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "CompositePodGroup",
        "metadata": {"name": name},
        "spec": spec,
    }


def leaf(name: str, count: int, parent: str | None = "tree", key: str | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": count}}, "schedulingConstraints": None}
    if parent:
        spec["parentCompositePodGroupName"] = parent
    if key:
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    return {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def pods(group: str, count: int, **spec: Any) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{group}-{number}"},
            "spec": pod_spec(schedulingGroup={"podGroupName": group}, **spec),
        }
        for number in range(count)
    ]


@pytest.fixture
def run(tmp_path: Path) -> Any:
    def call(nodes: list[Any], *documents: Any, existing: list[Any] | None = None) -> Any:
        more = ["--pods", write(tmp_path / "pods.json", existing)] if existing else []
        return plan("-f", write(tmp_path / "in.json", documents), "--nodes", write(tmp_path / "n.json", nodes), *more)

    return call


def test_a_key_that_is_in_no_level_is_a_level_of_its_own(run: Any) -> None:
    nodes = [node(f"n{number}", labels={"example.com/cage": f"c{number % 2}"}) for number in range(4)]
    answer = run(nodes, root("tree", 1), leaf("g", 2, key="example.com/cage"), *pods("g", 2))
    assert {"name": "example.com/cage", "keys": ["example.com/cage"]} in answer["topology"]["levels"]
    (instance,) = roles_of(workload(answer, "tree"))["g"]["instances"]
    assert "example.com/cage" in {domain["level"] for domain in instance["placement"]}
    labels = {each["metadata"]["name"]: each["metadata"]["labels"] for each in nodes}
    assert len({labels[placed["node"]]["example.com/cage"] for placed in instance["pods"]}) == 1


def ordered_by(spec: Any) -> list[Any]:
    """A group and the Workload it names, whose spec is this."""
    group = leaf("g", 1, parent=None)
    group["spec"]["workloadRef"] = {"workloadName": "w", "templateName": "g"}
    head = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "Workload", "metadata": {"name": "w"}}
    return [head | {"spec": spec}, group]


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        (ordered_by({"podGroupTemplates": [7]}), "items[0].spec: Expected `object`"),
        ([leaf("g", 1)], "items[0].spec.parentCompositePodGroupName: there is no CompositePodGroup tree"),
        ([root("tree", 1) | {"apiVersion": "scheduling.k8s.io/v1alpha1"}], "items[0].apiVersion: v1alpha1"),
        ([leaf("g", 0, parent=None)], "items[0].spec.schedulingPolicy.gang.minCount"),
        (
            [leaf("g", 1, parent=None), leaf("g", 1, parent=None)],
            "items[1].metadata.name: there are two objects PodGroup g",
        ),
        (
            [
                root("tree", 1),
                root("deep", 1) | {"spec": root("x", 1)["spec"] | {"parentCompositePodGroupName": "deep"}},
            ],
            "a circle",
        ),
        ([leaf("g", 1, parent=None) | {"apiVersion": "scheduling.covey.dev/v1alpha1"}], ""),
    ],
)
def test_trees_that_are_none(tmp_path: Path, documents: list[Any], words: str) -> None:
    file = write(tmp_path / "in.json", documents)
    result = covey("plan", "-f", file, "--nodes", write(tmp_path / "nodes.json", cluster(1)))
    assert "Traceback" not in result.stderr
    if words:
        assert result.exit_code == 2
        assert words in result.stderr
    else:
        assert result.exit_code == 3
