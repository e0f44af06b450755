"""The shape of a pod: all that decides where it may go, and nothing that tells two like pods apart.

Pods of one shape are interchangeable, which is what makes exact planning affordable; so a shape leaves out what does
not matter (names, images, most labels) and writes the rest in one canonical order.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Final

from covey.api import constants, core
from covey.placement import resources
from covey.placement.model import Shape

#: Labels that differ from pod to pod of a role; kept only when an anti-affinity term asks for them.
_PER_POD: Final = frozenset(
    {
        constants.LABEL_REPLICA,
        constants.LABEL_INDEX,
        constants.LABEL_ADDRESS,
        constants.LABEL_POD_GROUP,
        constants.LABEL_TOGETHER,
    }
)


def shape_of(pod: core.Pod, keep: Collection[str] = ()) -> Shape:
    """The shape of a pod, one object for all that are equal.

    A pin (``metadata.name`` in a pod whose gate is gone) is left out: the pod's replacement may go elsewhere.

    Args:
        pod: the pod as stored.
        keep: label keys that other pods' anti-affinity terms ask for; else only pods with such terms keep labels.
    """
    terms = tuple(_canonical(term) for term in _hostname_terms(pod))
    wanted = {requirement.key for term in terms for requirement in _expressions(term)} | set(keep)
    labels = {
        key: value
        for key, value in (pod.metadata.labels or {}).items()
        if key in wanted or (terms and key not in _PER_POD and not key.startswith(constants.TOPOLOGY_LABEL_PREFIX))
    }
    return _intern(
        Shape(
            requests=tuple(sorted(resources.pod_requests(pod).items())),
            node_selector=tuple(sorted((pod.spec.node_selector or {}).items())),
            node_affinity=_node_affinity(pod),
            tolerations=tuple(sorted(set(pod.spec.tolerations or ()), key=repr)),
            host_ports=_host_ports(pod),
            anti_affinity=tuple(sorted(set(terms), key=repr)),
            labels=tuple(sorted(labels.items())),
            namespace=pod.metadata.namespace if labels or terms else "",
        )
    )


def unmodelled(pod: core.Pod) -> tuple[str, ...]:
    """The names of a pod's constraints that the planner does not model; kube-scheduler still enforces them."""
    spec = pod.spec
    affinity = spec.affinity or core.Affinity()
    anti = affinity.pod_anti_affinity.required if affinity.pod_anti_affinity else None
    found = {
        "podAffinity": bool(affinity.pod_affinity and affinity.pod_affinity.required),
        "podAntiAffinity": any(
            term.topology_key != constants.HOSTNAME_LABEL or term.namespace_selector is not None for term in anti or ()
        ),
        "topologySpreadConstraints": any(
            constraint.when_unsatisfiable == "DoNotSchedule" for constraint in spec.topology_spread_constraints or ()
        ),
        "persistentVolumeClaim": any(
            volume.persistent_volume_claim is not None or volume.ephemeral is not None for volume in spec.volumes or ()
        ),
        "resourceClaims": bool(spec.resource_claims),
    }
    return tuple(name for name, present in found.items() if present)


def conflict(one: Shape, other: Shape) -> bool:
    """Whether pods of these shapes may not share a host: a host port of both, or anti-affinity of either."""
    ports = one.host_ports and other.host_ports and ports_clash(one.host_ports, other.host_ports)
    return bool(ports) or _repels(one, other) or _repels(other, one)


def exclusive(shape: Shape) -> bool:
    """Whether two pods of this shape may not share a host."""
    return conflict(shape, shape)


def ports_clash(one: Collection[tuple[str, str, int]], other: Collection[tuple[str, str, int]]) -> bool:
    """Whether two sets of host ports meet; the address 0.0.0.0 meets every address."""
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


def _hostname_terms(pod: core.Pod) -> tuple[core.PodAffinityTerm, ...]:
    """The terms that concern the host; one with a null selector matches no pod and says nothing."""
    affinity = pod.spec.affinity
    required = affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else None
    return tuple(
        term
        for term in required or ()
        if term.topology_key == constants.HOSTNAME_LABEL and term.label_selector is not None
    )


def _canonical(term: core.PodAffinityTerm) -> core.PodAffinityTerm:
    """The same term, hashable: labels to match become expressions, in order."""
    selector = term.label_selector or core.LabelSelector()
    expressions = {
        *(
            core.Requirement(key=key, operator="In", values=(value,))
            for key, value in (selector.match_labels or {}).items()
        ),
        *(selector.match_expressions or ()),
    }
    ordered = tuple(sorted(expressions, key=repr))
    return core.PodAffinityTerm(
        topology_key=term.topology_key,
        label_selector=core.LabelSelector(match_expressions=ordered),
        namespaces=tuple(sorted(term.namespaces or ())) or None,
        # Namespaces' labels are not known here; all namespaces is the safe reading, and `unmodelled` says so.
        namespace_selector=core.LabelSelector() if term.namespace_selector is not None else None,
    )


def _expressions(term: core.PodAffinityTerm) -> tuple[core.Requirement, ...]:
    return (term.label_selector.match_expressions or ()) if term.label_selector else ()


def _repels(one: Shape, other: Shape) -> bool:
    return any(_term_matches(term, one.namespace, other) for term in one.anti_affinity)


def _term_matches(term: core.PodAffinityTerm, namespace: str, other: Shape) -> bool:
    if term.label_selector is None:  # a null selector matches no pod
        return False
    if term.namespace_selector is None and other.namespace not in (term.namespaces or (namespace,)):
        return False
    if not other.namespace and not other.labels:
        return False  # a shape that keeps no labels is not known to match
    labels = dict(other.labels)
    return all(_matches(requirement, labels) for requirement in _expressions(term))


def _matches(requirement: core.Requirement, labels: dict[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in (requirement.values or ())
        case "NotIn":
            return value is None or value not in (requirement.values or ())
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False
