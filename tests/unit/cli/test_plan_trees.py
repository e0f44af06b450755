"""`covey plan` on ready trees, Covey's own and upstream's; with the traps that the field's schedulers fall into."""

from pathlib import Path
from typing import Any

import pytest

from builders.files import admitted, cluster, covey, inference, node, plan, pod_spec, role, roles_of, workload, write

RACK = "cloud.provider.com/topology-rack"


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


@pytest.mark.parametrize("sizes", [(2, 3, 2, 3, 2), (3, 3, 2, 2, 2)])
def test_groups_that_fill_two_racks_exactly_fit_in_any_order(run: Any, sizes: tuple[int, ...]) -> None:
    groups = [leaf(f"g{number}", size, key=RACK) for number, size in enumerate(sizes)]
    members = [each for number, size in enumerate(sizes) for each in pods(f"g{number}", size)]
    found = workload(run(cluster(6, 6), root("tree", 5), *groups, *members), "tree")
    assert found["verdict"] == "Admitted"
    assert len(found["units"]) == 1
    for each in roles_of(found).values():
        (instance,) = each["instances"]
        assert len({placed["node"] for placed in instance["pods"]}) == len(instance["pods"])
        assert "rack" in {domain["level"] for domain in instance["placement"]}
        assert [placed["name"] for placed in instance["pods"]] == sorted(placed["name"] for placed in instance["pods"])


@pytest.mark.parametrize(("nodes", "prefill", "decode"), [(6, 4, 2), (3, 2, 1), (2, 1, 1)])
def test_a_minimum_fits_where_everything_desired_does_not(run: Any, nodes: int, prefill: int, decode: int) -> None:
    groups = [leaf("prefill", 1), leaf("decode", 1)]
    answer = run(cluster(nodes), root("tree", 2), *groups, *pods("prefill", 4), *pods("decode", 2))
    found = admitted(workload(answer, "tree"))
    assert workload(answer, "tree")["verdict"] == "Admitted"
    assert found["prefill"] + found["decode"] == prefill + decode
    assert min(found.values()) >= 1


def test_a_group_without_parent_is_a_tree_of_its_own(run: Any) -> None:
    found = workload(run(cluster(3), leaf("alone", 2, parent=None), *pods("alone", 3)), "alone")
    assert (found["verdict"], admitted(found)) == ("Admitted", {"alone": 3})


def test_too_few_pods_are_infeasible(run: Any) -> None:
    answer = run(cluster(6, 6), root("tree", 1), leaf("g", 4, key=RACK), *pods("g", 3))
    found = workload(answer, "tree")
    assert found["verdict"] == "Infeasible"
    assert "3 of 4 pods" in found["reasons"][0]["message"]


def test_missing_groups_are_infeasible(run: Any) -> None:
    found = workload(run(cluster(6), root("tree", 2), leaf("g", 1), *pods("g", 1)), "tree")
    assert found["verdict"] == "Infeasible"


def test_a_key_that_is_in_no_level_is_a_level_of_its_own(run: Any) -> None:
    nodes = [node(f"n{number}", labels={"example.com/cage": f"c{number % 2}"}) for number in range(4)]
    answer = run(nodes, root("tree", 1), leaf("g", 2, key="example.com/cage"), *pods("g", 2))
    assert {"name": "example.com/cage", "keys": ["example.com/cage"]} in answer["topology"]["levels"]
    (instance,) = roles_of(workload(answer, "tree"))["g"]["instances"]
    assert "example.com/cage" in {domain["level"] for domain in instance["placement"]}
    labels = {each["metadata"]["name"]: each["metadata"]["labels"] for each in nodes}
    assert len({labels[placed["node"]]["example.com/cage"] for placed in instance["pods"]}) == 1


def test_a_key_coarser_than_the_levels_does_not_tear_them(run: Any) -> None:
    nodes = cluster(2, 2, blocks=2)
    for each in nodes:
        each["metadata"]["labels"]["example.com/site"] = "s"
    answer = run(nodes, root("tree", 1, "example.com/site"), leaf("g", 8), *pods("g", 8))
    found = workload(answer, "tree")
    assert admitted(found) == {"g": 8}
    assert {"level": "example.com/site", "domain": "s"}.items() <= found["units"][0]["placement"][0].items()


def test_pods_that_exist_elsewhere_count_as_placed(run: Any) -> None:
    bound = pods("g", 1, nodeName="n0-1-0")[0] | {"status": {"phase": "Running"}}
    bound["metadata"]["namespace"] = "default"
    answer = run(cluster(3, 3), root("tree", 1), leaf("g", 3, key=RACK), *pods("g", 3), existing=[bound])
    (instance,) = roles_of(workload(answer, "tree"))["g"]["instances"]
    assert {placed["node"] for placed in instance["pods"]} == {"n0-1-0", "n0-1-1", "n0-1-2"}


def test_coveys_own_trees_as_compile_prints_them(tmp_path: Path) -> None:
    gang = inference(
        "llm",
        role("prefill", 2, 1, size=2, topology={"required": "rack"}),
        role("router", 2, 0),
        topology={"required": "block"},
    )
    printed = covey("compile", "-f", write(tmp_path / "in.json", [gang]))
    nodes = write(tmp_path / "nodes.json", cluster(3, 3))
    answer = plan("-f", "-", "--nodes", nodes, stdin=printed.stdout)
    direct = workload(plan("-f", tmp_path / "in.json", "--nodes", nodes), "llm")
    assert admitted(workload(answer, "llm-0")) == admitted(direct) == {"prefill": 2, "router": 2}


def test_the_workload_orders_roles_and_gives_the_age(run: Any) -> None:
    template = {"name": "unit", "podGroupTemplates": [{"name": "z"}, {"name": "a"}]}
    document = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": "w", "creationTimestamp": "2020-01-01T00:00:00Z"},
        "spec": {"compositePodGroupTemplates": [template]},
    }
    groups = [leaf("alpha", 1), leaf("zeta", 1)]
    for group, name in zip(groups, ("a", "z"), strict=True):
        group["spec"]["workloadRef"] = {"workloadName": "w", "templateName": name}
    members = [*pods("alpha", 1), *pods("zeta", 1)]
    answer = run(cluster(2), inference("other", role("w")), document, root("tree", 2), *groups, *members)
    assert list(roles_of(workload(answer, "tree"))) == ["zeta", "alpha"]
    assert workload(answer, "tree")["verdict"] == "Admitted", "it is older than what does not exist yet"
    assert workload(answer, "other")["verdict"] == "Infeasible"


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


def test_an_unknown_level_of_a_tree_is_bad_input(tmp_path: Path) -> None:
    group = leaf("g", 1, parent=None) | {"apiVersion": "scheduling.covey.dev/v1alpha1"}
    group["spec"]["schedulingConstraints"] = {"topology": [{"level": "shelf"}]}
    nodes = write(tmp_path / "nodes.json", cluster(1))
    result = covey("plan", "-f", write(tmp_path / "in.json", [group]), "--nodes", nodes)
    assert result.exit_code == 2
    assert "items[0].spec.schedulingConstraints.topology[0].level: topology kueue has no level shelf" in result.stderr
