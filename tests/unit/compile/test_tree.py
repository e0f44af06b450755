"""The tree: a golden one to be read, and what holds of any."""

import re
from collections import Counter
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from builders.inferences import inference, inferences, role, role_names
from builders.inferences import llama as plain_llama
from covey.api import constants as names
from covey.api.inference import DisaggregatedInference
from covey.compile import Slot, Tree, compile_inference
from covey.compile.identity import hostname, slot_of

DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def llama(**spec: Any) -> DisaggregatedInference:
    """A resource that asks for every level of the topology."""
    return plain_llama(
        {"topology": {"required": "rack"}},
        {"minReplicas": 2, "topology": {"required": "host"}},
        role("router", minReplicas=0, topology={"followUnit": False}),
        topology={"required": "block", "preferred": "rack"},
        **spec,
    )


def test_root_carries_every_wish_of_the_unit() -> None:
    wishes = {
        "proximity": [{"roles": ["prefill", "decode"], "level": "rack", "mode": "Required"}],
        "spread": {"level": "zone", "mode": "Required", "maxPerDomain": 2},
    }
    tree = compile_inference(llama(**wishes, gang={"timeoutSeconds": 60}, priorityClassName="high"))
    (root,) = tree.levels[1].objects
    assert root["spec"] == yaml.safe_load("""
      workloadRef: {workloadName: llama, templateName: unit}
      schedulingPolicy: {gang: {minGroupCount: 2}}
      desiredGroupCount: 3
      timeoutSeconds: 60
      holdSeconds: 60
      schedulingConstraints:
        topology:
        - {level: block, mode: Required, scope: Group}
        - {level: rack, mode: Preferred, scope: Group}
        proximity: [{roles: [prefill, decode], level: rack, mode: Required}]
        spread: {level: zone, mode: Required, maxPerDomain: 2}
      priorityClassName: high
    """)
    assert root["metadata"] == yaml.safe_load("""
      name: llama-0
      namespace: ml
      labels: {covey.dev/inference: llama, covey.dev/unit: "0"}
      ownerReferences:
      - apiVersion: inference.covey.dev/v1alpha1
        kind: DisaggregatedInference
        name: llama
        uid: uid-llama
        controller: true
        blockOwnerDeletion: true
    """)


def test_service_publishes_only_the_live_pod_of_an_address() -> None:
    ports = {"ports": [{"name": "http", "port": 8000}]}
    tree = compile_inference(inference(role("router", network=ports)))
    (service,) = tree.levels[-1].objects
    assert service["spec"] == yaml.safe_load("""
      clusterIP: None
      publishNotReadyAddresses: true
      selector: {covey.dev/inference: llama, covey.dev/role: router, covey.dev/address: "true"}
      ports: [{name: http, port: 8000, targetPort: 8000, protocol: TCP}]
    """)


def test_one_budget_of_the_namespace_covers_the_roles_of_the_gang() -> None:
    tree = compile_inference(llama())
    (budget,) = next(level.objects for level in tree.levels if level.name == "budgets")
    assert budget == yaml.safe_load("""
      apiVersion: policy/v1
      kind: PodDisruptionBudget
      metadata:
        name: covey-gangs
        namespace: ml
        labels: {app.kubernetes.io/managed-by: covey, covey.dev/inference: ""}
      spec:
        minAvailable: 1000000
        selector:
          matchLabels: {covey.dev/gang: "true"}
        unhealthyPodEvictionPolicy: IfHealthyBudget
    """)
    labels = [body["metadata"]["labels"] for body in tree.objects() if body["kind"] == "Pod"]
    assert {each["covey.dev/role"] for each in labels if "covey.dev/gang" in each} == {"prefill", "decode"}


def templates_of(workload: dict[str, Any]) -> list[dict[str, Any]]:
    found, left = [], list(workload["spec"]["compositePodGroupTemplates"])
    while left:
        template = left.pop()
        found.append(template)
        left += [*template.get("compositePodGroupTemplates", ()), *template.get("podGroupTemplates", ())]
    return found


@given(inferences())
def test_names_are_unique_and_valid(resource: DisaggregatedInference) -> None:
    tree = compile_inference(resource)
    bodies = list(tree.objects())
    counted = Counter((body["kind"], body["metadata"]["name"]) for body in bodies)
    assert max(counted.values(), default=0) <= 1
    for body in bodies:
        name = body["metadata"]["name"]
        assert DNS_SUBDOMAIN.fullmatch(name), name
        for key, value in body["metadata"]["labels"].items():
            assert len(value) <= 63, (key, value)
            assert not value or LABEL_VALUE.fullmatch(value), (key, value)
        if body["kind"] == "Service":
            assert len(name) <= 63, name
            assert DNS_LABEL.fullmatch(name), name
    hostnames = Counter(
        (body["spec"]["hostname"], body["spec"]["subdomain"]) for body in bodies if body["kind"] == "Pod"
    )
    assert max(hostnames.values(), default=0) <= 1
    assert all(len(hostname) <= 63 for hostname, _ in hostnames)


@given(inferences())
def test_objects_come_after_what_they_refer_to(resource: DisaggregatedInference) -> None:
    seen: set[tuple[str, str]] = set()
    for body in compile_inference(resource).objects():
        spec, labels = body["spec"], body["metadata"]["labels"]
        if parent := spec.get("parentCompositePodGroupName"):
            assert ("CompositePodGroup", parent) in seen
        if reference := spec.get("workloadRef"):
            assert ("Workload", reference["workloadName"]) in seen
        if body["kind"] == "Pod":
            assert ("PodGroup", labels[names.LABEL_POD_GROUP]) in seen
            assert ("Service", spec["subdomain"]) in seen
        seen.add((body["kind"], body["metadata"]["name"]))


@given(inferences())
def test_counts_of_the_gang(resource: DisaggregatedInference) -> None:
    tree = compile_inference(resource)
    members = Counter(
        body["metadata"]["labels"][names.LABEL_POD_GROUP] for body in tree.objects() if body["kind"] == "Pod"
    )
    for root in tree.levels[1].objects:
        children = [body for body in groups(tree) if body["spec"].get("parentCompositePodGroupName") == name_of(root)]
        in_gang = [child for child in children if "gang" in child["spec"]["schedulingPolicy"]]
        assert root["spec"]["schedulingPolicy"]["gang"]["minGroupCount"] == len(in_gang)
        assert root["spec"]["desiredGroupCount"] == len(children)
    for group in groups(tree):
        if group["kind"] == "PodGroup":
            assert members[name_of(group)] == group["spec"]["desiredCount"]
            gang = group["spec"]["schedulingPolicy"].get("gang", {"minCount": 0})
            assert gang["minCount"] <= group["spec"]["desiredCount"]


@given(inferences())
def test_template_names_are_unique_and_used(resource: DisaggregatedInference) -> None:
    tree = compile_inference(resource)
    if not tree.layout.units:
        return
    (workload,) = tree.levels[0].objects
    counted = Counter(template["name"] for template in templates_of(workload))
    assert max(counted.values()) == 1
    assert {group["spec"]["workloadRef"]["templateName"] for group in groups(tree)} <= counted.keys()
    assert depth(workload["spec"]["compositePodGroupTemplates"][0]) <= 4


def groups(tree: Tree) -> list[dict[str, Any]]:
    return [body for level in tree.levels[1:4] for body in level.objects]


def name_of(body: dict[str, Any]) -> str:
    name = body["metadata"]["name"]
    assert isinstance(name, str)
    return name


def depth(template: dict[str, Any]) -> int:
    children = [*template.get("compositePodGroupTemplates", ()), *template.get("podGroupTemplates", ())]
    return 1 + max(map(depth, children), default=0)


@given(st.builds(Slot, st.integers(0, 999), role_names, st.integers(0, 9999), st.integers(0, 998)))
def test_a_host_name_says_which_place_it_is_of(slot: Slot) -> None:
    assert slot_of(hostname(slot)) == slot


@pytest.mark.parametrize(
    "name", [None, "", "web-0", "0-prefill-1", "00-prefill-0-0", "0--0-0", "x-prefill-0-0", "0-p-0-\u0663"]
)
def test_a_host_name_that_is_not_ours_is_of_no_place(name: str | None) -> None:
    assert slot_of(name) is None
