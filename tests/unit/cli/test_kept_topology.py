"""`covey plan` and the views read the topology of what runs where the scheduler process writes it: on the root."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from builders.files import Object, admitted, covey, inference, member, node, plan, role, workload, write
from covey.api import core
from covey.api.inference import DisaggregatedInference
from covey.watching.places import find_topology_name

RACKED = {"cloud.provider.com/topology-block": "b", "cloud.provider.com/topology-rack": "r0"}
CLIQUE = {"nvidia.com/gpu.clique": "c.1"}
TOLD = {"block": "b", "rack": "r0", "host": "n0"}


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


def test_a_plan_without_anything_that_runs_then_has_the_preset_of_most_nodes(tmp_path: Path) -> None:
    there = write(tmp_path / "nodes.json", nodes())
    wanted = write(tmp_path / "llm.json", [inference("llm", role("decode"))])
    assert plan("-f", wanted, "--nodes", there)["topology"]["name"] == "nvidia-clique"


@pytest.mark.parametrize(
    "objects",
    [[running({}), root(topology="kueue")], [running(TOLD)], [running(TOLD), root()]],
    ids=["named by the root", "told by the pod", "of a former release"],
)
def test_a_plan_of_what_runs_then_has_the_topology_that_it_keeps(tmp_path: Path, objects: list[Object]) -> None:
    there = write(tmp_path / "nodes.json", nodes())
    pods = write(tmp_path / "pods.json", objects)
    wanted = write(tmp_path / "llm.json", [inference("llm", role("decode", 2, 2), topology={"required": "rack"})])
    answer = plan("-f", wanted, "--nodes", there, "--pods", pods)
    assert answer["topology"]["name"] == "kueue"
    assert admitted(workload(answer, "llm")) == {"decode": 2}


def test_a_plan_of_what_is_new_then_has_the_preset_that_running_units_keep(tmp_path: Path) -> None:
    there = write(tmp_path / "nodes.json", [*nodes(), root("other-0", topology="kueue")])
    wanted = write(tmp_path / "llm.json", [inference("llm", role("decode"), topology={"required": "block"})])
    assert plan("-f", wanted, "--nodes", there)["topology"]["name"] == "kueue"
    assert covey("top", "--nodes", there).stdout.startswith("topology kueue,")


def test_a_plan_of_what_runs_in_domains_that_are_no_more_then_is_refused(tmp_path: Path) -> None:
    there = write(tmp_path / "nodes.json", nodes())
    pods = write(tmp_path / "pods.json", [running({**TOLD, "rack": "another"})])
    wanted = write(tmp_path / "llm.json", [inference("llm", role("decode"), topology={"required": "rack"})])
    result = covey("plan", "-f", wanted, "--nodes", there, "--pods", pods)
    assert result.exit_code != 0
    assert "under no topology do the nodes of its pods lie in the domains that these tell" in result.stderr


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
