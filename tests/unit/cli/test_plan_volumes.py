"""Where a pod's volumes are, and what it takes while it is resized, count in a plan as they do in the scheduler process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from builders.files import GPU, cluster, inference, plan, pod, role, roles_of, workload, write


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


def answer(tmp_path: Path, *others: Mapping[str, Any], volume: str) -> Any:
    manifest = write(tmp_path / "in.json", [inference("llm", with_claim("weights"))])
    nodes = write(tmp_path / "nodes.json", cluster(3))
    given = [claim("weights", volume), local("disk", "n0-0-2"), *others]
    return plan("-f", manifest, "--nodes", nodes, "--pods", write(tmp_path / "pods.json", given))


def test_a_bound_claim_ties_its_pod_to_the_volumes_node(tmp_path: Path) -> None:
    found = answer(tmp_path, volume="disk")
    assert roles_of(workload(found, "llm"))["w"]["instances"][0]["pods"][0]["node"] == "n0-0-2"
    assert not [each for each in found["warnings"] if "not modelled" in each or "skipped" in each]
    taken = answer(tmp_path, pod("other", "n0-0-2"), volume="disk")
    assert workload(taken, "llm")["verdict"] == "Infeasible"


def test_a_claim_that_is_not_bound_yet_is_named(tmp_path: Path) -> None:
    found = answer(tmp_path, volume="")
    assert workload(found, "llm")["verdict"] == "Admitted"
    assert [each for each in found["warnings"] if "persistentVolumeClaim" in each]


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
