"""Random cases that no table holds: many replicas in three roles, led or not, on unlike nodes, some of them torn.

They start from pods as people write them, and ask for about as much as there is.
"""

from __future__ import annotations

import random
from dataclasses import replace

from covey.api import core
from covey.placement.cluster.shape import shape_of
from covey.placement.model import Gang, PodRequest, ReplicaRequest, RoleRequest, Topology
from oracle import facts
from oracle.case import Case, Hold
from oracle.draws import Draw, Seeded
from oracle.written import GPU, LEVELS, node, shape

#: Milli-cores and GiB of a container; GPUs come on top now and then.
SIZES = ((3500, 6), (1250, 60), (6000, 12), (12_000, 31), (500, 2), (8_000, 100))


def crowd(seed: int) -> Case:
    """The case of a seed."""
    draw = Seeded(random.Random(seed))
    topology = _topology(draw)
    nodes = tuple(_node(draw, number, topology_width=draw.integer(1, 4)) for number in range(draw.integer(10, 40)))
    gang = Gang(namespace="default", name="gang", unit=0, roles=(), topology=topology.name)
    case = Case(gang, topology, nodes, tuple(_strangers(draw, nodes)))
    case = _roles(draw, case)
    return _torn(draw, case) if draw.chance(75) else case


def _topology(draw: Draw) -> Topology:
    """Blocks and racks, or racks alone."""
    names = draw.pick(("block rack", "rack", "block rack host")).split()
    return Topology("random", tuple(level for level in LEVELS if level.name in names))


def _node(draw: Draw, number: int, topology_width: int) -> core.Node:
    """No two alike but by chance."""
    labels = {"example.com/rack": f"r{number % topology_width}", "example.com/block": f"b{number % 2}"}
    return node(
        f"n{number:03}",
        labels,
        gpus=draw.pick((0, 2, 4, 8, 8)),
        cpu=f"{draw.integer(16, 128)}",
        memory=f"{draw.integer(64, 1024)}Gi",
        pods=draw.pick((110, 110, 20)),
    )


def _strangers(draw: Draw, nodes: tuple[core.Node, ...]) -> list[Hold]:
    found = []
    for each in nodes:
        if draw.chance(60):
            own = shape(draw.pick((0, 0, 1, 2)), draw.integer(1, 12), draw.integer(1, 60))
            gpus = facts.allocatable(each).get(GPU, 0)
            if dict(own.requests).get(GPU, 0) <= gpus:
                found.append(Hold(f"stranger-{each.metadata.name}", each.metadata.name, own))
    return found


def _template(draw: Draw, *, gpus: tuple[int, ...]) -> core.Pod:
    cpu, memory = draw.pick(SIZES)
    requests: dict[str, str | int | float] = {"cpu": f"{cpu}m", "memory": f"{memory}Gi"}
    devices = draw.pick(gpus)
    limits: dict[str, str | int | float] = {GPU: devices} if devices else {}
    container = core.Container(name="main", resources=core.Resources(requests=requests | limits, limits=limits))
    return core.Pod(metadata=core.Meta(namespace="default"), spec=core.PodSpec(containers=(container,)))


def _roles(draw: Draw, case: Case) -> Case:
    """Three roles that share about what there is."""
    levels = [level.name for level in case.topology.levels]
    load = draw.pick((40, 70, 90, 96, 100, 103, 120))
    required = draw.pick((None, None, levels[0]))
    best = _best(case, levels[0] if required else None)
    free = {name: sum(facts.free(best, each).get(name, 0) for each in best.node) for name in ("cpu", "memory", GPU)}
    written: dict[str, core.Pod] = {}
    parts = []
    for _ in range(3):
        led = draw.chance(30)
        pods = draw.integer(2, 4) if led or draw.chance(20) else 1
        worker = _template(draw, gpus=(0, 0, 1, 2) if pods == 1 else (0, 1, 1, 2, 4))
        members = (_template(draw, gpus=(0,)) if led else worker, *[worker] * (pods - 1))
        parts.append((members, draw.integer(1, 6)))
    asked = [
        sum(weight * dict(shape_of(pod).requests).get(name, 0) for members, weight in parts for pod in members) / have
        for name, have in free.items()
        if have
    ]
    times = load / 100 / max(asked)
    roles = []
    for number, (members, weight) in enumerate(parts):
        desired = max(1, min(round(weight * times), 150))
        minimum = desired if draw.chance(60) else draw.integer(0, desired)
        level = levels[-1] if len(members) > 1 else None
        roles.append(_role(f"role-{number}", members, minimum, desired, written, level))
    if not any(role.minimum for role in roles):
        roles[0] = replace(roles[0], minimum=1)
    return replace(case, gang=replace(case.gang, roles=tuple(roles), required=required), pods=written)


def _best(case: Case, level: str | None) -> Case:
    """The case with the nodes of its largest domain alone."""
    if level is None:
        return case
    depth = case.topology.depth(level)
    paths = [facts.path_of(case.topology, each)[: depth + 1] for each in case.nodes]
    most = max(sorted(set(paths), key=repr), key=paths.count)
    return replace(case, nodes=tuple(each for each, path in zip(case.nodes, paths, strict=True) if path == most))


def _role(
    name: str,
    members: tuple[core.Pod, ...],
    minimum: int,
    desired: int,
    written: dict[str, core.Pod],
    required: str | None,
) -> RoleRequest:
    def member(replica: int, index: int, template: core.Pod) -> PodRequest:
        key = f"{name}-{replica}-{index}"
        pod = core.Pod(metadata=core.Meta(name=key, namespace="default", uid=key), spec=template.spec)
        written[key] = pod
        return PodRequest(key, index, shape_of(pod), meta=pod.metadata)

    replicas = tuple(
        ReplicaRequest(number, tuple(member(number, index, template) for index, template in enumerate(members)))
        for number in range(desired)
    )
    return RoleRequest(name, minimum, desired, replicas, required)


def _torn(draw: Draw, case: Case) -> Case:
    """Some replicas are placed, and some of those lost a pod."""
    for role in case.gang.roles:
        depth = case.topology.depth(role.required or "rack")
        for replica in role.replicas[: draw.integer(0, 12)]:
            now, layout = case, {}
            home = None
            for pod in replica.pods:
                fit = [
                    name
                    for name, found in now.node.items()
                    if (home is None or facts.path_of(case.topology, found)[: depth + 1] == home)
                    and facts.room(now, name, now.body(pod))
                ]
                if not fit or case.gang.required:
                    layout = {}
                    break
                layout[pod.key] = draw.pick(fit)
                home = facts.path_of(case.topology, case.node[layout[pod.key]])[: depth + 1]
                now = case.placed(layout)
            if len(layout) > 1 and draw.chance(70):
                layout.pop(draw.pick(sorted(layout)))
            case = case.placed(layout) if layout else case
    return case
