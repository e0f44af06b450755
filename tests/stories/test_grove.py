"""Grove's acceptance suite replayed: gangs (GS), orders of starts (SO), topology (TAS); ``docs/reference/scenarios.md`` maps all of it.

Grove counts pods that run and that are pending. Here a node holds one pod, so that room is counted in nodes as there; at
every bind its whole unit must have its minimum besides, which is one of the laws. A replica of several pods is whole or not
there at all, so what Grove allows to be missing of a replica of a scaling group is a role of its own here, with no minimum.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from builders.manifests import Object, workers
from cluster.workbench import is_ready, label, name_of, uid_of, uids
from scheduler_trees import node_of
from stage import Stage
from stage.play import BLOCK, RACK, by_replica
from stage.record import states

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def workload(name: str, groups: int = 2) -> list[Object]:
    """WL1: ten pods that start together. WL2: three of ten pods do. ``groups``: replicas of the scaling group."""
    if name == "WL1":
        return [workers("a", replicas=2, minReplicas=2), workers("sg", replicas=groups, minReplicas=2, size=4)]
    return [
        workers("a", replicas=2, minReplicas=1),
        workers("sg", replicas=groups, minReplicas=1, size=2),
        workers("rest", replicas=2 * groups, minReplicas=0),
    ]


@dataclass(frozen=True)
class Scale:
    """So many units, and replicas of the scaling group in each."""

    units: int = 1
    groups: int = 2


@dataclass(frozen=True)
class Bound:
    """With so many nodes so many pods are bound, of so many; whole replicas by unit and role, where they are determined."""

    nodes: int
    bound: int
    of: int
    whole: Mapping[str, int] = field(default_factory=dict)


_FIRST, _SECOND = {"0/a": 1, "0/sg": 1}, {"1/a": 1, "1/sg": 1}
#: Those whose steps are all in another one are not played: ``docs/reference/scenarios.md``.
GANGS: Mapping[str, tuple[str, Sequence[Scale | Bound]]] = {
    "GS-4": (
        "WL1",
        (
            *(Bound(9, 0, 10), Bound(10, 10, 10), Scale(groups=3), Bound(10, 10, 14), Bound(14, 14, 14)),
            *(Scale(2, 3), Bound(14, 14, 28), Bound(24, 24, 28, {"1/a": 2, "1/sg": 2}), Bound(28, 28, 28)),
        ),
    ),
    "GS-7": (
        "WL2",
        (
            *(Bound(2, 0, 10), Bound(3, 3, 10, _FIRST), Bound(5, 5, 10), Bound(10, 10, 10)),
            *(Scale(groups=3), Bound(10, 10, 14), Bound(12, 12, 14), Bound(14, 14, 14)),
        ),
    ),
    "GS-9": (
        "WL2",
        (Bound(10, 10, 10), Scale(2), Bound(10, 10, 20), Bound(13, 13, 20, _SECOND), Bound(20, 20, 20)),
    ),
    "GS-12": (
        "WL2",
        (
            *(Bound(2, 0, 10), Scale(2, 3), Bound(2, 0, 28), Bound(6, 6, 28, {**_FIRST, **_SECOND})),
            *(Bound(14, 14, 28), Bound(28, 28, 28)),
        ),
    ),
}


def whole(pods: Iterable[Object], roles: Iterable[Object]) -> dict[str, int]:
    """Replicas all of whose pods are bound, by unit and role."""
    sizes = {role["name"]: role.get("size", 1) for role in roles}
    counts: dict[str, int] = {}
    for (_, unit, role, _), members in by_replica(pods).items():
        place = f"{unit}/{role}"
        counts[place] = counts.get(place, 0) + (sum(bool(node_of(pod)) for pod in members) == sizes[role])
    return counts


@pytest.mark.parametrize("scenario", GANGS)
def test_gangs_come_as_far_as_there_are_nodes(stage: Stage, scenario: str) -> None:
    name, steps = GANGS[scenario]
    roles = workload(name)
    stage.nodes(nodes=steps[0].nodes if isinstance(steps[0], Bound) else 0)
    stage.create(*roles)
    for step in steps:
        if isinstance(step, Scale):
            roles = workload(name, step.groups)
            stage.change(replicas=step.units, roles=roles)
            continue
        # Nodes that come one by one would be given away one by one.
        with stage.away("scheduler"):
            stage.nodes(nodes=step.nodes)
        stage.settle()
        assert (len(stage.bound()), len(stage.pods())) == (step.bound, step.of), stage.told()
        counts = whole(stage.pods(), roles)
        assert {place: counts.get(place, 0) for place in step.whole} == step.whole
    assert stage.condition("Ready")[:2] == ("True", "Ready")


@pytest.mark.parametrize(("scenario", "minimum"), [("SO-1", 2), ("SO-2", 1)])
def test_roles_start_in_order_once_enough_of_the_one_before_are_ready(
    stage: Stage, scenario: str, minimum: int
) -> None:
    """WL3 to WL6: ``a``, ``b`` and ``c``, each after the one before it."""
    assert scenario
    sizes = {"a": 1, "b": 1, "c": 3}
    stage.nodes(nodes=10)
    roles: list[Object] = []
    for name, size in sizes.items():
        after = [{"role": roles[-1]["name"], "condition": "Ready"}] if roles else []
        roles.append(workers(name, replicas=2, minReplicas=minimum, size=size, dependsOn=after))
    stage.create(*roles)
    stage.ready(10)
    for first, then in itertools.pairwise(sizes):
        bound: set[str] = set()
        for event, pods in states(stage.history("Pod")):
            pod = event.object
            if label(pod, "role") == then and node_of(pod) and uid_of(pod) not in bound:
                there = [peer for peer in pods.values() if label(peer, "role") == first and is_ready(peer)]
                assert len(there) >= minimum * sizes[first], f"{name_of(pod)} started after {len(there)} of {first}"
                bound.add(uid_of(pod))


def test_unit_when_one_of_two_is_lost_stays_and_goes_whole_below_its_minimum(stage: Stage) -> None:
    """GT-3: a node that goes takes its pod along, and leaves no room for another."""
    stage.excused.add("budget")
    stage.nodes(nodes=10)
    stage.create(*workload("WL2"), gang={"terminationDelaySeconds": 60})
    before = stage.ready(10)
    first, second = (node_of(pod) for pod in stage.pods(role="a"))
    stage.delete_nodes(first)
    stage.advance(70)
    # It is still above its minimum: nothing is announced.
    assert stage.condition("Ready")[:2] == ("False", "SurplusWaiting")
    assert stage.condition("MinimumMet")[0] == "True"
    assert not stage.condition("Escalating")[0]
    stage.delete_nodes(second)
    stage.advance(70)
    assert not uids(before) & uids(stage.pods())
    assert len(stage.pods()) == 10
    stage.nodes(nodes=2, prefix="more-")
    stage.ready(10)
    assert stage.condition("Ready")[:2] == ("True", "Ready")


@dataclass(frozen=True)
class Placed:
    """A resource, and where its pods must lie together: for each unit, role or replica, one value of a label."""

    roles: Sequence[Object]
    together: Mapping[tuple[str, str], str]
    spec: Mapping[str, Any] = field(default_factory=dict)


def near(name: str, size: int, level: str = "", **fields: Any) -> Object:
    """A role whose replicas lie in one domain of a level."""
    return workers(name, size=size, gpus=1, **fields, **({"topology": {"required": level}} if level else {}))


def unit(level: str, **spec: Any) -> dict[str, Any]:
    return {"topology": {"required": level}, **spec}


PLACES: Mapping[str, Placed] = {
    "TAS-2": Placed(
        [near("rack", 3, "rack"), near("block", 4, "block")], {("replica", "rack"): RACK, ("replica", "block"): BLOCK}
    ),
    "TAS-3": Placed(
        [near("workers", 1, replicas=2), near("router", 1, replicas=2)], {("unit", ""): RACK}, unit("rack")
    ),
    "TAS-4": Placed(
        [near("workers", 2, "rack", replicas=2), near("router", 1, replicas=2)], {("replica", "workers"): RACK}
    ),
    "TAS-6": Placed([near("workers", 1, replicas=4, minReplicas=4)], {("unit", ""): ZONE}, unit("zone")),
    "TAS-9": Placed([near("workers", 2, "host")], {("replica", "workers"): HOST, ("unit", ""): BLOCK}, unit("block")),
    "TAS-10": Placed(
        [near("workers", 2, "rack", replicas=3)], {("replica", "workers"): RACK, ("unit", ""): BLOCK}, unit("block")
    ),
    "TAS-12": Placed(
        [near("workers", 2, "host", replicas=5, minReplicas=3)],
        {("replica", "workers"): HOST, ("unit", ""): BLOCK},
        unit("block"),
    ),
    "TAS-16": Placed(
        [near("decode", 2, "rack", replicas=2), near("prefill", 2, "host", replicas=2), near("router", 1, replicas=2)],
        {("replica", "decode"): RACK, ("replica", "prefill"): HOST, ("unit", ""): BLOCK},
        unit("block", replicas=2),
    ),
}


def test_pods_lie_together_as_it_is_required(stage: Stage) -> None:
    stage.nodes(zones=2, blocks=2, racks=2, nodes=3)
    for scenario, wanted in PLACES.items():
        stage.create(*wanted.roles, name=scenario.lower(), **wanted.spec)
    stage.settle()
    for scenario, wanted in PLACES.items():
        assert stage.condition("MinimumMet", scenario.lower())[0] == "True", stage.told()
        for (scope, role), key in wanted.together.items():
            parts = ("unit", "role", "replica") if scope == "replica" else ("unit",)
            groups: dict[tuple[str, ...], list[Object]] = {}
            for pod in stage.bound(inference=scenario.lower()):
                if role in ("", label(pod, "role")):
                    groups.setdefault(tuple(label(pod, part) for part in parts), []).append(pod)
            assert groups, f"{scenario}: there are pods"
            for pods in groups.values():
                domains = stage.domains(pods, key)
                assert len(domains) == 1, f"{scenario}, {scope} {role}: {domains}"
                assert domains != {("",)}


def test_gang_when_it_fits_no_rack_is_bound_nowhere(stage: Stage) -> None:
    """TAS-13: there is room for each pod, and not for all of them in one rack."""
    stage.nodes(racks=2, nodes=2)
    stage.create(workers("workers", replicas=3, minReplicas=3), **unit("rack"))
    assert "rack" in stage.refusal()


def test_resources_lie_in_the_topologies_that_they_name(stage: Stage) -> None:
    """TAS-17: two sorts of nodes, each with labels of its own."""
    stage.nodes(blocks=2, nodes=2)
    nvl = stage.nodes(nodes=2, preset="clique", labels={"example.com/nvl-block": "nvl-0"})
    path = "/apis/scheduling.covey.dev/v1alpha1/clustertopologies"
    for name, key in (("h100", BLOCK), ("gb200", "example.com/nvl-block")):
        spec = {"levels": [{"name": "block", "keys": [key]}]}
        body = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "ClusterTopology"}
        stage.cluster.api("POST", path, {**body, "metadata": {"name": name}, "spec": spec})
        stage.after(lambda name=name: stage.cluster.delete(f"{path}/{name}"))
        stage.create(workers("workers", size=2), name=name, topology={"name": name, "required": "block"})
    stage.ready(4)
    assert {node_of(pod) for pod in stage.pods(inference="gb200")} == set(nvl)
    h100 = stage.pods(inference="h100")
    assert not {node_of(pod) for pod in h100} & set(nvl)
    assert len(stage.domains(h100, BLOCK)) == 1
