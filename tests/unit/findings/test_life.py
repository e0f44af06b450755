"""What is told of a deployment, and what counts as its failure: what is right. What is marked is not so yet."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from builders.files import EXAMPLES, GPU, Object, cluster, covey, inference, pod_spec, role, write
from builders.files import plan as plan_files
from builders.inferences import inference as resource
from builders.inferences import role as part
from builders.members import cache, node, put, root_key
from covey.admission.status import statuses
from covey.api import core
from covey.manifests.documents import read_pasted
from covey.operator.plan import plan
from covey.operator.process.features import FEATURES
from covey.operator.status.status import compute
from covey.operator.status.units import describe_units
from scheduler_loop import Loop, labels
from unit.cli.test_defrag import files
from unit.cli.test_status_tree import World as Watched
from unit.operator.test_failing import crash, name_of, uids, world_of
from unit.operator.test_quota import engine, gpus
from unit.operator.world import World
from unit.scheduler.test_preempting import unit as covey_unit

#: What a kubelet writes of a container that does not start, or does not stay.
PULLING = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "engine:1"'}}
UNMADE = {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "hf-token" not found'}}
LOOPING = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"}}
KILLED = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
STATES = pytest.mark.parametrize(
    ("state", "last", "words"),
    [
        (PULLING, {}, ("ImagePullBackOff", "engine:1")),
        (UNMADE, {}, ("CreateContainerConfigError", "hf-token")),
        (LOOPING, KILLED, ("CrashLoopBackOff", "OOMKilled", "137")),
    ],
    ids=["image", "secret", "memory"],
)


def container_status(state: Object, last: Object) -> Object:
    return {"name": "engine", "ready": False, "restartCount": bool(last) * 3, "state": state, "lastState": last}


# Why pods do not start


@STATES
def test_the_status_when_a_container_does_not_start_says_why(state: Object, last: Object, words: tuple[str]) -> None:
    world = World.settled(resource(part("decode")), notes=True)
    for name in world.pods:
        world.bind(name)
        found = msgspec.convert(container_status(state, last), core.ContainerStatus)
        world.change(name, status={"container_statuses": (found,)})
    told = json.dumps(world.tell())
    assert [word for word in words if word not in told] == []


@STATES
def test_explain_when_a_container_does_not_start_says_why(state: Object, last: Object, words: tuple[str]) -> None:
    world = Watched()
    world.bind_all()
    world.bind("llm-0-decode-0-0", "n9", ready=False)
    world.pods["llm-0-decode-0-0"]["spec"]["containers"][0]["image"] = "engine:1"
    world.pods["llm-0-decode-0-0"]["status"]["containerStatuses"] = [container_status(state, last)]
    assert [word for word in words if word not in world.reasons()] == []


# Which containers count


def with_template(spec: Object) -> World:
    return world_of(part("decode", size=2, template={"spec": spec}))


def test_a_restart_when_the_engine_is_a_native_sidecar_recreates_the_replica() -> None:
    """Its peer hangs; the main container is a worker without a device."""
    limits = {"resources": {"limits": {GPU: "8"}}}
    sidecar = {"name": "engine", "image": "engine:1", "restartPolicy": "Always", **limits}
    world = with_template({"initContainers": [sidecar], "containers": [{"name": "worker", "image": "worker:1"}]})
    before = uids(world)
    restarted = (core.ContainerStatus(name="engine", restart_count=1),)
    world.change(name_of(world, "0-decode-0-0"), status={"init_container_statuses": restarted})
    world.settle()
    assert not before & uids(world)


def test_a_restart_when_the_container_was_injected_changes_nothing() -> None:
    world = with_template({"containers": [{"name": "engine", "image": "engine:1"}]})
    name = name_of(world, "0-decode-0-0")
    agent = core.Container(name="vault-agent")
    world.change(name, spec={"containers": (*world.pods[name].spec.containers, agent)})
    world.change(name, status={"container_statuses": (core.ContainerStatus(name="vault-agent", restart_count=1),)})
    assert not world.plan().actions


def test_the_event_when_a_container_restarts_names_it_and_how_it_ended() -> None:
    world = world_of(part("decode", size=2))
    name = crash(world, "0-decode-0-0")
    ended = {"terminated": {"exitCode": 139, "reason": "Error"}}
    status = {"name": "engine", "restartCount": 1, "state": {"running": {}}, "lastState": ended}
    world.change(name, status={"container_statuses": (msgspec.convert(status, core.ContainerStatus),)})
    told = " ".join(note.message for note in world.plan().actions.notes)
    assert [word for word in ("engine", "139") if word not in told] == []


# Why surplus waits


def test_surplus_when_a_resource_quota_has_none_left_does_not_wait_for_room() -> None:
    world = World.serving(resource(part("decode", replicas=1, **engine(8))))
    world.inference = resource(part("decode", replicas=3, minReplicas=1, **engine(8)))
    observed, verdict = dataclasses.replace(world.observe(), quotas=(gpus(8, 8),)), world.judge()
    planned = plan(verdict, observed, world.status, features=FEATURES)
    units = tuple(describe_units(verdict.inference, verdict.backend, observed, planned))
    reason = compute(verdict, observed, planned, units, {}, "2026-05-01T12:00:00Z")["summary"]["reason"]
    assert "for nodes" not in reason
    assert "quota" in reason


async def test_surplus_when_the_block_of_its_unit_is_full_is_said_to_wait_for_that() -> None:
    """Another block is empty."""
    near, far = labels(), labels() | {"cloud.provider.com/topology-block": "b2"}
    made = cache(node("n1", labels=near), node("n2", labels=far))
    block = {"topology": [{"level": "block", "mode": "Required", "scope": "Group"}]}
    for each in covey_unit("low", replicas=2, gpus=8, nodes=("n1",), constraints=block):
        put(made, each)
    loop = Loop(made)
    assert await loop.turn() == {}
    unit = made.index.unit(root_key("low"))
    assert unit is not None
    decision = loop.queue.decision(root_key("low"))
    told = json.dumps([status for _, status in statuses(unit, decision, lambda _: (), "2026-01-01T00:00:00Z")])
    assert "block" in told


# What a plan says


def test_the_plan_of_the_page_when_an_example_has_yaml_anchors_takes_it() -> None:
    # Values of charts are no manifests.
    for path in sorted({*EXAMPLES.rglob("*.yaml")} - {*EXAMPLES.rglob("values*.yaml")}):
        assert read_pasted(path.read_text(), "manifest"), path


def refusal(path: Path, wanted: Object) -> str:
    """All that a plan on two racks of two nodes says of why there is no room."""
    answer = plan_files(*files(path, [wanted], cluster(2, 2), []))
    (found,) = answer["workloads"]
    assert found["verdict"] == "Infeasible"
    return " ".join(reason["message"] for reason in found["reasons"])


def test_a_refusal_when_no_node_has_such_a_resource_names_those_that_nodes_have(tmp_path: Path) -> None:
    spec = pod_spec(0)
    amounts = {"example.com/gpu": "1"}
    spec["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    assert GPU in refusal(tmp_path, inference("llm", role("w", template={"spec": spec})))


def test_a_refusal_when_a_pod_is_larger_than_every_node_says_how_large_they_are(tmp_path: Path) -> None:
    gang = inference("llm", role("w", size=2, gpus=16, topology={"required": "rack"}))
    assert re.search(r"\b8\b", refusal(tmp_path, gang))


def test_a_refusal_when_a_unit_is_required_in_one_host_says_what_is_missing_there(tmp_path: Path) -> None:
    gang = inference("llm", role("p", size=2), role("w", size=2), topology={"required": "host"})
    assert GPU in refusal(tmp_path, gang)


def test_a_plan_when_the_api_server_would_refuse_the_pods_is_no_success(tmp_path: Path) -> None:
    """Devices are requested, and not limited."""
    spec = pod_spec(1)
    del spec["containers"][0]["resources"]["limits"]
    wanted = inference("llm", role("w", template={"spec": spec}))
    arguments: list[Any] = [
        "-f",
        write(tmp_path / "in.json", [wanted]),
        "--nodes",
        write(tmp_path / "n.json", cluster(1)),
    ]
    assert covey("plan", *arguments).exit_code != 0
