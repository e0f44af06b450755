"""The one JSON patch that lets a pod go: pure.

It tests the UID and the gate, adds the node to every required node selector term (terms are OR-ed, so one without it
would let the pod go elsewhere), removes our gate and only ours, marks the pod with its own UID (``podstate.pinned``), and
writes the domains as labels, from where the downward API takes them. Every failed test is the same 422; who sent the patch reads the pod again to know which.

An empty term matches no node, and the API server refuses any addition to one, so it stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from covey.api import core
from covey.api.constants import ANNOTATION_PINNED, GATE_GANG, TOPOLOGY_LABEL_PREFIX

Operation = dict[str, Any]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class NotGatedError(Exception):
    """The pod does not carry our gate (any more): there is nothing to let go."""


def pin_patch(pod: core.Pod, node: str, domains: Mapping[str, str]) -> list[Operation]:
    """The patch that pins a gated pod to a node and lifts our gate.

    Args:
        pod: the pod as just read; positions in the patch are positions in it.
        node: the node's name.
        domains: level name → domain value, for the levels that the node has.

    Raises:
        NotGatedError: when our gate is not on the pod.
    """
    index = _gate_index(pod)
    return [
        {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
        {"op": "test", "path": f"/spec/schedulingGates/{index}/name", "value": GATE_GANG},
        *_affinity(pod.spec.affinity, node),
        *_entries("/metadata/labels", pod.metadata.labels, _labels(domains)),
        *_entries("/metadata/annotations", pod.metadata.annotations, {ANNOTATION_PINNED: pod.metadata.uid}),
        {"op": "remove", "path": f"/spec/schedulingGates/{index}"},
    ]


def annotate_patch(pod: core.Pod, annotations: Mapping[str, str]) -> list[Operation]:
    """A patch that sets annotations on this incarnation of a pod and on no other."""
    return [
        {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
        *_entries("/metadata/annotations", pod.metadata.annotations, annotations),
    ]


def escape(token: str) -> str:
    """A key as one token of a JSON pointer (RFC 6901)."""
    return token.replace("~", "~0").replace("/", "~1")


def _gate_index(pod: core.Pod) -> int:
    for index, gate in enumerate(pod.spec.scheduling_gates or ()):
        if gate.name == GATE_GANG:
            return index
    raise NotGatedError(pod.metadata.name)


def _labels(domains: Mapping[str, str]) -> dict[str, str]:
    return {f"{TOPOLOGY_LABEL_PREFIX}{level}": value for level, value in domains.items()}


def _affinity(affinity: core.Affinity | None, node: str) -> Iterator[Operation]:
    """Append the pin to every term, or add the first missing parent with the pin below it."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    value: Any = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    path = f"/spec/affinity/nodeAffinity/{_REQUIRED}"
    if affinity is None:
        yield from _parent("/spec/affinity", {"nodeAffinity": {_REQUIRED: value}})
    elif affinity.node_affinity is None:
        yield from _parent("/spec/affinity/nodeAffinity", {_REQUIRED: value})
    elif affinity.node_affinity.required is None or not affinity.node_affinity.required.node_selector_terms:
        yield from _parent(path, value)
    else:
        terms = affinity.node_affinity.required.node_selector_terms
        yield from _append(f"{path}/nodeSelectorTerms", terms, field)


def _parent(path: str, value: Any) -> Iterator[Operation]:
    """Add a missing parent.

    The API server takes a test for null as a test for absence. Without it, what somebody else has added meanwhile
    would be replaced.
    """
    yield {"op": "test", "path": path, "value": None}
    yield {"op": "add", "path": path, "value": value}


def _append(path: str, terms: Sequence[core.NodeSelectorTerm], field: Operation) -> Iterator[Operation]:
    for index, term in enumerate(terms):
        if term.match_fields:
            yield {"op": "add", "path": f"{path}/{index}/matchFields/-", "value": field}
        elif term.match_expressions:
            yield {"op": "add", "path": f"{path}/{index}/matchFields", "value": [field]}


def _entries(path: str, present: Mapping[str, str] | None, entries: Mapping[str, str]) -> Iterator[Operation]:
    if not entries:
        return
    if present is None:
        yield from _parent(path, dict(entries))
        return
    for key, value in entries.items():
        yield {"op": "add", "path": f"{path}/{escape(key)}", "value": value}
