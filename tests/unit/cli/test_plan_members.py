"""Pods that exist count in a plan: members, their volumes, and what they take while they are resized."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from builders.files import GPU, admitted, cluster, inference, member, plan, pod, role, roles_of, workload, write


def answer(tmp_path: Path, nodes: list[Any], pods: list[Any], *roles: Any, **spec: Any) -> Any:
    files = [write(tmp_path / "in.json", [inference("llm", *roles, **spec)]), write(tmp_path / "nodes.json", nodes)]
    return plan("-f", files[0], "--nodes", files[1], "--pods", write(tmp_path / "pods.json", pods))


def test_bound_members_keep_their_places_and_names(tmp_path: Path) -> None:
    pods = [member("llm", "w", 0, index, f"n0-1-{index}") for index in range(2)]
    found = workload(
        answer(tmp_path, cluster(4, 4), pods, role("w", 2, 1, size=2), topology={"required": "rack"}), "llm"
    )
    first, second = roles_of(found)["w"]["instances"]
    assert [(each["name"], each["node"]) for each in first["pods"]] == [
        ("llm-0-w-0-0-abc123", "n0-1-0"),
        ("llm-0-w-0-1-abc123", "n0-1-1"),
    ]
    assert {each["node"] for each in second["pods"]} == {"n0-1-2", "n0-1-3"}, "the unit's rack is settled"


def test_a_lost_pod_is_replaced_in_its_replicas_rack_or_not_at_all(tmp_path: Path) -> None:
    pods = [member("llm", "w", 0, 0, "n0-0-0"), pod("stranger", "n0-0-1")]
    one = role("w", 1, 1, size=2, topology={"required": "rack"})
    assert workload(answer(tmp_path, cluster(3, 3), pods, one), "llm")["verdict"] == "Admitted"
    found = workload(answer(tmp_path, cluster(2, 3), pods, one), "llm")
    assert (found["verdict"], admitted(found)) == ("Infeasible", {"w": 0})


def test_replicas_that_are_bound_count_as_the_minimum(tmp_path: Path) -> None:
    pods = [member("llm", "w", 5, 0, "n0-0-0")]
    found = workload(answer(tmp_path, cluster(3), pods, role("w", 3, 1)), "llm")
    instances = {each["replica"]: each["minimum"] for each in roles_of(found)["w"]["instances"]}
    assert instances == {0: False, 1: False, 5: True}


def test_pods_that_ended_or_belong_elsewhere_do_not_count(tmp_path: Path) -> None:
    done = member("llm", "w", 0, 0, "n0-0-0") | {"status": {"phase": "Failed"}}
    other = member("other", "w", 0, 0, "n0-0-1")
    found = workload(answer(tmp_path, cluster(2), [done, other], role("w")), "llm")
    (instance,) = roles_of(found)["w"]["instances"]
    assert instance["pods"] == [{"index": 0, "name": "llm-0-w-0-0", "node": "n0-0-0"}]


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


def test_a_claim_that_is_not_bound_yet_is_named(tmp_path: Path) -> None:
    found = answer_with_claim(tmp_path, volume="")
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
