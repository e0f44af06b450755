"""What the status says in each situation."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from builders.inferences import inference, llama, role
from covey.api import constants as names
from covey.api import core
from covey.kube.resources import COMPOSITE_POD_GROUPS
from covey.operator.model.outcome import Remark
from covey.operator.model.problem import Problem
from covey.operator.model.recorded_status import differ
from covey.operator.plan import plan
from covey.operator.process.features import FEATURES
from covey.operator.status import status
from covey.operator.status.transitions import find_transitions
from covey.operator.status.units import describe_units
from unit.operator.world import World

NOW = "2026-05-01T12:00:00Z"


@pytest.fixture
def world() -> World:
    return World.settled(llama(decode=2))


def compute(world: World, before: dict[str, Any] | None = None, failure: Problem | None = None) -> dict[str, Any]:
    observed, verdict = world.observe(), world.judge()
    planned = plan(verdict, observed, features=FEATURES)
    units = tuple(describe_units(verdict.inference, verdict.backend, observed, planned))
    return status.compute(verdict, observed, planned, units, before or {}, NOW, failure=failure)


def conditions(computed: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {item["type"]: (item["status"], item["reason"]) for item in computed["conditions"]}


def message(computed: dict[str, Any], kind: str) -> str:
    return next(item["message"] for item in computed["conditions"] if item["type"] == kind)


def decide(world: World, unit: int = 0, value: str = "True", reason: str = "Admitted", text: str = "") -> None:
    """What the scheduler process writes on a root."""
    key = (COMPOSITE_POD_GROUPS.type, f"llama-{unit}")
    path = core.GroupPlacement("rack", ("z1", "b1", "r1"))
    group_status = core.GroupStatus(
        conditions=(core.Condition("Admitted", value, reason, text),),
        placement=(core.GroupPlacement("block", ("z1", "b1")), path) if value == "True" else None,
    )
    world.objects[key] = msgspec.structs.replace(world.objects[key], status=group_status)


@pytest.mark.parametrize(
    "foreign",
    [
        [{"unit": 0, "phase": "Draining", "served": True}],
        [{"unit": 0}],
        [{"phase": "Ready"}],
        [{"unit": 0, "phase": ""}, {"unit": 1, "phase": "Ready"}],
    ],
)
def test_a_foreign_value_in_the_status_breaks_nothing(world: World, foreign: list[dict[str, Any]]) -> None:
    decide(world)
    world.serve()
    plain = compute(world)
    before = {**plain, "units": 3, "unitStatuses": foreign}
    after = compute(world, before)
    assert after == plain
    assert differ(before, after)
    assert differ({**plain, "units": "many"}, plain)
    # What another release says of a unit that has served is believed.
    for name in world.pods:
        world.fail(name)
    served = conditions(compute(world, before))["Degraded"]
    assert served == (("True", "BelowMinimum") if foreign[0].get("served") else ("False", "AsExpected"))


def test_growth_is_no_damage(world: World) -> None:
    decide(world)
    world.serve()
    served = compute(world)
    world.inference = llama(decode=2, replicas=2)
    world.settle()
    grown = compute(world, served)
    assert conditions(grown)["Available"][0] == "False"
    assert conditions(grown)["Degraded"] == ("False", "AsExpected")
    assert ("Unavailable", True) not in reasons(served, grown)
    # Once the new unit has served, its loss counts like any other, for as long as it lasts.
    decide(world, 1)
    world.serve()
    both = compute(world, grown)
    for name in [name for name in world.pods if name.startswith("llama-1-decode")]:
        world.fail(name)
    lost = compute(world, both)
    assert conditions(lost)["Degraded"] == ("True", "BelowMinimum")
    assert "unit 1" in message(lost, "Degraded")
    assert conditions(compute(world, lost))["Degraded"] == ("True", "BelowMinimum")
    assert ("Unavailable", True) in reasons(both, lost)


def test_a_unit_that_the_status_had_no_room_for_is_missed_all_the_same() -> None:
    world = World.settled(inference(role("r"), replicas=66))
    for unit in range(66):
        decide(world, unit)
    world.serve()
    before = compute(world)
    world.fail(next(name for name in world.pods if name.startswith("llama-65-")))
    assert conditions(compute(world, before))["Degraded"] == ("True", "BelowMinimum")


def test_a_problem_on_what_runs_is_worth_an_event_and_only_one(world: World) -> None:
    decide(world)
    world.serve()
    served = compute(world)
    refused = compute(world, served, failure=Problem("RequestRefused", "webhook down"))
    assert reasons(served, refused) == [("RequestRefused", True)]
    assert reasons(refused, compute(world, refused, failure=Problem("RequestRefused", "webhook down"))) == []
    assert reasons({}, compute(World(llama(decode=2)), failure=Problem("RequestRefused", "webhook down"))) == [
        ("RequestRefused", True)
    ]
    assert reasons(refused, served) == []


def test_remarks_are_conditions_of_their_own_or_reasons_of_degraded(world: World) -> None:
    world.serve()
    observed, verdict = world.observe(), world.judge()
    told = (
        Remark("EvacuationBlocked", "NoNodes", "the first"),
        Remark("EvacuationBlocked", "NoNodes", "the second"),
        Remark(names.DEGRADED, "NodesAvoided", "node a is avoided"),
    )
    planned = replace(plan(verdict, observed, features=FEATURES), remarks=told)
    units = tuple(describe_units(verdict.inference, verdict.backend, observed, planned))
    computed = status.compute(verdict, observed, planned, units, {}, NOW)
    assert conditions(computed)["EvacuationBlocked"] == ("True", "NoNodes")
    assert message(computed, "EvacuationBlocked") == "the first"
    assert conditions(computed)[names.DEGRADED] == ("True", "NodesAvoided")


def reasons(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, bool]]:
    return [(note.reason, note.warning) for note in find_transitions(before, after)]


def test_events_of_the_life_of_a_resource(world: World) -> None:
    new = compute(world)
    assert reasons({}, new) == []
    decide(world, value="False", reason="Infeasible", text="no room")
    refused = compute(world, new)
    assert reasons(new, refused) == [("Infeasible", True)]
    assert reasons(refused, refused) == []
    decide(world)
    admitted = compute(world, refused)
    assert reasons(refused, admitted) == [("Admitted", False)]
    world.serve()
    served = compute(world, admitted)
    assert reasons(admitted, served) == [("Available", False)], "which says that it was scheduled, too"
    assert reasons({}, served) == [("Available", False)]
    world.fail(next(name for name in world.pods if "decode-0" in name))
    world.fail(next(name for name in world.pods if "decode-1" in name))
    assert ("Unavailable", True) in reasons(served, compute(world, served))


def test_a_message_longer_than_a_condition_is_cut(world: World) -> None:
    """A webhook may say as much as it likes: the status is written all the same."""
    failure = Problem("RequestRefused", "no " * 20_000, retry=True)
    assert len(message(compute(world, failure=failure), names.PROGRESSING)) == 32_768


def test_summary_as_a_unit_comes_and_is_lost_has_one_word_and_a_short_message(world: World) -> None:
    def column(before: dict[str, Any] | None = None) -> tuple[str, str]:
        summary = compute(world, before)["summary"]
        return summary["status"], summary["message"]

    assert column()[0] == "Waiting"
    decide(world, value="False", reason="Infeasible", text="decode: no rack has room; " + "much more to be told" * 9)
    assert column() == ("Infeasible", "decode: no rack has room …")
    decide(world)
    assert column()[0] == "Starting"
    world.bind_all()
    assert column() == ("Starting", "bound; Ready are prefill 0/1, decode 0/1 of the minimum: see its pods")
    name = next(name for name in world.pods if "decode-0" in name)
    state = core.ContainerState(waiting=core.ContainerWaiting("CrashLoopBackOff"))
    last = core.ContainerState(terminated=core.Terminated(137, "OOMKilled"))
    status = core.ContainerStatus("engine", restart_count=3, state=state, last_state=last)
    world.change(name, status={"container_statuses": (status,)})
    words = "waits: CrashLoopBackOff, ended with exit code 137 (OOMKilled)"
    assert column() == ("CrashLoopBackOff", f"pod {name}: container engine {words}; bound …")
    world.change(name, status={"container_statuses": None})
    world.serve()
    served = compute(world)
    assert column() == ("Serving", "")
    for pod in [pod for pod in world.pods if "decode" in pod]:
        world.fail(pod)
    assert column(served)[0] == "Degraded"
    assert not column(served)[1].startswith("it has served")


def test_surplus_whose_container_does_not_run_says_so_before_anything_of_places() -> None:
    world = World.settled(inference(role("prefill", replicas=3), role("decode")))
    decide(world)
    for name in list(world.pods):
        if "prefill-2" not in name:
            world.bind(name)
        if "prefill-0" in name or "decode" in name:
            world.ready(name)
    name = next(name for name in world.pods if "prefill-1" in name)
    waiting = core.ContainerState(waiting=core.ContainerWaiting("ErrImagePull"))
    world.change(name, status={"container_statuses": (core.ContainerStatus("engine", state=waiting),)})
    summary = compute(world)["summary"]
    assert summary["status"] == "ImagePullBackOff"
    assert summary["reason"].startswith(f"pod {name}: container engine waits: ImagePullBackOff")
    assert "wait" in summary["reason"]
