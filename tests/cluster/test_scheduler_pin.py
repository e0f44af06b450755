"""Each rule of the pin on a real API server: the patch for every form of affinity, and what must not be planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from kubernetes.client.exceptions import ConflictException, UnprocessableEntityException

from covey.api import core
from covey.scheduler.pin import annotate_patch, pin_patch
from localcluster import Cluster, eventually
from scheduler_trees import REQUIRED, Bench, Role, gates_of, pin_of

AddNodes = Callable[..., list[str]]
Json = dict[str, Any]
EXPRESSION = {"key": "kubernetes.io/hostname", "operator": "Exists"}
FIELD = {"key": "metadata.name", "operator": "NotIn", "values": ["elsewhere"]}
PREFERRED = {
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": [EXPRESSION]}}]
}
FORMS: dict[str, Json | None] = {
    "none": None,
    "empty": {},
    "pod affinity only": {
        "podAntiAffinity": {
            REQUIRED: [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"no": "body"}}}]
        }
    },
    "empty node affinity": {"nodeAffinity": {}},
    "preferred only": {"nodeAffinity": PREFERRED},
    "one term": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [EXPRESSION]}]}}},
    "fields": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [FIELD]}]}}},
    "several terms": {
        "nodeAffinity": PREFERRED
        | {
            REQUIRED: {
                "nodeSelectorTerms": [
                    {"matchExpressions": [EXPRESSION]},
                    {"matchExpressions": [EXPRESSION], "matchFields": [FIELD]},
                ]
            }
        }
    },
    "an empty term": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}, {"matchExpressions": [EXPRESSION]}]}}},
}


@pytest.fixture(scope="module", autouse=True)
def scheduler(cluster: Cluster) -> Iterator[None]:
    try:
        cluster.start_covey("scheduler")
        yield
    finally:
        cluster.forget("covey-scheduler")


@pytest.fixture
def bench(cluster: Cluster, namespace: str) -> Bench:
    return Bench(cluster, namespace)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "gates", [["scheduling.covey.dev/gang"], ["example.com/a", "scheduling.covey.dev/gang", "example.com/b"]]
)
def test_the_patch_is_taken_for_every_form_of_affinity(bench: Bench, form: str, gates: list[str]) -> None:
    spec: Json = {"schedulingGates": [{"name": gate} for gate in gates]}
    if FORMS[form] is not None:
        spec["affinity"] = FORMS[form]
    found = bench.pod("p", **spec)
    patch = pin_patch(msgspec.convert(found, core.Pod), "node-a", {"rack": "r1"}, 0.0)
    after = bench.cluster.api("PATCH", f"{bench.pods_path}/p", patch)
    assert pin_of(after) == "node-a"
    assert gates_of(after) == [gate for gate in gates if gate != "scheduling.covey.dev/gang"]
    assert after["metadata"]["annotations"]["topology.covey.dev/rack"] == "r1"
    # What this code takes for state reads the same from the stored pod.
    assert core.pinned_node(msgspec.convert(after, core.Pod)) == "node-a"


def test_a_pod_that_was_changed_refuses_the_pin_and_takes_marks(bench: Bench) -> None:
    before = msgspec.convert(bench.pod("p", schedulingGates=[{"name": "scheduling.covey.dev/gang"}]), core.Pod)
    path = f"{bench.pods_path}/p"
    bench.cluster.api("PATCH", path, {"metadata": {"annotations": {"somebody": "else"}, "labels": {"a": "b"}}})
    with pytest.raises(ConflictException):
        bench.cluster.api("PATCH", path, pin_patch(before, "node-a", {"rack": "r1"}, 0.0))
    after = bench.cluster.api("PATCH", path, annotate_patch(before, {"x/y": "z"}))
    assert after["metadata"]["annotations"] == {"somebody": "else", "x/y": "z"}


def test_a_pinned_pod_keeps_no_managed_fields_through_later_writes(bench: Bench) -> None:
    found = bench.pod("p", schedulingGates=[{"name": "scheduling.covey.dev/gang"}])
    assert found["metadata"]["managedFields"]
    path = f"{bench.pods_path}/p"
    bench.cluster.api("PATCH", path, pin_patch(msgspec.convert(found, core.Pod), "node-a", {"rack": "r1"}, 0.0))
    after = bench.cluster.api("PATCH", path, {"metadata": {"labels": {"a": "b"}}})
    assert not after["metadata"].get("managedFields")


def test_another_incarnation_refuses_the_patch(bench: Bench) -> None:
    before = msgspec.convert(bench.pod("p", schedulingGates=[{"name": "scheduling.covey.dev/gang"}]), core.Pod)
    bench.delete("p")
    bench.pod("p", schedulingGates=[{"name": "scheduling.covey.dev/gang"}])
    with pytest.raises(ConflictException):
        bench.cluster.api("PATCH", f"{bench.pods_path}/p", pin_patch(before, "node-a", {}, 0.0))
    with pytest.raises(UnprocessableEntityException):
        bench.cluster.api("PATCH", f"{bench.pods_path}/p", annotate_patch(before, {"x": "y"}))
    assert gates_of(bench.get("p"))


def test_a_gang_whose_pods_have_every_form_of_affinity(bench: Bench, nodes: AddNodes) -> None:
    nodes(nodes=2)
    forms = [form for form in FORMS.values() if form]
    roles = [
        Role(
            f"r{number}",
            gpus=1,
            spec={"affinity": form},
            gates=("scheduling.covey.dev/gang", "scheduling.covey.dev/start"),
        )
        for number, form in enumerate(forms)
    ]
    tree = bench.unit("forms", *roles)
    eventually(lambda: all(pin_of(pod) for pod in tree.pods()))
    assert all(gates_of(pod) == ["scheduling.covey.dev/start"] for pod in tree.pods())


def test_a_pod_that_names_a_node_itself_is_left_alone(bench: Bench, nodes: AddNodes) -> None:
    [name] = nodes(nodes=1)
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}}}
    tree = bench.unit("own", Role("decode", spec={"affinity": affinity}))
    assert "names a node itself" in tree.wait_refused("Waiting")
    assert gates_of(tree.pods()[0])
