"""What the soak asks for when all is quiet, and the clock that stands still while something hides what happens."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

import pytest

from soak.calm import Listed, leaks, unled, unprotected, unreachable, unsettled, waits_honestly
from soak.facts import Owner
from soak.quiet import Quiet
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


def test_nobody_leads_whose_lease_is_not_renewed() -> None:
    def lease(name: str, at: str | None) -> Json:
        return {"metadata": {"name": name}, "spec": {"renewTime": at}}

    noon = datetime.fromisoformat("2026-01-01T12:00:00.000000Z")
    led = [
        lease("covey-operator", "2026-01-01T11:59:58.500000Z"),
        lease("covey-planner", "2026-01-01T11:59:59.000000Z"),
    ]
    assert unled(led, noon.timestamp()) == []
    left = [led[0], lease("covey-planner", "2026-01-01T11:59:50.000000Z")]
    assert unled(left, noon.timestamp()) == ["nobody renews the lease covey-planner"]
    assert len(unled([lease("covey-operator", None)], noon.timestamp())) == 2


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


def test_who_is_suspended_has_no_pods() -> None:
    made = resource(role("decode", 2), suspend=True)
    assert unsettled(listed(made=made)) == []
    assert unsettled(listed(*PAIR, made=made))


class TestWaiting:
    def made(self, reason: str) -> Json:
        return resource(role("decode", 2), told={"Progressing": ("True", reason)})

    def test_surplus_that_says_so(self) -> None:
        found = listed(PAIR[0], pod("0/decode/1/0", gates=GATED), made=self.made("SurplusWaiting"))
        assert waits_honestly(found.resources[LLM], found.pods)
        assert unsettled(found, waiting={LLM}) == []
        assert unsettled(found)

    def test_a_surge_without_room(self) -> None:
        old, new = {"covey.dev/revision": "old"}, {"covey.dev/revision": "new"}
        made = resource(role("decode", 2), told={"Progressing": ("True", "RollingOut")})
        pods = [*(runs(f"0/decode/{n}/0", labels=old) for n in (0, 1)), pod("0/decode/2/0", gates=GATED, labels=new)]
        assert any("3 pods of 2" in each for each in unsettled(listed(*pods, made=made), waiting={LLM}))
        made["status"]["rollout"] = {"hold": {"gate": "Room"}}
        assert unsettled(listed(*pods, made=made), waiting={LLM}) == []
        more = [*pods, pod("0/decode/3/0", gates=GATED, labels=new)]
        assert any("4 pods of 2" in each for each in unsettled(listed(*more, made=made), waiting={LLM}))

    def test_a_replica_in_part(self) -> None:
        pods = [runs("0/decode/0/0", size=2), pod("0/decode/0/1", size=2, gates=GATED)]
        found = listed(*pods, made=resource(role("decode", 1, size=2), told={"Admitted": ("False", "Infeasible")}))
        assert any("in part" not in each and "part of its pods" in each for each in unsettled(found, waiting={LLM}))


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

    def test_revisions_without_end(self) -> None:
        assert leaks(listed(*PAIR, ControllerRevision=[owned("ControllerRevision")] * 13)) == []
        assert leaks(listed(*PAIR, ControllerRevision=[owned("ControllerRevision")] * 14))


def test_a_pod_whose_service_is_not_there() -> None:
    found = runs("0/decode/0/0", subdomain="llm-pods")
    service = owned("llm-pods")
    assert unreachable(listed(found, Service=[service])) == []
    foreign = owned("llm-pods", uid="somebody else")
    for services in ([], [owned("other")], [foreign]):
        assert unreachable(listed(found, Service=services)) == ["pod 0/decode/0/0 has no Service llm-pods"]


class TestBudgets:
    budget: ClassVar[Json] = {"metadata": {"namespace": "soak", "name": "covey-gangs"}}
    pod = runs("0/decode/0/0", labels={"covey.dev/gang": "true"})

    def test_all_is_well(self) -> None:
        assert unprotected(listed(self.pod, PodDisruptionBudget=[self.budget])) == []
        assert leaks(listed(self.pod, PodDisruptionBudget=[self.budget])) == []
        router = resource(role("router", 2, minReplicas=0))
        assert unprotected(listed(runs("0/router/0/0"), made=router)) == []

    def test_a_namespace_without_one(self) -> None:
        assert unprotected(listed(self.pod)) == ["soak has no budget"]

    def test_a_pod_that_it_does_not_select_and_one_that_it_should_not(self) -> None:
        [told] = unprotected(listed(runs("0/decode/0/0"), PodDisruptionBudget=[self.budget]))
        assert "its label" in told
        router = resource(role("router", 2, minReplicas=0))
        [told] = unprotected(listed(runs("0/router/0/0", labels={"covey.dev/gang": "true"}), made=router))
        assert "its label" in told


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_stands_still_and_goes_on_a_little_later() -> None:
    clock = Clock()
    quiet = Quiet(clock, settling=2.0)
    clock.now += 5
    assert quiet.now() == 5
    quiet.disturb("etcd")
    clock.now += 5
    assert quiet.now() == 5
    quiet.settle("etcd")
    clock.now += 1
    assert quiet.now() == 5
    clock.now += 4
    assert quiet.now() == 8
