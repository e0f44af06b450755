"""DisaggregatedInferences whose pods claim devices by a template, with everything running."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kubernetes.client import ApiException

from builders.devices import DRIVER, class_body, request_body, wish_body
from builders.manifests import Object
from cluster.serving import KINDS, AddNodes, Serving, serving, workers
from cluster.workbench import uid_of
from covey.placement.cluster.classes import IMPLICIT
from device_driver import API, Driver
from localcluster import eventually
from scheduler_trees import node_of

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")
CLAIMING = {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "four"}]}
DEVICES = f"{DRIVER}.deviceclass.resource.k8s.io/devices"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
CLAIMS = "count/resourceclaims.resource.k8s.io"
NOBODY = {"labelSelector": {"matchLabels": {"is": "nowhere"}}, "topologyKey": "kubernetes.io/hostname"}
LONELY = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [NOBODY]}}


@pytest.fixture
def driver(serving: Serving) -> Iterator[Driver]:
    made = Driver(serving.cluster, serving.namespace)
    made.make("deviceclasses", class_body())
    yield made
    for path in made.made:
        serving.cluster.api("DELETE", path)


def write_template(serving: Serving, request: Object | None = None) -> None:
    """Write the template that pods claim by; what its claims ask for nobody can change, so it is exchanged."""
    path = f"{API}/namespaces/{serving.namespace}/resourceclaimtemplates"
    if serving.cluster.api("GET", path)["items"]:
        serving.cluster.api("DELETE", f"{path}/four")
    spec = {"spec": wish_body(request or request_body(4))}
    serving.cluster.api("POST", path, {"metadata": {"name": "four"}, "spec": spec})


@contextmanager
def refuse_claims(serving: Serving, driver: Driver) -> Iterator[None]:
    """Have the API server refuse every ResourceClaim of the namespace."""
    paths = [f"{ADMISSION}/validatingadmissionpolicies", f"{ADMISSION}/validatingadmissionpolicybindings"]
    rule = {"apiGroups": ["resource.k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": serving.namespace}}
    matched = {"resourceRules": [{**rule, "resources": ["resourceclaims"]}], "namespaceSelector": here}
    policy = {"matchConstraints": matched, "validations": [{"expression": "false", "message": "not now"}]}
    meta = {"name": serving.namespace}
    serving.cluster.api("POST", paths[0], {"metadata": meta, "spec": policy})
    binding = {"policyName": serving.namespace, "validationActions": ["Deny"]}
    serving.cluster.api("POST", paths[1], {"metadata": meta, "spec": binding})

    def is_refused() -> bool:
        claim = {"metadata": {"name": "asked"}, "spec": wish_body(request_body(1))}
        try:
            serving.cluster.api("POST", f"{driver.claims}?dryRun=All", claim)
        except ApiException as error:
            return "not now" in str(error.body)
        return False

    try:
        eventually(is_refused)
        yield
    finally:
        for path in reversed(paths):
            serving.cluster.api("DELETE", f"{path}/{serving.namespace}")


def set_quota(serving: Serving, hard: dict[str, str]) -> None:
    """A quota that is counted."""
    serving.cluster.api("POST", serving.path("ResourceQuota"), {"metadata": {"name": "few"}, "spec": {"hard": hard}})
    eventually(lambda: serving.get("ResourceQuota", "few")["status"]["used"].keys() == hard.keys())


def test_a_gang_waits_for_its_template_binds_and_leaves_nothing(
    serving: Serving, driver: Driver, nodes: AddNodes
) -> None:
    """Two replicas of two pods of four devices each fill two nodes of eight; a third finds no room."""
    names = nodes(nodes=2, gpus=0)
    for name in names:
        driver.offer(name, 8)
    serving.create(workers("decode", gpus=0, size=2, replicas=2, minReplicas=2, spec=CLAIMING))
    message = serving.await_condition("Admitted", "False", "Waiting")
    assert message == "role decode: ResourceClaimTemplate four does not exist: create it"
    assert [kind for kind in KINDS if serving.owned(kind)] == []
    write_template(serving)
    pods = serving.await_ready(4, inference="llm")
    allocated = driver.allocated()
    taken = [device for pod in pods for device in allocated[uid_of(pod)]]
    assert len(taken) == len(set(taken)) == 16
    assert all({pool for pool, _ in allocated[uid_of(pod)]} == {node_of(pod)} for pod in pods)
    serving.create(workers("decode", gpus=0, spec=CLAIMING), name="more")
    serving.await_condition("Admitted", "False", "Infeasible", name="more")
    serving.delete("DisaggregatedInference", "llm")
    serving.await_ready(1, inference="more")
    eventually(lambda: len(driver.allocated()) == 1, 60, "nothing but what the other has is allocated")


def test_what_cannot_be_counted_is_refused_before_anything_is_there_and_ends_nothing_that_runs(
    serving: Serving, driver: Driver, nodes: AddNodes
) -> None:
    (name,) = nodes(nodes=1, gpus=0)
    driver.offer(name, 4)
    every = {"name": "r", "exactly": {"deviceClassName": DRIVER, "allocationMode": "All"}}
    write_template(serving, every)
    serving.create(workers("decode", gpus=0, spec=CLAIMING))
    words = "ResourceClaimTemplate four has request r with allocationMode All, which Covey cannot count: remove it"
    assert serving.await_condition("Admitted", "False", "Unsupported") == f"role decode: {words}"
    assert words in serving.await_condition("Stalled", "True", "Unsupported")
    assert [kind for kind in KINDS if serving.owned(kind)] == []
    write_template(serving)
    [pod] = serving.await_ready(1)
    write_template(serving, every)
    serving.change({"rollout": {"paused": True}})
    serving.await_condition("Paused", "True", "RolloutPaused")
    serving.await_condition("Admitted", "True", "Admitted")
    assert [uid_of(each) for each in serving.pods()] == [uid_of(pod)]


def test_of_two_gangs_with_a_quota_for_one_and_a_half_one_runs_and_the_other_holds_nothing(
    serving: Serving, driver: Driver, nodes: AddNodes
) -> None:
    """The API server's own count is what the operator has charged: claims, and the devices under each of their names."""
    for name in nodes(nodes=2, gpus=0):
        driver.offer(name, 8)
    charged = {DEVICES: 8, "requests.nvidia.com/gpu": 8, f"requests.{IMPLICIT}{DRIVER}": 8, CLAIMS: 2}
    set_quota(serving, {name: str(count * 3 // 2) for name, count in charged.items()})
    write_template(serving)
    for name in ("one", "two"):
        serving.create(workers("decode", gpus=0, size=2, spec=CLAIMING), name=name)

    def settled() -> list[str]:
        found = {name: len(serving.pods(inference=name)) for name in ("one", "two")}
        assert sorted(found.values()) == [0, 2], str(found)
        return sorted(found, key=lambda name: -found[name])

    runs, waits = eventually(settled, 60)
    serving.await_ready(2, inference=runs)
    serving.await_condition("Admitted", "False", "QuotaExceeded", waits)
    named = [
        f"quota {serving.namespace}/few: {name} {charged[name]} needed, {charged[name] // 2} left"
        for name in sorted(charged)
    ]
    words = f"no pod of unit 0 is created before its whole minimum fits: {'; '.join(named[:3])}; and 1 more"
    # A claim that was made a moment ago counts twice until the pod's status names it.
    eventually(lambda: serving.condition("Admitted", waits)["message"].startswith(words), 60)
    assert settled() == [runs, waits]
    used = serving.get("ResourceQuota", "few")["status"]["used"]
    assert used == {name: str(count) for name, count in charged.items()}
    serving.delete("DisaggregatedInference", runs)
    serving.await_ready(2, inference=waits)


def test_claims_that_are_still_to_be_made_count_as_taken(serving: Serving, driver: Driver, nodes: AddNodes) -> None:
    """kube-controller-manager is refused every claim meanwhile, so no quota has charged anything for the first gang."""
    for name in nodes(nodes=2, gpus=0):
        driver.offer(name, 8)
    set_quota(serving, {DEVICES: "12"})
    write_template(serving)
    with refuse_claims(serving, driver):
        serving.create(workers("decode", gpus=0, size=2, spec=CLAIMING), name="one")
        serving.await_pods(2, inference="one")
        serving.create(workers("decode", gpus=0, size=2, spec=CLAIMING), name="two")
        message = serving.await_condition("Admitted", "False", "QuotaExceeded", "two")
        assert f"quota {serving.namespace}/few: {DEVICES} 8 needed, 4 left" in message
        assert serving.get("ResourceQuota", "few")["status"]["used"] == {DEVICES: "0"}
    serving.await_ready(2, inference="one")
    assert serving.pods(inference="two") == []


def test_a_gang_that_is_released_leaves_nothing_allocated(serving: Serving, driver: Driver, nodes: AddNodes) -> None:
    """kube-scheduler allocates for one pod, and takes the other to no node."""
    (name,) = nodes(nodes=1, gpus=0)
    driver.offer(name, 4)
    write_template(serving)
    with serving.cluster.record(driver.claims) as recording:
        serving.create(workers("decode", gpus=0, spec=CLAIMING), workers("prefill", gpus=0, spec={"affinity": LONELY}))
        eventually(
            lambda: any(claim.get("status", {}).get("allocation") for _, claim in recording.events),
            120,
            "one was allocated",
        )
        eventually(lambda: driver.allocated() == {}, 120, "nothing is allocated")
        assert serving.bound() == []
    serving.delete("DisaggregatedInference", "llm")
    serving.create(workers("decode", gpus=0, spec=CLAIMING), name="next")
    serving.await_ready(1, inference="next")
