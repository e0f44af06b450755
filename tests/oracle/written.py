"""Nodes, shapes and pods of random cases, as people write them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from covey.api import core
from covey.placement.model import Level, Shape, Topology
from oracle.draws import Draw

GPU = "nvidia.com/gpu"
GIB = 2**30


# --- nodes


def node(
    name: str,
    labels: Mapping[str, str] | None = None,
    *,
    gpus: int = 8,
    cpu: str = "64",
    memory: str = "512Gi",
    pods: int = 110,
    taints: tuple[core.Taint, ...] = (),
    ready: bool = True,
    cordoned: bool = False,
) -> core.Node:
    """A node as the API server would send it."""
    allocatable: dict[str, str | int | float] = {"cpu": cpu, "memory": memory, "pods": str(pods)}
    if gpus:
        allocatable[GPU] = str(gpus)
    return core.Node(
        metadata=core.Meta(name=name, labels={"kubernetes.io/hostname": name, **(labels or {})}),
        spec=core.NodeSpec(unschedulable=cordoned, taints=taints or None),
        status=core.NodeStatus(
            allocatable=allocatable, conditions=(core.Condition(type="Ready", status="True" if ready else "False"),)
        ),
    )


LEVELS = (
    Level("zone", ("topology.kubernetes.io/zone",)),
    Level("block", ("example.com/block", "example.com/spine")),
    Level("rack", ("example.com/rack",)),
    Level("host", ("kubernetes.io/hostname",)),
)


def draw_topology(draw: Draw) -> Topology:
    """Levels, from broad to narrow."""
    names = draw.pick(
        ("block rack", "rack", "zone block rack", "zone block rack host", "block rack host", "block", "rack host")
    ).split()
    return Topology("random", tuple(level for level in LEVELS if level.name in names))


def draw_cluster(draw: Draw, topology: Topology, count: int) -> list[core.Node]:
    """Nodes filled into a tree of domains; values of finer levels recur under different parents."""
    width = [draw.integer(1, 3) for _ in topology.levels]
    plain = draw.chance(50)
    kinds = draw.integer(1, 3)
    found = []
    for number in range(count):
        labels: dict[str, str] = {"example.com/kind": f"k{draw.integer(0, kinds - 1)}"}
        rest = number
        for level, spread in reversed(list(zip(topology.levels, width, strict=True))):
            if level.name == "host" or (not plain and draw.chance(4)):
                continue  # a node may lack a level
            labels[draw.pick(level.keys) if len(level.keys) > 1 else level.keys[0]] = f"{level.name[0]}{rest % spread}"
            rest //= spread
        kind = labels["example.com/kind"]
        found.append(
            node(
                f"n{number:03}",
                labels,
                gpus={"k0": 8, "k1": 4, "k2": 0}[kind],
                cpu={"k0": "64", "k1": "32000m", "k2": "96"}[kind],
                memory={"k0": "512Gi", "k1": "262144Mi", "k2": "1Ti"}[kind],
                pods=110 if plain or draw.chance(80) else draw.integer(1, 6),
                taints=() if plain or draw.chance(75) else (draw.pick(TAINTS),),
                ready=plain or not draw.chance(5),
                cordoned=not plain and draw.chance(5),
            )
        )
    return found


TAINTS = (
    core.Taint(key="nvidia.com/gpu", value="present", effect="NoSchedule"),
    core.Taint(key="maintenance", effect="NoExecute"),
    core.Taint(key="old", effect="PreferNoSchedule"),
)
TOLERATIONS = (
    core.Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule"),
    core.Toleration(operator="Exists"),
    core.Toleration(key="nvidia.com/gpu", value="absent"),
    core.Toleration(key="maintenance", operator="Equal", effect="NoExecute"),
)


# --- shapes


def shape(gpus: int = 0, cpu: int = 1, memory: int = 1, **rules: object) -> Shape:
    """A pod's shape: whole GPUs, cores and GiB."""
    requests = {GPU: gpus, "cpu": 1000 * cpu, "memory": memory * GIB, "pods": 1}
    return replace(Shape(tuple(sorted((name, amount) for name, amount in requests.items() if amount))), **rules)  # type: ignore[arg-type]


def _affinity(draw: Draw) -> core.NodeSelector:
    kind = f"k{draw.integer(0, 2)}"
    requirement = draw.pick(
        (
            core.Requirement("example.com/kind", "NotIn", (kind,)),
            core.Requirement("example.com/kind", "In", (kind, "k0")),
            core.Requirement("example.com/absent", "DoesNotExist"),
            core.Requirement("example.com/kind", "Exists"),
        )
    )
    terms = [core.NodeSelectorTerm(match_expressions=(requirement,))]
    if draw.chance(30):
        name = core.Requirement("metadata.name", "In", (f"n{draw.integer(0, 9):03}",))
        terms.append(core.NodeSelectorTerm(match_fields=(name,)))
    if draw.chance(20):
        terms.append(core.NodeSelectorTerm())  # matches nothing
    return core.NodeSelector(tuple(terms))


# --- pods, as people write them

HOSTNAME = "kubernetes.io/hostname"
#: A node label that every node has, and that several share.
KIND = "example.com/kind"
APPS = ("a", "b", "c")


def _amounts(draw: Draw, gpus: int, cpu: int, memory: int) -> tuple[core.Container, ...]:
    """Containers that ask for so many devices, cores and GiB together, in one of the ways people write it."""
    cores: str | int = draw.pick((str(cpu), f"{1000 * cpu}m", cpu))
    size: str | int = draw.pick((f"{memory}Gi", f"{1024 * memory}Mi", memory * GIB))
    wanted: dict[str, str | int | float] = {"cpu": cores, "memory": size}
    devices: dict[str, str | int | float] = {GPU: draw.pick((str(gpus), gpus))} if gpus else {}
    match draw.integer(0, 2):
        case 0:
            return (core.Container(name="main", resources=core.Resources(requests=wanted | devices, limits=devices)),)
        case 1:  # limits alone
            return (core.Container(name="main", resources=core.Resources(limits=wanted | devices)),)
        case _:
            main = core.Resources(requests={"cpu": f"{999 * cpu}m", "memory": size}, limits=devices)
            beside = core.Resources(requests={"cpu": f"{cpu}m"})
            return (core.Container(name="main", resources=main), core.Container(name="beside", resources=beside))


def away(draw: Draw, *, wide: bool = False) -> core.Affinity:
    """Required anti-affinity, on the host or (``wide``) on all nodes of a kind."""
    app = draw.pick(APPS)
    selector = draw.pick(
        (
            core.LabelSelector(match_labels={"app": app}),
            core.LabelSelector(match_expressions=(core.Requirement("app", "In", (app, "x")),)),
            core.LabelSelector(match_expressions=(core.Requirement("app", "NotIn", ("a", "b")),)),
            core.LabelSelector(match_labels={"app": app}, match_expressions=(core.Requirement("tier", "Exists"),)),
            core.LabelSelector(match_labels={"index": "1"}),
        )
    )
    name = core.LabelSelector(match_labels={"kubernetes.io/metadata.name": "other"})
    term = core.PodAffinityTerm(
        topology_key=KIND if wide else HOSTNAME,
        label_selector=selector,
        namespaces=draw.pick((None, None, None, ("other",), ("default", "other"))),
        namespace_selector=draw.pick((None, None, None, core.LabelSelector(), name)),
        match_label_keys=draw.pick((None, None, None, ("revision",))),
        mismatch_label_keys=draw.pick((None, None, None, None, ("revision",))),
    )
    return core.Affinity(pod_anti_affinity=core.PodAffinity(required=(term,)))


def draw_labels(draw: Draw) -> dict[str, str]:
    """Labels that terms of anti-affinity look at."""
    found = {"app": draw.pick(APPS), "revision": draw.pick(("1", "2"))}
    return found | ({"tier": "gpu"} if draw.chance(50) else {})


def draw_template(draw: Draw, *, masks: bool, extras: bool) -> core.Pod:
    """A pod that some replicas have in common; each gets its own name and index."""
    gpus = draw.pick((1, 2, 4, 8, 3, 0, 5))
    cpu = draw.pick((1, 4, 8, 16, 31)) if gpus else draw.pick((1, 8, 30, 60))
    containers = _amounts(draw, gpus, cpu, draw.pick((1, 16, 64, 100)))
    spec: dict[str, Any] = {"containers": containers}
    affinity = core.Affinity()
    if masks and draw.chance(40):
        spec["tolerations"] = (draw.pick(TOLERATIONS), draw.pick(TOLERATIONS))
    if masks and draw.chance(25):
        spec["node_selector"] = {"example.com/kind": f"k{draw.integer(0, 1)}"}
    if masks and draw.chance(25):
        affinity = core.Affinity(node_affinity=core.NodeAffinity(required=_affinity(draw)))
    if extras and draw.chance(25):
        affinity = core.Affinity(affinity.node_affinity, None, away(draw).pod_anti_affinity)
    elif extras and draw.chance(20):
        port = core.ContainerPort(80, draw.integer(80, 81), draw.pick(("", "0.0.0.0", "10.0.0.1", "10.0.0.2")))
        spec["containers"] = (msgspec.structs.replace(containers[0], ports=(port,)), *containers[1:])
    if extras and draw.chance(15):
        spec["init_containers"] = (core.Container(resources=core.Resources(requests={"cpu": "2", "memory": "2Gi"})),)
    labels = draw_labels(draw) if extras else None
    return core.Pod(
        metadata=core.Meta(namespace="default", labels=labels), spec=core.PodSpec(affinity=affinity, **spec)
    )
