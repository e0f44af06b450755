"""The budget of a namespace on a real control plane: the eviction API, the disruption controller, and an upgrade."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubernetes.client import ApiException

from builders.manifests import Object
from cluster.conftest import Covey
from cluster.serving import AddNodes, Event, Serving, serving, workers
from cluster.workbench import label, name_of, uid_of, uids
from localcluster import eventually

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")

NAME = "covey-gangs"
GANG = "covey.dev/gang"
KIND = "PodDisruptionBudget"


def await_budget(serving: Serving, healthy: int, name: str = NAME, timeout: float = 60) -> Object:
    """Wait until the disruption controller has counted so many healthy pods."""

    def counted() -> Object:
        budget = serving.get(KIND, name)
        assert budget.get("status", {}).get("currentHealthy") == healthy, str(budget)
        return budget

    return eventually(counted, timeout, f"{healthy} healthy pods are counted")


def budgets(serving: Serving) -> set[str]:
    return {name_of(each) for each in serving.all(KIND)}


def await_budgets(serving: Serving, *names: str) -> None:
    def there() -> bool:
        assert budgets(serving) == set(names)
        return True

    eventually(there, 60, f"the budgets are {names}")


def evict(serving: Serving, pod: Object) -> int:
    """The code that the eviction API answers with."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name_of(pod)}}
    try:
        serving.cluster.api("POST", f"{serving.path('Pod', name_of(pod))}/eviction", body)
    except ApiException as error:
        return int(error.status)
    return 201


def protected(serving: Serving) -> set[str]:
    """The roles of the pods that have the label."""
    return {label(pod, "role") for pod in serving.pods() if GANG in pod["metadata"]["labels"]}


def test_one_budget_keeps_two_resources_and_goes_with_the_last(serving: Serving, nodes: AddNodes) -> None:
    nodes(racks=2, nodes=2)
    serving.create(workers("prefill", size=2), workers("router", minReplicas=0, gpus=1), name="first")
    serving.create(workers("decode"), name="second")
    serving.await_ready(4)
    budget = await_budget(serving, 3)
    assert budgets(serving) == {NAME}
    # Why it is a number of pods: the disruption controller expects as many as the resource's /scale says, in units.
    other = {"maxUnavailable": 0, "selector": {"matchLabels": {"covey.dev/inference": "first", GANG: "true"}}}
    serving.cluster.api("POST", serving.path(KIND), {"metadata": {"name": "other"}, "spec": other})
    assert await_budget(serving, 2, "other")["status"]["disruptionsAllowed"] == 1
    serving.delete(KIND, "other")
    assert not budget["metadata"].get("ownerReferences")
    assert budget["status"]["disruptionsAllowed"] == 0
    kept = [pod for pod in serving.pods() if label(pod, "role") != "router"]
    assert [evict(serving, pod) for pod in kept] == [429] * 3
    assert [evict(serving, pod) for pod in serving.pods(role="router")] == [201]
    # Somebody changes it; somebody deletes it.
    serving.cluster.api("PATCH", serving.path(KIND, NAME), {"spec": {"minAvailable": 1}})
    eventually(lambda: serving.get(KIND, NAME)["spec"]["minAvailable"] > 1, 30, "it is put right")
    serving.delete(KIND, NAME)
    eventually(lambda: uid_of(serving.get(KIND, NAME)) != uid_of(budget), 30, "it is made again")
    # The one resource is suspended, the other deleted; then the first needs it again.
    serving.change({"suspend": True}, "first")
    serving.await_pods(1)
    assert budgets(serving) == {NAME}
    serving.delete("DisaggregatedInference", "second")
    await_budgets(serving)
    serving.change({"suspend": False}, "first")
    await_budgets(serving, NAME)
    serving.delete("DisaggregatedInference", "first")
    await_budgets(serving)


def test_the_label_follows_the_minimum(serving: Serving, nodes: AddNodes) -> None:
    nodes(racks=1, nodes=2)

    def roles(minimum: int) -> list[Object]:
        return [workers("decode"), workers("router", minReplicas=minimum, gpus=1)]

    serving.create(*roles(0))
    before = serving.await_ready(2)
    await_budget(serving, 1)
    assert protected(serving) == {"decode"}
    serving.change({"roles": roles(1)})
    await_budget(serving, 2)
    assert protected(serving) == {"decode", "router"}
    assert [evict(serving, pod) for pod in serving.pods(role="router")] == [429]
    serving.change({"roles": roles(0)})
    # The disruption controller does not count anew for a pod that has lost a label.
    eventually(lambda: protected(serving) == {"decode"}, 30, "the label is taken away")
    assert uids(serving.pods()) == uids(before)
    assert [evict(serving, pod) for pod in serving.pods(role="router")] == [201]


def test_a_strangers_budget_of_this_name_is_told_and_gates_no_pod(serving: Serving, nodes: AddNodes) -> None:
    nodes(nodes=2)
    theirs = {"metadata": {"name": NAME}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}}
    serving.cluster.api("POST", serving.path(KIND), theirs)
    serving.create(workers("prefill"), workers("decode"))
    message = serving.await_condition("Progressing", "False", "NameTaken")
    assert f"PodDisruptionBudget {NAME} exists and is not Covey's" in message
    serving.await_ready(2)
    assert serving.get(KIND, NAME)["spec"] == {**serving.get(KIND, NAME)["spec"], **theirs["spec"]}
    serving.delete(KIND, NAME)
    # Nobody tells of strangers' objects: it is tried again once a minute.
    await_budget(serving, 2, timeout=120)
    serving.await_condition("Progressing", "True", "Complete")


def former(serving: Serving, name: str, *roles: str) -> Object:
    """The budget that the release before this one made for a resource, as it made it."""
    resource = serving.get("DisaggregatedInference", name)
    owner = {
        "apiVersion": "inference.covey.dev/v1alpha1",
        "kind": "DisaggregatedInference",
        "name": name,
        "uid": uid_of(resource),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    selector = {
        "matchLabels": {"covey.dev/inference": name},
        "matchExpressions": [{"key": "covey.dev/role", "operator": "In", "values": list(roles)}],
    }
    return {
        "apiVersion": "policy/v1",
        "kind": KIND,
        "metadata": {
            "name": f"{name}-gang",
            "labels": {"covey.dev/inference": name},
            "annotations": {"covey.dev/applied": "0123456789ab"},
            "ownerReferences": [owner],
        },
        "spec": {"minAvailable": 1_000_000, "selector": selector, "unhealthyPodEvictionPolicy": "IfHealthyBudget"},
    }


def selects(budget: Object, pod: Object) -> bool:
    selector, labels = budget["spec"]["selector"], pod["metadata"]["labels"]
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    return wanted and all(
        labels.get(each["key"]) in each["values"] if each["operator"] == "In" else each["key"] not in labels
        for each in selector.get("matchExpressions", ())
    )


def moments(before: list[Object], events: list[Event]) -> Iterator[dict[str, Object]]:
    """All objects by UID, after each event."""
    found = {uid_of(each): each for each in before}
    yield dict(found)
    for kind, item in events:
        found.pop(uid_of(item), None)
        if kind != "DELETED":
            found[uid_of(item)] = item
        yield dict(found)


def in_order(*histories: list[Event]) -> list[Event]:
    """Events of several kinds as they were written: one etcd counts all of them."""
    return sorted(
        (event for each in histories for event in each), key=lambda event: int(event[1]["metadata"]["resourceVersion"])
    )


def test_an_upgrade_gives_no_pod_two_budgets(serving: Serving, nodes: AddNodes, covey_to_kill: Covey) -> None:
    nodes(racks=2, nodes=4)
    for name in ("first", "second"):
        serving.create(
            workers("prefill", size=2), workers("decode"), workers("router", minReplicas=0, gpus=1), name=name
        )
    before = serving.await_ready(8)
    # As the release before this one has left it.
    covey_to_kill.operator.stop()
    for pod in before:
        serving.cluster.api("PATCH", serving.path("Pod", name_of(pod)), {"metadata": {"labels": {GANG: None}}})
    serving.delete(KIND, NAME)
    for name in ("first", "second"):
        serving.cluster.api(
            "POST", f"{serving.path(KIND)}?fieldManager=covey-operator", former(serving, name, "prefill", "decode")
        )
    await_budget(serving, 3, "first-gang")
    start = [*serving.pods(), *serving.all(KIND)]
    with serving.cluster.record(serving.path("Pod")) as pods, serving.cluster.record(serving.path(KIND)) as kept:
        covey_to_kill.operator.start()
        await_budgets(serving, NAME)
        await_budget(serving, 6)
        # Both recordings may be a moment behind what is there.
        pods.wait(lambda events: len({uid_of(pod) for _, pod in events if GANG in pod["metadata"]["labels"]}) == 6)
        kept.wait(lambda events: sum(kind == "DELETED" for kind, _ in events) == 2)
        history = in_order(pods.events, kept.events)
    assert {kind for kind, _ in history} == {"ADDED", "MODIFIED", "DELETED"}
    for objects in moments(start, history):
        stored = [each for each in objects.values() if "minAvailable" in each["spec"]]
        for pod in (each for each in objects.values() if "containers" in each["spec"]):
            found = [name_of(each) for each in stored if selects(each, pod)]
            assert len(found) == (label(pod, "role") != "router"), f"{name_of(pod)}: {found}"
    assert uids(serving.pods()) == uids(before)
    assert [evict(serving, pod) for pod in serving.pods(role="decode")] == [429, 429]


def test_what_ended_without_an_operator_is_found_by_the_next(
    serving: Serving, nodes: AddNodes, covey_to_kill: Covey
) -> None:
    nodes(racks=1, nodes=1)
    serving.create(workers("decode"))
    serving.await_ready(1)
    await_budgets(serving, NAME)
    covey_to_kill.operator.stop()
    serving.delete("DisaggregatedInference", "llm")
    serving.await_pods(0)
    assert budgets(serving) == {NAME}
    covey_to_kill.operator.start()
    await_budgets(serving)
