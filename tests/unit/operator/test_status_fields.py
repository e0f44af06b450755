"""No field of a status is declared that nothing fills, and none is filled that is not declared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from builders.inferences import inference, role
from covey.admission.exchange import Judgement
from covey.admission.headroom import HeadroomAnswer
from covey.admission.status import Decision
from covey.api import core
from covey.api.crds import KINDS
from covey.scheduler.whatif.exchange import dump_judgement
from covey.scheduler.whatif.headroom import HeadroomQuestions
from unit.admission.test_status import TOPOLOGY, preferring, tree
from unit.admission.test_status import status as group_status
from unit.api.test_crds import nodes, schema_of
from unit.operator.test_headroom import annotate, answers
from unit.operator.test_loss import lose, serving
from unit.operator.test_rolling import NEW, condition, llama
from unit.operator.test_scaler import settle, settled
from unit.operator.test_status import decide
from unit.operator.world import World


def filled(value: Any, path: str = "") -> Iterator[str]:
    """The fields that say something, as ``roles[].ready``."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from filled(each, f"{path}.{name}" if path else name)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from filled(each, f"{path}[]")
    elif value not in (None, "", 0, False):
        yield path


def declared(kind: str) -> set[str]:
    """The fields of a status that have a value of their own."""
    (found,) = [each for each in KINDS if each.model.__name__ == kind]
    leaves = {path for path, node in nodes(schema_of(found)) if node.get("type") not in ("object", "array")}
    return {path.removeprefix("status.") for path in leaves if path.startswith("status.")}


def situations() -> Iterator[dict[str, Any]]:
    """Statuses of resources in all sorts of trouble."""
    world = World.settled(llama())
    decide(world, value="False", reason="Infeasible", text="no room")
    yield world.tell()
    decide(world)
    world.serve()
    yield world.tell()
    # A pod is lost, and its whole replica is made anew.
    world.delete(next(name for name in world.pods if "prefill" in name))
    world.finish()
    world.act(2)
    yield world.tell()
    # The unit has lost a role, and is about to be taken down.
    world.inference = llama(gang={"terminationDelaySeconds": 600})
    for name in [name for name in world.pods if "decode" in name]:
        world.vanish(name)
    world.act()
    yield world.tell()
    world.inference = llama()
    world.serve()
    # A rollout that begins, has one replica, and waits for the next.
    world.inference = llama(decode={"template": NEW})
    for _ in range(3):
        world.act()
        yield world.status
        world.serve()
    world.act(2)
    yield world.status
    world.inference = llama(replicas=2)
    world.act()
    yield world.tell()
    # A unit that has lost its minimum, and is to be given up after a while.
    lost = serving(gang={"terminationDelaySeconds": 100})
    lose(lost, "decode")
    yield lost.status
    # Somebody has asked how many would fit.
    annotate(world, asked="one")
    answers(world, "one", core.RoleHeadroom("prefill", 5), core.RoleHeadroom("decode", message="nobody knows"))
    yield world.tell()


def test_every_field_of_a_resource_s_status_is_filled_by_somebody() -> None:
    found = {path for status in situations() for path in filled(status)}
    assert declared("DisaggregatedInference") - found == set()
    assert found - declared("DisaggregatedInference") == set()


def test_every_field_of_a_group_s_status_is_filled_by_somebody() -> None:
    at = "2026-01-01T00:00:00Z"
    gone = core.Victim("Replica", "ml", "batch", 1, "decode", 3, ("uid",))
    told = {"purpose": "Preemption", "victims": (gone,), "message": "takes decode/3", "unproven": True}
    held = core.Claim(("b1",), at, "block", "nvidia.com/gpu", ("n1",), 2, at, at, **told)
    left_out = (core.ExcludedNode("n4", "no volume there", "2026-01-01T00:00:00Z"),)
    waits = core.SuccessorStatus("decode", 4, "Infeasible", "8 GPUs are missing", (gone,))
    succession = core.GroupSuccession("one", (waits,))
    terms = {"claim": held, "excluded": left_out, "succession": succession}
    decision = Decision("Infeasible", "8 GPUs are missing", TOPOLOGY, **terms)
    root = msgspec.structs.replace(preferring("rack"), metadata=core.Meta(name="root", uid="root", generation=3))
    statuses = [
        group_status(tree({(0, 0): {"pin": "n1"}, (0, 1): {"node": "n2"}}, root), decision),
        group_status(tree({(0, 0): {"node": "n1"}, (0, 1): {"node": "n2"}}), name="root-decode-0"),
    ]
    answer = HeadroomQuestions.dump_answers(
        "one", "2026-01-01T00:00:00Z", [HeadroomAnswer("decode", 1, is_floor=True, message="no more")]
    )
    said = Judgement(feasible=True, message="there is room", nearest=({"decode": 2},))
    statuses += [{"headroom": answer}, {"exchange": dump_judgement("one", "2026-01-01T00:00:00Z", said)}]
    found = {path for status in statuses for path in filled(status)}
    for kind in ("PodGroup", "CompositePodGroup"):
        assert declared(kind) - found == set()
        assert found - declared(kind) == set()


def test_every_field_of_a_role_scaler_s_status_is_filled_by_somebody() -> None:
    world = settled(inference(role("prefill", replicas=3, scaling={"mode": "External"})))
    world.scale("llama-prefill", 0)
    settle(world)
    found = set(filled(world.scalers["llama-prefill"].status))
    assert declared("RoleScaler") == found


def test_levels_that_no_node_has_yet_may_come_with_nodes() -> None:
    world = World.settled(llama())
    decide(world, value="False", reason="InvalidTopology", text="no level rack")
    assert condition(world, "Ready")[:2] == ("False", "InvalidTopology")
    assert "Stalled" not in {each["type"] for each in world.status["conditions"]}
    decide(world, value="False", reason="Unsupported", text="not by this scheduler")
    assert condition(world, "Stalled")[:2] == ("True", "Unsupported")
