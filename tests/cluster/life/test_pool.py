"""One InferencePool for a resource, with everything running: made, changed, withdrawn, and refused in one sentence.

Its kind is the CRD that kubernetes-sigs/gateway-api-inference-extension publishes. No gateway and no endpoint picker runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from kubernetes.client import ApiException

from builders.manifests import Object
from cluster.conftest import Covey
from cluster.serving import AddNodes, Serving, serving, workers
from cluster.workbench import uid_of, uids
from install.foreign import INFERENCE_POOLS, foreign_crds
from localcluster import Cluster, eventually
from localcluster.programs import ROOT, scheduler_config

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")

RIGHTS = ROOT / "manifests" / "components" / "inference-pools" / "rights.yaml"
GROUP: Final = "inference.networking.k8s.io"
DEFINITION: Final = f"inferencepools.{GROUP}"


@pytest.fixture(scope="module")
def covey(cluster: Cluster) -> Iterator[Covey]:
    """The processes, the operator with the flag and the rights; nobody has installed the kind."""
    cluster.install_rbac(ROOT / "manifests" / "base" / "rbac", RIGHTS)
    try:
        scheduler = cluster.start_covey("scheduler")
        kube_scheduler = cluster.start_scheduler(scheduler_config(scheduler))
        yield Covey(cluster.start_covey("operator", "--inference-pools"), scheduler, kube_scheduler)
    finally:
        cluster.stop_all()
        cluster.kubectl("delete", "--ignore-not-found", "-f", str(RIGHTS))
        cluster.kubectl("delete", "crd", DEFINITION, check=False)


@pytest.fixture
def kind(cluster: Cluster) -> None:
    """The kind is there."""
    install_kind(cluster)


def install_kind(cluster: Cluster) -> None:
    cluster.install_crds(*foreign_crds(INFERENCE_POOLS))


def path(serving: Serving, name: str = "llm") -> str:
    return f"/apis/{GROUP}/v1/namespaces/{serving.namespace}/inferencepools/{name}"


def find(serving: Serving, name: str = "llm") -> Object | None:
    try:
        found: Object = serving.cluster.api("GET", path(serving, name))
    except ApiException as error:
        if error.status != 404:
            raise
        return None
    return found


def await_pool(serving: Serving) -> Object:
    def there() -> Object:
        found = find(serving)
        assert found is not None
        return found

    return eventually(there, 60, "the pool is there")


def pool(*ports: int, **picker: Any) -> Object:
    numbers = [{"number": each} for each in ports or (8000,)]
    return {"pool": {"targetPorts": numbers, "endpointPickerRef": {"name": "epp", "port": {"number": 9002}, **picker}}}


def roles() -> list[Object]:
    return [workers("prefill"), workers("decode", size=2)]


def refusal(serving: Serving, reason: str) -> str:
    return serving.await_condition("Progressing", "False", reason)


def await_silence(serving: Serving) -> None:
    def silent() -> bool:
        (found,) = serving.all("DisaggregatedInference")
        told = {each["type"]: (each["status"], each["reason"]) for each in found["status"]["conditions"]}
        assert "PoolMissing" not in told, told
        assert "Stalled" not in told, told
        assert told["Progressing"] == ("True", "Complete"), told
        assert told["Ready"][0] == "True", told
        return True

    eventually(silent, 90, "nothing is said of the pool any more")


def test_a_cluster_without_the_kind_serves_and_gets_a_pool_with_it(serving: Serving, nodes: AddNodes) -> None:
    nodes(nodes=3)
    serving.create(*roles(), routing=pool())
    assert "InferencePool" in serving.await_condition("PoolMissing", "True", "PoolsNotServed")
    serving.await_ready(3)
    install_kind(serving.cluster)
    await_pool(serving)
    await_silence(serving)


@pytest.mark.usefixtures("kind")
def test_it_is_made_changed_put_right_and_withdrawn(serving: Serving, nodes: AddNodes) -> None:
    nodes(nodes=3)
    serving.create(*roles(), routing=pool())
    pods = serving.await_ready(3)
    made = await_pool(serving)
    assert made["metadata"]["ownerReferences"][0]["name"] == "llm"
    selected = made["spec"]["selector"]["matchLabels"]
    leaders = [pod for pod in pods if selected.items() <= pod["metadata"]["labels"].items()]
    assert sorted(pod["metadata"]["labels"]["covey.dev/role"] for pod in leaders) == ["decode", "prefill"]

    def says(**fields: Any) -> bool:
        found = find(serving)
        assert found is not None
        assert found["spec"]["endpointPickerRef"].items() >= fields.items(), found
        return uid_of(found) == uid_of(made)

    serving.change({"routing": pool(9000, failureMode="FailOpen")})
    eventually(lambda: says(failureMode="FailOpen"), 30, "it is changed")
    serving.change({"routing": {"pool": {"endpointPickerRef": {"failureMode": None}}}})
    eventually(lambda: says(failureMode="FailClose"), 30, "what is not asked for any more is given up")
    serving.cluster.api("PATCH", path(serving), {"spec": {"endpointPickerRef": {"name": "other"}}})
    eventually(lambda: says(name="epp"), 30, "what somebody has written is put right")
    serving.cluster.api("DELETE", path(serving))
    eventually(lambda: uid_of(await_pool(serving)) != uid_of(made), 30, "it is made again")
    serving.change({"routing": None})
    eventually(lambda: find(serving) is None, 60, "it goes with the field")
    assert uids(serving.pods()) == uids(pods)


@pytest.mark.usefixtures("kind")
def test_another_ones_pool_is_left_and_told(serving: Serving, nodes: AddNodes) -> None:
    """Also one that carries the labels of Covey's own."""
    nodes(nodes=3)
    theirs = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "InferencePool",
        "metadata": {"name": "llm", "labels": {"covey.dev/inference": "llm"}},
        "spec": {**pool(8001)["pool"], "selector": {"matchLabels": {"app": "theirs"}}},
    }
    before = serving.cluster.api("POST", path(serving, ""), theirs)
    serving.create(*roles(), routing=pool())
    assert "InferencePool llm exists and" in refusal(serving, "NameTaken")
    serving.await_ready(3)
    assert find(serving) == before
    serving.change({"routing": None})
    await_silence(serving)
    assert find(serving) == before
    serving.change({"routing": pool()})
    refusal(serving, "NameTaken")
    serving.cluster.api("DELETE", path(serving))
    eventually(lambda: await_pool(serving)["spec"]["selector"] != before["spec"]["selector"], 90, "ours is made")
    await_silence(serving)


@pytest.mark.usefixtures("kind")
def test_a_denied_write_is_told_and_stops_nothing(serving: Serving, nodes: AddNodes) -> None:
    nodes(nodes=4)
    serving.create(*roles(), routing=pool(8000, group="Not a group"))
    assert "spec.endpointPickerRef.group" in refusal(serving, "RequestRefused")
    serving.await_ready(3)
    serving.change({"roles": [workers("prefill", replicas=2), roles()[1]]})
    serving.await_ready(4)
    assert find(serving) is None
    serving.change({"routing": {"pool": {"endpointPickerRef": {"group": None}}}})
    await_pool(serving)
    await_silence(serving)


@pytest.mark.usefixtures("kind")
def test_without_the_right_everything_else_goes_on(serving: Serving, nodes: AddNodes, covey_to_kill: Covey) -> None:
    """Also in a process that has just begun, and can list no pools."""
    nodes(nodes=3)
    serving.cluster.kubectl("delete", "-f", str(RIGHTS))
    try:
        covey_to_kill.operator.kill()
        covey_to_kill.operator.start()
        serving.create(*roles(), routing=pool())
        assert "forbidden" in refusal(serving, "RequestRefused")
        serving.await_ready(3)
    finally:
        serving.cluster.install_rbac(RIGHTS)
    await_pool(serving)
    await_silence(serving)


@pytest.mark.usefixtures("kind")
def test_an_operator_without_the_flag_says_so(serving: Serving, nodes: AddNodes, covey_to_kill: Covey) -> None:
    nodes(nodes=3)
    covey_to_kill.operator.stop()
    serving.cluster.start_covey("operator", name="covey-operator-plain")
    serving.create(*roles(), routing=pool())
    assert "routing.inferencePools" in serving.await_condition("PoolMissing", "True", "PoolsSwitchedOff")
    serving.await_ready(3)
    assert find(serving) is None
