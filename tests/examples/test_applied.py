"""Every example is applied with kubectl, without a warning, and becomes Ready on nodes that it is written for."""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from cluster.serving import Serving
from cluster.workbench import label, name_of
from examples.conftest import Apply, await_available, await_ready
from examples.files import EXAMPLES, INFERENCES, MANIFESTS, documents, named, of_kind, pods_of
from examples.test_planned import TOPOLOGIES
from localcluster import Cluster, concurrently, eventually
from localcluster.components import FAKE_NODE
from scheduler_trees import node_of
from screener import REVISION, ROLE, SCOPE, find_routes

#: Applied by the tests that do more with them.
ELSEWHERE = ("engines", "autoscaling", "topologies", "routers")
ROUTERS = sorted((EXAMPLES / "routers").glob("*.yaml"))
PLAIN = [file for file in INFERENCES if file.parent.name not in ELSEWHERE]


@pytest.mark.usefixtures("racks")
@pytest.mark.parametrize("file", PLAIN, ids=named)
def test_an_example_becomes_ready(apply: Apply, serving: Serving, file: Path) -> None:
    apply(file)
    [inference] = of_kind(file, "DisaggregatedInference")
    if name_of(inference) == "too-big":
        said = serving.await_condition("Admitted", "False", "Infeasible", name="too-big")
        assert "decode" in said
        assert not serving.bound()
        return
    await_ready(serving)
    assert len(serving.bound()) == pods_of(inference["spec"])


@pytest.mark.usefixtures("racks", "covey")
def test_all_that_the_readme_applies(serving: Serving) -> None:
    """``kubectl apply -f examples/``: what stands in the folder itself, and nothing below it."""
    said = serving.kubectl("apply", "--warnings-as-errors", "--filename", str(EXAMPLES))
    plain = [file for file in MANIFESTS if file.parent == EXAMPLES]
    inferences = {name_of(each) for file in plain for each in of_kind(file, "DisaggregatedInference")}
    wanted = {kubectl_name(each) for file in plain for each in documents(file)}
    assert {line.split()[0] for line in said.splitlines()} == wanted
    for name in inferences - {"too-big"}:
        await_available(serving, name)
    serving.await_condition("Admitted", "False", "Infeasible", name="too-big")


def kubectl_name(body: dict[str, Any]) -> str:
    """An object as kubectl prints it: kind and group, then the name."""
    group, slash, _ = body["apiVersion"].partition("/")
    return f"{body['kind'].lower()}{f'.{group}' if slash else ''}/{name_of(body)}"


@pytest.mark.usefixtures("racks")
def test_the_router_of_an_example_finds_its_engines(apply: Apply, serving: Serving) -> None:
    """Selectors, keys and roles of its configuration are those that the pods carry: one pairing is whole."""
    file = EXAMPLES / "router.yaml"
    apply(file)
    await_ready(serving)
    [config] = of_kind(file, "ConfigMap")
    plugins = {
        each["type"]: each["parameters"]
        for each in yaml.safe_load(config["data"]["router.yaml"])["plugins"]
        if "parameters" in each
    }
    screener = plugins["disaggregatedset-rollout-screener"]
    scope, gating = screener["scope"]["labelSelector"], screener["revisionGating"]
    assert dict(each.split("=") for each in scope.split(",")) == {"covey.dev/inference": "qwen", **SCOPE}
    assert (gating["revisionLabelKey"], gating["roleLabelKey"]) == (REVISION, ROLE)
    found = serving.cluster.api("GET", f"{serving.path('Pod')}?labelSelector={quote(scope)}")["items"]
    engines = [pod for pod in found if label(pod, "role") in gating["requireRoles"]["values"]]
    assert find_routes(engines, gating["requireRoles"]["values"])
    assert {(label(pod, "role"), pod["metadata"]["labels"]["llm-d.ai/role"]) for pod in engines} == {
        ("prefill", "prefill"),
        ("decode", "decode"),
    }
    [router] = serving.pods(role="router")[:1]
    [selector] = [each for each in router["spec"]["containers"][0]["args"] if each.startswith("--endpoint-selector=")]
    chosen = serving.cluster.api("GET", f"{serving.path('Pod')}?labelSelector={quote(selector.partition('=')[2])}")[
        "items"
    ]
    assert {name_of(pod) for pod in chosen} == {name_of(pod) for pod in engines}


@pytest.mark.usefixtures("racks")
@pytest.mark.parametrize("file", ROUTERS, ids=named)
def test_what_other_routers_select_is_the_leaders_of_each_role(apply: Apply, serving: Serving, file: Path) -> None:
    """And a replica that drains leaves it, whether the router goes by labels or by EndpointSlices."""
    apply(file)
    await_ready(serving)
    engines = {role: {name_of(pod) for pod in serving.pods(role=role, index=0)} for role in ("prefill", "decode")}
    eventually(lambda: selected(serving, file) == engines, 60, "the selectors find the engines")
    [inference] = of_kind(file, "DisaggregatedInference")
    roles = [each | {"replicas": 1 if each["name"] == "decode" else 2} for each in inference["spec"]["roles"]]
    serving.change({"roles": roles}, name_of(inference))
    [going] = eventually(lambda: serving.pods(draining="true"), 60, "a replica of decode drains")
    left = engines | {"decode": engines["decode"] - {name_of(going)}}
    eventually(lambda: selected(serving, file) == left, 60, "what drains is not found any more")


def selected(serving: Serving, file: Path) -> dict[str, set[str]]:
    """The pods that a router takes for engines of each role, by its own flags or Services."""
    if services := of_kind(file, "Service"):
        labels = ",".join(f"{key}={value}" for key, value in services[0]["metadata"]["labels"].items())
        slices = json.loads(serving.kubectl("get", "endpointslices", "-l", labels, "-o", "json"))["items"]
        return {
            each["spec"]["selector"]["covey.dev/role"]: {
                endpoint["targetRef"]["name"]
                for found in slices
                if found["metadata"]["labels"]["kubernetes.io/service-name"] == name_of(each)
                for endpoint in found["endpoints"] or ()
                if endpoint["conditions"]["ready"]
            }
            for each in services
        }
    [inference] = of_kind(file, "DisaggregatedInference")
    [router] = [each for each in inference["spec"]["roles"] if each["name"] == "router"]
    args: list[str] = router["template"]["spec"]["containers"][0]["args"]
    flags = dict(each.removeprefix("--").split("=", 1) for each in args if each.startswith("--") and "=" in each)
    found = {}
    for role in ("prefill", "decode"):
        if base := flags.get("k8s-label-selector"):
            selector = f"{base},model={flags[f'{role}-model-labels']}"
        else:
            begin = args.index(f"--{role}-selector") + 1
            selector = ",".join(takewhile(lambda each: not each.startswith("--"), args[begin:]))
        found[role] = set(
            serving.kubectl("get", "pods", "-l", selector, "-o", "jsonpath={.items[*].metadata.name}").split()
        )
    return found


@pytest.mark.parametrize("file", TOPOLOGIES, ids=named)
def test_nodes_as_a_cloud_labels_them(apply: Apply, serving: Serving, cluster: Cluster, file: Path) -> None:
    nodes = labelled(file)
    concurrently(lambda node: cluster.api("POST", "/api/v1/nodes", node), nodes)
    try:
        eventually(lambda: all(is_ready(cluster, node) for node in nodes), 180, "the nodes are ready")
        apply(file)
        await_ready(serving)
        check_levels(serving, file, {name_of(node): node["metadata"]["labels"] for node in nodes})
    finally:
        cluster.delete_nodes(map(name_of, nodes))


def labelled(file: Path) -> list[dict[str, Any]]:
    """The nodes that go with a file, for kwok to play."""
    [found] = of_kind(file.parent / "nodes" / file.name, "List")
    for node in found["items"]:
        node["metadata"]["annotations"] = dict([FAKE_NODE])
        node["status"]["capacity"] = node["status"]["allocatable"]
        del node["status"]["conditions"]
    return list(found["items"])


def is_ready(cluster: Cluster, node: dict[str, Any]) -> bool:
    found = cluster.api("GET", f"/api/v1/nodes/{name_of(node)}")
    conditions = {each["type"]: each["status"] for each in found["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and not found["spec"].get("taints")


def check_levels(serving: Serving, file: Path, labels: dict[str, dict[str, str]]) -> None:
    """The unit is in one domain of its level and each replica in one of its own, by the labels of the cloud."""
    [topology] = of_kind(file, "ClusterTopology")
    [inference] = of_kind(file, "DisaggregatedInference")
    keys = {level["name"]: level["keys"] for level in topology["spec"]["levels"]}

    def domains(level: str, pods: list[dict[str, Any]]) -> set[str]:
        return {next(labels[node_of(pod)][key] for key in keys[level] if key in labels[node_of(pod)]) for pod in pods}

    pods = serving.bound()
    assert len(pods) == 4
    if required := inference["spec"]["topology"].get("required"):
        assert len(domains(required, pods)) == 1
    for role in inference["spec"]["roles"]:
        level = role["topology"]["required"]
        members = [pod for pod in pods if label(pod, "role") == role["name"]]
        assert len(domains(level, members)) == 1
        assert {pod["metadata"]["annotations"][f"topology.covey.dev/{level}"] for pod in members} == domains(
            level, members
        )
