"""`covey plan` on trees of any shape that Kubernetes 1.37 can write: levels on every node, counts below all, basic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders.files import admitted, cluster, covey, plan, pod_spec, workload, write

RACK = "cloud.provider.com/topology-rack"
BLOCK = "cloud.provider.com/topology-block"
Json = dict[str, Any]


def composite(name: str, count: int | None, parent: str | None = None, key: str | None = None) -> Json:
    """A CompositePodGroup; without a count it is ``basic``."""
    policy: Json = {"gang": {"minGroupCount": count}} if count else {"basic": {}}
    spec: Json = {"schedulingPolicy": policy, "workloadRef": {"workloadName": "w", "templateName": "t"}}
    if parent:
        spec["parentCompositePodGroupName"] = parent
    if key:
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    head = {"apiVersion": "scheduling.k8s.io/v1alpha3", "kind": "CompositePodGroup", "metadata": {"name": name}}
    return head | {"spec": spec}


def leaf(
    name: str, count: int | None, parent: str | None, pods: int, key: str | None = None, gpus: int = 8, **nodes: str
) -> list[Json]:
    """A PodGroup and its pods; ``nodes`` binds some of them: ``p0="n0-0-0"``."""
    policy: Json = {"gang": {"minCount": count}} if count else {"basic": {}}
    spec: Json = {"schedulingPolicy": policy}
    if parent:
        spec["parentCompositePodGroupName"] = parent
    if key:
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    head = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": name}}
    found = [head | {"spec": spec}]
    for number in range(pods):
        place = {"nodeName": nodes[f"p{number}"]} if f"p{number}" in nodes else {}
        body: Json = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{number}"},
            "spec": pod_spec(gpus, schedulingGroup={"podGroupName": name}, **place),
        }
        found.append(body | ({"status": {"phase": "Running"}} if place else {}))
    return found


class Answer:
    """What became of a tree."""

    def __init__(self, report: Json) -> None:
        self.report = workload(report, "tree")
        self.verdict = self.report["verdict"]
        self.reasons = "; ".join(each["message"] for each in self.report["reasons"])
        self.admitted = admitted(self.report)
        self.places = {
            pod["name"]: pod["node"]
            for role in self.report["units"][0]["roles"]
            for instance in role["instances"]
            for pod in instance["pods"]
        }

    def racks(self, *groups: str) -> set[str]:
        """The racks (``BLOCK-RACK``) of the pods of these groups."""
        return {node[1:4] for pod, node in self.places.items() if pod.rpartition("-")[0] in groups}

    def blocks(self, *groups: str) -> set[str]:
        """The blocks of the pods of these groups."""
        return {rack[0] for rack in self.racks(*groups)}

    def count(self, group: str) -> int:
        """How many pods of a group have a place."""
        return sum(pod.rpartition("-")[0] == group for pod in self.places)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Answer]:
    def call(nodes: list[Json], *documents: Json | list[Json]) -> Answer:
        flat = [each for one in documents for each in (one if isinstance(one, list) else [one])]
        file, facts = write(tmp_path / "in.json", flat), write(tmp_path / "n.json", nodes)
        report = plan("-f", file, "--nodes", facts)
        return Answer(report)

    return call


# --- levels on inner groups


def test_all_replicas_of_a_role_lie_in_the_one_rack_that_their_group_requires(run: Callable[..., Answer]) -> None:
    groups = [composite("tree", 2), composite("decode", 2, "tree", RACK), *leaf("router", 1, "tree", 1)]
    answer = run(cluster(3, 5), groups, leaf("d0", 2, "decode", 2), leaf("d1", 2, "decode", 2))
    assert (answer.verdict, answer.racks("d0", "d1")) == ("Admitted", {"0-1"})


def test_a_preferred_level_of_an_inner_group_is_tried_and_told(run: Callable[..., Answer]) -> None:
    near = composite("decode", 2, "tree")
    near["apiVersion"] = "scheduling.covey.dev/v1alpha1"
    near["spec"]["schedulingConstraints"] = {"topology": [{"level": "rack", "mode": "Preferred"}]}
    members = [leaf("d0", 2, "decode", 2), leaf("d1", 2, "decode", 2)]
    for nodes, reached in ((cluster(3, 5), "rack"), (cluster(3, 3), "block")):
        answer = run(nodes, composite("tree", 1), near, *members)
        assert answer.verdict == "Admitted"
        (told,) = answer.report["units"][0]["preferred"]
        assert (told["scope"], told["level"], told["reached"]) == ("group/decode", "rack", reached)


# --- counts below all


@pytest.mark.parametrize(
    ("racks", "verdict", "placed"), [((2,), "Admitted", 2), ((6,), "Admitted", 6), ((1,), "Infeasible", 0)]
)
def test_a_root_that_needs_some_of_alike_groups(
    run: Callable[..., Answer], racks: tuple[int, ...], verdict: str, placed: int
) -> None:
    leaves = [leaf(f"g{number}", 2, "tree", 2) for number in range(4)]
    answer = run(cluster(*racks), composite("tree", 1), *leaves)
    assert (answer.verdict, len(answer.places)) == (verdict, placed)


def test_surplus_groups_come_whole_with_their_own_surplus_after_them(run: Callable[..., Answer]) -> None:
    leaves = [leaf(f"g{number}", 2, "tree", 3, RACK) for number in range(2)]
    assert len(run(cluster(2, 2), composite("tree", 1), *leaves).places) == 4
    assert len(run(cluster(2, 1), composite("tree", 1), *leaves).places) == 2
    assert len(run(cluster(3, 2), composite("tree", 1), *leaves).places) == 5


# --- four levels, and levels inside levels


def pairs(count: int, number: int, *, size: int = 2, level: str | None = BLOCK) -> list[Json]:
    """Pairs of leaves: each pair in one block, each leaf in one rack."""
    found = [composite("tree", 1), composite("role", count, "tree")]
    for pair in range(number):
        found.append(composite(f"p{pair}", 2, "role", level))
        for half in "ab":
            found += leaf(f"p{pair}{half}", size, f"p{pair}", size, RACK)
    return found


def test_nested_levels_are_exact(run: Callable[..., Answer]) -> None:
    # Three racks of three: each holds one leaf of two, so a block holds one pair, not the two that nine nodes suggest.
    assert run(cluster(3, 3, 3, blocks=2), pairs(2, 2)).verdict == "Admitted"
    assert run(cluster(3, 3, 3, blocks=2), pairs(3, 3)).verdict == "Infeasible"
    assert run(cluster(4, 2, blocks=3), pairs(3, 3)).verdict == "Admitted"


# --- basic


@pytest.mark.parametrize("below", [2, None], ids=["a gang", "basic"])
def test_a_basic_composite_needs_one_child_as_upstream_has_it(run: Callable[..., Answer], below: int | None) -> None:
    """Its one child satisfies it: both composites under the root must come, and do or do not together."""
    tree = [composite("tree", 2), composite("x", None, "tree"), composite("y", None, "tree")]
    pods = [leaf("a", below, "x", 2), leaf("b", 2, "y", 2)]
    answer = run(cluster(4), *tree, *pods)
    assert (answer.verdict, answer.count("a"), answer.count("b")) == ("Admitted", 2, 2)
    assert run(cluster(2), *tree, *pods).verdict == "Infeasible"


# --- what is missing


def test_names_say_workload_and_root(tmp_path: Path) -> None:
    above = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "Workload", "metadata": {"name": "w"}}
    above |= {"spec": {"compositePodGroupTemplates": [{"name": "t", "podGroupTemplates": [{"name": "g"}]}]}}
    documents = [above, composite("tree", 1), *leaf("a", 1, "tree", 1)]
    file, nodes = write(tmp_path / "i.json", documents), write(tmp_path / "n.json", cluster(1))
    answer = plan("-f", file, "--nodes", nodes)
    (found,) = answer["workloads"]
    assert (found["name"], found["workload"]) == ("tree", "w")
    assert covey("plan", "-f", file, "--nodes", nodes, "-o", "name").stdout.split() == [
        "compositepodgroup.scheduling.k8s.io/tree"
    ]
    text = covey("plan", "-f", file, "--nodes", nodes).stdout
    assert text.splitlines()[1].split()[:3] == ["WORKLOAD", "ROOT", "UNIT"]
    assert text.splitlines()[2].split()[:3] == ["default/w", "tree", "0"]
    drawn = covey("plan", "-f", file, "--nodes", nodes, "-o", "tree").stdout
    assert "default/tree  CompositePodGroup of Workload w" in drawn


def test_a_pair_that_lost_a_pod_gets_it_back_in_its_rack(run: Callable[..., Answer]) -> None:
    found = [composite("tree", 1), composite("role", 2, "tree")]
    for pair, nodes in enumerate(({"p0": "n0-0-0"}, {"p0": "n1-0-0", "p1": "n1-0-1"})):
        found.append(composite(f"p{pair}", 2, "role", BLOCK))
        found += leaf(f"p{pair}a", 2, f"p{pair}", 2, RACK, **nodes)
        found += leaf(f"p{pair}b", 2, f"p{pair}", 2, RACK)
    answer = run(cluster(2, 2, 8, blocks=2), found)
    assert answer.verdict == "Admitted"
    assert answer.racks("p0a") == {"0-0"}
    assert answer.racks("p1a") == {"1-0"}
    assert (answer.blocks("p0b"), answer.blocks("p1b")) == ({"0"}, {"1"})


def test_a_basic_group_stands_in_for_none(run: Callable[..., Answer]) -> None:
    answer = run(cluster(9), composite("tree", 2), leaf("a", 1, "tree", 1), leaf("b", None, "tree", 4))
    assert answer.verdict == "Infeasible"
    assert "1 of the unit's groups do not exist yet" in answer.reasons
