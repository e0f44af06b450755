"""Grove's acceptance suite replayed: gangs (GS), order of starts (SO), topology (TAS); ``docs/reference/scenarios.md`` maps all of it.

Grove counts pods that run and that are pending. Here a node holds one pod, so that room is counted in nodes as there; at
every bind its whole unit must have its minimum besides. A replica of several pods is whole or not there at all, so what Grove
allows to be missing of a replica of a scaling group is a role of its own here, with no minimum.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from builders.manifests import Object
from cluster.conftest import Covey
from cluster.serving import BLOCK, RACK, AddNodes, Event, Serving, check_history, replicas, serving, workers
from cluster.workbench import is_ready, label, name_of, uid_of
from localcluster import eventually
from scheduler_trees import node_of

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")
KIND = "DisaggregatedInference"


def workload(name: str, groups: int = 2) -> list[Object]:
    """WL1: ten pods that start together. WL2: three of ten pods do. ``groups``: replicas of the scaling group."""
    if name == "WL1":
        return [
            workers("a", replicas=2, minReplicas=2),
            workers("sg", replicas=groups, minReplicas=2, size=4),
        ]
    return [
        workers("a", replicas=2, minReplicas=1),
        workers("sg", replicas=groups, minReplicas=1, size=2),
        workers("rest", replicas=2 * groups, minReplicas=0),
    ]


@dataclass(frozen=True)
class Room:
    """So many nodes more; ``at_once``: seen together, as where they are uncordoned before anybody looks."""

    nodes: int
    at_once: bool = False


@dataclass(frozen=True)
class Scale:
    """So many units, and replicas of the scaling group in each."""

    units: int = 1
    groups: int = 2


@dataclass(frozen=True)
class Bound:
    """So many pods are bound, of so many; whole replicas by unit and role, where they are determined."""

    bound: int
    of: int
    whole: Mapping[str, int] = field(default_factory=dict)


Steps = Sequence[Room | Scale | Bound]
_FIRST = {"0/a": 1, "0/sg": 1}
_BOTH = {**_FIRST, "1/a": 1, "1/sg": 1}
_WAITS_THEN_STARTS: Steps = (Room(2), Bound(0, 10), Room(1), Bound(3, 10, _FIRST))

GANGS: Mapping[str, tuple[str, Steps]] = {
    "GS-1": ("WL1", (Room(9), Bound(0, 10), Room(1), Bound(10, 10))),
    "GS-2": (
        "WL1",
        (Room(9), Bound(0, 10), Room(1), Bound(10, 10), Scale(groups=3), Bound(10, 14), Room(4), Bound(14, 14)),
    ),
    "GS-3": (
        "WL1",
        (Room(9), Bound(0, 10), Room(1), Bound(10, 10), Scale(2), Bound(10, 20), Room(10), Bound(20, 20)),
    ),
    "GS-4": (
        "WL1",
        (
            *(Room(9), Bound(0, 10), Room(1), Bound(10, 10)),
            *(Scale(groups=3), Bound(10, 14), Room(4), Bound(14, 14)),
            *(Scale(2, 3), Bound(14, 28), Room(10), Bound(24, 28, {"1/a": 2, "1/sg": 2}), Room(4), Bound(28, 28)),
        ),
    ),
    "GS-5": ("WL2", (*_WAITS_THEN_STARTS, Room(7), Bound(10, 10))),
    "GS-6": (
        "WL2",
        (
            *(*_WAITS_THEN_STARTS, Room(7), Bound(10, 10)),
            *(Scale(groups=3), Bound(10, 14), Room(2), Bound(12, 14), Room(2), Bound(14, 14)),
        ),
    ),
    "GS-7": (
        "WL2",
        (
            *(*_WAITS_THEN_STARTS, Room(2), Bound(5, 10), Room(5), Bound(10, 10)),
            *(Scale(groups=3), Bound(10, 14), Room(2), Bound(12, 14), Room(2), Bound(14, 14)),
        ),
    ),
    "GS-8": (
        "WL2",
        (
            *(Room(2), Bound(0, 10), Scale(groups=3), Bound(0, 14)),
            *(Room(1), Bound(3, 14, _FIRST), Room(4), Bound(7, 14), Room(7), Bound(14, 14)),
        ),
    ),
    "GS-9": (
        "WL2",
        (
            *(*_WAITS_THEN_STARTS, Room(7), Bound(10, 10)),
            *(Scale(2), Bound(10, 20), Room(3), Bound(13, 20, {"1/a": 1, "1/sg": 1}), Room(7), Bound(20, 20)),
        ),
    ),
    "GS-10": (
        "WL2",
        (
            *(Room(2), Bound(0, 10), Scale(2), Bound(0, 20)),
            *(Room(4, at_once=True), Bound(6, 20, _BOTH), Room(4), Bound(10, 20), Room(10), Bound(20, 20)),
        ),
    ),
    "GS-11": (
        "WL2",
        (
            *(*_WAITS_THEN_STARTS, Room(7), Bound(10, 10)),
            *(Scale(groups=3), Bound(10, 14), Room(2), Bound(12, 14), Room(2), Bound(14, 14)),
            *(Scale(2, 3), Bound(14, 28), Room(3), Bound(17, 28, {"1/a": 1, "1/sg": 1})),
            *(Room(7), Bound(24, 28), Room(4), Bound(28, 28)),
        ),
    ),
    "GS-12": (
        "WL2",
        (
            *(Room(2), Bound(0, 10), Scale(2, 3), Bound(0, 28)),
            *(Room(4, at_once=True), Bound(6, 28, _BOTH), Room(8), Bound(14, 28), Room(14), Bound(28, 28)),
        ),
    ),
}


def whole(pods: Iterable[Object], roles: Iterable[Object]) -> dict[str, int]:
    """Replicas all of whose pods are bound, by unit and role."""
    sizes = {each["name"]: each.get("size", 1) for each in roles}
    found: dict[str, int] = {}
    for (_, unit, role, _), members in replicas(pods).items():
        if sum(bool(node_of(pod)) for pod in members) == sizes[role]:
            found[f"{unit}/{role}"] = found.get(f"{unit}/{role}", 0) + 1
    return found


def await_bound(serving: Serving, wanted: Bound, roles: Sequence[Object]) -> None:
    def reached() -> bool:
        pods = serving.pods()
        bound = [pod for pod in pods if node_of(pod)]
        assert (len(bound), len(pods)) == (wanted.bound, wanted.of), str(serving.states())
        assert len(set(map(node_of, bound))) == len(bound), "a node holds one"
        return True

    eventually(reached, 120, f"{wanted.bound} of {wanted.of} pods are bound")
    found = whole(serving.pods(), roles)
    assert {place: found.get(place, 0) for place in wanted.whole} == wanted.whole
    if not wanted.bound:
        assert serving.await_condition("Admitted", "False", "Infeasible")


@pytest.mark.parametrize("scenario", GANGS)
def test_gangs(serving: Serving, nodes: AddNodes, covey_to_kill: Covey, scenario: str) -> None:
    name, steps = GANGS[scenario]
    roles = workload(name)
    first, *rest = steps
    assert isinstance(first, Room)
    nodes(racks=1, nodes=first.nodes)
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.create(*roles)
        for step in rest:
            match step:
                case Room(count, at_once=True):
                    covey_to_kill.scheduler.stop()
                    nodes(racks=1, nodes=count)
                    covey_to_kill.scheduler.start()
                case Room(count):
                    nodes(racks=1, nodes=count)
                case Scale(units, groups):
                    roles = workload(name, groups)
                    serving.change({"replicas": units, "roles": roles})
                case Bound():
                    await_bound(serving, step, roles)
        ends = steps[-1]
        assert isinstance(ends, Bound)
        recording.wait(lambda events: len({uid_of(pod) for _, pod in events if node_of(pod)}) == ends.bound, 60)
        assert check_history(recording.events, *roles) == ends.bound
    serving.await_condition("Ready", "True", "Ready")


def chain(*, minimums: bool, order: Sequence[str]) -> list[Object]:
    """WL3 to WL6: ``a``, ``b`` and ``c``, each after the one before it; with ``minimums`` one replica of two is enough."""
    shapes: dict[str, dict[str, Any]] = {"a": {}, "b": {}, "c": {"size": 3}}
    found = []
    for number, name in enumerate(order):
        after = [{"role": order[number - 1], "condition": "Ready"}] if number else []
        minimum = 1 if minimums else 2
        found.append(workers(name, replicas=2, minReplicas=minimum, dependsOn=after, **shapes[name]))
    return found


def check_starts(events: Iterable[Event], first: str, then: str, *, enough: int) -> int:
    """Before any pod of one role was bound, so many pods of the other were Ready; how many were bound."""
    pods: dict[str, Object] = {}
    bound: set[str] = set()
    for _, pod in events:
        pods[uid_of(pod)] = pod
        if label(pod, "role") == then and node_of(pod) and uid_of(pod) not in bound:
            there = [each for each in pods.values() if label(each, "role") == first and is_ready(each)]
            assert len(there) >= enough, f"{name_of(pod)} started after {len(there)} pods of {first}"
            bound.add(uid_of(pod))
    return len(bound)


@pytest.mark.parametrize(
    ("scenario", "minimums", "order"),
    [("SO-1", False, "abc"), ("SO-2", True, "abc"), ("SO-3", False, "acb"), ("SO-4", True, "abc")],
)
def test_orders_of_starts(
    serving: Serving,
    nodes: AddNodes,
    scenario: str,
    minimums: bool,  # noqa: FBT001 - a parameter
    order: str,
) -> None:
    assert scenario
    nodes(racks=1, nodes=10)
    roles = chain(minimums=minimums, order=order)
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.create(*roles)
        serving.await_bound(10)
        recording.wait(lambda events: len({uid_of(pod) for _, pod in events if is_ready(pod)}) == 10, 60)
        history = recording.events
    sizes = {"a": 1, "b": 1, "c": 3}
    for first, then in itertools.pairwise(order):
        enough = sizes[first] * (1 if minimums else 2)
        assert check_starts(history, first, then, enough=enough) == 2 * sizes[then]


#: Role whose node goes first, and then the one that takes the unit below its minimum; the workload.
TERMINATIONS: Mapping[str, tuple[str, Sequence[str]]] = {
    "GT-1": ("WL1", ("a",)),
    "GT-2": ("WL1", ("sg",)),
    "GT-3": ("WL2", ("a", "a")),
}


@pytest.mark.parametrize("scenario", TERMINATIONS)
def test_what_stays_below_its_minimum_goes_whole(serving: Serving, nodes: AddNodes, scenario: str) -> None:
    """A node that goes takes its pod along, and leaves no room for another."""
    name, lost = TERMINATIONS[scenario]
    nodes(racks=1, nodes=10)
    roles = workload(name)
    serving.create(*roles, gang={"terminationDelaySeconds": 5})
    serving.await_bound(10)
    serving.await_condition("Ready", "True", "Ready")
    before = {uid_of(pod) for pod in serving.pods()}
    for number, role in enumerate(lost):
        if number:
            # It is still above its minimum: nothing is announced.
            serving.await_condition("Ready", "False", "SurplusWaiting")
            assert serving.condition("MinimumMet")["status"] == "True"
            with pytest.raises(AssertionError, match="no condition Escalating"):
                serving.condition("Escalating")
        serving.cluster.delete_nodes([node_of(next(pod for pod in serving.pods(role=role) if node_of(pod)))])

    def taken_down() -> bool:
        pods = serving.pods()
        assert not before & {uid_of(pod) for pod in pods}, str(serving.states())
        return len(pods) == 10

    eventually(taken_down, 120, "all pods are made anew")
    nodes(racks=1, nodes=len(lost))
    serving.await_bound(10)
    serving.await_condition("Ready", "True", "Ready")


ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def near(name: str, size: int, level: str = "", *, gpus: int = 2, **fields: Any) -> Object:
    """A role of which four pods fit a node."""
    if level:
        fields["topology"] = {"required": level}
    return workers(name, size=size, gpus=gpus, **fields)


@dataclass(frozen=True)
class Placed:
    """A resource, and where its pods must lie together: for each unit, role or replica, one value of a label."""

    roles: Sequence[Object]
    pods: int
    together: Mapping[tuple[str, str], str]
    spec: Mapping[str, Any] = field(default_factory=dict)


def unit(level: str, **spec: Any) -> dict[str, Any]:
    return {"topology": {"required": level}, **spec}


_DISAGGREGATED = (
    near("decode", 2, "rack", replicas=2),
    near("prefill", 2, "rack", replicas=2),
    near("router", 1, replicas=2),
)
PLACES: Mapping[str, Placed] = {
    "TAS-2": Placed(
        [near("rack", 3, "rack"), near("block", 4, "block")],
        7,
        {("replica", "rack"): RACK, ("replica", "block"): BLOCK},
    ),
    "TAS-3": Placed(
        [near("workers", 1, replicas=2, minReplicas=2), near("router", 1, replicas=2, minReplicas=2)],
        4,
        {("unit", ""): RACK},
        unit("rack"),
    ),
    "TAS-4": Placed(
        [near("workers", 2, "rack", replicas=2, minReplicas=2), near("router", 1, replicas=2)],
        6,
        {("replica", "workers"): RACK},
    ),
    "TAS-5": Placed([near("workers", 2, "host")], 2, {("replica", "workers"): HOST}),
    "TAS-6": Placed([near("workers", 1, replicas=4, minReplicas=4)], 4, {("unit", ""): ZONE}, unit("zone")),
    "TAS-7": Placed([near("workers", 2, replicas=2)], 4, {}),
    "TAS-9": Placed(
        [near("workers", 2, "host")], 2, {("replica", "workers"): HOST, ("unit", ""): BLOCK}, unit("block")
    ),
    "TAS-10": Placed(
        [near("workers", 2, "rack", replicas=3, minReplicas=1)],
        6,
        {("replica", "workers"): RACK, ("unit", ""): BLOCK},
        unit("block"),
    ),
    "TAS-12": Placed(
        [near("workers", 2, "host", replicas=10, minReplicas=3)],
        20,
        {("replica", "workers"): HOST, ("unit", ""): BLOCK},
        unit("block"),
    ),
    "TAS-14": Placed(
        [near("workers", 1, replicas=2, minReplicas=2)], 4, {("unit", ""): RACK}, unit("rack", replicas=2)
    ),
    "TAS-15": Placed(
        _DISAGGREGATED,
        10,
        {("replica", "decode"): RACK, ("replica", "prefill"): RACK, ("unit", ""): BLOCK},
        unit("block"),
    ),
    "TAS-16": Placed(
        [near("decode", 2, "rack", replicas=2), near("prefill", 2, "host", replicas=2), near("router", 1, replicas=2)],
        20,
        {("replica", "decode"): RACK, ("replica", "prefill"): HOST, ("unit", ""): BLOCK},
        unit("block", replicas=2),
    ),
}


def scopes(pods: Iterable[Object], what: str, role: str) -> list[list[Object]]:
    """The pods of each unit, or of each replica of a role."""
    found: dict[tuple[str, ...], list[Object]] = {}
    for pod in pods:
        if role in ("", label(pod, "role")):
            parts = ("unit", "role", "replica") if what == "replica" else ("unit",)
            found.setdefault(tuple(label(pod, part) for part in parts), []).append(pod)
    return list(found.values())


@pytest.mark.parametrize("scenario", PLACES)
def test_places(serving: Serving, nodes: AddNodes, scenario: str) -> None:
    wanted = PLACES[scenario]
    nodes(zones=2, blocks=2, racks=2, nodes=3)
    serving.create(*wanted.roles, **wanted.spec)
    pods = serving.await_bound(wanted.pods)
    for (what, role), key in wanted.together.items():
        for members in scopes(pods, what, role):
            domains = serving.domains(members, key)
            assert len(domains) == 1, f"{what} {role}: {domains}"
            assert domains != {("",)}


def test_what_fits_no_rack_is_bound_nowhere(serving: Serving, nodes: AddNodes) -> None:
    """TAS-13: there is room for each pod, and not for all of them in one rack."""
    nodes(blocks=2, racks=2, nodes=3)
    serving.create(workers("workers", replicas=10, minReplicas=10), **unit("rack"))
    message = serving.await_condition("Admitted", "False", "Infeasible")
    assert "rack" in message
    assert not serving.bound()


def test_each_resource_in_the_topology_that_it_names(serving: Serving, nodes: AddNodes) -> None:
    """TAS-17: two sorts of nodes, each with labels of its own."""
    nodes(blocks=2, racks=1, nodes=2)
    nvl = nodes(blocks=2, racks=1, nodes=2, preset="clique", labels={"example.com/nvl-block": "nvl-0"})
    made = {"h100": [("block", BLOCK)], "gb200": [("block", "example.com/nvl-block")]}
    path = "/apis/scheduling.covey.dev/v1alpha1/clustertopologies"
    try:
        for name, levels in made.items():
            spec = {"levels": [{"name": level, "keys": [key]} for level, key in levels]}
            body = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "ClusterTopology"}
            serving.cluster.api("POST", path, {**body, "metadata": {"name": name}, "spec": spec})
            serving.create(workers("workers", size=2), name=name, topology={"name": name, "required": "block"})
        bound = serving.await_bound(4)
        where = {name: {node_of(pod) for pod in bound if label(pod, "inference") == name} for name in made}
        assert where["gb200"] <= set(nvl)
        assert not where["h100"] & set(nvl)
        assert len(serving.domains([pod for pod in bound if label(pod, "inference") == "h100"], BLOCK)) == 1
    finally:
        for name in made:
            serving.cluster.api("DELETE", f"{path}/{name}")
