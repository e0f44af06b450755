"""Whether who waits for room could have it: not by Covey's planner, but by counting.

One replica of equal pods fits where one domain of each level that holds it has nodes enough. That is exact as long as
it is the only one that waits, and nobody else waits for whom room may be kept.
"""

from __future__ import annotations

from collections import Counter

from soak.calm import Listed
from soak.facts import LEVELS, Pod, Replica, by_replica
from soak.settings import NOMINAL


def overlooked(listed: Listed) -> list[str]:
    """The replicas that wait although there is room for them; nothing where counting cannot tell."""
    waiting = {
        replica: pods
        for replica, pods in by_replica(pod for pod in listed.pods if pod.live).items()
        if not any(pod.node for pod in pods)
    }
    units = {(replica.side.owner, replica.side.unit) for replica in waiting}
    running = {
        (pod.replica.side.owner, pod.replica.side.unit) for pod in listed.pods if pod.replica and pod.live and pod.node
    }
    if units - running:
        return []  # room may be kept for a gang
    free = {name: node.gpus for name, node in listed.nodes.items() if node.fit}
    for pod in listed.pods:
        if pod.node in free and not pod.ended:
            free[pod.node] -= pod.gpus
    # A resource keeps off nodes where it has failed again and again.
    kept_off = {
        (each["metadata"]["namespace"], each["metadata"]["labels"].get("covey.dev/inference"))
        for each in listed.objects.get("CompositePodGroup", ())
        if "scheduling.covey.dev/avoid" in (each["metadata"].get("annotations") or {})
    }
    counts = Counter((replica.side.owner, replica.side.unit) for replica in waiting)
    return [
        f"{replica.side.owner.name} unit {replica.side.unit} {replica.side.role} {replica.number} waits, and has room"
        for replica, pods in waiting.items()
        if counts[replica.side.owner, replica.side.unit] == 1
        and tuple(replica.side.owner) not in kept_off
        and _is_within_nominal(listed, replica, pods)
        and _fits(listed, free, replica, pods)
    ]


def _is_within_nominal(listed: Listed, replica: Replica, pods: list[Pod]) -> bool:
    """Tell whether a replica needs nothing of others' quota."""
    namespace = replica.side.owner.namespace
    used = sum(pod.gpus for pod in listed.pods if pod.namespace == namespace and pod.replica and pod.live and pod.node)
    return used + sum(pod.gpus for pod in pods) <= NOMINAL.get(namespace, 0)


def _fits(listed: Listed, free: dict[str, int], replica: Replica, pods: list[Pod]) -> bool:
    owner = replica.side.owner
    wanted = listed.resources[owner].wanted if owner in listed.resources else None
    part = wanted.parts.get(replica.side.role) if wanted is not None else None
    if wanted is None or part is None or not pods[0].gpus:
        return False
    beside = {
        (pod.node, pod.replica.side.role)
        for pod in listed.pods
        if pod.replica and pod.live and pod.node and pod.replica.side[:2] == replica.side[:2]
    }
    nodes = [listed.nodes[name] for name in free]
    near = [each for each in wanted.near if replica.side.role in each.roles]
    for label, roles in (*([(wanted.required, wanted.parts)] if wanted.required else []), *near):
        inside = {
            listed.nodes[node].labels.get(label) for node, role in beside if node in listed.nodes and role in roles
        }
        nodes = [node for node in nodes if {node.labels.get(label)} == inside]
    places: Counter[str] = Counter()
    for node in nodes:
        places[node.labels.get(part.required or LEVELS["block"], "")] += free[node.name] // pods[0].gpus
    room = max(places.values(), default=0) if part.required else sum(places.values())
    return room >= pods[0].size == len(pods)
