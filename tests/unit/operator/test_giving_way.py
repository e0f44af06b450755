"""Replicas and units that give way to a claim: who goes, in which order, who stays, and who is pardoned."""

from __future__ import annotations

from typing import Any

import pytest

from builders.inferences import inference, role
from covey.api import constants as names
from covey.api import core
from covey.operator.model import podstate
from covey.operator.model.claimed import RootClaim
from covey.operator.plan import Plan
from unit.operator.test_rolling import serve as serve_new
from unit.operator.world import World

PREFILL = role("prefill", replicas=1, size=2)
DECODE = role("decode", replicas=3, minReplicas=1)


def served(*roles: dict[str, Any], **spec: Any) -> World:
    world = World(inference(*(roles or (PREFILL, DECODE)), **spec))
    world.settle()
    serve(world)
    world.tell()
    return world


def serve(world: World) -> None:
    for name in world.pods:
        world.bind(name)
        world.ready(name)


def draining(seconds: int = 30, **spec: Any) -> World:
    return served({**PREFILL, "drainSeconds": seconds}, {**DECODE, "drainSeconds": seconds}, **spec)


def pods_of(world: World, *labels: object) -> list[str]:
    """Names of the pods of a unit, of one of its roles, or of a replica."""
    keys = (names.LABEL_UNIT, names.LABEL_ROLE, names.LABEL_REPLICA)
    wanted = dict(zip(keys, map(str, labels), strict=False))
    return sorted(n for n, pod in world.pods.items() if wanted.items() <= (pod.metadata.labels or {}).items())


def victim(world: World, unit: int, role_: str = "", replica: int | None = None) -> core.Victim:
    found = pods_of(world, unit, *([role_, replica] if role_ else []))
    uids = tuple(world.pods[name].metadata.uid for name in found if podstate.is_bound(world.pods[name]))
    return core.Victim("Replica" if role_ else "Unit", "ml", "llama", unit, role_, replica, uids)


def claim(*victims: core.Victim, uid: str = "root-1", **more: Any) -> RootClaim:
    told = {"namespace": "prod", "name": "chat", "purpose": "Preemption", "priority": 1000, **more}
    return RootClaim(uid, victims=victims, **told)


def act(world: World, *, finish: bool = True) -> Plan:
    planned = world.plan()
    for step in world.steps(planned.actions):
        step()
        world.check()
    if finish:
        world.finish()
    return planned


def told(world: World, kind: str) -> str:
    found = {each["type"]: each for each in world.tell()["conditions"]}
    return found[kind]["message"] if kind in found else ""


def marks(world: World, name: str) -> tuple[str | None, bool, bool]:
    pod = world.pods[name]
    labelled = pod.metadata.label(names.LABEL_DRAINING) is not None
    return podstate.claimed_by(pod), podstate.is_draining(pod), labelled


def test_a_claimed_replica_drains_and_its_successor_waits_under_another_number() -> None:
    world = draining()
    (name,) = pods_of(world, 0, "decode", 2)
    world.claims = (claim(victim(world, 0, "decode", 2)),)
    planned = act(world)
    assert marks(world, name) == ("root-1", True, True)
    assert not planned.actions.delete_pods
    assert [item.slot for item in planned.actions.create] == [(0, "decode", 3, 0)]
    (successor,) = pods_of(world, 0, "decode", 3)
    assert names.GATE_GANG in core.gates(world.pods[successor])
    assert names.ANNOTATION_ROOM not in (world.pods[successor].metadata.annotations or {})
    assert not act(world).actions, "there is nothing to do before it has drained"
    world.now += 30
    planned = act(world)
    assert [item.why for item in planned.actions.delete_pods] == ["preempted"]
    assert {note.reason for note in planned.actions.notes} == {"Preempted"}
    assert pods_of(world, 0, "decode") == sorted(
        [*pods_of(world, 0, "decode", 0), *pods_of(world, 0, "decode", 1), successor]
    )


def test_what_has_no_time_to_drain_is_marked_before_it_is_deleted() -> None:
    world = served()
    world.claims = (claim(victim(world, 0, "decode", 2)),)
    actions = world.plan().actions
    ((mark,), (gone,)) = actions.drain, actions.delete_pods
    assert mark.pod is gone.pod
    assert mark.claimed_by == "root-1"
    (name,) = pods_of(world, 0, "decode", 2)
    first, *_ = world.steps(actions)
    first()
    world.forget()
    world.delete(name)
    assert [item.slot.replica for item in world.plan().actions.create] == [3], "its number is not made again"


def test_a_replica_is_taken_whole_for_one_of_its_pods() -> None:
    world = served({**PREFILL, "replicas": 2, "minReplicas": 1, "drainSeconds": 30}, DECODE)
    found = victim(world, 0, "prefill", 1)
    world.claims = (claim(core.Victim("Replica", "ml", "llama", 0, "prefill", 1, found.pods[:1])),)
    planned = act(world)
    assert {item.pod.metadata.name for item in planned.actions.drain} == set(pods_of(world, 0, "prefill", 1))
    world.now += 30
    assert len(world.plan().actions.delete_pods) == 2


def test_pods_that_were_made_later_are_none_of_it() -> None:
    world = served()
    stale = victim(world, 0, "decode", 2)
    world.fail(pods_of(world, 0, "decode", 2)[0])
    world.settle()
    serve(world)
    world.claims = (claim(stale),)
    assert not world.plan().actions
    assert not world.plan().victims.places


def test_a_unit_goes_role_by_role_and_is_made_again_when_its_last_pod_is_gone() -> None:
    world = draining(replicas=2)
    world.claims = (claim(victim(world, 1)),)
    planned = act(world)
    assert {item.pod.metadata.label(names.LABEL_ROLE) for item in planned.actions.drain} == {"prefill"}
    assert not planned.actions.create
    world.now += 30
    planned = act(world, finish=False)
    assert {item.pod.metadata.label(names.LABEL_ROLE) for item in planned.actions.delete_pods} == {"prefill"}
    world.finish()
    world.now += 30
    planned = act(world, finish=False)
    assert not planned.actions.create
    assert len(pods_of(world, 1)) == 3
    world.claims = ()
    assert not world.plan().actions.create, "its last pods are not gone yet, whatever has become of the claim"
    world.finish()
    world.settle()
    assert [len(pods_of(world, 1, name)) for name in ("prefill", "decode")] == [2, 3]
    assert not any(podstate.is_let_go(world.pods[name]) for name in pods_of(world, 1))
    assert not any(names.ANNOTATION_ROOM in (world.pods[n].metadata.annotations or {}) for n in pods_of(world, 1))
    assert all(podstate.is_ready(world.pods[name]) for name in pods_of(world, 0))


def test_a_unit_takes_with_it_what_waits_in_it() -> None:
    world = served({**PREFILL, "drainSeconds": 30}, {**DECODE, "drainSeconds": 30})
    world.inference = inference(PREFILL | {"drainSeconds": 30}, DECODE | {"drainSeconds": 30, "replicas": 4})
    world.settle()
    assert len(pods_of(world, 0, "decode", 3)) == 1
    world.claims = (claim(victim(world, 0)),)
    act(world)
    assert not pods_of(world, 0, "decode", 3)


def test_a_unit_that_gave_way_has_lost_nothing() -> None:
    world = served(replicas=2, gang={"terminationDelaySeconds": 60})
    world.claims = (claim(victim(world, 1)),)
    act(world)
    world.tell()
    world.claims = ()
    world.settle()
    world.tell()
    world.now += 3600
    conditions = {each["type"]: each["status"] for each in world.tell()["conditions"]}
    assert names.ESCALATING not in conditions
    assert conditions[names.DEGRADED] == "False"
    assert not world.plan().actions.delete_pods


def test_a_killed_operator_has_lost_nothing_either_while_the_claim_stands() -> None:
    world = served(replicas=2, gang={"terminationDelaySeconds": 60})
    world.claims = (claim(victim(world, 1)),)
    act(world)
    world.forget()
    world.settle()
    world.now += 3600
    world.tell()
    assert not world.plan().actions.delete_pods
    assert not world.plan().loss.announced


@pytest.mark.parametrize("left", [0, 1, 2])
def test_the_minimum_is_not_touched_by_a_claim_that_is_out_of_date(left: int) -> None:
    """Three serve, the minimum is two and two are claimed: as many go as the minimum leaves."""
    world = served(PREFILL, {**DECODE, "minReplicas": 2, "drainSeconds": 30})
    world.claims = (claim(*(victim(world, 0, "decode", n) for n in (1, 2))),)
    (lost,) = pods_of(world, 0, "decode", 0)
    if left == 1:
        world.vanish(lost)
    if left == 2:
        world.claims = (claim(victim(world, 0, "decode", 2)),)
    victims = world.plan().victims
    assert len(victims.places) == (0 if left == 1 else 1)
    assert len(victims.spared) == {0: 1, 1: 2, 2: 0}[left]
    assert ("stays, claimed by" in told(world, names.PREEMPTED)) == (left < 2)


def test_a_replica_that_drains_is_pardoned_when_its_role_loses_another() -> None:
    world = draining()
    world.inference = inference(PREFILL | {"drainSeconds": 30}, DECODE | {"drainSeconds": 30, "minReplicas": 2})
    world.claims = (claim(victim(world, 0, "decode", 2)),)
    act(world)
    (name,) = pods_of(world, 0, "decode", 2)
    world.vanish(pods_of(world, 0, "decode", 0)[0])
    act(world)
    assert marks(world, name) == (None, False, False)
    world.now += 60
    assert name in world.pods


def test_what_is_named_no_more_is_pardoned_and_its_successor_goes() -> None:
    world = draining()
    world.claims = (claim(*(victim(world, 0, "decode", n) for n in (1, 2))),)
    act(world)
    assert len(pods_of(world, 0, "decode")) == 5
    world.claims = (claim(victim(world, 0, "decode", 1)),)
    (name,) = pods_of(world, 0, "decode", 2)
    planned = act(world)
    assert "Pardoned" in {note.reason for note in planned.actions.notes}
    assert marks(world, name) == (None, False, False)
    assert podstate.is_ready(world.pods[name])
    numbers = {world.pods[n].metadata.label(names.LABEL_REPLICA) for n in pods_of(world, 0, "decode")}
    assert len(numbers) == 4, numbers
    world.claims = ()
    act(world)
    act(world)
    assert [world.pods[n].metadata.label(names.LABEL_REPLICA) for n in pods_of(world, 0, "decode")] == ["0", "1", "2"]
    assert not act(world).actions


def test_the_marks_of_a_pardoned_pod_are_replaced_by_what_it_had() -> None:
    ports = {"ports": [{"name": "http", "port": 8000}], "service": {}}
    gate = {"readinessGates": [{"conditionType": names.GATE_SERVING}]}
    decode = {**DECODE, "drainSeconds": 30, "network": ports}
    decode["template"] = {"spec": {**decode["template"]["spec"], **gate}}
    world = served(PREFILL, decode)
    (name,) = pods_of(world, 0, "decode", 2)
    ready = (core.Condition("Ready", "True"), core.Condition("ContainersReady", "True"))
    for each in world.pods:
        world.change(each, status={"conditions": ready})
    act(world)
    before = world.pods[name]
    world.claims = (claim(victim(world, 0, "decode", 2)),)
    act(world)
    act(world)
    assert not podstate.is_ready(world.pods[name])
    world.claims = ()
    act(world)
    act(world)
    assert podstate.is_ready(world.pods[name])
    assert world.pods[name].metadata.labels == before.metadata.labels


def test_half_a_pardon_is_completed() -> None:
    world = served({**PREFILL, "replicas": 2, "minReplicas": 1, "drainSeconds": 30}, DECODE)
    world.claims = (claim(victim(world, 0, "prefill", 1)),)
    act(world)
    world.claims = ()
    first, *_ = world.steps(world.plan().actions)
    first()
    world.forget()
    act(world)
    act(world)
    assert [marks(world, name) for name in pods_of(world, 0, "prefill", 1)] == [(None, False, False)] * 2
    assert len(pods_of(world, 0, "prefill")) == 4


def test_a_replica_of_which_a_pod_is_deleted_is_pardoned_no_more() -> None:
    world = served({**PREFILL, "replicas": 2, "minReplicas": 1, "drainSeconds": 30}, DECODE)
    world.claims = (claim(victim(world, 0, "prefill", 1)),)
    act(world)
    one, other = pods_of(world, 0, "prefill", 1)
    world.delete(one)
    world.claims = ()
    world.forget()
    (left,) = act(world).actions.delete_pods
    assert (left.pod.metadata.name, left.why) == (other, "preempted")
    world.settle()
    assert not pods_of(world, 0, "prefill", 1)
    assert len(pods_of(world, 0, "prefill", 2)) == 2


def test_one_that_goes_for_another_reason_is_neither_marked_nor_pardoned() -> None:
    world = draining()
    world.inference = inference(PREFILL | {"drainSeconds": 30}, DECODE | {"drainSeconds": 30, "replicas": 2})
    (going,) = {item.pod.metadata.name for item in act(world).actions.drain}
    world.claims = (claim(victim(world, 0, "decode", 2)),)
    act(world)
    assert marks(world, going) == (None, True, True)
    world.claims = ()
    act(world)
    assert marks(world, going) == (None, True, True)


def test_the_mark_follows_the_claim_that_takes_over() -> None:
    world = draining()
    found = victim(world, 0, "decode", 2)
    world.claims = (claim(found),)
    act(world)
    world.claims = (claim(found, uid="root-2"),)
    act(world)
    assert marks(world, pods_of(world, 0, "decode", 2)[0]) == ("root-2", True, True)
    assert not act(world).actions


def test_both_sides_of_the_story() -> None:
    world = draining()
    world.claims = (claim(victim(world, 0, "decode", 2)),)
    act(world)
    assert told(world, names.PREEMPTED) == "decode/2 of unit 0 gave way to a gang of another namespace (priority 1000)"
    world.claims = (claim(victim(world, 0, "decode", 2), namespace="ml"),)
    assert told(world, names.PREEMPTED) == "decode/2 of unit 0 gave way to ml/chat (priority 1000)"
    world.now += 30
    act(world)
    act(world)
    assert told(world, names.PREEMPTED) == "decode/2 of unit 0 gave way to ml/chat (priority 1000)"
    world.claims = ()
    assert told(world, names.PREEMPTED).startswith("decode/2"), "it has no place again yet"
    serve(world)
    assert not told(world, names.PREEMPTED)


def test_a_rollout_takes_no_more_while_others_give_way() -> None:
    world = draining()
    world.claims = (claim(*(victim(world, 0, "decode", n) for n in (1, 2))),)
    act(world)
    new = {
        **DECODE,
        "drainSeconds": 30,
        "template": {"spec": {"containers": [{"name": "engine", "image": "engine:2"}]}},
    }
    world.inference = inference(PREFILL | {"drainSeconds": 30}, new)
    for _ in range(4):
        act(world)
    ready = [name for name in pods_of(world, 0, "decode") if podstate.is_ready(world.pods[name])]
    assert len(ready) == 1, "the last one that serves waits for a successor"
    planned = world.plan()
    assert planned.rolling is not None
    assert planned.rolling.stands, "the clock stands while they drain"
    serve_new(world)
    world.now += 31
    for _ in range(6):
        act(world)
        serve_new(world)
    assert not told(world, names.PREEMPTED)
