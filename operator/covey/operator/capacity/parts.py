"""Pods for which nodes are asked, by node shape. Pure.

A part is all pods of one shape that have no place, never only those that free room is short for: an autoscaler counts
free room as well, and would find two missing pods of eight in the room that the other six need.

Where a level is required, pods that have places say which domain it is, and the part selects it. Without any the part
asks for pods that are all in one domain, whichever: of the unit, or of a replica that has a level of its own. What holds
two parts together no request can say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import msgspec

from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile.groups import Levels
from covey.compile.identity import Slot, fit_label, short_hash
from covey.compile.layout import RoleCount
from covey.compile.revision import RoleRevision
from covey.model import podstate
from covey.operator.capacity.elastic import find_domains
from covey.operator.model.observed import Observed
from covey.placement.cluster.elastic import ElasticDomain
from covey.placement.cluster.shape import shape_of

#: A container that asks for what a pod takes. No node ever runs it.
_CONTAINER: Final = {"name": "ask", "image": "registry.k8s.io/pause:3.10"}


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of one node shape.

    ``root`` is the UID of their unit's root: the parts of one root come together, or none of them helps. ``roles`` are
    theirs; ``template`` is that of pods that take as much, where they may. ``domain`` is one that may not exist yet.
    """

    unit: int
    root: str
    roles: tuple[str, ...]
    count: int
    template: Mapping[str, Any]
    surplus: bool = False
    domain: str = ""

    def name(self, inference: str, request: Sequence[str]) -> str:
        """Name of its objects, which says all that is asked: another process makes no second one.

        Args:
            inference: name of the resource.
            request: kind and class of the request.
        """
        asked = json.dumps([self.root, self.count, self.template, *request], sort_keys=True)
        return fit_label(inference, self.unit, short_hash(asked))

    def __str__(self) -> str:
        """``8 pods of decode, prefill of unit 0 in rack nvl72-07``."""
        of = f"{', '.join(self.roles)} of unit {self.unit}{', beyond the minimum' if self.surplus else ''}"
        of += f" in {self.domain}" if self.domain else ""
        return f"{self.count} pods of {of}" if self.count > 1 else f"1 pod of {of}"


@dataclass(frozen=True, slots=True)
class WaitingUnit:
    """One unit: its replicas by role, how many of them there must be, and the UID of its root."""

    unit: int
    root: str
    replicas: Mapping[str, Mapping[int, RoleRevision]]
    counts: Mapping[str, RoleCount]


@dataclass(frozen=True, slots=True)
class _Group:
    """Pods that lie in one domain of a level: of the unit, or of a replica; ``labels`` tell them from others.

    ``has_places``: some of them do; ``node`` is one of theirs that is known.
    """

    level: str
    has_places: bool
    node: core.Node | None
    labels: Mapping[str, str] = field(default_factory=dict)


def find_minimum(
    waiting: WaitingUnit, spec: DisaggregatedInferenceSpec, levels: Levels, observed: Observed
) -> tuple[PodSet, ...] | None:
    """Find the parts of a minimum: each pod of it without a place is in one of them, once.

    Args:
        waiting: the unit.
        spec: of its resource.
        levels: of its topology, from broad to narrow, with the keys of their labels.
        observed: the snapshot.

    Returns:
        None where that cannot be said now: a pod of the minimum is not there, the node of one is not known, or the unit
        is being admitted, which the refusal does not know of.
    """
    if any(podstate.is_admitted(pod) and not podstate.is_bound(pod) for pod in observed.in_unit(waiting.unit).values()):
        return None
    return _find_parts(waiting, _choose_minimum(waiting, observed), spec, levels, observed)


def find_choices(
    waiting: WaitingUnit, spec: DisaggregatedInferenceSpec, levels: Levels, observed: Observed
) -> Iterable[tuple[PodSet, ...]] | None:
    """Find the ways to ask for a minimum, best first: in each domain that may come, then wherever it may lie.

    Args, and None: as for ``find_minimum``. They are made one by one: there may be a thousand domains.
    """
    anywhere = find_minimum(waiting, spec, levels, observed)
    if not anywhere:
        return None if anywhere is None else ()
    if not observed.elastic or any(map(podstate.is_admitted, observed.in_unit(waiting.unit).values())):
        return [anywhere]
    chosen = _choose_minimum(waiting, observed)
    held = {
        role.name
        for role in spec.roles
        if role.topology.required or (spec.topology.required and role.topology.follow_unit)
    }
    pods = {
        name: [[observed.current[slot] for slot in _slots(waiting, name, replica)] for replica in replicas]
        for name, replicas in chosen.items()
        if name in held
    }
    domains = find_domains(pods, spec, levels, observed, waiting.unit)
    named = (_find_parts(waiting, chosen, spec, levels, observed, domain=domain) or () for domain in domains)
    return chain(named, (anywhere,))


def _choose_minimum(waiting: WaitingUnit, observed: Observed) -> dict[str, list[int]]:
    return {
        name: _rank(waiting, name, observed)[: count.minimum] for name, count in waiting.counts.items() if count.minimum
    }


def find_surplus(
    waiting: WaitingUnit, spec: DisaggregatedInferenceSpec, levels: Levels, observed: Observed, before: float
) -> tuple[PodSet, ...]:
    """Find the parts of replicas beyond the minimum that are whole and have had no place since ``before``."""
    parts: list[PodSet] = []
    for name, count in waiting.counts.items():
        chosen = [
            replica
            for replica in _rank(waiting, name, observed)[count.minimum :]
            if all(map(_waits_since(before, observed), _slots(waiting, name, replica)))
        ]
        parts += _find_parts(waiting, {name: chosen}, spec, levels, observed, surplus=True) or ()
    return tuple(parts)


def _rank(waiting: WaitingUnit, role: str, observed: Observed) -> list[int]:
    """Replicas in the order in which they count as the minimum: those that have places, then by number."""

    def lacks(replica: int) -> bool:
        pods = map(observed.current.get, _slots(waiting, role, replica))
        return not all(pod is not None and podstate.is_admitted(pod) for pod in pods)

    return sorted(waiting.replicas.get(role, ()), key=lambda replica: (lacks(replica), replica))


def _slots(waiting: WaitingUnit, role: str, replica: int) -> list[Slot]:
    size = waiting.replicas[role][replica].size
    return [Slot(waiting.unit, role, replica, index) for index in range(size)]


def _waits_since(before: float, observed: Observed) -> Any:
    def waits(slot: Slot) -> bool:
        pod = observed.current.get(slot)
        if pod is None or podstate.is_terminating(pod) or podstate.is_admitted(pod):
            return False
        return (core.seconds(pod.metadata.creation_timestamp) or observed.now) <= before

    return waits


def _find_parts(
    waiting: WaitingUnit,
    chosen: Mapping[str, Sequence[int]],
    spec: DisaggregatedInferenceSpec,
    levels: Levels,
    observed: Observed,
    *,
    surplus: bool = False,
    domain: ElasticDomain | None = None,
) -> tuple[PodSet, ...] | None:
    roles = {role.name: role for role in spec.roles}
    # Found once for all replicas: a unit may have ten thousand pods.
    follows = {role.name for role in spec.roles if role.topology.follow_unit}
    members = (pod for slot, pod in observed.in_unit(waiting.unit).items() if slot.role in follows)
    unit = _group(spec.topology.required, members, observed) if spec.topology.required else None
    of_requests: dict[str, tuple[Mapping[str, Any], list[str]]] = {}
    for name, replicas in chosen.items():
        for replica in replicas:
            slots = _slots(waiting, name, replica)
            pods = [pod for slot in slots if (pod := observed.current.get(slot)) and not podstate.is_terminating(pod)]
            if len(pods) < len(slots):
                return None
            groups = [unit] if unit is not None and name in follows else []
            if level := roles[name].topology.required:
                labels = {names.LABEL_ROLE: name, names.LABEL_REPLICA: str(replica)}
                groups.append(_group(level, pods, observed, labels))
            place = _place_of(waiting.root, groups, levels)
            if domain is not None and groups:
                place = dict(domain.selector), {}, {}
            if place is None:
                return None
            for pod in pods:
                if not podstate.is_admitted(pod):
                    made = _template(pod, waiting.root, *place)
                    of_requests.setdefault(json.dumps(made, sort_keys=True), (made, []))[1].append(name)
    return tuple(
        PodSet(waiting.unit, waiting.root, tuple(sorted(set(of))), len(of), made, surplus, _name_if_in(domain, made))
        for made, of in of_requests.values()
    )


def _name_if_in(domain: ElasticDomain | None, template: Mapping[str, Any]) -> str:
    selected = template["spec"].get("nodeSelector", {}).items()
    return str(domain) if domain is not None and domain.selector.items() <= selected else ""


def _group(level: str, pods: Iterable[core.Pod], observed: Observed, labels: Mapping[str, str] | None = None) -> _Group:
    placed = [pod for pod in pods if podstate.is_admitted(pod)]
    known = (observed.nodes.get(pod.spec.node_name or "") for pod in placed)
    return _Group(level, bool(placed), next(filter(None, known), None), labels or {})


def _place_of(
    root: str, groups: Iterable[_Group], levels: Levels
) -> tuple[dict[str, str], dict[str, Any], dict[str, str]] | None:
    """Find where a replica has to lie: labels of nodes, a term of affinity among the pods of the ask, and their labels.

    None where pods of the domain have places and none of their nodes is known.

    Args:
        root: the UID of the unit's root.
        groups: what the replica lies in, from broad to narrow.
        levels: of the topology.
    """
    selector: dict[str, str] = {}
    near: dict[str, Any] = {}
    labels: dict[str, str] = {}
    # Without its labels nothing is asked for (``asks``).
    for group in (candidate for candidate in groups if candidate.level in levels):
        if group.has_places and group.node is None:
            return None
        if group.node is not None:
            selector |= _domain_labels(group.node.metadata.labels or {}, group.level, levels)
            near, labels = {}, {}
            continue
        labels = {names.LABEL_ASK: root, **group.labels}
        near = {"topologyKey": levels[group.level][0], "labelSelector": {"matchLabels": labels}}
    return selector, near, labels


def _domain_labels(labels: Mapping[str, str], level: str, levels: Levels) -> dict[str, str]:
    """Labels of a node's domain at a level: the same name may stand for two domains below two broader ones."""
    own: dict[str, str] = {}
    for name, keys in levels.items():
        own |= next(({key: labels[key]} for key in keys if key in labels), {})
        if name == level:
            break
    return own


def _template(
    pod: core.Pod, root: str, selector: Mapping[str, str], near: Mapping[str, Any], labels: Mapping[str, str]
) -> dict[str, Any]:
    """Make the template of a pod that takes as much as this one, where it may: no gate, no pin, no group."""
    shape, affinity = shape_of(pod), pod.spec.affinity or core.Affinity()
    spec: dict[str, Any] = {
        "containers": [{**_CONTAINER, **_container_fields(shape.requests, shape.host_ports)}],
        "nodeSelector": {**dict(shape.node_selector), **selector},
        "tolerations": [msgspec.to_builtins(toleration) for toleration in shape.tolerations],
        "affinity": {
            "nodeAffinity": _as_required(shape.node_affinity),
            "podAffinity": _as_required([*_terms(affinity.pod_affinity), *([near] if near else [])]),
            "podAntiAffinity": _as_required(_terms(affinity.pod_anti_affinity)),
        },
    }
    spec["affinity"] = {key: value for key, value in spec["affinity"].items() if value}
    own_labels = _labels_in_terms(pod) | {names.LABEL_ASK: root} | dict(labels)
    return {"metadata": {"labels": own_labels}, "spec": {key: value for key, value in spec.items() if value}}


def _container_fields(requests: Iterable[tuple[str, int]], ports: Iterable[tuple[str, str, int]]) -> dict[str, Any]:
    amounts = {name: f"{value}m" if name == "cpu" else str(value) for name, value in requests if name != "pods"}
    # The API server wants limits of what cannot be shared.
    limits = {name: value for name, value in amounts.items() if "/" in name or name.startswith("hugepages-")}
    container_ports = [
        {"containerPort": port, "hostPort": port, "protocol": protocol, "hostIP": ip} for ip, protocol, port in ports
    ]
    container: dict[str, Any] = {"resources": {"requests": amounts, **({"limits": limits} if limits else {})}}
    return container | ({"ports": container_ports} if container_ports else {})


def _as_required(what: Any) -> dict[str, Any]:
    value = msgspec.to_builtins(what)
    return {"requiredDuringSchedulingIgnoredDuringExecution": value} if value else {}


def _terms(affinity: core.PodAffinity | None) -> list[Any]:
    return [msgspec.to_builtins(term) for term in (affinity.required or () if affinity else ())]


def _labels_in_terms(pod: core.Pod) -> dict[str, str]:
    """Labels of a pod that its own terms speak of; all others would only tell like pods apart."""
    affinity = pod.spec.affinity or core.Affinity()
    keys: set[str] = set()
    for kind in (affinity.pod_affinity, affinity.pod_anti_affinity):
        for term in (kind.required or ()) if kind else ():
            selector = term.label_selector or core.LabelSelector()
            keys |= {
                *(selector.match_labels or ()),
                *(expression.key for expression in selector.match_expressions or ()),
            }
            keys |= {*(term.match_label_keys or ()), *(term.mismatch_label_keys or ())}
    return {key: value for key, value in (pod.metadata.labels or {}).items() if key in keys}
