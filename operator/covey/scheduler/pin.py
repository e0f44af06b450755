"""The one merge patch that lets a pod go: pure. ``writer.PodWriter.pin`` sends it when ``commit`` carries a plan out.

It adds the node to every required node selector term (terms are OR-ed, so one without it would let the pod go
elsewhere), leaves out our gate and only ours, marks the pod with its own UID (``podstate.pinned_node``), and writes the
domains as annotations, from where the downward API takes them. Lists are replaced whole, therefore UID and
resourceVersion are
preconditions: a pod that has changed since it was read answers Conflict, and who sent the patch reads it again.

Domains are annotations because each change of a pod's labels makes kube-controller-manager match the pod, old and new,
against every Service of the namespace (``endpointslice.podEndpointsChanged``). A pod that reads them as labels gets
both. ``managedFields`` are emptied, as the API documents it: nobody applies pods, and the API server keeps none of a
pod that has none, so every later write of it is smaller by half.

An empty term matches no node, and the API server refuses any addition to one, so it stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from covey.api import core
from covey.api.constants import (
    ANNOTATION_DOMAIN_LABELS,
    ANNOTATION_PINNED,
    ANNOTATION_PINNED_AT,
    GATE_GANG,
    TOPOLOGY_PREFIX,
)

Patch = dict[str, Any]

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class NotGatedError(Exception):
    """The pod does not carry our gate (any more): there is nothing to let go."""


def pin_patch(pod: core.Pod, node: str, domains: Mapping[str, str], now: float) -> Patch:
    """The patch that pins a gated pod to a node and lifts our gate.

    Args:
        pod: the pod as just read; the patch holds for this version of it.
        node: the node's name.
        domains: level name → domain value, for the levels that the node has.
        now: seconds since the epoch, noted on the pod.

    Raises:
        NotGatedError: when our gate is not on the pod.
    """
    gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
    if GATE_GANG not in gates:
        raise NotGatedError(pod.metadata.name)
    places = {f"{TOPOLOGY_PREFIX}{level}": value for level, value in domains.items()}
    uid = pod.metadata.uid
    metadata = {
        "uid": uid,
        "resourceVersion": pod.metadata.resource_version,
        "annotations": {ANNOTATION_PINNED: uid, ANNOTATION_PINNED_AT: core.rfc3339(now), **places},
        "managedFields": [{}],
    }
    if _reads_labels(pod):
        metadata["labels"] = places
    required = {_REQUIRED: {"nodeSelectorTerms": _terms(pod.spec.affinity, node)}}
    kept = [{"name": name} for name in gates if name != GATE_GANG]
    return {"metadata": metadata, "spec": {"schedulingGates": kept, "affinity": {"nodeAffinity": required}}}


def annotate_patch(pod: core.Pod, annotations: Mapping[str, str]) -> Patch:
    """A patch that sets annotations on this incarnation of a pod and on no other."""
    return {"metadata": {"uid": pod.metadata.uid, "annotations": dict(annotations)}}


def _reads_labels(pod: core.Pod) -> bool:
    """Its containers are told domains by labels, as pods of former releases are, or it asks for labels."""
    return pod.metadata.annotation(ANNOTATION_DOMAIN_LABELS) == "true" or core.reads_domain_labels(pod)


def _terms(affinity: core.Affinity | None, node: str) -> list[Any]:
    """The required terms with the pin in each of them; one with the pin alone where there are none."""
    pin = core.Requirement("metadata.name", "In", (node,))
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    terms = required.node_selector_terms if required else ()
    if not terms:
        return [msgspec.to_builtins(core.NodeSelectorTerm(match_fields=(pin,)))]
    return [
        msgspec.to_builtins(replace(term, match_fields=(*(term.match_fields or ()), pin)) if _matches(term) else term)
        for term in terms
    ]


def _matches(term: core.NodeSelectorTerm) -> bool:
    return bool(term.match_fields or term.match_expressions)
