"""The soak's rule on what rests, against histories made by hand: what serves goes for a reason only."""

from __future__ import annotations

from typing import Any

import pytest

from soak.facts import Owner
from soak.world import GRACE
from unit.soak.histories import History, Json, node, pod, resource, role

LLM = Owner("soak", "llm")
CONDITIONS = tuple(
    {"type": kind, "status": "True", "reason": "Complete"}
    for kind in ("Admitted", "Scheduled", "Available", "Progressing")
)
UNLISTED = {"key": "maintenance", "effect": "NoSchedule"}


def see(history: History, kind: str, found: Json) -> list[str]:
    return [each.rule for each in history.checker.take(kind, "MODIFIED", found, history.at)]


def say(history: History, *roles: Any, generation: int = 1, **spec: Any) -> None:
    """The resource was seen, complete."""
    found = resource(*(roles or (role("decode", 2),)), generation=generation, conditions=CONDITIONS, **spec)
    found["status"]["observedGeneration"] = generation
    see(history, "DisaggregatedInference", found)


def resting() -> History:
    history = History(role("decode", 2))
    say(history)
    for number in "01":
        history.see(f"0/decode/{number}/0", node=f"n{number}", ready=True)
    history.wait(1)
    history.wait()
    history.wait(1)
    assert history.checker.world.rests.settled == {LLM}
    return history


def taint(history: History, name: str, *taints: Json, **fields: Any) -> None:
    found = node(name, **fields)
    found["spec"]["taints"] = list(taints)
    see(history, "Node", found)


def gone(history: History, place: str = "0/decode/1/0") -> list[str]:
    return history.delete(place, node=f"n{place.split('/')[2]}", ready=True)


class TestTaken:
    def test_for_no_reason(self) -> None:
        # Its successor serves already, so the budget has no objection.
        history = resting()
        history.see("0/decode/2/0", node="n2", ready=True)
        assert gone(history) == ["taken"]

    def test_told_to_drain_for_no_reason(self) -> None:
        history = resting()
        history.see("0/decode/2/0", node="n2", ready=True)
        drained = history.see("0/decode/1/0", node="n1", ready=True, labels={"covey.dev/draining": "true"})
        assert drained == ["taken"]

    def test_for_a_taint_on_no_list(self) -> None:
        history = resting()
        taint(history, "n1", UNLISTED)
        history.see("0/decode/2/0", node="n2", ready=True)
        history.wait()
        assert gone(history) == ["taken"]

    @pytest.mark.parametrize(
        ("found", "cordoned"),
        [
            ({"key": "soak", "effect": "NoExecute"}, False),
            ({"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}, False),
            (UNLISTED, True),
        ],
    )
    def test_a_node_that_wants_its_pods_gone(self, found: Json, cordoned: bool) -> None:  # noqa: FBT001 - a column
        history = resting()
        taint(history, "n1", found, cordoned=cordoned)
        history.see("0/decode/2/0", node="n2", ready=True)
        # However long it takes.
        history.wait()
        history.wait()
        assert gone(history) == []

    def test_a_node_of_others_is_no_reason(self) -> None:
        history = resting()
        taint(history, "n3", cordoned=True)
        history.see("0/decode/2/0", node="n2", ready=True)
        assert gone(history) == ["taken"]

    def test_a_change_of_the_spec(self) -> None:
        history = resting()
        history.checker.will_write(LLM, {"roles": [role("decode", 2)]}, history.at)
        history.see("0/decode/2/0", node="n2", ready=True)
        assert gone(history) == []

    def test_a_change_that_somebody_else_has_written(self) -> None:
        history = resting()
        say(history, generation=2)
        history.see("0/decode/2/0", node="n2", ready=True)
        assert gone(history) == []

    def test_a_loss(self) -> None:
        history = resting()
        history.see("0/decode/0/0", node="n0", ready=False)
        history.see("0/decode/2/0", node="n2", ready=True)
        assert gone(history) == []

    def test_what_the_operator_itself_does_is_no_reason(self) -> None:
        history = resting()
        for number in "23":
            history.see(f"0/decode/{number}/0", node=f"n{number}", ready=True)
        assert [gone(history, f"0/decode/{number}/0") for number in "10"] == [["taken"], ["taken"]]

    def test_others_are_not_judged(self) -> None:
        history = resting()
        assert history.delete("0/decode/1/0", by_operator=False, node="n1", ready=True) == []


class TestRest:
    @pytest.mark.parametrize("seconds", [GRACE - 1, GRACE + 1])
    def test_it_takes_a_while(self, seconds: float) -> None:
        history = resting()
        history.checker.world.rests.stir(LLM)
        history.wait(0.1)
        history.wait(seconds)
        assert (history.checker.world.rests.settled == {LLM}) == (seconds > GRACE)

    @pytest.mark.parametrize(
        "extra", [{"ready": False}, {"ready": True}, {"ready": True, "labels": {"covey.dev/revision": "other"}}]
    )
    def test_no_rest_with_a_pod_too_many(self, extra: dict[str, Any]) -> None:
        history = resting()
        history.checker.world.rests.stir(LLM)
        history.see("0/decode/2/0", node="n2", **extra)
        history.wait()
        history.wait()
        assert not history.checker.world.rests.settled

    def test_no_rest_while_two_revisions_serve(self) -> None:
        history = resting()
        history.checker.world.rests.stir(LLM)
        see(history, "Pod", pod("0/decode/1/0", node="n1", ready=True, labels={"covey.dev/revision": "other"}))
        history.wait()
        history.wait()
        assert not history.checker.world.rests.settled

    def test_no_rest_on_a_node_that_wants_it_gone(self) -> None:
        history = resting()
        taint(history, "n1", cordoned=True)
        history.wait()
        history.wait()
        assert not history.checker.world.rests.settled
        taint(history, "n1")
        history.wait()
        history.wait()
        assert history.checker.world.rests.settled == {LLM}

    def test_no_rest_before_the_resource_says_so(self) -> None:
        history = resting()
        found = resource(role("decode", 2), generation=2, conditions=CONDITIONS)
        see(history, "DisaggregatedInference", found)
        history.wait()
        history.wait()
        assert not history.checker.world.rests.settled
