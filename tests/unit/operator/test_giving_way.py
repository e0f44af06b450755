"""Replicas and units that give way to a claim: who goes, in which order, who stays, and who is pardoned."""

from __future__ import annotations

from typing import Any

import pytest

from builders.inferences import inference, role
from covey.api import constants as names
from covey.api import core
from covey.model import podstate
from covey.operator.model.claimed import RootClaim
from covey.operator.plan import Plan
from unit.operator.world import World

PREFILL = role("prefill", replicas=1, size=2)
DECODE = role("decode", replicas=3, minReplicas=1)


def served(*roles: dict[str, Any], **spec: Any) -> World:
    world = World.serving(inference(*(roles or (PREFILL, DECODE)), **spec))
    world.tell()
    return world


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
    planned = world.carry_out()
    if finish:
        world.finish()
    return planned


def told(world: World, kind: str) -> str:
    return str(world.conditions().get(kind, {}).get("message", ""))


def marks(world: World, name: str) -> tuple[str | None, bool, bool]:
    pod = world.pods[name]
    labelled = pod.metadata.label(names.LABEL_DRAINING) is not None
    return podstate.claimed_by(pod), podstate.is_draining(pod), labelled


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
    assert len(world.plan().intent.preempted) == (0 if left == 1 else 1)
    spared = [part for part in told(world, names.PREEMPTED).split("; ") if " stays, claimed by" in part]
    assert "".join(spared).count("decode/") == {0: 1, 1: 2, 2: 0}[left]


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
    assert planned.intent.stands, "the clock stands while they drain"
    world.serve()
    world.now += 31
    for _ in range(6):
        act(world)
        world.serve()
    assert not told(world, names.PREEMPTED)


def test_reason_when_another_claim_takes_nothing_is_that_of_the_one_that_takes() -> None:
    """The victim of the other one has gone, and its successor has another UID."""
    world = draining()
    gone = core.Victim("Replica", "ml", "llama", 0, "decode", 1, ("uid-of-former-pod",))
    world.claims = (
        claim(gone, uid="root-0", purpose="Reclaim"),
        claim(victim(world, 0, "decode", 2), purpose="Preemption"),
    )
    assert "decode/2 of unit 0 gave way" in told(world, names.PREEMPTED)
    assert world.conditions()[names.PREEMPTED]["reason"] == "Preemption"
