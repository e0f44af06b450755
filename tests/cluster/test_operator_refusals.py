"""What cannot work is said on the resource, in words that help, and nothing is half created."""

from collections.abc import Iterator

import pytest

from builders.manifests import Object, role, template, topology
from cluster.operating import bench, operator
from cluster.workbench import OWNED, Workbench
from localcluster import Cluster, eventually

__all__ = ["bench", "operator"]


def test_an_unknown_field_of_the_template(bench: Workbench) -> None:
    bench.create(role("prefill", template=template(nodeSelectr={"a": "b"})))
    message = bench.await_condition("Admitted", "False", "TemplateRejected")
    assert "role prefill" in message
    assert 'unknown field "spec.nodeSelectr"' in message
    assert not any(bench.owned(kind) for kind in OWNED)
    eventually(lambda: "TemplateRejected" in bench.events())


def test_a_required_spread_of_pods_then_is_refused_before_anything_is_created(bench: Workbench) -> None:
    """A pin would switch it off, and all would lie on one node with Ready=True."""
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    hard, soft = ({**spread, "labelSelector": {}}, {**spread, "whenUnsatisfiable": "ScheduleAnyway"})
    bench.create(role("router", replicas=3, template=template(topologySpreadConstraints=[hard])))
    message = bench.await_condition("Admitted", "False", "Unsupported")
    assert "spec.roles[router].template: topologySpreadConstraints over kubernetes.io/hostname" in message
    assert not any(bench.owned(kind) for kind in OWNED)
    bench.change({"roles": [role("router", replicas=3, template=template(topologySpreadConstraints=[soft]))]})
    bench.await_pods(3)


def test_an_invalid_leader_template_and_its_cure(bench: Workbench) -> None:
    broken = template(restartPolicy="Sometimes")
    bench.create(role("prefill", size=2, leaderTemplate=broken))
    assert "restartPolicy" in bench.await_condition("Admitted", "False", "TemplateRejected")
    bench.change({"roles": [role("prefill", size=2, leaderTemplate=template())]})
    bench.await_pods(2)
    bench.await_condition("Admitted", "False", "Waiting")


def test_a_template_of_wrong_types_stops_no_repair(bench: Workbench) -> None:
    bench.create(role("prefill"))
    [before] = bench.await_pods(1)
    broken = template()
    broken["spec"]["containers"][0] |= {"resources": "none", "env": 7}
    bench.change({"roles": [role("prefill", template=broken)]})
    assert "role prefill" in bench.await_condition("Progressing", "False", "TemplateRejected")
    bench.delete("Pod", before["metadata"]["name"])
    eventually(lambda: {pod["metadata"]["uid"] for pod in bench.pods()} - {before["metadata"]["uid"]})


def test_a_rejected_template_is_not_asked_about_again(bench: Workbench, operator: object, cluster: Cluster) -> None:
    assert operator
    bench.create(role("prefill", template=template(restartPolicy="Sometimes")))
    bench.await_condition("Admitted", "False", "TemplateRejected")
    asked = refusals(cluster)
    # Another reason to look at it: the topologies of the cluster change.
    cluster.apply(topology("unrelated"))
    bench.create(role("other"), name="marker")
    bench.await_pods(1, inference="marker")
    cluster.api("DELETE", "/apis/scheduling.covey.dev/v1alpha1/clustertopologies/unrelated")
    assert refusals(cluster) == asked


def refusals(cluster: Cluster) -> float:
    """How many creations of pods the API server has refused the operator as invalid."""
    from urllib.request import urlopen  # noqa: PLC0415 - for this one page

    with urlopen(cluster.processes["covey-operator"].metrics_url) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if 'code="422"' in line and 'resource="pods"' in line)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"disruptionMode": "Pod"}, "spec.disruptionMode Pod is not supported by backend Extender"),
        ({"backend": "Volcano"}, "the operator runs without backend Volcano: add it to its --backends"),
    ],
)
def test_a_field_that_cannot_be_honoured(bench: Workbench, spec: Object, words: str) -> None:
    bench.create(**spec)
    assert words in bench.await_condition("BackendSupported", "False", "Unsupported")
    assert words in bench.await_condition("Admitted", "False", "Unsupported")
    assert not any(bench.owned(kind) for kind in OWNED)


def test_quota(bench: Workbench) -> None:
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}}
    bench.cluster.api("POST", bench.path("ResourceQuota"), quota)
    eventually(lambda: bench.get("ResourceQuota", "few")["status"].get("hard"))
    bench.create()
    message = bench.await_condition("Admitted", "False", "QuotaExceeded")
    assert "few" in message
    assert not bench.pods()
    bench.cluster.api("PATCH", bench.path("ResourceQuota", "few"), {"spec": {"hard": {"pods": "10"}}})
    bench.await_pods(6)
    bench.await_condition("Admitted", "False", "Waiting")


def test_a_priority_class_that_comes_later(bench: Workbench, priority_class: str) -> None:
    bench.create(priorityClassName=priority_class)
    assert priority_class in bench.await_condition("Admitted", "False", "TemplateRejected")
    body = {"metadata": {"name": priority_class}, "value": 7}
    bench.cluster.api("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
    assert {pod["spec"]["priority"] for pod in bench.await_pods(6)} == {7}
    assert {group["spec"]["priorityClassName"] for group in bench.owned("PodGroup")} == {priority_class}


@pytest.fixture
def priority_class(cluster: Cluster, bench: Workbench) -> Iterator[str]:
    name = f"class-of-{bench.namespace}"
    yield name
    cluster.api("DELETE", f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")


def test_a_service_of_somebody_else(bench: Workbench) -> None:
    foreign = {"metadata": {"name": "llm-pods"}, "spec": {"selector": {"app": "mine"}, "ports": [{"port": 80}]}}
    bench.cluster.api("POST", bench.path("Service"), foreign)
    bench.create()
    message = bench.await_condition("Admitted", "False", "NameTaken")
    assert "Service llm-pods exists" in message
    assert not bench.owned("Pod")
    found = bench.get("Service", "llm-pods")
    assert found["spec"]["selector"] == {"app": "mine"}
    assert "ownerReferences" not in found["metadata"]
    bench.delete("Service", "llm-pods")
    bench.await_pods(6)


def test_what_orphan_deletion_leaves_is_not_adopted(bench: Workbench) -> None:
    bench.create()
    left = {pod["metadata"]["uid"] for pod in bench.await_pods(6)}
    options = {"propagationPolicy": "Orphan"}
    bench.cluster.api("DELETE", bench.path("DisaggregatedInference", "llm"), options)
    eventually(lambda: not bench.all("DisaggregatedInference"), describe="the resource is gone")
    bench.create()
    message = bench.await_condition("Admitted", "False", "NameTaken")
    assert "was deleted with --cascade=orphan" in message
    assert left == {pod["metadata"]["uid"] for pod in bench.pods()}
    for kind in ("Pod", "Service", "ControllerRevision", "PodGroup", "CompositePodGroup", "Workload"):
        bench.cluster.api("DELETE", f"{bench.path(kind)}?labelSelector=covey.dev/inference=llm")
    assert not left & {pod["metadata"]["uid"] for pod in bench.await_pods(6)}


def test_a_group_of_another_resource(bench: Workbench) -> None:
    """``a`` with a role ``0-b`` and ``a-0`` with a role ``b`` would call a group of theirs the same."""
    bench.create(role("b"), name="a-0")
    bench.await_pods(1, inference="a-0")
    bench.create(role("0-b"), name="a")
    message = bench.await_condition("Admitted", "False", "NameTaken", name="a")
    assert "belongs to DisaggregatedInference a-0" in message
    assert "delete" not in message
    assert len(bench.pods(inference="a-0")) == 1


@pytest.fixture
def topologies(cluster: Cluster, bench: Workbench) -> Iterator[list[str]]:
    names = ["one", "two"]
    for name in names:
        cluster.apply(topology(name))
    for name in names:
        # The operator has heard of it.
        bench.create(name=f"asks-{name}", topology={"name": name, "required": "cage"})
        known = f"level cage is not in topology {name}"
        eventually(lambda name=name, known=known: known in bench.condition("Admitted", f"asks-{name}")["message"])
        bench.delete("DisaggregatedInference", f"asks-{name}")
    yield names
    for name in names:
        cluster.api("DELETE", f"/apis/scheduling.covey.dev/v1alpha1/clustertopologies/{name}")


def test_levels_of_the_topology(bench: Workbench, topologies: list[str]) -> None:
    bench.create(topology={"required": "block"})
    assert "none marked default" in bench.await_condition("Admitted", "False", "InvalidTopology")
    bench.create(name="named", topology={"name": topologies[0], "required": "hall"})
    message = bench.await_condition("Admitted", "False", "InvalidTopology", name="named")
    assert message == "level hall is not in topology one, which has zone, block, rack"
    bench.change({"topology": {"required": "block"}}, name="named")
    bench.await_pods(6, inference="named")
    path = f"/apis/scheduling.covey.dev/v1alpha1/clustertopologies/{topologies[1]}"
    bench.cluster.api("PATCH", path, {"metadata": {"annotations": {"scheduling.covey.dev/default": "true"}}})
    bench.await_pods(6, inference="llm")
