"""One InferencePool for a resource: made, changed, withdrawn, and refused in one sentence.

Its kind is the CRD that kubernetes-sigs/gateway-api-inference-extension publishes. No gateway and no endpoint picker runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client import ApiException

from builders.manifests import Object, workers
from cluster.workbench import label, uid_of, uids
from covey.kube.resources import INFERENCE_POOLS
from install import foreign
from localcluster.programs import ROOT
from stage import Ground, Stage

RIGHTS = ROOT / "manifests" / "components" / "inference-pools" / "rights.yaml"


@pytest.fixture(scope="module")
def kind(ground: Ground) -> Iterator[None]:
    """The kind is there."""
    ground.cluster.install_crds(*foreign.foreign_crds(foreign.INFERENCE_POOLS))
    yield
    ground.cluster.kubectl("delete", "crd", f"{INFERENCE_POOLS.plural}.{INFERENCE_POOLS.group}")


@pytest.fixture
def stage(stage: Stage) -> Stage:
    """The operator has the flag and the rights, and there are nodes."""
    # The garbage collector looks for new kinds every half a minute only.
    stage.after(lambda: stage.cluster.kubectl("delete", "inferencepools", "--all", "-n", stage.namespace, check=False))
    give_rights(stage)
    stage.after(lambda: stage.cluster.kubectl("delete", "--ignore-not-found", "-f", str(RIGHTS)))
    stage.restart(operator={"inference_pools": True})
    stage.after(stage.ground.restart)
    stage.nodes(nodes=4)
    return stage


def give_rights(stage: Stage, *, given: bool = True) -> None:
    """Give the operator its rights on pools, or take them; return once the API server heeds that."""
    if given:
        stage.cluster.install_rbac(RIGHTS)
    else:
        stage.cluster.kubectl("delete", "-f", str(RIGHTS))
    asked = {"namespace": stage.namespace, "verb": "create", "group": INFERENCE_POOLS.group}
    user = "system:serviceaccount:covey-system:covey-operator"
    body = {"spec": {"user": user, "resourceAttributes": {**asked, "resource": INFERENCE_POOLS.plural}}}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    stage.await_event(
        lambda: stage.cluster.api("POST", path, body)["status"]["allowed"] is given, "the API server heeds the rights"
    )


def path(stage: Stage) -> str:
    return INFERENCE_POOLS.path(stage.namespace, "llm")


def find(stage: Stage) -> Object | None:
    """The pool at rest, if there is one."""
    stage.settle()
    try:
        found: Object = stage.cluster.api("GET", path(stage))
    except ApiException as error:
        if error.status != 404:
            raise
        return None
    return found


def get(stage: Stage) -> Object:
    """The pool at rest."""
    found = find(stage)
    assert found is not None
    return found


def pool(port: int = 8000, **picker: Any) -> Object:
    reference = {"name": "epp", "port": {"number": 9002}, **picker}
    return {"pool": {"targetPorts": [{"number": port}], "endpointPickerRef": reference}}


def roles() -> list[Object]:
    return [workers("prefill"), workers("decode", size=2)]


def refusal(stage: Stage, reason: str) -> str:
    """Why there is no pool, at rest; everything else goes on."""
    stage.ready(3)
    status, found, message = stage.condition("Progressing")
    assert (status, found) == ("False", reason)
    return message


def check_nothing_is_said(stage: Stage) -> None:
    """Nothing is said of the pool, and all is well."""
    stage.ready(3)
    assert [stage.condition(kind)[0] for kind in ("PoolMissing", "Stalled", "Ready")] == ["", "", "True"]
    assert stage.condition("Progressing")[:2] == ("True", "Complete")


def test_resource_when_the_kind_is_not_there_serves_and_gets_a_pool_with_it(
    stage: Stage, request: pytest.FixtureRequest
) -> None:
    stage.create(*roles(), routing=pool())
    stage.ready(3)
    status, reason, message = stage.condition("PoolMissing")
    assert (status, reason) == ("True", "PoolsNotServed")
    assert "InferencePool" in message
    request.getfixturevalue("kind")
    stage.advance(70)
    assert find(stage)
    check_nothing_is_said(stage)


@pytest.mark.usefixtures("kind")
def test_pool_is_made_changed_put_right_and_withdrawn(stage: Stage) -> None:
    stage.create(*roles(), routing=pool())
    pods = stage.ready(3)
    made = get(stage)
    assert made["metadata"]["ownerReferences"][0]["name"] == "llm"
    selected = made["spec"]["selector"]["matchLabels"]
    leaders = [pod for pod in pods if selected.items() <= pod["metadata"]["labels"].items()]
    assert sorted(label(pod, "role") for pod in leaders) == ["decode", "prefill"]

    def picker() -> Object:
        found = get(stage)
        assert uid_of(found) == uid_of(made)
        return dict(found["spec"]["endpointPickerRef"])

    stage.change(routing=pool(9000, failureMode="FailOpen"))
    assert picker()["failureMode"] == "FailOpen"
    # What is not asked for any more is given up, and what somebody else has written is put right.
    stage.change(routing={"pool": {"endpointPickerRef": {"failureMode": None}}})
    assert picker()["failureMode"] == "FailClose"
    stage.cluster.api("PATCH", path(stage), {"spec": {"endpointPickerRef": {"name": "other"}}})
    assert picker()["name"] == "epp"
    stage.cluster.api("DELETE", path(stage))
    assert uid_of(get(stage)) != uid_of(made)
    stage.change(routing=None)
    assert find(stage) is None
    assert uids(stage.pods()) == uids(pods)


@pytest.mark.usefixtures("kind")
def test_pool_of_somebody_else_is_left_and_told(stage: Stage) -> None:
    """Also one that carries the labels of Covey's own."""
    theirs = {
        "apiVersion": INFERENCE_POOLS.api_version,
        "kind": INFERENCE_POOLS.kind,
        "metadata": {"name": "llm", "labels": {"covey.dev/inference": "llm"}},
        "spec": {**pool(8001)["pool"], "selector": {"matchLabels": {"app": "theirs"}}},
    }
    before = stage.cluster.api("POST", INFERENCE_POOLS.path(stage.namespace), theirs)
    stage.create(*roles(), routing=pool())
    assert "InferencePool llm exists and" in refusal(stage, "NameTaken")
    assert find(stage) == before
    stage.change(routing=None)
    check_nothing_is_said(stage)
    assert find(stage) == before
    stage.change(routing=pool())
    refusal(stage, "NameTaken")
    stage.cluster.api("DELETE", path(stage))
    # It is tried again once a minute.
    stage.advance(70)
    assert get(stage)["spec"]["selector"] != before["spec"]["selector"]
    check_nothing_is_said(stage)


@pytest.mark.usefixtures("kind")
def test_pool_when_the_api_server_refuses_it_is_told_and_stops_nothing(stage: Stage) -> None:
    stage.create(*roles(), routing=pool(group="Not a group"))
    assert "spec.endpointPickerRef.group" in refusal(stage, "RequestRefused")
    stage.change(roles=[workers("prefill", replicas=2), roles()[1]])
    stage.ready(4)
    assert find(stage) is None
    stage.change(roles=roles(), routing={"pool": {"endpointPickerRef": {"group": None}}})
    assert find(stage)
    check_nothing_is_said(stage)


@pytest.mark.usefixtures("kind")
def test_pool_without_the_right_is_told_and_everything_else_goes_on(stage: Stage) -> None:
    """Also in a process that has just begun, and can list no pools."""
    give_rights(stage, given=False)
    stage.kill_now("operator")
    stage.create(*roles(), routing=pool())
    assert "forbidden" in refusal(stage, "RequestRefused")
    give_rights(stage)
    stage.advance(70)
    assert find(stage)
    check_nothing_is_said(stage)


@pytest.mark.usefixtures("kind")
def test_pool_when_the_operator_has_not_the_flag_is_told(stage: Stage) -> None:
    stage.restart()
    stage.create(*roles(), routing=pool())
    stage.ready(3)
    status, reason, message = stage.condition("PoolMissing")
    assert (status, reason) == ("True", "PoolsSwitchedOff")
    assert "routing.inferencePools" in message
    assert find(stage) is None
