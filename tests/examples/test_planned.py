"""Every example is planned offline, on nodes that it is written for, and all of it has its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from builders.files import covey, plan
from covey.api import core
from covey.placement.cluster import presets
from examples.files import EXAMPLES, INFERENCES, MANIFESTS, documents, named, of_kind

NODES = EXAMPLES / "offline/nodes.json"
TOPOLOGIES = sorted((EXAMPLES / "topologies").glob("*.yaml"))
MIGRATED = sorted((EXAMPLES / "migrate").glob("*.yaml"))
#: What is found by the labels of the nodes alone.
PRESETS = [
    ("aks", "nvidia-clique"),
    ("coreweave", "coreweave"),
    ("eks", "aws"),
    ("gke", "gke"),
    ("gpu-operator", "nvidia-clique"),
    ("oke", "oci"),
    ("topograph", "topograph"),
]
#: Others, and what they are for.
OTHERS = {
    "topology.yaml": "a ClusterTopology of its own",
    "queues/queues.yaml": "Queues, which count beside what is planned",
    "autoscaling/hpa.yaml": "of autoscaling/llama.yaml",
    "autoscaling/keda.yaml": "of autoscaling/llama.yaml",
    "existing-scheduler/values.yaml": "values of the chart",
}


def nodes_for(file: Path) -> Path:
    return file.parent / "nodes" / file.name if file.parent.name == "topologies" else NODES


def wholly_placed(workload: dict[str, Any]) -> bool:
    roles = [role for unit in workload["units"] for role in unit["roles"]]
    return bool(roles) and all(role["admitted"] == role["replicas"] for role in roles)


def test_no_example_is_forgotten() -> None:
    known = {*INFERENCES, *MIGRATED, *(EXAMPLES / name for name in OTHERS)}
    assert sorted(known) == MANIFESTS


def test_what_a_resource_names_stands_before_it() -> None:
    """Else the first that people see is a warning that it is not there."""
    named_kinds = {"ConfigMap", "Secret", "ServiceAccount", "ClusterTopology"}
    for file in INFERENCES:
        kinds = [found["kind"] for found in documents(file)]
        assert not named_kinds & set(kinds[kinds.index("DisaggregatedInference") :]), file


@pytest.mark.parametrize("file", [*INFERENCES, *MIGRATED], ids=named)
def test_an_example_has_its_place(file: Path) -> None:
    workloads = plan("-f", file, "--nodes", nodes_for(file))["workloads"]
    assert workloads
    for workload in workloads:
        if workload["name"] == "too-big":
            assert workload["verdict"] == "Infeasible"
        else:
            assert workload["verdict"] == "Admitted"
            assert wholly_placed(workload)


@pytest.mark.parametrize("file", TOPOLOGIES, ids=named)
def test_a_unit_stays_where_it_shall(file: Path) -> None:
    """All of it in one domain of the level that the unit requires, each replica in one of the role's."""
    [inference] = of_kind(file, "DisaggregatedInference")
    [workload] = plan("-f", file, "--nodes", nodes_for(file))["workloads"]
    [unit] = workload["units"]
    required = inference["spec"]["topology"].get("required")
    assert required is None or required in {place["level"] for place in unit["placement"]}
    for role, told in zip(inference["spec"]["roles"], unit["roles"], strict=True):
        for replica in told["instances"]:
            levels = {place["level"] for place in replica["placement"]}
            assert role["topology"]["required"] in levels


@pytest.mark.parametrize(("file", "preset"), PRESETS)
def test_the_labels_of_nodes_tell_the_preset(file: str, preset: str) -> None:
    """Without any ClusterTopology."""
    found = covey("top", "--nodes", EXAMPLES / f"topologies/nodes/{file}.yaml", "-o", "json")
    assert json.loads(found.stdout)["topology"] == preset, found.stderr


@pytest.mark.parametrize(("file", "preset"), [each for each in PRESETS if each[0] != "aks"])
def test_a_file_has_the_levels_that_its_preset_has(file: str, preset: str) -> None:
    """All of them, but for tiers of Topograph's that few fabrics have; on AKS the pools of nodes come in."""
    [found] = of_kind(EXAMPLES / f"topologies/{file}.yaml", "ClusterTopology")
    [known] = [each for each in presets.PRESETS if each.name == preset]
    rare = {"tier-5", "tier-4", "tier-3", "subrack"}
    levels = presets.topology_of(msgspec.convert(found, core.ClusterTopology)).levels
    assert levels == tuple(level for level in known.levels if level.name not in rare)
