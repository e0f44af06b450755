"""Grove's rolling updates replayed (RU): scaling while they go on, and what they do where there is no room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pytest

from builders.manifests import Object
from cluster.serving import AddNodes, Event, Serving, check_history, serves, serving, workers
from cluster.workbench import label, uid_of, uids
from localcluster import eventually

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")


@dataclass(frozen=True)
class Wanted:
    """Units, and the replicas of both roles in each: those of one pod, and those of four."""

    units: int = 2
    singles: int = 2
    groups: int = 2

    @property
    def pods(self) -> int:
        return self.units * (self.singles + 4 * self.groups)

    def spec(self, image: str) -> Object:
        roles = [workers("a", replicas=self.singles, gpus=2), workers("sg", replicas=self.groups, size=4, gpus=2)]
        for each in roles:
            each["minReplicas"] = 1
            each["template"]["spec"]["containers"][0]["image"] = f"registry.test/engine:{image}"
        return {"replicas": self.units, "roles": roles}


@dataclass(frozen=True)
class Case:
    """From what to what, and whether the scaling comes with the update or while it goes on."""

    before: Wanted
    after: Wanted
    meanwhile: bool = True


CASES: Mapping[str, Case] = {
    "RU-9": Case(Wanted(1), Wanted(1)),
    "RU-11": Case(Wanted(2), Wanted(3)),
    "RU-12": Case(Wanted(2), Wanted(1)),
    "RU-14": Case(Wanted(), Wanted(groups=3)),
    "RU-15": Case(Wanted(), Wanted(groups=3), meanwhile=False),
    "RU-16": Case(Wanted(groups=3), Wanted()),
    "RU-17": Case(Wanted(groups=3), Wanted(), meanwhile=False),
    "RU-18": Case(Wanted(), Wanted(singles=4)),
    "RU-19": Case(Wanted(), Wanted(singles=4), meanwhile=False),
    "RU-20": Case(Wanted(singles=3), Wanted()),
    "RU-21": Case(Wanted(singles=3), Wanted(), meanwhile=False),
}


def image(pod: Object) -> str:
    return str(pod["spec"]["containers"][0]["image"]).rpartition(":")[2]


def fewest(before: Iterable[Object], events: Iterable[Event], role: str, unit: str) -> int:
    """The fewest pods of a role of one unit that served at any moment."""
    pods = {uid_of(pod): pod for pod in before}
    found = []
    for kind, pod in (("", None), *events):
        if pod is not None:
            pods.pop(uid_of(pod), None)
            if kind != "DELETED":
                pods[uid_of(pod)] = pod
        mine = [each for each in pods.values() if (label(each, "role"), label(each, "unit")) == (role, unit)]
        found.append(sum(map(serves, mine)))
    return min(found)


def await_all(serving: Serving, wanted: Wanted, revision: str) -> list[Object]:
    def reached() -> bool:
        pods = serving.pods()
        assert (len(pods), {image(pod) for pod in pods}) == (wanted.pods, {revision}), str(serving.states())
        return all(map(serves, pods))

    eventually(reached, 240, f"{wanted.pods} pods of revision {revision} serve")
    serving.await_condition("Ready", "True", "Ready")
    return serving.pods()


@pytest.mark.parametrize("scenario", CASES)
def test_updates(serving: Serving, nodes: AddNodes, scenario: str) -> None:
    case = CASES[scenario]
    nodes(racks=2, nodes=8)
    serving.create(**case.before.spec("1"))
    before = await_all(serving, case.before, "1")
    with serving.cluster.record(serving.path("Pod")) as recording:
        if case.meanwhile:
            serving.change(case.before.spec("2"))
            eventually(lambda: "2" in {image(pod) for pod in serving.pods() if serves(pod)}, 120, "it has begun")
        serving.change(case.after.spec("2"))
        after = await_all(serving, case.after, "2")
        history = recording.events
    # Which unit goes is decided by how far each has come, not by its index alone.
    units = {label(pod, "unit") for pod in before} & {label(pod, "unit") for pod in after}
    assert len(units) == min(case.before.units, case.after.units)
    for unit in units:
        # New replicas come before old ones go; a smaller number is in force at once.
        assert fewest(before, history, "a", unit) >= min(case.before.singles, case.after.singles)
        assert fewest(before, history, "sg", unit) >= 4 * min(case.before.groups, case.after.groups)
    # Pods of a unit that goes may be bound while the rest of it is deleted.
    staying = [event for event in history if label(event[1], "unit") in units]
    assert check_history(staying, *case.after.spec("2")["roles"]) > 0


def test_without_room_nothing_serving_goes_below_the_minimum(serving: Serving, nodes: AddNodes) -> None:
    """RU-10: there is no free node. Grove takes one pod down and waits; here both are the minimum, so none goes."""
    names = nodes(racks=1, nodes=10)
    roles = [workers("a", replicas=2, minReplicas=2), workers("sg", replicas=2, minReplicas=2, size=4)]
    serving.create(*roles)
    serving.await_bound(10)
    eventually(lambda: all(map(serves, serving.pods())), 60)
    before = uids(serving.pods())
    wanted = [workers("a", replicas=2, minReplicas=2), roles[1]]
    wanted[0]["template"]["spec"]["containers"][0]["image"] = "registry.test/engine:2"
    serving.change({"roles": wanted})
    told = "1 of a of the new revision without places"
    eventually(lambda: told in serving.states()["llm"], 60, lambda: str(serving.states()))
    assert before <= uids(serving.pods())
    assert len(serving.pods()) == 11
    assert len(names) == len(serving.bound())
    nodes(racks=1, nodes=1)
    eventually(lambda: {image(pod) for pod in serving.pods(role="a")} == {"2"}, 120, lambda: str(serving.states()))
    assert uids(serving.pods(role="sg")) <= before
    serving.await_condition("Ready", "True", "Ready")
