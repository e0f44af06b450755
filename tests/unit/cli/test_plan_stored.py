"""`covey plan` and `headroom -f` plan pods as the API server would store them, not as templates are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builders.files import (
    GPU,
    Object,
    admitted,
    cluster,
    covey,
    inference,
    node,
    plan,
    pod,
    pod_spec,
    role,
    workload,
)
from unit.cli.test_defrag import files
from unit.cli.test_plan_changes import claim, old, with_claim

MEMORY = {"memory": "300Gi"}


def limit_range(name_space: str | None = "default", **item: Any) -> Object:
    meta = {"name": "defaults"} | ({"namespace": name_space} if name_space else {})
    limits = [{"type": "Container", **item}]
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": meta, "spec": {"limits": limits}}


def runtime_class(name: str, **more: Any) -> Object:
    return {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": name, **more}


def gang(replicas: int, gpus: int = 2, minimum: int | None = None, **spec: Any) -> Object:
    template = {"spec": pod_spec(gpus, **spec)}
    return inference("llm", role("w", replicas, replicas if minimum is None else minimum, template=template))


def on_host_network(replicas: int, minimum: int, **port: Any) -> Object:
    body = gang(replicas, minimum=minimum, hostNetwork=True)
    spec = body["spec"]["roles"][0]["template"]["spec"]
    spec["containers"][0]["ports"] = [{"containerPort": 30000, **port}]
    return body


def verdict(tmp_path: Path, manifests: list[Object], nodes: list[Object], there: list[Object] | None = None) -> Any:
    return workload(plan(*files(tmp_path, manifests, nodes, there or [])), "llm")["verdict"]


def warnings(tmp_path: Path, manifests: list[Object], nodes: list[Object]) -> str:
    return "\n".join(plan(*files(tmp_path, manifests, nodes, []))["warnings"])


def test_a_plan_when_pods_are_on_the_host_network_counts_their_ports(tmp_path: Path) -> None:
    answer = plan(*files(tmp_path, [on_host_network(3, 3)], cluster(2), []))
    assert workload(answer, "llm")["verdict"] == "Infeasible"
    assert "host port" in json.dumps(workload(answer, "llm")["reasons"])


@pytest.mark.parametrize(
    "item",
    [{"defaultRequest": MEMORY}, {"default": MEMORY}, {"max": MEMORY}, {"min": MEMORY}],
    ids=lambda item: next(iter(item)),
)
@pytest.mark.parametrize("beside", ["manifests", "nodes"])
def test_a_plan_when_a_limit_range_says_what_pods_request_counts_that(
    tmp_path: Path, item: Object, beside: str
) -> None:
    """Four pods of 300 GiB for two nodes of 512. A LimitRange of a file has no defaults of the API server yet."""
    ranges = [limit_range(**item)]
    manifests = [*(ranges if beside == "manifests" else ()), gang(4)]
    nodes = [*cluster(2), *(ranges if beside == "nodes" else ())]
    assert verdict(tmp_path, manifests, nodes) == "Infeasible"
    assert not warnings(tmp_path, manifests, nodes)


def test_a_limit_range_when_it_has_no_quantity_is_refused_by_its_field(tmp_path: Path) -> None:
    given = files(tmp_path, [limit_range(default={"memory": "much"}), gang(1)], cluster(1), [])
    result = covey("plan", *given)
    assert (result.exit_code, "spec.limits[0].default[memory]" in result.output) == (2, True)


def test_a_plan_when_pods_have_a_runtime_class_counts_its_overhead_selector_and_tolerations(tmp_path: Path) -> None:
    """The one node with the label has a taint that the class tolerates, and memory for one pod with the overhead."""
    taint = {"key": "kata", "effect": "NoSchedule"}
    nodes = [node("plain"), node("kata", labels={"sandbox": "kata"}, taints=[taint])]
    scheduling = {"nodeSelector": {"sandbox": "kata"}, "tolerations": [{"key": "kata", "operator": "Exists"}]}
    kata = runtime_class("kata", scheduling=scheduling, overhead={"podFixed": MEMORY})
    body = gang(2, minimum=1, runtimeClassName="kata")
    found = workload(plan(*files(tmp_path, [kata, body], nodes, [])), "llm")
    assert admitted(found) == {"w": 1}
    ((instance,),) = [each["instances"] for each in found["units"][0]["roles"]]
    assert instance["pods"][0]["node"] == "kata"


def test_a_plan_when_a_runtime_class_is_not_known_says_what_does_not_count(tmp_path: Path) -> None:
    text = warnings(tmp_path, [gang(1, runtimeClassName="kata")], cluster(1))
    assert "RuntimeClass kata is not known" in text


def test_a_plan_when_the_selector_of_a_runtime_class_is_not_that_of_its_pods_says_that_they_are_refused(
    tmp_path: Path,
) -> None:
    kata = runtime_class("kata", scheduling={"nodeSelector": {"sandbox": "kata"}})
    body = gang(1, runtimeClassName="kata", nodeSelector={"sandbox": "none"})
    assert "refuses its pods" in warnings(tmp_path, [kata, body], cluster(1))


def tainted(**labels: str) -> list[Object]:
    return [node("gpu", labels=labels, taints=[{"key": GPU, "value": "present", "effect": "NoSchedule"}])]


def test_pods_when_the_nodes_are_of_gke_tolerate_taints_called_as_what_they_ask_for(tmp_path: Path) -> None:
    nodes = tainted(**{"cloud.google.com/gke-nodepool": "a3"})
    assert verdict(tmp_path, [gang(1)], nodes) == "Admitted"
    assert not warnings(tmp_path, [gang(1)], nodes)


def test_a_plan_when_an_api_server_may_add_a_toleration_says_so(tmp_path: Path) -> None:
    assert verdict(tmp_path, [gang(1)], tainted()) == "Infeasible"
    assert "ExtendedResourceToleration" in warnings(tmp_path, [gang(1)], tainted())
    own = gang(1, tolerations=[{"key": GPU, "operator": "Exists"}])
    assert not warnings(tmp_path, [own], tainted())


def test_a_node_when_it_says_its_capacity_alone_has_that_allocatable(tmp_path: Path) -> None:
    body = node("n")
    body["status"] = {"capacity": body["status"]["allocatable"]}
    assert verdict(tmp_path, [gang(4)], [body]) == "Admitted"
    template = tmp_path / "template.json"
    template.write_text(json.dumps(body))
    answer = plan(*files(tmp_path, [gang(8)], [body], []), "--add-nodes", f"{template}=1")
    assert workload(answer, "llm")["verdict"] == "Admitted"


def lone(name: str) -> Object:
    body = claim(name, "disk")
    body["spec"]["accessModes"] = ["ReadWriteOncePod"]
    return body


def test_a_claim_for_one_pod_when_two_name_it_refuses_the_second_by_name(tmp_path: Path) -> None:
    roles = [dict(with_claim("cache")) | {"replicas": 2, "minReplicas": minimum} for minimum in (2, 1)]
    both, first = (
        workload(plan(*files(tmp_path, [inference("llm", each)], cluster(2), [lone("cache")])), "llm") for each in roles
    )
    assert both["verdict"] == "Infeasible"
    assert "the claim cache of pod llm-0-w-1-0 is ReadWriteOncePod" in json.dumps(both["reasons"])
    assert (first["verdict"], admitted(first)) == ("Admitted", {"w": 1})


def test_a_claim_for_one_pod_when_a_running_pod_has_it_refuses_others(tmp_path: Path) -> None:
    user = pod("user", "n0-0-0", gpus=0)
    user["spec"]["volumes"] = [{"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}}]
    given = files(tmp_path, [inference("llm", dict(with_claim("cache")))], cluster(2), [lone("cache"), user])
    found = workload(plan(*given), "llm")
    assert (found["verdict"], "pod user has it" in json.dumps(found["reasons"])) == ("Infeasible", True)


def test_a_pod_when_a_node_is_nominated_for_it_has_its_room_there(tmp_path: Path) -> None:
    waiting = pod("waiting")
    waiting["status"] = {"phase": "Pending", "nominatedNodeName": "n0-0-0"}
    assert verdict(tmp_path, [gang(1, 8)], cluster(1), [waiting]) == "Infeasible"


def test_a_claim_for_one_pod_when_it_is_that_of_the_predecessor_refuses_no_successor(tmp_path: Path) -> None:
    (running,) = old("w", 0, "n0-0-0")
    running["spec"]["volumes"] = [{"name": "weights", "persistentVolumeClaim": {"claimName": "cache"}}]
    changed = inference("llm", dict(with_claim("cache")))
    (change,) = plan(*files(tmp_path, [changed], cluster(2), [lone("cache"), running]))["changes"]
    assert change["verdict"] == "Admitted"


def test_a_change_when_a_runtime_class_is_not_known_says_what_does_not_count(tmp_path: Path) -> None:
    given = files(tmp_path, [gang(1, runtimeClassName="kata")], cluster(2), old("w", 0, "n0-0-0"))
    assert "RuntimeClass kata is not known" in "\n".join(plan(*given)["warnings"])
