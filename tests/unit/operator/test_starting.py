"""Who is held by the start gate, for whom, and when its turn comes."""

from __future__ import annotations

from typing import Any

from builders.inferences import inference, role, template
from covey.api import constants as names
from unit.operator.world import World


def after(other: str, condition: str = "Ready") -> list[dict[str, str]]:
    return [{"role": other, "condition": condition}]


def admitted(*roles: dict[str, Any], **spec: Any) -> World:
    """The scheduler process has pinned every pod: of Covey's gates only that of the start is left."""
    world = World.settled(inference(*roles, **spec))
    world.place()
    return world


def starts(world: World) -> set[str]:
    planned = world.plan().actions.ungate
    assert {item.gate for item in planned} <= {names.GATE_START}
    return {item.pod.spec.hostname or "" for item in planned}


def serve(world: World, hostname: str) -> None:
    name = next(name for name, pod in world.pods.items() if pod.spec.hostname == hostname)
    world.bind(name)
    world.ready(name)


def test_a_role_that_nobody_wants_keeps_nobody() -> None:
    world = admitted(role("router", replicas=0), role("decode", dependsOn=after("router")))
    assert not world.held()


def test_a_chain_that_was_taken_out_of_the_spec_holds_nobody() -> None:
    world = admitted(role("prefill"), role("decode", dependsOn=after("prefill")))
    world.inference = inference(role("prefill"), role("decode"))
    assert starts(world) == {"0-decode-0-0"}


def test_a_rollout_that_is_late_says_who_waits_for_whom() -> None:
    made = {"replicas": 2, "size": 2, "startup": "LeaderReady"}
    world = World.settled(inference(role("decode", **made)))
    for pod in list(world.pods.values()):
        serve(world, pod.spec.hostname or "")
    world.tell()
    world.inference = inference(role("decode", **made, template=template(nodeSelector={"new": "yes"})))
    world.carry_out()
    world.place()
    world.tell()
    world.now += 2000
    found = next(each for each in world.tell()["conditions"] if each["type"] == "Progressing")
    assert (found["status"], found["reason"]) == ("False", "ProgressDeadlineExceeded")
    assert "the workers of decode wait for their leader to be Ready" in found["message"]
