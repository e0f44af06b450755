"""A resource that comes back from a backup: all that it had but its pods is there before it, and nobody owns it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

from builders.manifests import Object, workers
from cluster.workbench import name_of, uid_of, uids
from stage import Stage
from stage.play import INFERENCE
from stage.record import KINDS

RESTORED = ("Service", "ControllerRevision", "Workload", "CompositePodGroup", "PodGroup", "RoleScaler")
PORTS = [{"name": "http", "port": 8000}, {"name": "metrics", "port": 9000}]
PREFILL = workers("prefill", gpus=1, scaling={"mode": "External"}, network={"ports": PORTS, "service": {}})
DECODE = workers("decode", gpus=1)


def of_resource(stage: Stage) -> Iterator[tuple[str, Object]]:
    """What the resource has but its pods, by kind."""
    for kind in RESTORED:
        for item in stage.all(kind):
            if "covey.dev/inference" in item["metadata"].get("labels", {}):
                yield kind, item


def take_backup(stage: Stage) -> list[tuple[str, Object]]:
    """Delete the resource; return what it had but its pods, as Velero creates it again."""
    backup = [(kind, json.loads(json.dumps(item))) for kind, item in of_resource(stage)]
    stage.delete(INFERENCE, "llm")
    stage.settle()
    assert not list(of_resource(stage))
    for _, item in backup:
        kept = {key: item["metadata"][key] for key in ("name", "labels", "annotations") if key in item["metadata"]}
        item["metadata"] = {**kept, "labels": {**kept["labels"], "velero.io/restore-name": "after-the-flood"}}
        item.pop("status", None)
        if item.get("spec", {}).get("clusterIP", "None") != "None":
            del item["spec"]["clusterIP"], item["spec"]["clusterIPs"]
    return backup


def restore(stage: Stage, backup: list[tuple[str, Object]]) -> None:
    for kind, item in backup:
        body = {"apiVersion": KINDS[kind].api_version, "kind": kind, **item}
        stage.cluster.kubectl("create", "-n", stage.namespace, "-f", "-", input=json.dumps(body))


def test_resource_when_all_of_it_but_pods_is_restored_without_owners_runs_again(stage: Stage) -> None:
    stage.nodes(nodes=1)
    stage.create(PREFILL, DECODE)
    stage.ready(2)
    restore(stage, take_backup(stage))
    uid = uid_of(stage.create(PREFILL, DECODE))
    stage.ready(2)
    for _, item in of_resource(stage):
        assert [owner["uid"] for owner in item["metadata"]["ownerReferences"]] == [uid], name_of(item)
    # It is kept up as if the operator had made it: what is no longer wanted goes.
    stage.change(roles=[{**PREFILL, "network": {"ports": PORTS[:1], "service": {}}}, DECODE])
    stage.settle()
    assert [port["name"] for port in stage.get("Service", "llm-prefill-svc")["spec"]["ports"]] == ["http"]


def test_restored_service_when_it_is_not_as_it_would_be_made_is_not_adopted_and_the_command_helps(
    stage: Stage,
) -> None:
    stage.nodes(nodes=1)
    stage.create(PREFILL, DECODE)
    stage.ready(2)
    backup = take_backup(stage)
    next(item for _, item in backup if name_of(item) == "llm-prefill")["spec"]["externalIPs"] = ["192.0.2.7"]
    restore(stage, backup)
    stage.create(PREFILL, DECODE)
    stage.settle()
    status, reason, message = stage.condition("Stalled")
    assert (status, reason) == ("True", "NameTaken")
    assert message.startswith("Service llm-prefill exists and has no owner")
    assert "--cascade=orphan, or restored from a backup" in message
    assert "ownerReferences" not in stage.get("Service", "llm-prefill")["metadata"]
    run_command_of(stage, message)
    stage.advance(70)
    stage.ready(2)


def test_service_that_was_left_when_the_resource_serves_goes_by_the_command_and_no_pod_does(stage: Stage) -> None:
    stage.nodes(nodes=1)
    left = {"name": "llm-prefill-svc", "labels": {"covey.dev/inference": "llm", "covey.dev/role": "prefill"}}
    stage.cluster.api("POST", stage.path("Service"), {"metadata": left, "spec": {"ports": [{"port": 80}]}})
    stage.create({**PREFILL, "network": {"ports": PORTS}}, DECODE)
    before = uids(stage.ready(2))
    stage.change(roles=[PREFILL, DECODE])
    stage.settle()
    status, reason, message = stage.condition("Progressing")
    assert (status, reason) == ("False", "NameTaken")
    run_command_of(stage, message)
    # Nobody tells of what nobody owned: it is tried again once a minute.
    stage.advance(70)
    assert stage.condition("Ready")[0] == "True"
    assert stage.get("Service", "llm-prefill-svc")["metadata"]["ownerReferences"]
    assert uids(stage.pods()) == before


def run_command_of(stage: Stage, message: str) -> None:
    _, command, _ = message.split("`")
    kubectl, *arguments = shlex.split(command)
    assert kubectl == "kubectl"
    stage.cluster.kubectl(*arguments)
