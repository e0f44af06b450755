"""What the soak asks for when all is quiet, and the clock that stands still while something hides what happens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from soak.calm import Listed, leaks, unsettled, waits_honestly
from soak.facts import Owner
from soak.supervision import faults_in
from unit.soak.histories import GATED, UID, Json, pod, role

CONDITIONS = {"Admitted": "Admitted", "Scheduled": "Scheduled", "Available": "Available", "Progressing": "Complete"}
LLM = Owner("soak", "llm")


def resource(*roles: Json, told: dict[str, tuple[str, str]] | None = None, observed: int = 1, **spec: Any) -> Json:
    said = {kind: ("True", reason) for kind, reason in CONDITIONS.items()} | (told or {})
    conditions = [{"type": kind, "status": status, "reason": reason} for kind, (status, reason) in said.items()]
    return {
        "metadata": {"namespace": "soak", "name": "llm", "uid": UID, "generation": 1},
        "spec": {"roles": list(roles), **spec},
        "status": {"observedGeneration": observed, "conditions": conditions},
    }


def owned(kind: str, *, uid: str = UID, **labels: str) -> Json:
    owner = {"kind": "DisaggregatedInference", "uid": uid, "controller": True}
    labels = {f"covey.dev/{key}": value for key, value in labels.items()}
    return {"metadata": {"namespace": "soak", "name": kind, "labels": labels, "ownerReferences": [owner]}}


def runs(place: str, **fields: Any) -> Json:
    return pod(place, node="n0", ready=True, **fields)


def listed(*pods: Json, made: Json | None = None, **objects: list[Json]) -> Listed:
    return Listed.of([made or resource(role("decode", 2))], pods, objects)


PAIR = (runs("0/decode/0/0"), runs("0/decode/1/0"))


def test_all_is_well() -> None:
    assert unsettled(listed(*PAIR)) == []


@pytest.mark.parametrize(
    ("pods", "found"),
    [
        (PAIR[:1], "1 pods of 2"),
        ((*PAIR, runs("0/decode/2/0")), "3 pods of 2"),
        ((PAIR[0], runs("0/decode/0/0", uid="twin")), "2 pods in one place"),
        ((*PAIR, runs("0/decode/2/0", going=True)), "has ended or is going"),
        ((PAIR[0], pod("0/decode/1/0", node="n0")), "is not started on n0"),
        ((PAIR[0], pod("0/decode/1/0", node="n0", phase="Running")), "is not Ready (Running on n0)"),
        ((PAIR[0], pod("0/decode/1/0", gates=GATED)), "is not bound, gates"),
        ((PAIR[0], runs("0/decode/1/0", labels={"covey.dev/revision": "new"})), "pods of 2 revisions"),
        ((PAIR[0], runs("0/decode/1/0", size=2)), "replicas of [1, 2] pods, not 1"),
    ],
)
def test_pods_are_not_as_they_are_wanted(pods: tuple[Json, ...], found: str) -> None:
    assert any(found in each for each in unsettled(listed(*pods)))


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"observed": 0}, "generation 1 is not observed"),
        ({"told": {"Available": ("False", "Starting")}}, "Available is False, Starting"),
        ({"told": {"Progressing": ("True", "RollingOut")}}, "Progressing is True, RollingOut"),
    ],
)
def test_the_status_does_not_say_so(changes: Json, found: str) -> None:
    [told] = unsettled(listed(*PAIR, made=resource(role("decode", 2), **changes)))
    assert found in told


class TestWaiting:
    def made(self, reason: str) -> Json:
        return resource(role("decode", 2), told={"Progressing": ("True", reason)})

    def test_surplus_that_says_so(self) -> None:
        found = listed(PAIR[0], pod("0/decode/1/0", gates=GATED), made=self.made("SurplusWaiting"))
        assert waits_honestly(found.resources[LLM], found.pods)
        assert unsettled(found, waiting={LLM}) == []
        assert unsettled(found)


class TestLeaks:
    def test_nothing(self) -> None:
        objects = [
            owned("PodGroup", unit="0", role="decode", replica="0"),
            owned("PodGroup", unit="0", role="decode"),
            owned("PodGroup"),
        ]
        assert leaks(listed(*PAIR, PodGroup=objects, Service=[owned("Service", role="decode")])) == []

    @pytest.mark.parametrize(
        ("item", "found"),
        [
            (owned("PodGroup", uid="gone"), "of a resource that is gone"),
            (owned("PodGroup", unit="0", role="decode", replica="7"), "of a replica that is not there"),
            (owned("CompositePodGroup", unit="3"), "of a unit that is not there"),
        ],
    )
    def test_objects(self, item: Json, found: str) -> None:
        [told] = leaks(listed(*PAIR, PodGroup=[item]))
        assert found in told


def logged(kind: str, words: str = "some words") -> str:
    return json.dumps({"event": "work failed", "exception": [{"exc_type": kind, "exc_value": words, "frames": []}]})


@pytest.mark.parametrize(
    ("kind", "is_fault"),
    [
        ("TypeError", True),
        ("RecursionError", True),
        ("KeyError", True),
        ("ConnectionResetError", False),
        ("TimeoutError", False),
        ("ExceptionGroup", False),
        ("ServiceUnavailable", False),
    ],
)
def test_a_fault_of_the_program_in_its_log(kind: str, is_fault: bool) -> None:  # noqa: FBT001 - a column
    assert bool(faults_in(logged(kind))) == is_fault
