"""The PodGroup of a unit."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from builders.inferences import inference, inferences
from covey.api.inference import DisaggregatedInference
from covey.backends.volcano import Volcano
from covey.backends.volcano.min_resources import canonical
from covey.compile import Layout, Revision
from covey.placement.cluster.resources import amount
from unit.backends.volcano.objects import kthena, template, workers

#: What Kthena's own controller makes of it (``minMember`` 6, ``minSubGroups`` 2 and 1), and how Covey differs.
GOLDEN = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata:
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
spec:
  minMember: 6
  minResources: {cpu: 600m}
  subGroupPolicy:
  - name: prefill
    subGroupSize: 2
    minSubGroups: 2
    labelSelector: {matchLabels: {covey.dev/role: prefill}}
    matchLabelKeys: [covey.dev/replica]
  - name: decode
    subGroupSize: 2
    minSubGroups: 1
    labelSelector: {matchLabels: {covey.dev/role: decode}}
    matchLabelKeys: [covey.dev/replica]
"""


def objects(resource: DisaggregatedInference, **kwargs: Any) -> list[dict[str, Any]]:
    return list(Volcano().compile(resource, **kwargs).objects())


def groups(resource: DisaggregatedInference, **kwargs: Any) -> list[dict[str, Any]]:
    return [body for body in objects(resource, **kwargs) if body["kind"] == "PodGroup"]


def pods(resource: DisaggregatedInference) -> list[dict[str, Any]]:
    return [body for body in objects(resource) if body["kind"] == "Pod"]


def test_kthenas_example() -> None:
    assert groups(kthena()) == [yaml.safe_load(GOLDEN)]


def test_topology_of_unit_and_roles() -> None:
    resource = inference(
        workers("prefill", size=2, topology={"required": "rack"}), workers("decode"), topology={"required": "block"}
    )
    spec = groups(resource)[0]["spec"]
    assert spec["networkTopology"] == {"mode": "hard", "highestTierName": "block"}
    prefill, decode = spec["subGroupPolicy"]
    assert prefill["networkTopology"] == {"mode": "hard", "highestTierName": "rack"}
    assert "networkTopology" not in decode


def test_replicas_of_two_sizes_are_told_apart_by_revision() -> None:
    """In the middle of a rollout that changes a role's size."""
    old = Revision.of(inference(workers("decode", replicas=3, size=2, minReplicas=2)).spec)
    resource = inference(workers("decode", replicas=3, size=4, minReplicas=2))
    new = Revision.of(resource.spec)
    replicas = {0: old.roles["decode"], 1: new.roles["decode"], 2: new.roles["decode"]}
    spec = groups(resource, layout=Layout({0: {"decode": replicas}}), revision=new)[0]["spec"]
    assert spec["minMember"] == 6
    assert [(each["name"], each["subGroupSize"], each["minSubGroups"]) for each in spec["subGroupPolicy"]] == [
        ("decode-2", 2, 1),
        ("decode-4", 4, 1),
    ]
    expressions = [each["labelSelector"]["matchExpressions"][0] for each in spec["subGroupPolicy"]]
    assert [each["values"] for each in expressions] == [[old.roles["decode"].hash], [new.roles["decode"].hash]]


@given(inferences())
def test_every_pod_is_in_one_subgroup_of_its_size(resource: DisaggregatedInference) -> None:
    found = {body["metadata"]["name"]: body["spec"] for body in groups(resource)}
    subgroups: dict[tuple[str, str, str], int] = {}
    for pod in pods(resource):
        labels, name = pod["metadata"]["labels"], pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"]
        policies = [
            policy
            for policy in found[name]["subGroupPolicy"]
            if policy["labelSelector"]["matchLabels"].items() <= labels.items()
        ]
        assert len(policies) == 1
        key = policies[0]["matchLabelKeys"][0]
        assert labels[key].isdecimal()  # Volcano sorts by it as a number
        subgroup = (name, policies[0]["name"], labels[key])
        subgroups[subgroup] = subgroups.get(subgroup, 0) + 1
        assert subgroups[subgroup] <= policies[0]["subGroupSize"]
    sizes = {
        (name, each["name"]): each["subGroupSize"] for name, spec in found.items() for each in spec["subGroupPolicy"]
    }
    assert all(count == sizes[name, role] for (name, role, _), count in subgroups.items())


@given(inferences())
def test_the_minimum_of_pods_is_that_of_the_subgroups(resource: DisaggregatedInference) -> None:
    for body in groups(resource):
        policies = body["spec"]["subGroupPolicy"]
        assert body["spec"]["minMember"] == sum(each["minSubGroups"] * each["subGroupSize"] for each in policies) > 0


# What the minimum asks for


def test_requests_are_counted_as_a_scheduler_does() -> None:
    leader = template({"cpu": "1", "memory": "1Gi"})
    worker = {
        "spec": {
            "initContainers": [
                {"name": "load", "image": "i", "resources": {"requests": {"memory": "8Gi"}}},
                {"name": "proxy", "image": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
            ],
            "containers": [{"name": "engine", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 8}}}],
            "overhead": {"memory": "512Mi"},
        }
    }
    resource = inference(workers("prefill", replicas=4, minReplicas=2, size=3, template=worker, leaderTemplate=leader))
    assert groups(resource)[0]["spec"]["minResources"] == {
        "cpu": "2400m",  # 2 leaders of 1, 4 workers of 100m
        "memory": "36Gi",  # 2 leaders of 1Gi, 4 workers of 8.5Gi
        "nvidia.com/gpu": "32",
    }


@pytest.mark.parametrize(
    ("resource", "value", "text"),
    [
        ("cpu", 600, "600m"),
        ("cpu", 1000, "1"),
        ("cpu", 1500, "1500m"),
        ("cpu", 2_000_000, "2k"),
        ("memory", 1024, "1Ki"),
        ("memory", 1536 * 1024**2, "1536Mi"),
        ("memory", 4 * 1024**4, "4Ti"),
        ("memory", 1000, "1k"),
        ("memory", 1001, "1001"),
        ("memory", 512, "512"),
        ("nvidia.com/gpu", 8, "8"),
        ("nvidia.com/gpu", 1000, "1k"),
        ("nvidia.com/gpu", 1024, "1024"),
        ("nvidia.com/gpu", 0, "0"),
    ],
)
def test_amounts_are_written_as_go_writes_them(resource: str, value: int, text: str) -> None:
    assert canonical(resource, value) == text


@given(st.sampled_from(["cpu", "memory", "ephemeral-storage", "nvidia.com/gpu"]), st.integers(0, 2**50))
def test_an_amount_is_the_same_when_read_again(resource: str, value: int) -> None:
    assert amount(resource, canonical(resource, value)) == value


def test_what_cannot_be_read_is_left_to_the_api_server() -> None:
    resource = inference(workers("decode", template=template({"cpu": "a lot"})))
    assert "minResources" not in groups(resource)[0]["spec"]


def test_queue_and_priority_stand_there_only_when_asked_for() -> None:
    plain = groups(kthena())[0]["spec"]
    assert {"queue", "priorityClassName", "networkTopology", "minTaskMember"}.isdisjoint(plain)
    asked = groups(kthena(queue="gpus", priorityClassName="high"))[0]["spec"]
    assert (asked["queue"], asked["priorityClassName"]) == ("gpus", "high")
