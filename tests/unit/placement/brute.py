"""A planner by exhaustion, for a handful of pods: every way to place every pod, one after another.

It shares nothing with the planner but the vocabulary: no tables, no classes, no streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import conflict
from covey.placement.model import Assignment, Gang, Path, PodRequest

Placed = dict[str, str]


def lowest(role_index: int, gang: Gang, count: int) -> list[int]:
    """The replicas that a count of a role stands for: placed ones, half placed ones, then the lowest numbers."""
    role = gang.roles[role_index]
    ranked = sorted(role.replicas, key=lambda r: (not r.placed, all(p.node is None for p in r.pods), r.replica))
    return [replica.replica for replica in ranked[:count]]


def pods_of(gang: Gang, counts: tuple[int, ...]) -> list[tuple[int, int, PodRequest]]:
    chosen = []
    for i, (role, count) in enumerate(zip(gang.roles, counts, strict=True)):
        numbers = lowest(i, gang, count)
        chosen += [(i, r.replica, pod) for r in role.replicas if r.replica in numbers for pod in r.pods]
    return chosen


def placements(gang: Gang, inventory: Inventory, counts: tuple[int, ...]) -> Iterator[Placed]:
    """Every way to place these counts of replicas, members that are placed staying where they are."""
    pods = pods_of(gang, counts)
    fixed = {pod.key: pod.node for _, _, pod in pods if pod.node is not None}
    todo = [(i, r, pod) for i, r, pod in pods if pod.node is None]
    free = {name: dict(state.free) for name, state in inventory.nodes.items()}
    on: dict[str, list[PodRequest]] = {name: [] for name in inventory.nodes}

    def extend(index: int, placed: Placed) -> Iterator[Placed]:
        if index == len(todo):
            if levels_hold(gang, inventory, placed):
                yield dict(placed)
            return
        _, _, pod = todo[index]
        for name, state in inventory.nodes.items():
            if name in gang.excluded_nodes or state.static_cause(pod.shape) or state.conflict(pod.shape):
                continue
            if any(free[name].get(r, 0) < n for r, n in pod.shape.requests):
                continue
            if any(conflict(pod.shape, other.shape) for other in on[name]):
                continue
            for r, n in pod.shape.requests:
                free[name][r] -= n
            on[name].append(pod)
            placed[pod.key] = name
            if levels_hold(gang, inventory, placed):
                yield from extend(index + 1, placed)
            del placed[pod.key]
            on[name].pop()
            for r, n in pod.shape.requests:
                free[name][r] += n

    yield from extend(0, {key: node for key, node in fixed.items() if node is not None})


def levels_hold(gang: Gang, inventory: Inventory, placed: Placed) -> bool:
    """Whether what is placed so far straddles no required level. All placed members of the gang count."""
    topology = inventory.topologies[gang.topology]

    def path(node: str) -> Path:
        return inventory.path(gang.topology, node)

    members: dict[tuple[int, int], list[Path]] = {}
    for i, role in enumerate(gang.roles):
        for replica in role.replicas:
            nodes = [placed.get(pod.key) or pod.node for pod in replica.pods]
            members[i, replica.replica] = [path(n) for n in nodes if n is not None and n in inventory.nodes]

    def together(paths: list[Path], level: str) -> bool:
        depth = topology.depth(level)
        return len({p[: depth + 1] for p in paths}) <= 1 and all(p[depth] is not None for p in paths)

    if gang.required and not together(
        [p for (i, _), ps in members.items() if gang.roles[i].follow_unit for p in ps], gang.required
    ):
        return False
    for i, role in enumerate(gang.roles):
        coarse = (
            role.follow_unit
            and gang.required
            and role.required
            and (topology.depth(role.required) <= topology.depth(gang.required))
        )
        if role.required and not coarse:
            for (j, _), ps in members.items():
                if i == j and not together(ps, role.required):
                    return False
    for rule in gang.proximity:
        if rule.required:
            paths = [p for (i, _), ps in members.items() if gang.roles[i].name in rule.roles for p in ps]
            if not together(paths, rule.level):
                return False
    return True


def feasible(gang: Gang, inventory: Inventory, counts: tuple[int, ...]) -> bool:
    return next(placements(gang, inventory, counts), None) is not None


def valid(
    gang: Gang, inventory: Inventory, assignments: tuple[Assignment, ...], *, report: Callable[[str], None] = print
) -> bool:
    """Whether assignments (with what is placed already) break no rule: capacity, masks, levels, whole replicas."""
    placed = {a.pod: a.node for a in assignments}
    free = {name: dict(state.free) for name, state in inventory.nodes.items()}
    on: dict[str, list[PodRequest]] = {name: [] for name in inventory.nodes}
    for role in gang.roles:
        for replica in role.replicas:
            now = [pod.node is not None or pod.key in placed for pod in replica.pods]
            if any(pod.key in placed for pod in replica.pods) and not all(now):
                report(f"{role.name}-{replica.replica} is partly placed")
                return False
            for pod in replica.pods:
                if pod.key not in placed:
                    continue
                name = placed[pod.key]
                state = inventory.nodes[name]
                cause = state.static_cause(pod.shape) or state.conflict(pod.shape)
                if pod.node is not None or cause or name in gang.excluded_nodes:
                    report(f"{pod.key} may not go to {name}: {cause}")
                    return False
                if any(conflict(pod.shape, other.shape) for other in on[name]):
                    report(f"{pod.key} conflicts on {name}")
                    return False
                on[name].append(pod)
                for r, n in pod.shape.requests:
                    free[name][r] = free[name].get(r, 0) - n
                    if free[name][r] < 0:
                        report(f"{name} is over-committed")
                        return False
    if not levels_hold(gang, inventory, placed):
        report("levels are straddled")
        return False
    return True
