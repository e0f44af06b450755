"""The shape of a pod: all that decides where it may go, and nothing that tells two like pods apart.

Pods of one shape are interchangeable, which is what makes exact planning affordable; so a shape leaves out what does
not matter (names, images, labels) and writes the rest in one canonical order. Labels matter where an anti-affinity term
speaks of them; which terms do is worked out for each plan (`with_terms`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from covey.api import constants, core
from covey.api.spread import find_kept_spread, is_switched_off
from covey.placement.anti_affinity import EXCLUSIVE_CLIQUE, Term, TermCounts, is_host, pod_spread_of, terms_of
from covey.placement.cluster import resources
from covey.placement.model import Clique, Gang, PodRequest, ReplicaRequest, RoleRequest, Shape

HOST_PORTS: Final = "host port"
ANTI_AFFINITY: Final = "pod anti-affinity"
OFF_DEVICES: Final = "devices that are not asked for"
#: Another interconnect is in the clique, and one of the two is exclusive; the node is in no clique.
EXCLUSIVE_CLIQUE_TAKEN: Final = "exclusive interconnect"
NO_CLIQUE: Final = f"no label {constants.LABEL_CLIQUE}"


#: Features that a node must declare for pods which use them, as kube-scheduler has it (KEP-5328: the features of
#: ``k8s.io/component-helpers/nodedeclaredfeatures`` with an ``InferForScheduling``).
RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
HOST_NETWORK_USERS: Final = "UserNamespacesHostNetworkSupport"
BIND_MOUNT_OPTIONS: Final = "VolumeBindMountOptions"
FEATURES: Final = (RESTART_ALL, HOST_NETWORK_USERS, BIND_MOUNT_OPTIONS)


def shape_of(pod: core.Pod) -> Shape:
    """The shape of a pod, one object for all that are equal.

    A pin (``metadata.name`` in a pod whose gate is gone) is left out: the pod's replacement may go elsewhere.
    """
    terms = terms_of(pod)
    return _intern(
        Shape(
            requests=tuple(sorted(resources.pod_requests(pod).items())),
            node_selector=tuple(sorted((pod.spec.node_selector or {}).items())),
            node_affinity=_node_affinity(pod),
            tolerations=tuple(sorted(set(pod.spec.tolerations or ()), key=repr)),
            host_ports=_host_ports(pod),
            anti_affinity=tuple(term for term in terms if is_host(term)),
            wide_terms=tuple(term for term in terms if not is_host(term)),
            features=_required_features(pod.spec),
            exclusive_clique=_is_exclusive(pod),
            pod_spread=pod_spread_of(pod),
        )
    )


def clique_of(shape: Shape, meta: core.Meta | None) -> Clique | None:
    """The interconnect that a pod joins; None for one without a channel, or of which nobody knows more than its shape."""
    if meta is None or not any(name == constants.RESOURCE_CHANNEL for name, _ in shape.requests):
        return None
    owner = meta.controller
    unit = meta.label(constants.LABEL_UNIT) or ""
    return Clique((meta.namespace, owner.uid if owner else meta.uid, unit), shape.exclusive_clique)


def with_terms(gang: Gang, terms: TermCounts) -> Gang:
    """Return the gang with the terms that match each waiting pod in its shape: those in play, and the gang's own.

    Likewise the interconnect that it joins, where it or a holder's shares no clique.
    """
    waiting = [pod for role in gang.roles for replica in role.replicas for pod in replica.pods if pod.node is None]
    own = TermCounts({term for shape in {pod.shape for pod in waiting} for term in shape.anti_affinity})
    if not own and not terms and not any(pod.shape.exclusive_clique for pod in waiting):
        return gang
    shapes: dict[str, Shape] = {}
    known: dict[tuple[int, frozenset[Term], Clique | None], Shape] = {}
    for pod in waiting:
        matched = own.matching(pod.meta) | terms.matching(pod.meta) if pod.meta is not None else frozenset[Term]()
        sealed = pod.shape.exclusive_clique or EXCLUSIVE_CLIQUE in terms
        clique = clique_of(pod.shape, pod.meta) if sealed else None
        if matched or clique:
            key = (id(pod.shape), matched, clique)
            if key not in known:
                known[key] = replace(pod.shape, matched=pod.shape.matched | matched, clique=clique)
            shapes[pod.key] = known[key]
    return with_shapes(gang, shapes) if shapes else gang


def off_devices(gang: Gang) -> Gang | None:
    """Return the gang with its pods that ask for no device kept off nodes that have some; None where none is.

    Those are all of a gang that asks for no device, else those of roles that nothing asks to lie near the others: no
    level of their unit, which they follow, and no proximity.
    """
    anywhere = gang.required is None and gang.preferred is None
    near = {name for rule in gang.proximity for name in rule.roles}
    pods_of = {role.name: [pod for replica in role.replicas for pod in replica.pods] for role in gang.roles}
    apart = not any(_asks_device(pod.shape) for pods in pods_of.values() for pod in pods)
    roles = {
        role.name: [pod for pod in pods_of[role.name] if not _asks_device(pod.shape)]
        for role in gang.roles
        if apart or not role.follow_unit or (anywhere and role.name not in near)
    }
    waiting = [pod for pods in roles.values() for pod in pods if pod.node is None]
    made = {shape: replace(shape, off_devices=True) for shape in {pod.shape for pod in waiting}}
    return with_shapes(gang, {pod.key: made[pod.shape] for pod in waiting}) if waiting else None


def _asks_device(shape: Shape) -> bool:
    return any(resources.is_device(name) for name, _ in shape.requests)


def sum_requests(pods: Mapping[Shape, int]) -> Counter[str]:
    """Sum up what pods ask for together, by resource, from the number of pods of each shape."""
    total = Counter[str]()
    for shape, count in pods.items():
        for name, amount in shape.requests:
            total[name] += amount * count
    return total


def with_shapes(gang: Gang, shapes: Mapping[str, Shape]) -> Gang:
    """Return the gang with these shapes in place of those of the pods (by key)."""

    def pods(replica: ReplicaRequest) -> tuple[PodRequest, ...]:
        return tuple(replace(pod, shape=shapes[pod.key]) if pod.key in shapes else pod for pod in replica.pods)

    def replicas(role: RoleRequest) -> tuple[ReplicaRequest, ...]:
        return tuple(replace(replica, pods=pods(replica)) for replica in role.replicas)

    return replace(gang, roles=tuple(replace(role, replicas=replicas(role)) for role in gang.roles))


def unmodelled_constraints(pod: core.Pod, *, volumes_settled: bool = False) -> tuple[str, ...]:
    """The names of a pod's constraints that the planner does not model.

    kube-scheduler still enforces them, but for required ``topologySpreadConstraints`` (``has_unkept_spread``).

    Args:
        pod: what is asked about.
        volumes_settled: all of its claims are bound, and the nodes of their volumes are part of its shape.

    What is modelled of anti-affinity: all of it on the host, and what holders ask of broader domains. Not modelled is
    what the pod itself asks of them, between pods of one gang above all.
    """
    spec = pod.spec
    affinity = spec.affinity or core.Affinity()
    near = affinity.pod_affinity.required if affinity.pod_affinity else None
    terms = terms_of(pod)
    causes = {
        **{f"podAffinity over {term.topology_key}": True for term in near or ()},
        **{f"podAntiAffinity over {term.key}": True for term in terms if not is_host(term)},
        "podAntiAffinity by labels of namespaces": any(not term.exact for term in terms),
        "topologySpreadConstraints": any(
            spread.when_unsatisfiable == "DoNotSchedule" for spread in _spreads_beside_kept(pod)
        ),
        "persistentVolumeClaim": not volumes_settled
        and any(
            volume.persistent_volume_claim is not None or volume.ephemeral is not None for volume in spec.volumes or ()
        ),
    }
    return tuple(name for name, present in causes.items() if present)


def has_unkept_spread(pod: core.Pod) -> bool:
    """Tell whether a pod has a required spread that nobody keeps (``api.unsupported.unkept_constraints``)."""
    return any(map(is_switched_off, _spreads_beside_kept(pod)))


def _spreads_beside_kept(pod: core.Pod) -> list[core.TopologySpread]:
    spreads = pod.spec.topology_spread_constraints or ()
    kept = find_kept_spread(spreads, pod.metadata.labels) if spreads else None
    return [spread for spread in spreads if spread is not kept]


def cause_of_conflict(one: Shape, other: Shape) -> str | None:
    """Return why these shapes may not share a host, or None: a host port of both, or anti-affinity of either."""
    if one.host_ports and other.host_ports and ports_clash(one.host_ports, other.host_ports):
        return HOST_PORTS
    return ANTI_AFFINITY if _repels(one, other) or _repels(other, one) else None


def conflict(one: Shape, other: Shape) -> bool:
    """Tell whether pods of these shapes may not share a host."""
    return cause_of_conflict(one, other) is not None


def exclusive(shape: Shape) -> bool:
    """Tell whether two pods of this shape may not share a host."""
    return conflict(shape, shape)


def ports_clash(one: Collection[tuple[str, str, int]], other: Collection[tuple[str, str, int]]) -> bool:
    """Tell whether two sets of host ports overlap; the address 0.0.0.0 overlaps with every address."""
    return any(
        protocol == taken_protocol and port == taken_port and (ip == taken_ip or "0.0.0.0" in {ip, taken_ip})  # noqa: S104 - an address to compare, not to listen on
        for ip, protocol, port in one
        for taken_ip, taken_protocol, taken_port in other
    )


@lru_cache(maxsize=65_536)
def _intern(shape: Shape) -> Shape:
    return shape


def _node_affinity(pod: core.Pod) -> core.NodeSelector | None:
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    if required is None or constants.GATE_GANG in core.gates(pod) or core.pinned_node(pod) is None:
        return required
    terms = tuple(
        core.NodeSelectorTerm(match_expressions=term.match_expressions, match_fields=fields or None)
        for term in required.node_selector_terms
        for fields in [tuple(field for field in term.match_fields or () if field.key != "metadata.name")]
    )
    if any(not term.match_expressions and not term.match_fields for term in terms):
        return None  # a term that held nothing but the pin was added by it
    return core.NodeSelector(node_selector_terms=terms)


def _host_ports(pod: core.Pod) -> tuple[tuple[str, str, int], ...]:
    containers = (*pod.spec.containers, *(c for c in pod.spec.init_containers or () if c.restart_policy == "Always"))
    ports = {
        (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)  # noqa: S104 - what an unset hostIP means
        for container in containers
        for port in container.ports or ()
        if port.host_port
    }
    return tuple(sorted(ports))


def _required_features(spec: core.PodSpec) -> tuple[str, ...]:
    containers = (*spec.containers, *(spec.init_containers or ()))
    rules = (rule for container in containers for rule in container.restart_policy_rules or ())
    required = {
        RESTART_ALL: any(rule.action == "RestartAllContainers" for rule in rules),
        HOST_NETWORK_USERS: spec.host_network and spec.host_users is False,
        BIND_MOUNT_OPTIONS: any(container.volume_mounts for container in containers),
    }
    return tuple(sorted(name for name, present in required.items() if present))


def _is_exclusive(pod: core.Pod) -> bool:
    """Tell whether the pod's interconnect shares no clique: a member's claim says so, which nobody can change later.

    Not so of a native group's (its name has a slash): whoever may create pods may make those.
    """
    claims = pod.spec.resource_claims or ()
    named = any(claim.get("name") == constants.CLAIM_EXCLUSIVE for claim in claims)
    return named and "/" not in (pod.metadata.label(constants.LABEL_POD_GROUP) or "/")


def _repels(one: Shape, other: Shape) -> bool:
    return any(term in other.matched for term in one.anti_affinity)
