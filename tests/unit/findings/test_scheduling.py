"""Where pods may lie, who gives way, and by which resource: what is right, and is not so yet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builders.files import GPU, Object, cluster, covey, inference, node, plan, pod, pod_spec, role, workload, write
from unit.cli.test_defrag import files
from unit.cli.test_plan_changes import claim, local, with_claim
from unit.cli.test_preempt import serving

RACK = "cloud.provider.com/topology-rack"
ISLAND, NETWORK, LOCAL = (
    f"oci.oraclecloud.com/rdma.{label}" for label in ("hpc_island_id", "network_block_id", "local_block_id")
)


def templated(name: str, replicas: int, spec: Object, **more: Any) -> Object:
    """A role all of whose replicas must come."""
    return role(name, replicas, replicas, template={"spec": spec}, **more)


def taking(name: str, node_name: str, resource: str, amount: str) -> Object:
    """A pod of a DaemonSet that takes something other than GPUs."""
    body = pod(name, node_name, gpus=0)
    body["metadata"] |= {
        "ownerReferences": [{"kind": "DaemonSet", "name": "agent", "uid": "agent", "controller": True}]
    }
    amounts = {resource: amount, "cpu": "100m"}
    body["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    return body


def places(answer: Any, name: str) -> list[str]:
    """The nodes of a resource's pods."""
    units = workload(answer, name)["units"]
    instances = [each for unit in units for found in unit["roles"] for each in found["instances"]]
    return [placed["node"] for each in instances for placed in each["pods"]]


def reasons(answer: Any, name: str) -> str:
    return json.dumps(workload(answer, name)["reasons"])


@pytest.mark.parametrize(
    "more",
    [{"vpc.amazonaws.com/efa": "32"}, {"rdma/hca_shared_devices_a": "1k"}],
    ids=["adapters", "shares"],
)
def test_top_when_nodes_have_more_of_something_else_counts_their_gpus(tmp_path: Path, more: dict[str, str]) -> None:
    nodes = cluster(2)
    for body in nodes:
        body["status"]["allocatable"] |= more
    result = covey("top", "--nodes", write(tmp_path / "nodes.json", nodes), "-o", "json")
    assert json.loads(result.stdout)["resource"] == GPU


def test_a_picture_when_pods_ask_for_more_network_adapters_counts_their_gpus(tmp_path: Path) -> None:
    nodes, spec = cluster(2), pod_spec(8)
    for amounts in [*(body["status"]["allocatable"] for body in nodes), spec["containers"][0]["resources"]["limits"]]:
        amounts["vpc.amazonaws.com/efa"] = "32"
    result = covey("plan", *files(tmp_path, [inference("llm", templated("w", 1, spec))], nodes, []), "-o", "picture")
    assert "is one GPU" in result.output


@pytest.mark.parametrize(
    ("resource", "offered", "taken"),
    [("rdma/hca_shared_devices_a", "1k", "1"), ("hugepages-2Mi", "10Gi", "2Gi")],
    ids=["share", "huge pages"],
)
def test_a_rack_when_daemons_take_no_gpus_of_it_is_free(
    tmp_path: Path, resource: str, offered: str, taken: str
) -> None:
    nodes = cluster(2, 2)
    for body in nodes:
        body["status"]["allocatable"] |= {resource: offered}
    agents = [taking(f"agent-{n}", body["metadata"]["name"], resource, taken) for n, body in enumerate(nodes)]
    answer = plan(*files(tmp_path, [], nodes, agents)[2:], "--defrag", "--free", "1 rack")["consolidation"]
    assert (answer["verdict"], answer["moves"]) == ("Admitted", [])


def test_preemption_when_one_victim_has_huge_pages_takes_the_one_with_fewer_devices(tmp_path: Path) -> None:
    def low(name: str, gpus: int, host: str, **more: str) -> Object:
        spec = pod_spec(gpus, nodeSelector={"kubernetes.io/hostname": host})
        for amounts in spec["containers"][0]["resources"].values():
            amounts.update(more)
        return inference(name, templated("w", 1, spec))

    nodes = cluster(2)
    for body in nodes:
        body["status"]["allocatable"] |= {"hugepages-2Mi": "10Gi"}
    names = [body["metadata"]["name"] for body in nodes]
    resources = [low("big8", 8, names[0]), low("small4", 4, names[1], **{"hugepages-2Mi": "5Gi"})]
    pods = [serving("big8", 0, names[0]), serving("small4", 0, names[1]), pod("other", names[1], gpus=4)]
    for body, made in zip(pods, resources, strict=False):
        body["spec"] |= made["spec"]["roles"][0]["template"]["spec"]
    classes = [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
    ]
    wanted = inference("urgent", role("w", gpus=4), priorityClassName="high")
    (found,) = plan(*files(tmp_path, [*classes, *resources, wanted], nodes, pods), "--preempt")["preemptions"]
    assert [victim["name"] for victim in found["victims"]] == ["small4"]
    assert "hugepages" not in found["message"]


def test_nodes_when_some_lack_an_optional_label_are_one_domain_or_it_is_told(tmp_path: Path) -> None:
    """Four machines of one local block of OKE, two of them without the label of their island."""
    labels = {NETWORK: "7xmzl", LOCAL: "4tjxb"}
    nodes = [node(f"n{n}", labels=labels | ({ISLAND: "af7ub"} if n % 2 else {})) for n in range(4)]
    gang = inference("llm", role("w", 2, 2, size=2), topology={"required": "subblock"})
    answer = plan(*files(tmp_path, [gang], nodes, []))
    assert workload(answer, "llm")["verdict"] == "Admitted" or "label" in reasons(answer, "llm")


def test_a_refusal_when_no_node_takes_the_leader_names_its_selector(tmp_path: Path) -> None:
    """The other rack has the GPUs, and no node for a leader."""
    nodes = [*cluster(2, 2), *cluster(1, 1, gpus=0)]
    for number, body in enumerate(nodes[4:]):
        body["metadata"]["name"] = f"cpu-{number}"
        body["metadata"]["labels"] |= {"kubernetes.io/hostname": f"cpu-{number}", "pool": f"pool-{number}"}
    leader = {"spec": {"nodeSelector": {"pool": "pool-0"}, **pod_spec(0)}}
    leader["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "4"}}
    gang = inference("llm", role("w", 2, 2, size=3, topology={"required": "rack"}, leaderTemplate=leader))
    answer = plan(*files(tmp_path, [gang], nodes, []))
    assert workload(answer, "llm")["verdict"] == "Infeasible"
    assert "selector" in reasons(answer, "llm")


def test_pods_when_they_ask_for_no_device_go_to_nodes_without_devices_first(tmp_path: Path) -> None:
    """Two fit one node with GPUs, and one each without; the gang behind them needs the whole rack."""
    nodes = cluster(4, 2)
    for body in nodes[:4]:
        body["status"]["allocatable"] |= {"cpu": "128"}
    for body in nodes[4:]:
        del body["status"]["allocatable"][GPU]
    router, engine = pod_spec(0), pod_spec(8)
    router["containers"][0]["resources"] = {"requests": {"cpu": "60"}}
    engine["containers"][0]["resources"]["requests"] |= {"cpu": "120"}
    gateway = inference("gateway", templated("router", 2, router))
    gang = inference("llm", templated("w", 1, engine, size=4), topology={"required": "rack"})
    answer = plan(*files(tmp_path, [gateway, gang], nodes, []))
    assert workload(answer, "llm")["verdict"] == "Admitted", places(answer, "gateway")


def test_a_bound_volume_when_the_name_of_its_node_is_not_the_hostname_label_ties_its_pod_to_that_node(
    tmp_path: Path,
) -> None:
    nodes = cluster(2)
    for body in nodes:
        body["metadata"]["name"] += ".ec2.internal"
    resource = inference("llm", dict(with_claim("weights")))
    answer = plan(*files(tmp_path, [resource], nodes, [claim("weights", "disk"), local("disk", "n0-0-1")]))
    assert places(answer, "llm") == ["n0-0-1.ec2.internal"]


def test_pods_when_a_spread_over_racks_is_required_lie_in_several(tmp_path: Path) -> None:
    """kube-scheduler does not see it: a pin leaves one node to compare."""
    spread = {
        "maxSkew": 1,
        "topologyKey": RACK,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "llm"}},
    }
    template = {"metadata": {"labels": {"app": "llm"}}, "spec": pod_spec(4, topologySpreadConstraints=[spread])}
    nodes = cluster(2, 2)
    answer = plan(*files(tmp_path, [inference("llm", role("w", 2, 2, template=template))], nodes, []))
    racks = {body["metadata"]["name"]: body["metadata"]["labels"][RACK] for body in nodes}
    assert {racks[place] for place in places(answer, "llm")} == {"r0", "r1"}
