"""From a resource to pods: order, identity, membership, and that one delete removes all."""

from __future__ import annotations

import itertools
from collections import Counter
from http import HTTPStatus

import pytest
from kubernetes.client import ApiException

from builders.manifests import Object, role, template, workers
from cluster.workbench import OWNED, hostnames, is_gated, is_ready, label, name_of, uid_of, uids
from stage import Stage
from stage.play import INFERENCE


@pytest.fixture(autouse=True)
def node(stage: Stage) -> str:
    """Room for everything: these pods ask for nothing."""
    [name] = stage.nodes()
    return name


def test_objects_of_a_level_are_there_before_the_next(stage: Stage) -> None:
    stage.create(replicas=2)
    stage.ready(12)
    born = {uid_of(event.object): event for event in reversed(stage.history()) if event.change == "ADDED"}
    made = [event for event in born.values() if event.object["metadata"].get("ownerReferences")]
    composites = [event for event in made if event.kind == "CompositePodGroup"]
    inner = [event for event in composites if "covey.dev/role" in event.object["metadata"]["labels"]]
    roots = [event for event in composites if event not in inner]
    levels = [[event for event in made if event.kind == kind] for kind in ("Workload", "PodGroup", "Service", "Pod")]
    levels[1:1] = [roots, inner]
    assert [len(level) for level in levels] == [1, 2, 2, 6, 1, 12]
    for above, below in itertools.pairwise(levels):
        assert max(event.version for event in above) < min(event.version for event in below)


def test_pods_are_gated_at_birth(stage: Stage) -> None:
    stage.create()
    stage.ready(6)
    born = [event.object for event in stage.history("Pod") if event.change == "ADDED"]
    assert len(born) == 6
    assert all(map(is_gated, born))
    assert {pod["spec"]["schedulerName"] for pod in born} == {"covey-scheduler"}


def test_pods_have_their_places_owners_and_groups(stage: Stage) -> None:
    resource = stage.create()
    pods = stage.ready(6)
    assert hostnames(pods) == [
        "0-decode-0-0",
        "0-decode-1-0",
        "0-prefill-0-0",
        "0-prefill-0-1",
        "0-prefill-1-0",
        "0-prefill-1-1",
    ]
    for kind in OWNED:
        for item in stage.owned(kind):
            [owner] = item["metadata"]["ownerReferences"]
            if kind != "PodDisruptionBudget":
                assert (owner["uid"], owner["controller"]) == (uid_of(resource), True)
                assert label(item, "inference") == "llm"
    members = Counter(pod["metadata"]["labels"]["scheduling.covey.dev/pod-group"] for pod in pods)
    assert members == {"llm-0-prefill-0": 2, "llm-0-prefill-1": 2, "llm-0-decode": 2}
    assert members.keys() == {name_of(group) for group in stage.owned("PodGroup")}
    assert all(name_of(pod).startswith(f"llm-{pod['spec']['hostname']}-") for pod in pods)


def test_start_scripts_find_their_leader(stage: Stage) -> None:
    stage.create()
    [worker] = [pod for pod in stage.ready(6) if pod["spec"]["hostname"] == "0-prefill-1-1"]
    [container] = worker["spec"]["containers"]
    environment = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert list(environment)[:3] == ["LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"]
    assert environment["LWS_LEADER_ADDRESS"] == f"0-prefill-1-0.llm-pods.{stage.namespace}"
    assert (environment["LWS_GROUP_SIZE"], environment["LWS_WORKER_INDEX"]) == ("2", "1")
    service = stage.get("Service", "llm-pods")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"].items() <= worker["metadata"]["labels"].items()
    assert worker["spec"]["subdomain"] == "llm-pods"


def test_pod_when_its_news_are_late_is_not_created_again(stage: Stage) -> None:
    """The watch may be behind the answers; what it has not shown yet is not asked for again."""
    with stage.late("operator", "pods"):
        # Pods are believed in for ten seconds only.
        stage.create(role("prefill", replicas=10, size=4))
        stage.settle(ahead=1)
        stage.change(roles=[role("prefill", replicas=11, size=4)])
        stage.settle(ahead=1)
    stage.ready(44)
    assert len(stage.writes("operator", "create", "pods")) == 44


def test_resource_when_it_is_deleted_leaves_nothing(stage: Stage) -> None:
    stage.create()
    stage.ready(6)
    stage.delete(INFERENCE, "llm")
    stage.settle()
    assert not [item for kind in (*OWNED, "ControllerRevision") for item in stage.owned(kind)]


def test_namesake_when_it_comes_at_once_is_made_anew(stage: Stage) -> None:
    stage.create()
    before = uids(stage.ready(6))
    stage.delete(INFERENCE, "llm")
    again = stage.create()
    pods = stage.ready(6)
    assert not before & uids(pods)
    assert {pod["metadata"]["ownerReferences"][0]["uid"] for pod in pods} == {uid_of(again)}


def test_status_of_a_resource_whose_scheduler_is_away_says_that_it_waits(stage: Stage) -> None:
    with stage.away("scheduler"):
        stage.create()
        stage.settle()
        assert stage.condition("Admitted")[:2] == ("False", "Waiting")
        assert stage.condition("BackendSupported")[:2] == ("True", "Supported")
        status = stage.status()
        assert [each["updated"] for each in status["roles"]] == [2, 2]
        assert status["summary"]["ready"] == "prefill 0/2 decode 0/2"
        assert status["units"] == 1
        assert status["unitStatuses"][0]["phase"] == "Pending"


def test_status_of_a_resource_that_serves_is_written_no_more(stage: Stage) -> None:
    stage.create()
    pods = stage.ready(6)
    assert stage.condition("Admitted")[:2] == ("True", "Admitted")
    assert stage.condition("Scheduled")[0] == "True"
    assert stage.condition("Available")[:2] == ("True", "Available")
    assert stage.condition("Progressing")[:2] == ("True", "Complete")
    status = stage.status()
    assert status["readyUnits"] == 1
    assert status["summary"]["ready"] == "prefill 2/2 decode 2/2"
    # Of stages that are reached within one look only the last is told: these pods are ready as soon as they are bound.
    assert stage.event_notes("Available")
    seen = stage.get(INFERENCE, "llm")["metadata"]["resourceVersion"]
    stage.patch("Pod", name_of(pods[0]), {"metadata": {"annotations": {"looked": "at"}}})
    stage.settle()
    stage.advance(600)
    assert stage.get(INFERENCE, "llm")["metadata"]["resourceVersion"] == seen


def test_environment_of_the_user_stays_where_it_is_not_coveys(stage: Stage) -> None:
    own = [{"name": "LWS_GROUP_SIZE", "value": "9"}, {"name": "MINE", "value": "$(LWS_GROUP_SIZE)"}]
    containers: list[Object] = [{"name": "engine", "image": "registry.test/engine:1", "env": own}]
    stage.create(role("prefill", size=2, template=template(containers=containers)))
    environment = stage.ready(2)[0]["spec"]["containers"][0]["env"]
    assert [item["value"] for item in environment if item["name"] == "LWS_GROUP_SIZE"] == ["2"]
    assert environment[-1] == own[1]


def test_queue_that_a_resource_names_reaches_its_groups_and_follows_every_change(stage: Stage) -> None:
    stage.create(queue="search")
    stage.settle()
    before = uids(stage.pods())
    assert len(before) == 6
    for queue in ("search", "batch", None):
        stage.change(queue=queue)
        stage.settle()
        [unit] = [each for each in stage.all("CompositePodGroup") if "parentCompositePodGroupName" not in each["spec"]]
        [root] = stage.get("Workload", "llm")["spec"]["compositePodGroupTemplates"]
        assert (unit["spec"].get("queue"), root.get("queue")) == (queue, queue)
    assert uids(stage.pods()) == before


@pytest.mark.parametrize("is_up", [True, False])
def test_namespace_when_it_is_deleted_ends_with_all_of_it_and_frees_its_nodes(stage: Stage, *, is_up: bool) -> None:
    """The operator is not needed for it either: nothing of Covey has a finalizer."""
    stage.claim_nodes()
    name = f"doomed-{is_up}".lower()
    path = f"/api/v1/namespaces/{name}"
    stage.cluster.api("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    kind = {"apiVersion": "inference.covey.dev/v1alpha1", "kind": INFERENCE, "metadata": {"name": "llm"}}
    roles = [workers("prefill"), workers("decode", gpus=0)]
    resources = stage.path(INFERENCE).replace(stage.namespace, name)
    stage.cluster.api("POST", resources, {**kind, "spec": {"roles": roles}})

    def pods() -> list[Object]:
        return [pod for (namespace, _), pod in stage.ground.record.objects["Pod"].items() if namespace == name]

    stage.await_event(lambda: len(pods()) == 2 and all(map(is_ready, pods())), "it serves")
    with stage.away(*(() if is_up else ("operator",))):
        stage.cluster.api("DELETE", path)
        stage.await_event(lambda: not pods() and not is_there(stage, path), "the namespace is gone")
    stage.create(*roles)
    stage.ready(2)


def is_there(stage: Stage, path: str) -> bool:
    """Tell whether an object exists."""
    try:
        stage.cluster.api("GET", path)
    except ApiException as error:
        return error.status != HTTPStatus.NOT_FOUND
    return True
