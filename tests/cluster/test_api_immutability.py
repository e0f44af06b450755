"""What the API server does not let anybody change."""

from typing import Any

import pytest
from kubernetes.client import ApiException

from builders.manifests import (
    GONE,
    Object,
    changed,
    collection,
    composite,
    inference,
    pod_group,
    preemption,
    refusals,
    role,
    template,
    workload,
)
from localcluster import Cluster

#: A good object, an immutable field, and two values of it.
IMMUTABLE: list[tuple[Object, str, Any, Any]] = [
    (inference(), "spec.schedulerName", "covey-scheduler", "other-scheduler"),
    (changed(inference(), {"spec.backend": "Volcano"}), "spec.queue", "here", "there"),
    (
        composite(),
        "spec.workloadRef",
        {"workloadName": "llm", "templateName": "unit"},
        {"workloadName": "llm", "templateName": "role"},
    ),
    (composite("llm-0-prefill"), "spec.parentCompositePodGroupName", "llm-0", "llm-1"),
    (
        pod_group(),
        "spec.workloadRef",
        {"workloadName": "llm", "templateName": "replica"},
        {"workloadName": "two", "templateName": "replica"},
    ),
    (
        changed(pod_group(), {"spec.parentCompositePodGroupName": GONE}),
        "spec.parentCompositePodGroupName",
        "llm-0",
        "llm-1",
    ),
    (
        workload(),
        "spec.controllerRef",
        {"apiGroup": "inference.covey.dev", "kind": "DisaggregatedInference", "name": "llm"},
        {"apiGroup": "inference.covey.dev", "kind": "DisaggregatedInference", "name": "other"},
    ),
    (preemption(), "spec.nodes", ["node-0"], ["node-1"]),
]


def stored(cluster: Cluster, namespace: str, manifest: Object) -> Object:
    """The object as it was stored, in a namespace of the test's own and with no life in it."""
    edits = {"metadata.namespace": namespace}
    if manifest["kind"] == "DisaggregatedInference":
        edits["spec.suspend"] = True
    wanted = changed(manifest, edits)
    return dict(cluster.api("POST", f"{collection(wanted)}?fieldValidation=Strict", wanted))


def update(cluster: Cluster, before: Object, edits: dict[str, Any]) -> Any:
    path = f"{collection(before)}/{before['metadata']['name']}?dryRun=All"
    return cluster.api("PUT", path, changed(before, edits))


@pytest.mark.parametrize(
    ("manifest", "path", "value", "other"), IMMUTABLE, ids=[f"{case[0]['kind']}:{case[1]}" for case in IMMUTABLE]
)
def test_an_immutable_field_cannot_change_nor_appear_nor_go(
    cluster: Cluster, namespace: str, manifest: Object, path: str, value: Any, other: Any
) -> None:
    without = stored(cluster, namespace, changed(manifest, {"metadata.name": "without"}))
    having = stored(cluster, namespace, changed(manifest, {"metadata.name": "having", path: value}))
    for before, after in ((without, value), (having, other), (having, GONE)):
        with pytest.raises(ApiException) as caught:
            update(cluster, before, {path: after})
        field = path.removeprefix("spec.")
        message = f"Forbidden: {field} is immutable: delete the object and create it anew to change it"
        assert (path, message) in refusals(caught.value)
    update(cluster, having, {"metadata.labels": {"other": "changes"}})


@pytest.mark.parametrize(
    ("path", "value", "other"), [("spec.priorityClassName", "high", "low"), ("spec.topology.name", "network", "other")]
)
def test_what_was_mistyped_can_be_corrected_until_units_exist(
    cluster: Cluster, namespace: str, path: str, value: Any, other: Any
) -> None:
    without = stored(cluster, namespace, changed(inference(), {"metadata.name": "without"}))
    having = stored(cluster, namespace, changed(inference(), {"metadata.name": "having", path: value}))
    remedy = "suspend the object until its pods are gone, or delete the object and create it anew to change it"
    message = f"Forbidden: {path.removeprefix('spec.')} is immutable while units exist: {remedy}"
    for before, changes in ((without, [value]), (having, [other, GONE])):
        for after in changes:
            update(cluster, before, {path: after})
        place = f"{collection(before)}/{before['metadata']['name']}/status"
        told = cluster.api("PATCH", place, {"status": {"unitStatuses": [{"unit": 0}]}})
        for after in changes:
            with pytest.raises(ApiException) as caught:
                update(cluster, told, {path: after})
            assert (path, message) in refusals(caught.value)
        update(cluster, told, {"metadata.labels": {"other": "changes"}})


def test_an_immutable_field_cannot_go_with_the_object_around_it(cluster: Cluster, namespace: str) -> None:
    having = stored(cluster, namespace, changed(inference(), {"spec.topology": {"name": "network"}}))
    place = f"{collection(having)}/{having['metadata']['name']}/status"
    told = cluster.api("PATCH", place, {"status": {"unitStatuses": [{"unit": 0}]}})
    with pytest.raises(ApiException, match=r"topology\.name is immutable"):
        update(cluster, told, {"spec.topology": GONE})


def test_the_queue_of_another_backend_may_change(cluster: Cluster, namespace: str) -> None:
    having = stored(cluster, namespace, changed(inference(), {"spec.queue": "here"}))
    assert update(cluster, having, {"spec.queue": "there"})["spec"]["queue"] == "there"
    assert "queue" not in update(cluster, having, {"spec.queue": GONE})["spec"]


def test_the_backend_cannot_change(cluster: Cluster, namespace: str) -> None:
    before = stored(cluster, namespace, inference())
    with pytest.raises(ApiException, match="backend is immutable: delete the object and create it anew"):
        update(cluster, before, {"spec.backend": "Volcano"})


@pytest.mark.parametrize(
    "edits",
    [{"spec.roles.3": role("encoder")}, {"spec.roles.2": GONE}, {"spec.roles.2.name": "gateway"}],
    ids=["added", "removed", "renamed"],
)
def test_the_set_of_roles_cannot_change(cluster: Cluster, namespace: str, edits: dict[str, Any]) -> None:
    before = stored(cluster, namespace, inference())
    with pytest.raises(ApiException) as caught:
        update(cluster, before, edits)
    instead = "delete the resource and create it anew to add, remove or rename a role"
    assert refusals(caught.value) == [("spec.roles", f"Forbidden: the set of role names is immutable: {instead}")]


def test_roles_may_change_their_order_and_all_that_is_live_or_rolled(cluster: Cluster, namespace: str) -> None:
    before = stored(cluster, namespace, inference())
    after = changed(
        before,
        {
            "spec.roles": list(reversed(before["spec"]["roles"])),
            "spec.replicas": 3,
            "spec.suspend": False,
            "spec.topology": {"required": "block"},
        },
    )
    after["spec"]["roles"][0] |= {"size": 2, "replicas": 5, "minReplicas": 0, "template": template(hostNetwork=True)}
    assert update(cluster, after, {})["spec"]["replicas"] == 3


def test_a_group_may_turn_from_gang_to_basic_as_minimums_do(cluster: Cluster, namespace: str) -> None:
    before = stored(cluster, namespace, composite())
    after = update(cluster, before, {"spec.schedulingPolicy": {"basic": {}}})
    assert after["spec"]["schedulingPolicy"] == {"basic": {}}
