"""What cannot work is said on the resource, in words that help, and nothing is half created."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kubernetes.client import ApiException

from builders.manifests import Object, role, template, topology
from cluster.workbench import OWNED, uid_of, uids
from stage import Stage
from stage.play import INFERENCE

TOPOLOGIES = "/apis/scheduling.covey.dev/v1alpha1/clustertopologies"


@pytest.fixture(autouse=True)
def node(stage: Stage) -> str:
    """Room for everything: these pods ask for nothing."""
    [name] = stage.nodes()
    return name


def refusal(stage: Stage, reason: str, name: str = "llm", kind: str = "Admitted") -> str:
    """The message with which a resource is refused for a reason, at rest."""
    stage.settle()
    status, found, message = stage.condition(kind, name)
    assert (status, found) == ("False", reason), message
    return message


def nothing_of(stage: Stage) -> bool:
    """Tell whether nothing at all was made."""
    return not any(stage.owned(kind) for kind in OWNED)


def test_template_when_a_field_is_unknown_is_refused_by_name(stage: Stage) -> None:
    stage.create(role("prefill", template=template(nodeSelectr={"a": "b"})))
    message = refusal(stage, "TemplateRejected")
    assert "role prefill" in message
    assert 'unknown field "spec.nodeSelectr"' in message
    assert nothing_of(stage)
    assert stage.event_notes("TemplateRejected")


def test_spread_of_pods_when_it_is_required_is_refused_before_anything_is_created(stage: Stage) -> None:
    """A pin would switch it off, and all would lie on one node with Ready=True."""
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    hard, soft = ({**spread, "labelSelector": {}}, {**spread, "whenUnsatisfiable": "ScheduleAnyway"})
    stage.create(role("router", replicas=3, template=template(topologySpreadConstraints=[hard])))
    assert "spec.roles[router].template: topologySpreadConstraints over kubernetes.io/hostname" in refusal(
        stage, "Unsupported"
    )
    assert nothing_of(stage)
    stage.change(roles=[role("router", replicas=3, template=template(topologySpreadConstraints=[soft]))])
    stage.ready(3)


def test_leader_template_when_it_is_invalid_is_refused_until_it_is_cured(stage: Stage) -> None:
    stage.create(role("prefill", size=2, leaderTemplate=template(restartPolicy="Sometimes")))
    assert "restartPolicy" in refusal(stage, "TemplateRejected")
    stage.change(roles=[role("prefill", size=2, leaderTemplate=template())])
    stage.ready(2)


def test_template_when_a_change_makes_it_invalid_stops_no_repair(stage: Stage) -> None:
    stage.create(role("prefill"))
    [before] = stage.ready(1)
    broken = template()
    broken["spec"]["containers"][0] |= {"resources": "none", "env": 7}
    stage.change(roles=[role("prefill", template=broken)])
    assert "role prefill" in refusal(stage, "TemplateRejected", kind="Progressing")
    stage.delete("Pod", before["metadata"]["name"])
    assert not uids(stage.ready(1)) & {uid_of(before)}


def test_template_when_it_was_rejected_is_not_asked_about_again(stage: Stage) -> None:
    stage.create(role("prefill", template=template(restartPolicy="Sometimes")))
    refusal(stage, "TemplateRejected")
    asked = len(stage.dry_runs("operator"))
    assert asked
    # Another reason to look at it: the topologies of the cluster change.
    stage.cluster.apply(topology("unrelated"))
    stage.after(lambda: stage.cluster.delete(f"{TOPOLOGIES}/unrelated"))
    stage.settle()
    assert len(stage.dry_runs("operator")) == asked


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"disruptionMode": "Pod"}, "spec.disruptionMode Pod is not supported by backend Extender"),
        ({"backend": "Volcano"}, "the operator runs without backend Volcano: add it to its --backends"),
    ],
)
def test_field_when_it_cannot_be_honoured_is_refused_by_name(stage: Stage, spec: Object, words: str) -> None:
    stage.create(**spec)
    assert words in refusal(stage, "Unsupported", kind="BackendSupported")
    assert words in refusal(stage, "Unsupported")
    assert nothing_of(stage)


def test_gang_when_a_quota_allows_a_part_of_it_has_no_pod_until_all_fit(stage: Stage) -> None:
    stage.quota("few", pods=2)
    stage.create()
    assert "few" in refusal(stage, "QuotaExceeded")
    assert stage.never("Pod", lambda _: True)
    stage.quota("few", pods=10)
    stage.ready(6)


def test_priority_class_when_it_was_mistyped_is_corrected_and_then_stays(stage: Stage) -> None:
    high, low = stage.priority_class("high", 7), stage.priority_class("low", 3)
    stage.create(priorityClassName="hihg")
    assert "hihg" in refusal(stage, "TemplateRejected")
    stage.change(priorityClassName=high)
    assert {pod["spec"]["priority"] for pod in stage.ready(6)} == {7}
    with pytest.raises(ApiException, match="priorityClassName is immutable while units exist"):
        stage.change(priorityClassName=low)


def test_priority_class_when_it_comes_later_lets_the_resource_in(stage: Stage) -> None:
    stage.create(priorityClassName="later")
    assert "later" in refusal(stage, "TemplateRejected")
    stage.priority_class("later", 7)
    stage.advance(60)
    assert {pod["spec"]["priority"] for pod in stage.ready(6)} == {7}
    assert {group["spec"]["priorityClassName"] for group in stage.owned("PodGroup")} == {"later"}


def test_service_when_it_is_somebody_elses_is_left_alone_and_named(stage: Stage) -> None:
    foreign = {"metadata": {"name": "llm-pods"}, "spec": {"selector": {"app": "mine"}, "ports": [{"port": 80}]}}
    stage.cluster.api("POST", stage.path("Service"), foreign)
    stage.create()
    assert "Service llm-pods exists" in refusal(stage, "NameTaken")
    assert not stage.pods()
    found = stage.get("Service", "llm-pods")
    assert found["spec"]["selector"] == {"app": "mine"}
    assert "ownerReferences" not in found["metadata"]
    stage.delete("Service", "llm-pods")
    stage.advance(60)
    stage.ready(6)


def test_objects_that_a_deletion_has_orphaned_are_not_adopted(stage: Stage) -> None:
    stage.create()
    left = uids(stage.ready(6))
    stage.cluster.api("DELETE", stage.path(INFERENCE, "llm"), {"propagationPolicy": "Orphan"})
    stage.settle()
    assert not stage.all(INFERENCE)
    stage.create()
    assert "was deleted with --cascade=orphan" in refusal(stage, "NameTaken")
    assert left == uids(stage.pods())
    for kind in ("Pod", "Service", "ControllerRevision", "PodGroup", "CompositePodGroup", "Workload"):
        stage.cluster.api("DELETE", f"{stage.path(kind)}?labelSelector=covey.dev/inference=llm")
    stage.advance(60)
    assert not left & uids(stage.ready(6))


def test_group_when_another_resource_has_its_name_is_refused(stage: Stage) -> None:
    """``a`` with a role ``0-b`` and ``a-0`` with a role ``b`` would call a group of theirs the same."""
    stage.create(role("b"), name="a-0")
    stage.ready(1, inference="a-0")
    stage.create(role("0-b"), name="a")
    message = refusal(stage, "NameTaken", "a")
    assert "belongs to DisaggregatedInference a-0" in message
    assert "delete" not in message
    assert len(stage.pods(inference="a-0")) == 1


def test_level_when_its_topology_has_none_is_named_with_those_that_there_are(stage: Stage) -> None:
    for name in ("one", "two"):
        stage.cluster.apply(topology(name))
        stage.after(lambda name=name: stage.cluster.delete(f"{TOPOLOGIES}/{name}"))
    stage.settle()
    stage.create(topology={"required": "block"})
    assert "none marked default" in refusal(stage, "InvalidTopology")
    stage.create(name="named", topology={"name": "one", "required": "hall"})
    message = refusal(stage, "InvalidTopology", "named")
    assert message == "level hall is not in topology one: use one of zone, block, rack"
    stage.change("named", topology={"required": "block"})
    stage.settle()
    assert len(stage.pods(inference="named")) == 6
    mark = {"metadata": {"annotations": {"scheduling.covey.dev/default": "true"}}}
    stage.cluster.api("PATCH", f"{TOPOLOGIES}/two", mark)
    stage.settle()
    assert len(stage.pods(inference="llm")) == 6


def test_level_when_no_node_has_it_is_refused_with_those_that_nodes_have(stage: Stage) -> None:
    stage.create(topology={"required": "racks"})
    message = refusal(stage, "InvalidTopology")
    assert "rack" in message.replace("racks", "")
    assert "superblock" not in message


@pytest.fixture
def webhook(stage: Stage) -> Callable[[str], Callable[[], None]]:
    """``webhook(kind)`` has a webhook that nobody answers for writes of a kind; what it returns takes it away."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"

    def is_refused(kind: str) -> bool:
        made = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "probe"}, "spec": {"clusterIP": "None"}}
        if kind != "Service":
            policy = {"schedulingPolicy": {"basic": {}}}
            made |= {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": kind, "spec": policy}
        try:
            stage.cluster.api("POST", f"{stage.path(kind)}?dryRun=All", made)
        except ApiException as error:
            return "down.example.com" in str(error)
        return False

    def install(kind: str) -> Callable[[], None]:
        what = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": [f"{kind.lower()}s"]}
        hook = {
            "name": "down.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"url": "https://127.0.0.1:1/down"},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}},
            "rules": [{**what, "operations": ["CREATE", "UPDATE"]}],
        }
        stage.cluster.api("POST", path, {"metadata": {"name": "down"}, "webhooks": [hook]})
        stage.after(lambda: stage.cluster.delete(f"{path}/down"))
        stage.await_event(lambda: is_refused(kind), "the webhook is in force")

        def remove() -> None:
            stage.cluster.delete(f"{path}/down")
            stage.await_event(lambda: not is_refused(kind), "the webhook is in force no longer")

        return remove

    return install


def test_webhook_when_it_is_down_is_told_and_what_it_kept_off_comes_once_it_is_gone(
    stage: Stage, webhook: Callable[[str], Callable[[], None]]
) -> None:
    remove = webhook("PodGroup")
    stage.create()
    assert "down.example.com" in refusal(stage, "RequestRefused")
    assert stage.event_notes("RequestRefused")
    remove()
    stage.advance(60)
    stage.ready(6)


def test_webhook_when_it_is_down_keeps_nobody_from_scaling_down_and_suspending(
    stage: Stage, webhook: Callable[[str], Callable[[], None]]
) -> None:
    stage.create()
    stage.ready(6)
    webhook("Service")
    ports = {"ports": [{"name": "http", "port": 8000}]}
    stage.change(roles=[role("prefill", size=2), role("decode", network=ports)])
    assert "down.example.com" in refusal(stage, "RequestRefused", kind="Progressing")
    assert len(stage.pods()) == 3
    stage.change(suspend=True)
    refusal(stage, "Suspended")
    assert nothing_of(stage)


def test_namespaces_when_many_are_looked_after_wait_for_no_connection_of_anothers(stage: Stage) -> None:
    """Every one has its watches; others are left alone."""
    names = (*(f"elsewhere-{number}" for number in range(15)), stage.namespace)
    stage.restart(operator={"namespaces": names}, scheduler={"namespaces": names})
    stage.create()
    metadata = stage.ready(6) and stage.get("DisaggregatedInference", "llm")["metadata"]
    assert not {"annotations", "finalizers"} & metadata.keys(), "Kopf leaves no trace"
    stage.restart(operator={"namespaces": names[:1]})
    stage.create(name="other")
    stage.settle()
    assert not stage.pods(inference="other")
    assert stage.get("DisaggregatedInference", "other")["status"] == {"observedGeneration": -1}
