"""What restart policies make of failures, from objects alone: an operator that is killed anywhere goes on."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.inferences import inference, role
from covey.api import constants as names
from covey.api import core
from covey.api.annotations import read
from covey.api.core import rfc3339
from covey.api.roles import Backoff
from covey.compile.restarts import delay
from covey.model import podstate
from covey.operator.model.place import current
from covey.operator.plan import Plan
from covey.operator.repair import failure_log
from covey.operator.repair.failure_log import ANNOTATION
from unit.operator.world import World


def world_of(*roles: dict[str, Any], **spec: Any) -> World:
    """All pods serve, and it is noted that they have."""
    world = World.settled(inference(*roles, **spec), notes=True)
    serve(world)
    return world


def restarting(name: str, policy: str | None = None, **fields: Any) -> dict[str, Any]:
    restart = {key: fields.pop(key) for key in ("backoff", "maxRestarts") if key in fields}
    return role(name, restart={"policy": policy, **restart} if policy or restart else None, **fields)


def serve(world: World, *, noted: bool = True) -> None:
    """The scheduler places what waits and is not held, each pod on a node of its own; the kubelet starts it."""
    for name, pod in list(world.pods.items()):
        if not podstate.is_bound(pod) and names.GATE_START not in core.gates(pod):
            world.bind(name)
            world.ready(name)
    if noted:
        world.note()


def crash(world: World, hostname: str, count: int = 1) -> str:
    """A container restarts; the kubelet counts it."""
    name = name_of(world, hostname)
    statuses = (core.ContainerStatus(name="engine", restart_count=count),)
    world.change(name, status={"container_statuses": statuses})
    return name


def name_of(world: World, hostname: str) -> str:
    slots = {slot: current(pods) for slot, pods in world.observe().pods.items()}
    return next(pod.metadata.name for pod in slots.values() if pod is not None and pod.spec.hostname == hostname)


def uids(world: World, prefix: str = "") -> set[str]:
    return {pod.metadata.uid for pod in world.pods.values() if (pod.spec.hostname or "").startswith(prefix)}


def go_on(world: World) -> Plan:
    """Everything is written, placed, and started if it may be."""
    world.settle()
    world.place()
    planned = world.settle()
    serve(world)
    return planned


def test_sidecars_and_containers_that_are_named_do_not_count() -> None:
    template = {
        "metadata": {"annotations": {names.ANNOTATION_RESTART_IGNORED: "proxy, engine"}},
        "spec": {"containers": [{"name": "engine", "image": "engine:1"}]},
    }
    world = world_of(role("prefill", size=2, template=template))
    crash(world, "0-prefill-0-0")
    assert not world.plan().actions
    world = world_of(role("prefill", size=2))
    sidecar = (core.ContainerStatus(name="log", restart_count=2),)
    world.change(name_of(world, "0-prefill-0-0"), status={"init_container_statuses": sidecar})
    assert not world.plan().actions


SIDECAR = {
    "spec": {
        "initContainers": [
            {
                "name": "engine",
                "image": "engine:1",
                "restartPolicy": "Always",
                "resources": {"limits": {"nvidia.com/gpu": 8}},
            },
            {"name": "log", "image": "log:1", "restartPolicy": "Always"},
        ],
        "containers": [{"name": "worker", "image": "worker:1"}],
    }
}


def restart_sidecar(world: World, hostname: str, name: str, count: int) -> None:
    ended = core.ContainerState(terminated=core.Terminated(exit_code=137, reason="OOMKilled"))
    status = core.ContainerStatus(name, restart_count=count, last_state=ended)
    world.change(name_of(world, hostname), status={"init_container_statuses": (status,)})


def test_sidecar_counts_when_it_asks_for_a_device() -> None:
    world = world_of(role("prefill", size=2, template=SIDECAR))
    restart_sidecar(world, "0-prefill-0-0", "log", 3)
    assert not world.plan().actions
    restart_sidecar(world, "0-prefill-0-1", "engine", 1)
    planned = world.plan()
    assert {item.pod.spec.hostname for item in planned.actions.delete_pods} == {"0-prefill-0-0", "0-prefill-0-1"}
    (note,) = [note for note in planned.actions.notes if note.reason == "ReplicaFailed"]
    assert note.message.endswith("ContainerRestarted (container engine ended with exit code 137 (OOMKilled))")


def test_restarts_of_a_sidecar_are_its_baseline_when_a_former_release_made_it_ready() -> None:
    """That release counted no sidecar, and noted none."""
    world = world_of(role("prefill", size=2, template=SIDECAR))
    for name in world.pods:
        world.annotate(name, {names.ANNOTATION_RESTART_BASELINE: None})
    before = uids(world)
    restart_sidecar(world, "0-prefill-0-1", "engine", 4)
    assert not world.plan().actions.delete_pods
    world.note()
    restart_sidecar(world, "0-prefill-0-1", "engine", 4)
    assert not world.plan().actions
    assert uids(world) == before
    restart_sidecar(world, "0-prefill-0-1", "engine", 5)
    assert len(world.plan().actions.delete_pods) == 2


def replace_container(world: World, hostname: str, *, after: float) -> None:
    """Another container runs than before, so long after the kubelet took the pod by its clock, which is an hour ahead."""
    scheduled = core.Condition("PodScheduled", "True", last_transition_time=rfc3339(world.now - 100))
    began = world.now + 3600
    running = core.Running(started_at=rfc3339(began + after))
    name = name_of(world, hostname)
    [container] = world.pods[name].spec.containers
    status = core.ContainerStatus(container.name, state=core.ContainerState(running=running))
    world.change(
        name,
        status={
            "start_time": rfc3339(began),
            "conditions": (*(world.pods[name].status.conditions or ()), scheduled),
            "container_statuses": (status,),
        },
    )


@pytest.mark.parametrize(
    ("after", "former", "deleted"),
    [
        pytest.param(86_400.0, False, 2, id="long after its replica was Ready"),
        pytest.param(50.0, False, 0, id="before"),
        pytest.param(86_400.0, True, 0, id="a former release made it Ready"),
    ],
)
def test_container_that_was_replaced_without_a_restart_counts_as_restarted(
    after: float, deleted: int, *, former: bool
) -> None:
    """As where a machine is imaged anew under its node."""
    world = world_of(restarting("prefill", size=2))
    if former:
        for name in world.pods:
            world.annotate(name, {names.ANNOTATION_REPLACED: None})
    replace_container(world, "0-prefill-0-1", after=after)
    assert len(world.plan().actions.delete_pods) == deleted


@pytest.mark.parametrize(("limits", "deleted"), [({}, 0), ({"nvidia.com/gpu": 1}, 2)])
def test_injected_container_counts_when_it_asks_for_a_device(limits: dict[str, int], deleted: int) -> None:
    world = world_of(role("prefill", size=2))
    name = name_of(world, "0-prefill-0-0")
    agent = core.Container("agent", resources=core.Resources(limits=limits))
    world.change(name, spec={"containers": (*world.pods[name].spec.containers, agent)})
    world.change(name, status={"container_statuses": (core.ContainerStatus("agent", restart_count=1),)})
    assert len(world.plan().actions.delete_pods) == deleted


def test_a_unit_that_is_recreated_starts_together_after_its_second_failure() -> None:
    world = world_of(restarting("prefill", "RecreateUnit", size=2), role("decode"))
    for _ in range(2):
        crash(world, "0-prefill-0-1")
        world.settle()
        world.place()
        serve(world)
    assert world.held() == {"0-prefill-0-0", "0-prefill-0-1", "0-decode-0-0"}


@settings(settings.get_profile("storm"))
@given(
    st.lists(st.integers(0, 9), min_size=4, max_size=10), st.sampled_from(["RecreateReplica", "RecreateUnit", "None"])
)
def test_an_operator_killed_at_any_write_counts_a_failure_once(kills: list[int], policy: str) -> None:
    """Every pod that goes, goes at once, so that the operator may be killed when no pod of a replica is left."""
    world = world_of(restarting("prefill", policy, size=2), restarting("decode", policy if policy != "None" else None))
    for number in range(3):
        world.fail(name_of(world, "0-prefill-0-0"))
        for kill in kills:
            step_until_killed(world, kill)
        world.settle()
        world.place()
        found = {podstate.past(world.pods[name_of(world, "0-prefill-0-0")])}
        assert {(past.restarts, past.failures) for past in found} == {(number + 1, number + 1)}
        world.now += 700
        go_on(world)


def step_until_killed(world: World, writes: int) -> None:
    for number, step in enumerate(world.steps(world.plan().actions)):
        if number == writes:
            break
        step()
        world.finish()
    world.forget()


def test_what_others_do_to_a_replica_is_no_failure() -> None:
    world = world_of(restarting("prefill", size=2))
    for _ in range(3):
        name = name_of(world, "0-prefill-0-0")
        world.delete(name)
        go_on(world)
    past = podstate.past(world.pods[name_of(world, "0-prefill-0-0")])
    assert (past.restarts, past.failures) == (3, 0)
    name = name_of(world, "0-prefill-0-0")
    disrupted = core.Condition("DisruptionTarget", "True", "PreemptionByScheduler")
    world.change(name, status={"phase": "Failed", "conditions": (disrupted,)})
    assert {item.told.past.failures for item in world.plan().actions.create} == {0}


def test_what_serves_again_is_forgiven_and_never_given_up_for_the_fault_that_is_over() -> None:
    def roles(most: int) -> list[dict[str, Any]]:
        prefill = restarting("prefill", "RecreateReplica", replicas=4, minReplicas=2, maxRestarts=most)
        return [prefill, restarting("decode", maxRestarts=most)]

    world = world_of(*roles(0))
    for number in range(4):
        crash(world, f"0-prefill-{number}-0")
        world.note()
    before = uids(world)
    world.now += 600
    (remark,) = world.plan().remarks
    assert "serves again, and is forgiven at" in remark.message
    raised = copy.deepcopy(world)
    raised.inference = inference(*roles(5))
    raised.settle()
    raised.note()
    assert uids(raised) == before
    assert not raised.plan().remarks
    # Nobody raises it: it is forgiven after as long as failures are remembered.
    world.now += world.plan().again or 0
    world.note()
    world.settle()
    assert uids(world) == before
    assert not world.plan().remarks
    assert {each["type"]: each["status"] for each in world.tell()["conditions"]}["Ready"] == "True"
    # The next failure is the first one in a row, and is counted.
    crash(world, "0-prefill-0-0", 2)
    planned = world.plan()
    assert sum(planned.status.failures.values()) == 1
    assert [note.message.endswith("in a row") for note in planned.actions.notes if note.reason == "ReplicaFailed"] == [
        False
    ]
    assert planned.remarks[0].reason == "RestartsExhausted"


def test_ready_replicas_whose_containers_all_restarted_go_within_their_budget() -> None:
    world = world_of(role("prefill", replicas=4, minReplicas=2, size=2), role("decode"))
    for number in range(4):
        crash(world, f"0-prefill-{number}-0")
    world.note()
    planned = world.plan()
    assert {item.pod.spec.hostname for item in planned.actions.delete_pods} == {
        f"0-prefill-{number}-{index}" for number in (0, 1) for index in (0, 1)
    }
    world.settle()
    assert not world.plan().actions, "the others serve until the first two do again"
    serve(world)
    assert len(world.plan().actions.delete_pods) == 4


def test_a_failed_pod_that_is_left_is_replaced_when_somebody_deletes_it() -> None:
    world = world_of(restarting("decode", maxRestarts=0))
    (name,) = world.pods
    world.fail(name)
    world.settle()
    assert list(world.pods) == [name]
    world.delete(name)
    assert world.plan().actions.create


def on_nodes(world: World, *nodes: str, racks: dict[str, str] | None = None) -> None:
    """The pods are bound to these nodes, one after the other."""
    waiting = sorted(name for name, pod in world.pods.items() if not podstate.is_bound(pod))
    for name, node in zip(waiting, nodes, strict=True):
        world.bind(name)
        world.change(name, spec={"node_name": node})
        world.ready(name)
        # As labels, which pods of former releases have.
        world.label(name, {f"{names.TOPOLOGY_PREFIX}rack": (racks or {}).get(node, "rack-0")})
    world.note()


def avoided(world: World) -> list[str]:
    roots = [each for (kind, _), each in world.objects.items() if kind.startswith("CompositePodGroup")]
    found = {
        each.metadata.annotation(names.ANNOTATION_AVOID) for each in roots if "role" not in str(each.metadata.labels)
    }
    (text,) = found
    return [str(each) for each in read(text)]


def refuse(world: World) -> None:
    """The kubelet takes none of the pods."""
    for name in list(world.pods):
        world.change(name, status={"phase": "Failed", "reason": "OutOfnvidia.com/gpu"})


def test_a_fault_of_the_resource_itself_avoids_nothing() -> None:
    world = World.settled(inference(role("decode", replicas=8)), notes=True)
    for _ in range(4):
        on_nodes(world, *(f"node-{number}" for number in range(8)))
        for name in list(world.pods):
            world.fail(name)
        world.settle()
        world.now += 700
        world.settle()
    assert not avoided(world)


def test_three_nodes_of_a_rack_are_the_rack() -> None:
    world = World.settled(inference(role("decode", replicas=3)), notes=True)
    for _ in range(3):
        on_nodes(world, "a", "b", "c", racks={"a": "r1", "b": "r1", "c": "r1"})
        refuse(world)
        world.settle()
        world.now += 60
        world.settle()
    assert avoided(world) == ["rack r1", "node a", "node b", "node c"]


def test_the_log_is_bounded_and_survives_nonsense() -> None:
    world = World.settled(inference(role("decode", replicas=150)), notes=True)
    on_nodes(world, *(f"node-{number}" for number in range(150)))
    refuse(world)
    world.settle()
    (root,) = [each for each in world.objects.values() if each.metadata.annotation(ANNOTATION)]
    assert len(failure_log.read_log(root).failures) == 128
    endless = '{"units": {"0": {"at": "2026-01-01T00:00:00Z", "restarts": 1e999, "failures": 0}}}'
    nonsense = ("{", "[]", '{"log": [{}]}', '{"log": 3}', "null", '{"units": 3}', '{"units": {"0": 1}}')
    for text in (*nonsense, endless, "[" * 100_000):
        broken = msgspec.structs.replace(root.metadata, annotations={ANNOTATION: text})
        assert failure_log.read_log(msgspec.structs.replace(root, metadata=broken)) == failure_log.Log()
    assert json.loads(root.metadata.annotation(ANNOTATION) or "")["log"]


@given(st.integers(0, 3600), st.integers(0, 3600), st.integers(0, 1000))
def test_the_wait_grows_and_has_an_end(base: int, most: int, failed: int) -> None:
    backoff = Backoff(base_seconds=min(base, most), max_seconds=most)
    assert 0 <= delay(failed, backoff) <= delay(failed + 1, backoff) <= most
