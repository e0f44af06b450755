"""Members of a DisaggregatedInference that exist already count as placed and pin their domains."""

from pathlib import Path
from typing import Any

from builders.files import admitted, cluster, inference, member, plan, pod, role, roles_of, workload, write


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
