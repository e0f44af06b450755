"""A resource that comes back from a backup: all that it had but its pods is there before it, and nobody owns it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

import pytest

from builders.manifests import Object
from cluster.conftest import AddNodes
from cluster.serving import Serving, serving, workers
from cluster.workbench import name_of, uid_of, uids
from localcluster import eventually

__all__ = ["serving"]

KINDS = ("Service", "ControllerRevision", "Workload", "CompositePodGroup", "PodGroup", "RoleScaler")
PORTS = [{"name": "http", "port": 8000}, {"name": "metrics", "port": 9000}]
PREFILL = workers("prefill", gpus=1, scaling={"mode": "External"}, network={"ports": PORTS, "service": {}})
DECODE = workers("decode", gpus=1)


def of_resource(serving: Serving) -> Iterator[tuple[str, Object]]:
    """What the resource has but its pods, by kind."""
    for kind in KINDS:
        yield from (
            (kind, item) for item in serving.all(kind) if "covey.dev/inference" in item["metadata"].get("labels", {})
        )


def take_backup(serving: Serving) -> list[tuple[str, Object]]:
    """Delete the resource; return what it had but its pods, as Velero creates it again."""
    backup = list(of_resource(serving))
    serving.delete("DisaggregatedInference", "llm")
    serving.await_nothing_left()
    for _, item in backup:
        kept = {key: item["metadata"][key] for key in ("name", "labels", "annotations") if key in item["metadata"]}
        item["metadata"] = {**kept, "labels": {**kept["labels"], "velero.io/restore-name": "after-the-flood"}}
        item.pop("status", None)
        if item.get("spec", {}).get("clusterIP", "None") != "None":
            del item["spec"]["clusterIP"], item["spec"]["clusterIPs"]
    return backup


def restore(serving: Serving, backup: list[tuple[str, Object]]) -> None:
    for kind, item in backup:
        api_version = serving.path(kind).removeprefix("/apis/").removeprefix("/api/").partition("/namespaces")[0]
        document = {"apiVersion": api_version, "kind": kind, **item}
        serving.cluster.kubectl("create", "-n", serving.namespace, "-f", "-", input=json.dumps(document))


@pytest.mark.usefixtures("covey")
def test_a_resource_when_all_of_it_but_pods_is_restored_without_owners_runs_again(
    serving: Serving, nodes: AddNodes
) -> None:
    nodes(nodes=1)
    serving.create(PREFILL, DECODE)
    serving.await_ready(2)
    restore(serving, take_backup(serving))
    uid = uid_of(serving.create(PREFILL, DECODE))
    serving.await_ready(2)
    for _, item in of_resource(serving):
        assert [owner["uid"] for owner in item["metadata"]["ownerReferences"]] == [uid], name_of(item)
    # It is kept up as if the operator had made it: what is no longer wanted goes.
    serving.change({"roles": [{**PREFILL, "network": {"ports": PORTS[:1], "service": {}}}, DECODE]})

    def ports() -> list[str]:
        return [port["name"] for port in serving.get("Service", "llm-prefill-svc")["spec"]["ports"]]

    eventually(lambda: ports() == ["http"], describe="the Service has the ports that are wanted")


@pytest.mark.usefixtures("covey")
def test_a_restored_service_when_it_is_not_as_it_would_be_made_is_not_adopted_and_the_command_helps(
    serving: Serving, nodes: AddNodes
) -> None:
    nodes(nodes=1)
    serving.create(PREFILL, DECODE)
    serving.await_ready(2)
    backup = take_backup(serving)
    next(item for _, item in backup if name_of(item) == "llm-prefill")["spec"]["externalIPs"] = ["192.0.2.7"]
    restore(serving, backup)
    serving.create(PREFILL, DECODE)
    message = serving.await_condition("Stalled", "True", "NameTaken")
    assert message.startswith("Service llm-prefill exists and has no owner")
    assert "--cascade=orphan, or restored from a backup" in message
    assert "ownerReferences" not in serving.get("Service", "llm-prefill")["metadata"]
    run_command_of(serving, message)
    serving.await_ready(2)


@pytest.mark.usefixtures("covey")
def test_a_service_that_was_left_when_the_resource_serves_goes_by_the_command_and_no_pod_does(
    serving: Serving, nodes: AddNodes
) -> None:
    nodes(nodes=1)
    left = {"name": "llm-prefill-svc", "labels": {"covey.dev/inference": "llm", "covey.dev/role": "prefill"}}
    serving.cluster.api("POST", serving.path("Service"), {"metadata": left, "spec": {"ports": [{"port": 80}]}})
    serving.create({**PREFILL, "network": {"ports": PORTS}}, DECODE)
    before = uids(serving.await_ready(2))
    serving.change({"roles": [PREFILL, DECODE]})
    run_command_of(serving, serving.await_condition("Progressing", "False", "NameTaken"))
    # Nobody tells of what nobody owned: it is tried again once a minute.
    eventually(lambda: serving.condition("Ready")["status"] == "True", 180, "the Service is there")
    assert serving.get("Service", "llm-prefill-svc")["metadata"]["ownerReferences"]
    assert uids(serving.pods()) == before


def run_command_of(serving: Serving, message: str) -> None:
    _, command, _ = message.split("`")
    kubectl, *arguments = shlex.split(command)
    assert kubectl == "kubectl"
    serving.cluster.kubectl(*arguments)
