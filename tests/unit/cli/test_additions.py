"""`covey plan --add-nodes`: what if there were more nodes."""

import json
from pathlib import Path
from typing import Any

import pytest

from builders.files import cluster, covey, inference, node, plan, pod, role, roles_of, write

RACK = "cloud.provider.com/topology-rack"


class WhatIf:
    """A gang of four whole nodes in one rack, on a cluster with two racks of two nodes in each of two blocks."""

    def __init__(self, folder: Path, *, nodes: list[Any] | None = None, **more: Any) -> None:
        self.folder = folder
        gang = inference("llm", role("w", 1, 1, size=4, topology={"required": "rack"}), **more)
        self.arguments: list[object] = ["-f", write(folder / "in.json", [gang])]
        self.arguments += ["--nodes", write(folder / "nodes.json", cluster(2, 2, blocks=2) if nodes is None else nodes)]

    def answer(self, *options: object) -> Any:
        return plan(*self.arguments, *self.flags(options))

    def refused(self, *options: object) -> str:
        result = covey("plan", *self.arguments, *self.flags(options))
        assert (result.exit_code, result.stdout) == (2, ""), result.output
        return result.stderr

    @staticmethod
    def flags(options: tuple[object, ...]) -> list[object]:
        return [each for option in options for each in ("--add-nodes", option)]


@pytest.fixture
def what_if(tmp_path: Path) -> WhatIf:
    return WhatIf(tmp_path)


def placed(answer: Any) -> list[str]:
    instances = roles_of(answer["workloads"][0])["w"]["instances"]
    return sorted(each["node"] for instance in instances for each in instance["pods"])


def test_copies_stand_in_the_templates_rack(what_if: WhatIf) -> None:
    answer = what_if.answer("n1-0-1=2")
    assert placed(answer) == ["n1-0-0", "n1-0-1", "n1-0-1-added-1", "n1-0-1-added-2"]
    names = ["n1-0-1-added-1", "n1-0-1-added-2"]
    assert answer["addedNodes"] == [
        {"template": "n1-0-1", "level": None, "domain": None, "nodes": names, "used": names}
    ]
    assert answer["warnings"] == what_if.answer()["warnings"]


def test_the_same_option_twice_makes_two_domains(what_if: WhatIf) -> None:
    answer = what_if.answer("n1-0-1=2@rack", "n1-0-1=2@rack")
    assert [each["domain"] for each in answer["addedNodes"]] == ["r0-added-1", "r0-added-2"]
    assert [each["nodes"] for each in answer["addedNodes"]] == [
        ["n1-0-1-added-1", "n1-0-1-added-2"],
        ["n1-0-1-added-3", "n1-0-1-added-4"],
    ]
    assert answer["workloads"][0]["verdict"] == "Infeasible", "they are two racks of two"


def test_each_copy_is_a_host_of_its_own(tmp_path: Path) -> None:
    """GKE names hosts by a label of its own, before the hostname: copies that shared it would be one host."""
    gke = {f"cloud.google.com/gce-topology-{level}": f"{level}-1" for level in ("block", "subblock", "host")}
    apart = [{"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}}
    body = role("w", 3, 3, gpus=1)
    body["template"]["metadata"] = {"labels": {"app": "x"}}
    body["template"]["spec"]["affinity"] = affinity
    gang = write(tmp_path / "in.json", [inference("llm", body)])
    nodes = write(tmp_path / "nodes.json", [node("n", 8, gke)])
    answer = plan("-f", gang, "--nodes", nodes, "--add-nodes", "n=2")
    assert placed(answer) == ["n", "n-added-1", "n-added-2"]
    hosts = {
        each["domain"]
        for instance in roles_of(answer["workloads"][0])["w"]["instances"]
        for each in instance["placement"]
        if each["level"] == "host"
    }
    assert len(hosts) == 3


@pytest.mark.parametrize("form", ["table", "wide", "tree", "picture"])
def test_every_form_says_which_added_nodes_are_used(what_if: WhatIf, form: str) -> None:
    told = covey("plan", *what_if.arguments, "--add-nodes", "n1-0-1=3@rack", "--add-nodes", "n0-0-0=2", "-o", form)
    words = " ".join(told.stdout.split())
    assert "none of 3 copies of n1-0-1 in the new rack r0-added-1 is used" in words
    assert "2 of 2 copies of n0-0-0 used: n0-0-0-added-1, n0-0-0-added-2" in words


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("n1-0-1", "'n1-0-1' is not TEMPLATE=N or TEMPLATE=N@LEVEL, and no elastic domain; write, say, node-1=8"),
        ("n1-0-1=", "is not TEMPLATE=N"),
        ("n1-0-1=0", "is not TEMPLATE=N"),
        ("n1-0-1=-1", "is not TEMPLATE=N"),
        ("n1-0-1=1.5", "is not TEMPLATE=N"),
        ("n1-0-1=٣", "is not TEMPLATE=N"),
        ("=3", "is not TEMPLATE=N"),
        ("n1-0-1=3@", "is not TEMPLATE=N"),
        ("n1-0-1=20001", "asks for more than 20,000 nodes; add fewer"),
        ("n1-0-1=999999999999", "is not TEMPLATE=N"),
        ("nobody=3", "there is no node nobody, and no such file; name a node of the input, or a file with one Node"),
        ("n1-0-1=3@shelf", "topology kueue has no level shelf; use one of zone, block, rack, host"),
        ("n1-0-1=3@host", "every copy is a host of its own; leave @host out"),
    ],
)
def test_options_that_make_no_sense(what_if: WhatIf, option: str, words: str) -> None:
    said = what_if.refused(option)
    assert said.startswith("error: --add-nodes: ")
    assert words in said


def test_a_template_without_the_level_makes_no_new_domain(tmp_path: Path) -> None:
    nodes = [*cluster(2), node("loose", 8)]
    said = WhatIf(tmp_path, nodes=nodes).refused("loose=2@rack")
    assert f"loose has no label {RACK} of level rack; take a template that has one" in said


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ([pod("p")], "template.json: does not hold one Node and nothing else"),
        ([node("a"), node("b")], "template.json: does not hold one Node and nothing else"),
        ([{"apiVersion": "v1", "kind": "Node", "metadata": {}}], "items[0].metadata.name: is missing"),
        (
            [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}],
            "document 1, items[0].status.allocatable: is missing; say what a copy has",
        ),
    ],
)
def test_templates_that_are_none(what_if: WhatIf, documents: list[Any], words: str) -> None:
    assert words in what_if.refused(f"{write(what_if.folder / 'template.json', documents)}=2")


@pytest.fixture
def elastic(tmp_path: Path, what_if: WhatIf) -> WhatIf:
    """The same with two racks of four nodes that may come."""
    levels = [{"name": "block", "keys": ["cloud.provider.com/topology-block"]}, {"name": "rack", "keys": [RACK]}]
    pods = {"nvidia.com/gpu": "8", "cpu": "64", "memory": "512Gi", "pods": "110"}
    kind = {"level": "rack", "names": ["r8", "r9"], "within": {"block": "b1"}, "nodes": 4, "allocatable": pods}
    body = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": "grows"}}
    made = write(tmp_path / "topology.json", [{**body, "spec": {"levels": levels, "elastic": [kind]}}])
    what_if.arguments += ["--topology", made]
    return what_if


def test_a_refusal_says_which_elastic_domain_would_help(elastic: WhatIf) -> None:
    (workload,) = elastic.answer()["workloads"]
    assert workload["verdict"] == "Infeasible"
    assert [each["message"] for each in workload["reasons"] if "would fit in rack r8 if it came" in each["message"]]


def test_a_refusal_names_no_domain_that_is_too_small(elastic: WhatIf) -> None:
    gang = inference("llm", role("w", 1, 1, size=5, topology={"required": "rack"}))
    elastic.arguments[1] = write(elastic.folder / "large.json", [gang])
    assert "if it came" not in json.dumps(elastic.answer())


def test_an_elastic_domain_takes_no_node_away(elastic: WhatIf) -> None:
    """Names of nodes are often made of their racks."""
    nodes = [node(f"rack-r9-{number}", gpus=8, labels={RACK: "r0"}) for number in range(4)]
    elastic.arguments[3] = write(elastic.folder / "named.json", nodes)
    for options in ((), ("r9",)):
        (workload,) = elastic.answer(*options)["workloads"]
        assert workload["verdict"] == "Admitted"
    gang = inference("llm", role("w", 2, 2, size=4, topology={"required": "rack"}))
    elastic.arguments[1] = write(elastic.folder / "two.json", [gang])
    assert elastic.answer("r9")["workloads"][0]["verdict"] == "Admitted"


def test_an_elastic_domain_is_added_by_its_name(elastic: WhatIf) -> None:
    answer = elastic.answer("r9")
    assert placed(answer) == [f"rack/r9/{number}" for number in range(4)]
    (added,) = answer["addedNodes"]
    assert (added["level"], added["domain"], len(added["used"])) == ("rack", "r9", 4)
    assert "no elastic domain" in elastic.refused("r10")
