"""What a rollout gives up of what serves: nothing for what cannot start, and at once what places a successor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from builders.files import queue
from builders.manifests import Object
from cluster.kubelet import Kubelet
from cluster.serving import AddNodes, Serving, fewest_serving, serves, serving, workers
from cluster.workbench import label, name_of, uids
from denial import MARK, WORDS, Policy
from localcluster import eventually
from scheduler_trees import Bench, node_of

__all__ = ["serving"]

QUEUES = "/apis/scheduling.covey.dev/v1alpha1/queues"

pytestmark = pytest.mark.usefixtures("covey")


def pair(image: str = "1", prefill: int = 4, decode: int = 2, gpus: int = 8, **spec: Any) -> list[Object]:
    """Two roles of single pods, of which one replica each is the minimum."""
    roles = [workers("prefill", replicas=prefill, gpus=gpus), workers("decode", replicas=decode, gpus=gpus)]
    for role in roles:
        change(role, image, **spec)
    return roles


def change(role: Object, image: str, **spec: Any) -> Object:
    template = role["template"]["spec"]
    template["containers"][0]["image"] = f"registry.test/engine:{image}"
    template.update(spec)
    role["minReplicas"] = 1
    return role


def begin(serving: Serving, *roles: Object, count: int, **spec: Any) -> list[Object]:
    serving.create(*roles, **spec)
    serving.await_bound(count)
    eventually(lambda: all(map(serves, serving.pods())), describe="all pods are Ready")
    serving.await_condition("Progressing", "True", "Complete")
    return serving.pods()


def await_rolled(serving: Serving, image: str, count: int) -> None:
    def rolled() -> bool:
        pods = serving.pods()
        told = sorted(f"{name_of(pod)} {pod['spec']['containers'][0]['image']}" for pod in pods)
        assert all(pod["spec"]["containers"][0]["image"].endswith(f":{image}") for pod in pods), (
            f"{told}; {hold(serving)}"
        )
        assert len(pods) == count, str(told)
        return all(map(serves, pods))

    eventually(rolled, 120, "everything is rolled")
    serving.await_condition("Progressing", "True", "Complete")


def hold(serving: Serving) -> Mapping[str, str]:
    status = serving.get("DisaggregatedInference", "llm")["status"]
    return dict(status.get("rollout", {}).get("hold") or {})


def await_hold(serving: Serving, *words: str) -> str:
    """Wait until the rollout holds for want of places, and says so in these words."""

    def held() -> str:
        found = hold(serving)
        assert found.get("gate") == "Room", str(found)
        assert all(word in found["message"] for word in words), found["message"]
        return found["message"]

    return eventually(held, 120, f"it holds: {words}")


def test_on_a_full_cluster_a_rollout_goes_on_at_once_and_a_rival_gets_nothing(
    serving: Serving, nodes: AddNodes
) -> None:
    nodes(blocks=1, racks=1, nodes=6)
    before = begin(serving, *pair(), count=6)
    serving.create(*pair(prefill=1, decode=1), name="rival")
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.change({"roles": pair("2")})
        await_rolled_of(serving, "2")
        history = recording.events
    assert fewest_serving(before, history, "prefill", 1) == 3
    assert fewest_serving(before, history, "decode", 1) == 1
    assert not [pod for pod in serving.pods(inference="rival") if node_of(pod)]


def await_rolled_of(serving: Serving, image: str) -> None:
    """Wait until the resource itself is rolled, others being in its namespace."""

    def rolled() -> bool:
        pods = serving.pods(inference="llm")
        told = sorted(f"{name_of(pod)} {pod['spec']['containers'][0]['image']}" for pod in pods)
        assert len(pods) == 6, f"{told}; {hold(serving)}"
        assert all(pod["spec"]["containers"][0]["image"].endswith(f":{image}") for pod in pods), (
            f"{told}; {hold(serving)}"
        )
        return all(map(serves, pods))

    eventually(rolled, 120, "everything is rolled")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nodeSelector": {"gpu": "h100"}}, ("node selector",)),
        ({"gpus": 16}, ("prefill: room for 4 of 5 replicas", "decode: room for 4 of 5 replicas")),
    ],
    ids=["a selector that no node has", "a pod that is larger than a node"],
)
def test_a_change_that_fits_nowhere_costs_nothing_that_serves(
    serving: Serving, nodes: AddNodes, changes: dict[str, Any], words: tuple[str, ...]
) -> None:
    nodes(blocks=1, racks=1, nodes=12)
    before = begin(serving, *pair(decode=4), count=8)
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.change({"roles": pair("2", decode=4, **changes)})
        message = await_hold(serving, *words)
        serving.change({"roles": pair("3", decode=4)})
        await_rolled(serving, "3", 8)
        history = recording.events
    assert message.startswith("1 of prefill, 1 of decode of the new revision without places: ")
    assert fewest_serving(before, history, "prefill", 1) == 4
    assert fewest_serving(before, history, "decode", 1) == 4


def test_of_two_roles_of_which_one_fits_nowhere_neither_gives_anything_up(serving: Serving, nodes: AddNodes) -> None:
    """A full cluster: old prefill would leave room for new prefill, but nothing for the decode that comes with it."""
    nodes(blocks=1, racks=1, nodes=6)
    before = begin(serving, *pair(), count=6)
    roles = pair("2")
    change(roles[1], "2", nodeSelector={"gpu": "h100"})
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.change({"roles": roles})
        await_hold(serving, "node selector")
        serving.change({"roles": pair("3")})
        await_rolled(serving, "3", 6)
        history = recording.events
    assert fewest_serving(before, history, "prefill", 1) == 3
    assert fewest_serving(before, history, "decode", 1) == 1


def test_a_budget_of_nothing_that_is_written_out_keeps_all_on_a_full_cluster(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=6)
    begin(serving, *pair(), count=6)
    written = [{**role, "update": {"maxUnavailable": 0}} for role in pair("2")]
    serving.change({"roles": written})
    await_hold(serving, "prefill: room for 4 of 5 replicas")
    assert sum(map(serves, serving.pods())) == 6
    serving.change({"roles": pair("2")})
    await_rolled(serving, "2", 6)
    assert {label(pod, "role") for pod in serving.pods()} == {"prefill", "decode"}


@pytest.fixture
def policy(serving: Serving) -> Iterator[Policy]:
    made = Policy(Bench(serving.cluster, serving.namespace))
    made.install()
    yield made
    made.remove()


@pytest.mark.parametrize("count", [6, 12], ids=["on a full cluster", "with nodes to spare"])
def test_a_change_whose_pins_are_denied_costs_nothing_that_serves(
    serving: Serving, nodes: AddNodes, policy: Policy, count: int
) -> None:
    nodes(blocks=1, racks=1, nodes=count)
    before = begin(serving, *pair(), count=6)
    roles = pair("2")
    for role in roles:
        role["template"]["metadata"] = {"labels": {MARK: ""}}
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.change({"roles": roles})
        await_hold(serving, WORDS)
        history = list(recording.events)
        assert fewest_serving(before, history, "prefill", 1) == 4
        assert fewest_serving(before, history, "decode", 1) == 2
        policy.remove()
        serving.change({"roles": pair("3")})
        await_rolled(serving, "3", 6)


def test_a_quota_without_room_for_a_surge_holds_no_rollout_up(serving: Serving, nodes: AddNodes) -> None:
    """Half of the nodes are free, and the quota of the namespace, or of its queue, is used up."""
    nodes(blocks=1, racks=1, nodes=12)
    before = begin(serving, *pair(), count=6)
    hard = {"metadata": {"name": "gpus"}, "spec": {"hard": {"requests.nvidia.com/gpu": "48"}}}
    quotas = f"/api/v1/namespaces/{serving.namespace}/resourcequotas"
    serving.cluster.api("POST", quotas, hard)
    eventually(lambda: serving.cluster.api("GET", f"{quotas}/gpus")["status"]["used"], describe="it is counted")
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.change({"roles": pair("2")})
        await_rolled(serving, "2", 6)
        history = recording.events
    assert fewest_serving(before, history, "prefill", 1) == 3
    assert fewest_serving(before, history, "decode", 1) == 1
    serving.cluster.api("DELETE", f"{quotas}/gpus")


def test_a_queue_without_quota_for_a_surge_holds_no_rollout_up(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=12)
    before = begin(serving, *pair(), count=6)
    tenant = queue(f"full-{serving.namespace}", 48)
    tenant["spec"]["namespaces"] = {"selector": {"matchLabels": {"kubernetes.io/metadata.name": serving.namespace}}}
    serving.cluster.api("POST", QUEUES, tenant)
    path = f"{QUEUES}/{tenant['metadata']['name']}"
    try:
        eventually(lambda: serving.cluster.api("GET", path).get("status"), describe="it is counted")
        with serving.cluster.record(serving.path("Pod")) as recording:
            serving.change({"roles": pair("2")})
            await_rolled(serving, "2", 6)
            history = recording.events
        assert fewest_serving(before, history, "prefill", 1) == 3
        assert fewest_serving(before, history, "decode", 1) == 1
    finally:
        serving.cluster.api("DELETE", path)


def test_images_in_place_wait_for_no_surge_on_a_full_cluster(serving: Serving, nodes: AddNodes) -> None:
    """One of a role at a time, in the pods that there are."""
    nodes(blocks=1, racks=1, nodes=6)
    in_place = {"inPlace": "IfPossible"}
    with Kubelet(serving):
        before = begin(serving, *({**role, "update": in_place} for role in pair()), count=6)
        with serving.cluster.record(serving.path("Pod")) as recording:
            serving.change({"roles": [{**role, "update": in_place} for role in pair("2")]})
            await_rolled(serving, "2", 6)
            history = recording.events
    assert fewest_serving(before, history, "prefill", 1) >= 3
    assert fewest_serving(before, history, "decode", 1) >= 1
    kept = uids(before) & uids(serving.pods())
    assert len(kept) >= 4, "no more than the first of each role were made anew"
