"""Remarks about what quota does not count in a plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from covey.api import core
from covey.api.constants import LABEL_INFERENCE, LABEL_POD_GROUP
from covey.model import podstate
from covey.planning.facts import ClusterFacts
from covey.planning.trees import PlannedWorkload

#: A label that the API server gives every namespace.
_NAME: Final = "kubernetes.io/metadata.name"


def uncounted_remarks(
    workloads: Iterable[PlannedWorkload], facts: ClusterFacts, members: Collection[str]
) -> Iterator[str]:
    """Describe what quota does not count; ``members`` are the UIDs of all pods of units."""
    for workload in workloads:
        named = next((unit.root.spec.queue for unit in workload.units if unit.root.spec.queue), None)
        if facts.queues is None:
            if named and workload.is_counted:
                yield f"{workload.title}: quota is not counted, as queue {named} is not given; give it with -f"
        elif facts.queues and not workload.is_counted:
            yield f"{workload.title}: no Queue counts it, as another scheduler assigns its nodes"
    if not facts.queues:
        return
    keys = {key for queue in facts.queues for key in _keys_of(queue)} - {_NAME}
    unknown = {workload.namespace for workload in workloads} - _labels_of(facts).keys()
    for namespace in sorted(unknown) if keys else ():
        yield f"namespace {namespace} is not given, so that it has no label {', '.join(sorted(keys))}; give it with -f"
    of_covey = [pod for pod in facts.pods if pod.metadata.label(LABEL_INFERENCE) or pod.metadata.label(LABEL_POD_GROUP)]
    if count := sum(podstate.holding(pod) is not None and pod.metadata.uid not in members for pod in of_covey):
        yield f"no Queue counts {count} pods whose groups are not given; give those with --pods"


def _labels_of(facts: ClusterFacts) -> dict[str, Mapping[str, str]]:
    return {namespace.metadata.name: namespace.metadata.labels or {} for namespace in facts.namespaces}


def _keys_of(queue: core.Queue) -> Iterator[str]:
    selector = queue.spec.namespaces.selector if queue.spec.namespaces else None
    if selector is not None:
        yield from selector.match_labels or ()
        yield from (expression.key for expression in selector.match_expressions or ())
