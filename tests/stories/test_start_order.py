"""The order of starts: the whole gang has its nodes first, then each waits for whom it depends on."""

from __future__ import annotations

from builders.manifests import workers
from cluster.workbench import is_ready, label, name_of
from scheduler_trees import node_of, pin_of
from stage import Stage
from stage.record import states


def bound_after(stage: Stage, role: str, index: str, *, after: tuple[str, str]) -> int:
    """How many pods of this role and index were bound, each when all of the other role and index were Ready."""
    bound: set[str] = set()
    for _, pods in states(stage.history("Pod")):
        places = {name_of(pod): (label(pod, "role"), label(pod, "index")) for pod in pods.values()}
        for pod in pods.values():
            if node_of(pod) and name_of(pod) not in bound and places[name_of(pod)] == (role, index):
                others = [other for other in pods.values() if places[name_of(other)] == after]
                assert others, f"{name_of(pod)} was bound before there was any {after}"
                assert all(map(is_ready, others)), f"{name_of(pod)} was bound before {after} was Ready"
                bound.add(name_of(pod))
    return len(bound)


def test_role_when_it_depends_on_another_has_its_places_first_and_starts_when_that_is_ready(stage: Stage) -> None:
    stage.nodes(nodes=4)
    roles = [
        workers("prefill", replicas=2, minReplicas=2),
        workers("decode", replicas=2, minReplicas=2, dependsOn=[{"role": "prefill", "condition": "Ready"}]),
    ]
    stage.create(*roles, topology={"required": "rack"})
    stage.ready(4)
    assert bound_after(stage, "decode", "0", after=("prefill", "0")) == 2
    # Their places were reserved before anybody started: pinned, and held by nothing but the start gate.
    before = next(pods for _, pods in states(stage.history("Pod")) if any(map(node_of, pods.values())))
    assert sum(label(pod, "role") == "decode" and bool(pin_of(pod)) for pod in before.values()) == 2
    assert stage.condition("Available")[:2] == ("True", "Available")


def test_workers_when_their_leader_is_to_be_ready_first_start_after_it(stage: Stage) -> None:
    stage.nodes(nodes=4)
    stage.create(workers("decode", size=4, startup="LeaderReady", topology={"required": "rack"}))
    stage.ready(4)
    for index in "123":
        assert bound_after(stage, "decode", index, after=("decode", "0")) == 1
    assert stage.condition("Available")[:2] == ("True", "Available")


def test_roles_when_they_wait_for_each_other_are_refused(stage: Stage) -> None:
    stage.create(
        workers("a", dependsOn=[{"role": "b", "condition": "Ready"}]),
        workers("b", dependsOn=[{"role": "a", "condition": "Ready"}]),
    )
    assert stage.refusal(reason="Invalid") == "dependsOn: a, b depend on each other in a circle: break it"
    assert not stage.all("Pod")
