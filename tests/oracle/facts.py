"""First principles shared by checker and solver: labels, paths, masks, arithmetic. Simple, slow, obviously right.

Nothing here looks at the planner; the rules are those of the Kubernetes API and of the design's planner chapter.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from covey.api import core
from covey.placement.model import Gang, Path, PodRequest, ReplicaRequest, RoleRequest, Shape, Topology
from oracle.case import Body, Case

SUFFIX = (
    {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1)}
    | {name: Fraction(1000 ** (power + 1)) for power, name in enumerate("kMGTPE")}
    | {f"{name}i": Fraction(1024 ** (power + 1)) for power, name in enumerate("KMGTPE")}
)


def quantity(resource: str, text: str | float) -> int:
    """A Kubernetes quantity as an integer: cpu in milli-units, the rest in its own unit."""
    match = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text))
    assert match, text
    value = Fraction(match[1]) * SUFFIX[match[2]]
    return int(value * 1000 if resource == "cpu" else value)


def allocatable(node: core.Node) -> dict[str, int]:
    return {name: quantity(name, text) for name, text in (node.status.allocatable or {}).items()}


def path_of(topology: Topology, node: core.Node) -> Path:
    labels = node.metadata.labels or {}
    return tuple(next((labels[key] for key in level.keys if key in labels), None) for level in topology.levels)


def domain(path: Path, depth: int) -> Path | None:
    """The domain of a level that a path lies in: the path down to it; None where the level is lacking."""
    return None if path[depth] is None else path[: depth + 1]


# --- what does a pod ask for?


def asks(container: core.Container) -> Counter[str]:
    """A container's requests; a limit alone is a request."""
    found = container.resources or core.Resources()
    wanted = {**(found.limits or {}), **(found.requests or {})}
    return Counter({name: quantity(name, text) for name, text in wanted.items()})


def requests(pod: core.Pod) -> dict[str, int]:
    """All containers together, or one of the init containers where that is more; and the pod itself."""
    total: Counter[str] = Counter()
    for container in pod.spec.containers:
        total += asks(container)
    for container in pod.spec.init_containers or ():
        total |= asks(container)
    return {**total, "pods": 1}


# --- may a pod of this shape be on this node at all?


def tolerated(taint: core.Taint, tolerations: Sequence[core.Toleration]) -> bool:
    for toleration in tolerations:
        if toleration.effect and toleration.effect != taint.effect:
            continue
        if toleration.operator == "Exists" and toleration.key in {"", taint.key}:
            return True
        if toleration.operator in {"", "Equal"} and (toleration.key, toleration.value) == (taint.key, taint.value):
            return True
    return False


def requirement_holds(requirement: core.Requirement, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(requirement.key), requirement.values or ()
    match requirement.operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(values[0])
        case "Lt":
            return value is not None and int(value) < int(values[0])
    raise ValueError(requirement.operator)


def term_matches(term: core.NodeSelectorTerm, node: core.Node) -> bool:
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    if not expressions and not fields:
        return False
    names = {"metadata.name": node.metadata.name}
    return all(requirement_holds(found, node.metadata.labels or {}) for found in expressions) and all(
        requirement_holds(found, names) for found in fields
    )


def ready(node: core.Node) -> bool:
    return any(found.type == "Ready" and found.status == "True" for found in node.status.conditions or ())


def may_use(shape: Shape, node: core.Node) -> bool:
    """Everything about a node that capacity does not decide."""
    labels = node.metadata.labels or {}
    affinity = shape.node_affinity
    return (
        not node.spec.unschedulable
        and ready(node)
        and all(
            taint.effect == "PreferNoSchedule" or tolerated(taint, shape.tolerations)
            for taint in node.spec.taints or ()
        )
        and all(labels.get(key) == value for key, value in shape.node_selector)
        and (affinity is None or any(term_matches(term, node) for term in affinity.node_selector_terms))
    )


# --- may two pods be on one node?


def selects(selector: core.LabelSelector | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in (selector.match_labels or {}).items()) and all(
        requirement_holds(found, labels) for found in selector.match_expressions or ()
    )


def terms(pod: core.Pod | None) -> Sequence[core.PodAffinityTerm]:
    """The required anti-affinity terms of a pod."""
    affinity = pod.spec.affinity if pod else None
    return (affinity.pod_anti_affinity.required or ()) if affinity and affinity.pod_anti_affinity else ()


def speaks_of(term: core.PodAffinityTerm, owner: core.Pod, other: core.Pod) -> bool:
    """A term of the owner is about the other: its labels, its namespace, and the owner's own labels that it names."""
    mine, theirs = owner.metadata, other.metadata
    spaces, selector = term.namespaces or (), term.namespace_selector
    names = {"kubernetes.io/metadata.name": theirs.namespace}
    inside = theirs.namespace in spaces or (selector is not None and selects(selector, names))
    if not spaces and selector is None:
        inside = theirs.namespace == mine.namespace
    have, labels = mine.labels or {}, theirs.labels or {}
    same = all(labels.get(key) == have[key] for key in term.match_label_keys or () if key in have)
    unlike = all(labels.get(key) != have[key] for key in term.mismatch_label_keys or () if key in have)
    return inside and same and unlike and selects(term.label_selector, labels)


def repels(one: core.Pod | None, other: core.Pod | None, key: str = "kubernetes.io/hostname") -> bool:
    """A required anti-affinity term of the one over this node label is about the other."""
    return any(
        one is not None and other is not None and term.topology_key == key and speaks_of(term, one, other)
        for term in terms(one)
    )


def kept_away(case: Case, node: str, body: Body) -> bool:
    """A pod that is there keeps the other off its whole domain of some node label broader than the host."""
    labels = case.node[node].metadata.labels or {}
    for hold in case.holds:
        there = case.node.get(hold.node)
        for term in terms(hold.pod) if there else ():
            key = term.topology_key
            if key == "kubernetes.io/hostname" or key not in labels or there is None:
                continue
            if (there.metadata.labels or {}).get(key) == labels[key] and repels(hold.pod, body.pod, key):
                return True
    return False


def same_port(one: tuple[str, str, int], other: tuple[str, str, int]) -> bool:
    wild = {"", "0.0.0.0"}
    return one[1:] == other[1:] and (one[0] == other[0] or one[0] in wild or other[0] in wild)


def clash(one: Body, other: Body) -> bool:
    """Two such pods can never share a node, whatever its capacity."""
    ports = any(same_port(mine, theirs) for mine in one.shape.host_ports for theirs in other.shape.host_ports)
    return ports or repels(one.pod, other.pod) or repels(other.pod, one.pod)


# --- capacity


def free(case: Case, node: str) -> dict[str, int]:
    """Allocatable less what is held; negative where a node is over-committed."""
    left = Counter(allocatable(case.node[node]))
    for hold in case.held.get(node, ()):
        left.subtract(dict(hold.shape.requests))
    return dict(left)


def room(case: Case, node: str, body: Body) -> int:
    """How many such pods the node could take now, if nothing else came."""
    if not may_use(body.shape, case.node[node]) or node in case.gang.excluded_nodes:
        return 0
    if any(clash(body, hold.body) for hold in case.held.get(node, ())) or kept_away(case, node, body):
        return 0
    left = free(case, node)
    most = min(max(left.get(name, 0), 0) // amount for name, amount in body.shape.requests if amount)
    return min(most, 1) if clash(body, body) else most


# --- the gang


def pods_of(roles: Iterable[RoleRequest]) -> list[PodRequest]:
    return [pod for role in roles for replica in role.replicas for pod in replica.pods]


def followers(gang: Gang) -> list[RoleRequest]:
    return [role for role in gang.roles if role.follow_unit]


def minimum_of(role: RoleRequest) -> tuple[ReplicaRequest, ...]:
    """The replicas that count as the minimum: bound ones, then partly bound ones, then by lowest number."""

    def rank(replica: ReplicaRequest) -> tuple[int, int]:
        some = any(pod.node is not None for pod in replica.pods)
        return (0 if replica.placed else 1 if some else 2, replica.replica)

    return tuple(sorted(role.replicas, key=rank)[: role.minimum])


def compulsory(gang: Gang) -> set[tuple[str, int]]:
    """Role and number of what a plan of the minimum places: the minimum, and what shares a ``together`` mark."""
    chosen = {(role.name, replica.replica) for role in gang.roles for replica in minimum_of(role)}
    marks = {
        replica.together
        for role in gang.roles
        for replica in role.replicas
        if (role.name, replica.replica) in chosen and replica.together is not None and not replica.placed
    }
    return chosen | {
        (role.name, replica.replica) for role in gang.roles for replica in role.replicas if replica.together in marks
    }


def replica_depth(case: Case, role: RoleRequest) -> int | None:
    """The depth of the level each replica of a role must not straddle, if that says more than the unit's level."""
    if role.required is None:
        return None
    depth = case.topology.depth(role.required)
    unit = case.gang.required
    return None if role.follow_unit and unit is not None and depth <= case.topology.depth(unit) else depth


def kind_of(case: Case, pod: PodRequest) -> str:
    """Members of one kind are interchangeable: the same shape, the same terms, the same labels as far as terms ask."""
    body = case.body(pod)
    if body.pod is None:
        return repr(body.shape)
    labels = {key: value for key, value in (body.pod.metadata.labels or {}).items() if key in case.asked_for}
    return repr((body.shape, body.pod.metadata.namespace, sorted(labels.items()), body.pod.spec.affinity))


def kinds_of(case: Case) -> dict[str, Body]:
    """One member of each kind that the gang has."""
    return {kind_of(case, pod): case.body(pod) for pod in pods_of(case.gang.roles)}
