"""The budget of a namespace: the eviction API, the disruption controller, and an upgrade."""

from __future__ import annotations

from typing import Final

from kubernetes.client import ApiException

from builders.manifests import Object, workers
from cluster.workbench import label, name_of, uid_of, uids
from stage import Stage
from stage.play import INFERENCE
from stage.record import states

NAME: Final = "covey-gangs"
GANG: Final = "covey.dev/gang"
KIND: Final = "PodDisruptionBudget"


def budgets(stage: Stage) -> dict[str, int]:
    """Healthy pods of each budget of the namespace, at rest."""
    stage.settle()
    return {name_of(budget): budget["status"]["currentHealthy"] for budget in stage.all(KIND)}


def evict(stage: Stage, **labels: str) -> set[int]:
    """The codes that the eviction API answers with for these pods."""
    codes = set()
    for pod in stage.pods(**labels):
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name_of(pod)}}
        try:
            stage.cluster.api("POST", f"{stage.path('Pod', name_of(pod))}/eviction", body)
            codes.add(201)
        except ApiException as error:
            codes.add(int(error.status))
    return codes


def test_budget_keeps_two_resources_and_goes_with_the_last(stage: Stage) -> None:
    stage.nodes(nodes=4)
    stage.create(workers("prefill", size=2), workers("router", minReplicas=0, gpus=1), name="first")
    stage.create(workers("decode"), name="second")
    stage.ready(4)
    assert budgets(stage) == {NAME: 3}
    # Why it is a number of pods: the disruption controller expects as many as the resource's /scale says, in units.
    other = {"maxUnavailable": 0, "selector": {"matchLabels": {"covey.dev/inference": "first", GANG: "true"}}}
    stage.cluster.api("POST", stage.path(KIND), {"metadata": {"name": "other"}, "spec": other})
    assert budgets(stage)["other"] == 2
    assert stage.get(KIND, "other")["status"]["disruptionsAllowed"] == 1
    stage.delete(KIND, "other")
    stage.settle()
    budget = stage.get(KIND, NAME)
    assert not budget["metadata"].get("ownerReferences")
    assert budget["status"]["disruptionsAllowed"] == 0
    assert evict(stage, role="prefill") == evict(stage, role="decode") == {429}
    assert evict(stage, role="router") == {201}
    # Somebody changes it; somebody deletes it.
    stage.patch(KIND, NAME, {"spec": {"minAvailable": 1}})
    stage.settle()
    assert stage.get(KIND, NAME)["spec"]["minAvailable"] > 1
    stage.delete(KIND, NAME)
    stage.settle()
    assert uid_of(stage.get(KIND, NAME)) != uid_of(budget)
    # The one resource is suspended, the other deleted; then the first needs it again.
    stage.change("first", suspend=True)
    assert budgets(stage) == {NAME: 1}
    stage.delete(INFERENCE, "second")
    assert not budgets(stage)
    stage.change("first", suspend=False)
    assert budgets(stage) == {NAME: 2}
    # What ends without an operator is found by the next.
    with stage.away("operator"):
        stage.delete(INFERENCE, "first")
        stage.settle()
        assert not stage.pods()
        assert budgets(stage).keys() == {NAME}
    assert not budgets(stage)


def test_label_of_the_budget_follows_the_minimum(stage: Stage) -> None:
    stage.nodes(nodes=2)

    def roles(minimum: int) -> list[Object]:
        return [workers("decode"), workers("router", minReplicas=minimum, gpus=1)]

    def protected() -> set[str]:
        stage.settle()
        return {label(pod, "role") for pod in stage.pods() if GANG in pod["metadata"]["labels"]}

    stage.create(*roles(0))
    before = stage.ready(2)
    assert protected() == {"decode"}
    assert budgets(stage) == {NAME: 1}
    stage.change(roles=roles(1))
    assert protected() == {"decode", "router"}
    assert budgets(stage) == {NAME: 2}
    assert evict(stage, role="router") == {429}
    stage.change(roles=roles(0))
    assert protected() == {"decode"}
    assert uids(stage.pods()) == uids(before)
    assert evict(stage, role="router") == {201}


def test_budget_of_a_stranger_of_this_name_is_told_and_gates_no_pod(stage: Stage) -> None:
    stage.nodes(nodes=2)
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}
    stage.cluster.api("POST", stage.path(KIND), {"metadata": {"name": NAME}, "spec": spec})
    stage.create(workers("prefill"), workers("decode"))
    stage.ready(2)
    status, reason, message = stage.condition("Progressing")
    assert (status, reason) == ("False", "NameTaken")
    assert f"PodDisruptionBudget {NAME} exists and is not Covey's" in message
    assert spec.items() <= stage.get(KIND, NAME)["spec"].items()
    stage.delete(KIND, NAME)
    # Nobody tells of strangers' objects: it is tried again once a minute.
    stage.advance(70)
    assert budgets(stage) == {NAME: 2}
    assert stage.condition("Progressing")[:2] == ("True", "Complete")


def former(stage: Stage, name: str, *roles: str) -> Object:
    """The budget that an earlier release made for a resource, as it made it."""
    owner = {
        "apiVersion": "inference.covey.dev/v1alpha1",
        "kind": INFERENCE,
        "name": name,
        "uid": uid_of(stage.get(INFERENCE, name)),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    selector = {
        "matchLabels": {"covey.dev/inference": name},
        "matchExpressions": [{"key": "covey.dev/role", "operator": "In", "values": list(roles)}],
    }
    metadata = {
        "name": f"{name}-gang",
        "labels": {"covey.dev/inference": name},
        "annotations": {"covey.dev/applied": "0123456789ab"},
        "ownerReferences": [owner],
    }
    spec = {"minAvailable": 1_000_000, "selector": selector, "unhealthyPodEvictionPolicy": "IfHealthyBudget"}
    return {"apiVersion": "policy/v1", "kind": KIND, "metadata": metadata, "spec": spec}


def selects(budget: Object, pod: Object) -> bool:
    selector, labels = budget["spec"]["selector"], pod["metadata"]["labels"]
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(term["key"]) in term["values"] if term["operator"] == "In" else term["key"] not in labels
        for term in selector.get("matchExpressions", ())
    )


def test_pods_have_one_budget_at_any_moment_of_an_upgrade(stage: Stage) -> None:
    stage.nodes(nodes=5)
    for name in ("first", "second"):
        stage.create(workers("prefill"), workers("decode"), workers("router", minReplicas=0, gpus=1), name=name)
    before = stage.ready(6)
    # As an earlier release has left it.
    with stage.away("operator"):
        for pod in before:
            stage.patch("Pod", name_of(pod), {"metadata": {"labels": {GANG: None}}})
        stage.delete(KIND, NAME)
        for name in ("first", "second"):
            manager = f"{stage.path(KIND)}?fieldManager=covey-operator"
            stage.cluster.api("POST", manager, former(stage, name, "prefill", "decode"))
        assert budgets(stage) == {"first-gang": 2, "second-gang": 2}
        since = stage.history("Pod", KIND)[-1].version
    assert budgets(stage) == {NAME: 4}
    for event, objects in states(stage.history("Pod", KIND)):
        if event.version <= since:
            continue
        stored = [item for item in objects.values() if "minAvailable" in item["spec"]]
        for pod in (item for item in objects.values() if "containers" in item["spec"]):
            names = [name_of(budget) for budget in stored if selects(budget, pod)]
            assert len(names) == (label(pod, "role") != "router"), f"{name_of(pod)}: {names}"
    assert uids(stage.pods()) == uids(before)
    assert evict(stage, role="decode") == {429}
