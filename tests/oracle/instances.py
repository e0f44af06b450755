"""Random cases: one generator, drawn from a seeded random source or from hypothesis (which then shrinks).

Sizes are chosen so that about half of the cases are feasible: the border is where planners go wrong.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from covey.api import core
from covey.placement.cluster.shape import shape_of
from covey.placement.model import (
    Gang,
    Path,
    PodRequest,
    ReplicaRequest,
    RoleRequest,
    RolesTogether,
    Spread,
)
from oracle import facts
from oracle.case import Body, Case, Hold, bound
from oracle.checker import violations
from oracle.draws import Draw, Drawn, Seeded
from oracle.written import GIB, GPU, away, draw_cluster, draw_labels, draw_template, draw_topology, shape


@dataclass(frozen=True)
class Size:
    """Bounds of a case."""

    nodes: tuple[int, int]
    roles: int = 5
    shapes: int = 5
    replicas: int = 6
    pods: int = 6
    #: Per cent of cases with rules beyond capacity and levels (ports, anti-affinity, proximity, spread, together).
    extras: int = 30
    bound: int = 30


#: Small enough for brute force.
TINY = Size(nodes=(1, 4), roles=2, shapes=2, replicas=2, pods=2, extras=50, bound=40)
SMALL = Size(nodes=(4, 14))
MEDIUM = Size(nodes=(15, 40), roles=5, replicas=8)
LARGE = Size(nodes=(41, 200), roles=5, replicas=16)


def seeded(seed: int, size: Size) -> Case:
    """The case of a seed."""
    return generate(Seeded(random.Random(seed)), size)


@st.composite
def cases(draw: st.DrawFn, size: Size) -> Case:
    """Cases of a size."""
    return generate(Drawn(draw), size)


def _body(pod: core.Pod) -> Body:
    return Body(shape_of(pod), pod)


def _role(
    draw: Draw, number: int, pods: tuple[core.Pod, ...], levels: Sequence[str], minimum: int, desired: int
) -> tuple[RoleRequest, dict[str, core.Pod]]:
    """A role, and its pods as they were written."""
    name = f"role-{number}"
    written: dict[str, core.Pod] = {}

    def member(replica: int, index: int, template: core.Pod) -> PodRequest:
        key = f"{name}-{replica}-{index}"
        labels = {**template.metadata.labels, "index": str(index)} if template.metadata.labels else None
        pod = core.Pod(metadata=core.Meta(name=key, namespace="default", uid=key, labels=labels), spec=template.spec)
        written[key] = pod
        return PodRequest(key, index, shape_of(pod), meta=pod.metadata)

    replicas = tuple(
        ReplicaRequest(replica, tuple(member(replica, index, template) for index, template in enumerate(pods)))
        for replica in range(desired)
    )
    required = draw.pick(levels) if draw.chance(50) else None
    finer = levels[levels.index(required) + 1 :] if required else levels
    preferred = draw.pick(finer) if finer and minimum and draw.chance(20) else None
    return RoleRequest(name, minimum, desired, replicas, required, preferred, follow_unit=not draw.chance(8)), written


def _gang(draw: Draw, case: Case, size: Size, *, extras: bool, tight: bool) -> Case:
    """Roles whose minimums ask for about what the best domain has, so that small things decide."""
    levels = [level.name for level in case.topology.levels]
    masks = draw.chance(40)
    shapes = [draw_template(draw, masks=masks, extras=extras) for _ in range(draw.pick((1, 2, 3, 3, 4, 5)))][
        : size.shapes
    ]
    written: dict[str, core.Pod] = {}
    required = draw.pick(levels) if draw.chance(60) else None
    finer = levels[levels.index(required) + 1 :] if required else levels
    gang = replace(case.gang, required=required, preferred=draw.pick(finer) if finer and draw.chance(25) else None)
    count = min(draw.pick((2, 3, 3, 4, 5) if tight else (2, 1, 2, 3, 3, 4, 5)), size.roles)
    load = draw.pick((100, 150, 200) if tight else (20, 40, 60, 80, 90, 100, 110))
    for number in range(count):
        worker = shapes[number % len(shapes)] if draw.chance(70) else draw.pick(shapes)
        for _ in range(2):
            worker = worker if _room(case, required, worker) else draw.pick(shapes)
        leader = draw.pick(shapes) if draw.chance(35) else worker
        share = _room(case, required, worker) * load // (100 * count)
        pods = draw.integer(1, min(size.pods, max(share, 1))) if draw.chance(70) else 1
        most = min(size.replicas, max(share // pods, 1))
        minimum = draw.integer(max(most - 2, 1), most) if number == 0 or draw.chance(88) else 0
        desired = minimum + draw.integer(0 if minimum else 1, 3)
        replica = (leader, *[worker] * (pods - 1))
        role, pods_of_role = _role(draw, number, replica, levels, minimum, desired)
        gang = replace(gang, roles=(*gang.roles, role))
        written |= pods_of_role
    return replace(case, gang=gang, pods=written)


def _room(case: Case, required: str | None, wanted: core.Pod) -> int:
    """How many such pods the best domain of the unit's level takes."""
    found: Counter[Path | None] = Counter()
    for name, existing in case.node.items():
        own = facts.domain(facts.path_of(case.topology, existing), case.topology.depth(required)) if required else ()
        if own is not None:
            found[own] += facts.room(case, name, _body(wanted))
    return max(found.values(), default=0)


def _rules(draw: Draw, case: Case) -> Case:
    """Proximity, spread, sets and excluded nodes on top of a gang."""
    gang, levels = case.gang, [level.name for level in case.topology.levels]
    names = [role.name for role in gang.roles]
    if len(names) > 1 and draw.chance(50):
        near = tuple(names[: draw.integer(2, len(names))])
        gang = replace(gang, proximity=(RolesTogether(near, draw.pick(levels), required=draw.chance(60)),))
    if draw.chance(30):
        gang = replace(gang, excluded_nodes={draw.pick(case.nodes).metadata.name: "reported"})
    if draw.chance(35):
        gang = _spread(draw, case, gang)
    if draw.chance(35):
        gang = replace(gang, roles=_sets(draw, gang.roles))
    return replace(case, gang=gang)


def _spread(draw: Draw, case: Case, gang: Gang) -> Gang:
    """A spread rule, where the design says what it means: each node has the level."""
    depth = draw.integer(0, len(case.topology.levels) - 1)
    found = sorted({facts.domain(facts.path_of(case.topology, node), depth) for node in case.nodes}, key=repr)
    if None in found:
        return gang
    occupied = {own: draw.integer(0, 2) for own in found if own is not None}
    level = case.topology.levels[depth].name
    return replace(gang, spread=Spread(level, draw.chance(80), draw.integer(1, 2), occupied))


def _sets(draw: Draw, roles: Sequence[RoleRequest]) -> tuple[RoleRequest, ...]:
    """The last replica of roles that have surplus shares one mark."""

    def marked(role: RoleRequest) -> RoleRequest:
        if role.minimum in {0, len(role.replicas)} or draw.chance(25):
            return role
        return replace(role, replicas=(*role.replicas[:-1], replace(role.replicas[-1], together="new")))

    return tuple(map(marked, roles)) if draw.chance(90) else tuple(roles)


# --- strangers and members that are there already

STRANGERS = (shape(1, 4, 16), shape(2, 8, 64), shape(4, 16, 128), shape(8, 31, 256), shape(0, 16, 100))


def _stranger(draw: Draw, name: str) -> core.Pod:
    """Somebody's pod with labels, now and then with terms of its own, on the host or on all nodes of a kind."""
    meta = core.Meta(name=name, namespace=draw.pick(("default", "default", "other")), labels=draw_labels(draw))
    affinity = away(draw, wide=draw.chance(50)) if draw.chance(50) else None
    return core.Pod(metadata=meta, spec=core.PodSpec(affinity=affinity))


def _strangers(draw: Draw, case: Case, loads: Sequence[int], *, extras: bool) -> Case:
    """Other pods on the nodes: each node is free, full or in between; now and then over-committed."""
    percent = draw.pick(loads)
    whole = draw.chance(30)
    holds = []
    for found in case.nodes:
        left = facts.allocatable(found)
        gpus = left.get(GPU, 0)
        name = found.metadata.name
        if whole:
            if draw.chance(percent):
                holds.append(Hold(f"stranger-{name}", name, shape(gpus, left["cpu"] // 1000, left["memory"] // GIB)))
            continue
        for number in range(4):
            pod = draw.pick(STRANGERS)
            fits = all(left.get(resource, 0) >= amount for resource, amount in pod.requests)
            if draw.chance(percent) and (fits or draw.chance(1)):
                holds.append(Hold(f"stranger-{name}-{number}", name, pod))
                if extras and draw.chance(40):
                    holds[-1] = _written(draw, holds[-1])
                left = {resource: amount - dict(pod.requests).get(resource, 0) for resource, amount in left.items()}
    return replace(case, holds=case.holds + tuple(holds))


def _written(draw: Draw, hold: Hold) -> Hold:
    """The same hold, of a pod with labels."""
    pod = _stranger(draw, hold.key)
    found = shape_of(pod)
    terms = {"anti_affinity": found.anti_affinity, "wide_terms": found.wide_terms}
    return Hold(hold.key, hold.node, replace(hold.shape, **terms), pod)


def _bind_some(draw: Draw, case: Case) -> Case:
    """Some replicas are bound, as an earlier plan might have left them."""
    for role in case.gang.roles:
        for replica in role.replicas:
            if replica.together is None and draw.chance(40):
                case = _bind(draw, case, role, replica)
    return _fail_some(draw, case)


def _fail_some(draw: Draw, case: Case) -> Case:
    """Some nodes of bound members are gone, or cordoned."""
    members = {pod.node for pod in facts.pods_of(case.gang.roles) if pod.node is not None}
    lost = {name for name in sorted(members) if draw.chance(20)}
    return _lose(case, lost, cordon=draw.chance(30)) if lost else case


def _bind(draw: Draw, case: Case, role: RoleRequest, replica: ReplicaRequest) -> Case:
    """The replica placed at random, if a few tries find a valid place; else the case as it was."""
    level, unit = facts.replica_depth(case, role), case.gang.required
    for _ in range(3):
        anchor: Path | None = None
        layout: dict[str, str] = {}
        now = case
        for pod in replica.pods:
            fit = [
                name
                for name, found in now.node.items()
                if (anchor is None or facts.path_of(case.topology, found)[: len(anchor)] == anchor)
                and facts.room(now, name, now.body(pod))
            ]
            if not fit:
                break
            layout[pod.key] = draw.pick(fit)
            now = case.placed(layout)
            depth = level if level is not None else case.topology.depth(unit) if unit and role.follow_unit else None
            anchor = facts.path_of(case.topology, case.node[layout[pod.key]])[: depth + 1] if depth is not None else ()
        complaints = violations(case, layout, "surplus")
        if len(layout) == len(replica.pods) and all("belongs to the minimum" in text for text in complaints):
            return now
    return case


def _tighten(draw: Draw, case: Case) -> Case:
    """Minimums that just fit: as many replicas as found places at random, and strangers where room was left."""
    full = case
    replicas = [(role, replica) for role in case.gang.roles for replica in role.replicas]
    while replicas:
        role, replica = replicas.pop(draw.integer(0, len(replicas) - 1))
        full = _bind(draw, full, role, replica)
    roles = []
    for role, placed in zip(case.gang.roles, full.gang.roles, strict=True):
        fitted = sum(replica.placed for replica in placed.replicas)
        more = 1 if fitted < len(role.replicas) and draw.chance(8) else 0
        roles.append(replace(role, minimum=fitted + more, preferred=role.preferred if fitted + more else None))
    roles[0] = replace(roles[0], minimum=max(roles[0].minimum, 1))
    holds = []
    kept = draw.pick((0, 0, 50))
    stay = {
        pod.key: pod.node
        for role in full.gang.roles
        for replica in role.replicas
        if replica.placed and replica.together is None and draw.chance(kept)
        for pod in replica.pods
        if pod.node is not None
    }
    for name in case.node:
        left = facts.free(full, name)
        if left.get(GPU, 0) > 0 and left["cpu"] >= 0 and left["memory"] >= 0 and draw.chance(90):
            holds.append(Hold(f"filler-{name}", name, shape(left[GPU], 0, 0)))
    case = replace(case, gang=replace(case.gang, roles=tuple(roles)), holds=(*case.holds, *holds))
    return _fail_some(draw, case.placed(stay)) if stay else case


def _lose(case: Case, lost: set[str], *, cordon: bool) -> Case:
    """Nodes that are gone take their pods with them; nodes that are only cordoned keep them."""
    if cordon:
        spec = core.NodeSpec(unschedulable=True)
        nodes = tuple(
            core.Node(found.metadata, spec, found.status) if found.metadata.name in lost else found
            for found in case.nodes
        )
        return replace(case, nodes=nodes)
    gone = {pod.key for pod in facts.pods_of(case.gang.roles) if pod.node in lost}
    return replace(
        case,
        gang=bound(case.gang, dict.fromkeys(gone)),
        nodes=tuple(found for found in case.nodes if found.metadata.name not in lost),
        holds=tuple(hold for hold in case.holds if hold.node not in lost),
    )


def generate(draw: Draw, size: Size) -> Case:
    """One case. Everything about it comes from ``draw``."""
    topology = draw_topology(draw)
    nodes = draw_cluster(draw, topology, draw.integer(*size.nodes))
    extras = draw.chance(size.extras)
    empty = Gang(namespace="default", name="gang", unit=0, roles=(), topology=topology.name)
    tight = draw.chance(50)
    case = Case(empty, topology, tuple(nodes))
    case = _strangers(draw, case, (0, 10, 30) if tight else (0, 30, 50, 50, 70, 70, 85, 97), extras=extras)
    case = _gang(draw, case, size, extras=extras, tight=tight)
    if extras:
        case = _rules(draw, case)
    if tight:
        return _tighten(draw, case)
    return _bind_some(draw, case) if draw.chance(size.bound) else case
