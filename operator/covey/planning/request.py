"""Workloads and facts from the options of ``covey plan``: read, sorted by kind, with warnings of what is left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from covey.api import core
from covey.api.constants import INFERENCE_GROUP, LABEL_INFERENCE, SCHEDULING_GROUP
from covey.api.inference import DisaggregatedInference
from covey.compile import Revision
from covey.manifests.conversion import SOURCES, convert_document, known_levels
from covey.manifests.documents import Document, read_documents
from covey.manifests.errors import InputError, ManifestPath
from covey.manifests.inference import read_inference
from covey.operator.model.accepted import read_record
from covey.planning.facts import ClusterFacts, read_limit_range, read_queue, read_runtime_class, read_topology
from covey.planning.inferences import inference_workload
from covey.planning.stored import adds_tolerations, as_stored, unknown_remarks, with_stored_pods
from covey.planning.trees import UPSTREAM_GROUP, PlannedWorkload, TreeDocuments, tree_workloads

_TOPOLOGY = (SCHEDULING_GROUP, "ClusterTopology")
_TREE_KINDS = frozenset({"Workload", "CompositePodGroup", "PodGroup"})


@dataclass(slots=True)
class Manifests:
    """Objects in the files that ``-f`` names."""

    inferences: list[tuple[Document, DisaggregatedInference, int]] = field(default_factory=list)
    parts: TreeDocuments = field(default_factory=TreeDocuments)
    topologies: list[core.ClusterTopology] = field(default_factory=list)
    priority_classes: list[core.PriorityClass] = field(default_factory=list)
    queues: list[core.Queue] = field(default_factory=list)
    namespaces: list[core.Namespace] = field(default_factory=list)
    limit_ranges: list[core.LimitRange] = field(default_factory=list)
    runtime_classes: list[core.RuntimeClass] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_manifests(
    files: Sequence[str],
    namespace: str | None,
    fallback: str = "default",
    topologies: Iterable[core.ClusterTopology] = (),
    *,
    recursive: bool = False,
) -> Manifests:
    """Read the workloads to be planned.

    Args:
        files: paths of files and directories, or ``-``.
        namespace: what ``-n`` says; an object that names another one is refused, as by kubectl.
        fallback: the namespace of objects that name none, when ``-n`` says nothing.
        topologies: the ClusterTopologies there are, for workloads of other projects; those of the files join them.
        recursive: look into directories in directories too.

    Raises:
        InputError: something is malformed, or nothing that can be planned is in it.
    """
    documents = list(read_documents(files, recursive=recursive))
    return sort_manifests(documents, namespace, fallback, topologies, where=ManifestPath(files[-1]), source="-f")


def sort_manifests(
    documents: Sequence[Document],
    namespace: str | None,
    fallback: str = "default",
    topologies: Iterable[core.ClusterTopology] = (),
    *,
    where: ManifestPath,
    source: str,
) -> Manifests:
    """Sort documents by what they are planned as.

    Args:
        documents: in their order.
        namespace: as for ``read_manifests``.
        fallback: likewise.
        topologies: likewise.
        where: what is blamed when there is nothing to plan.
        source: begins warnings about what is left out.

    Raises:
        InputError: something is malformed, or nothing that can be planned is in it.
    """
    manifests = Manifests()
    skipped: dict[str, int] = {}
    manifests.topologies += [read_topology(other) for other in documents if _kind(other) == _TOPOLOGY]
    levels = known_levels([*topologies, *manifests.topologies])
    for number, given in enumerate(documents):
        document, remarks = convert_document(given, levels)
        manifests.warnings += remarks
        kind = _kind(document)
        if kind == (INFERENCE_GROUP, "DisaggregatedInference"):
            _check_namespace(document, namespace)
            inference = read_inference(document, namespace or fallback)
            _check_new(manifests, document, inference)
            manifests.inferences.append((document, inference, number))
        elif kind == ("", "Pod") or (kind[0] in (SCHEDULING_GROUP, UPSTREAM_GROUP) and kind[1] in _TREE_KINDS):
            _check_namespace(document, namespace)
            manifests.parts.add(document, namespace or fallback, number)
        elif kind == (UPSTREAM_GROUP, "PriorityClass"):
            manifests.priority_classes.append(document.read(core.PriorityClass))
        elif kind == (SCHEDULING_GROUP, "Queue"):
            manifests.queues.append(read_queue(document))
        elif kind == ("", "Namespace"):
            manifests.namespaces.append(document.read(core.Namespace))
        elif kind == ("", "LimitRange"):
            _check_namespace(document, namespace)
            manifests.limit_ranges.append(read_limit_range(document, namespace or fallback))
        elif kind == ("node.k8s.io", "RuntimeClass"):
            manifests.runtime_classes.append(read_runtime_class(document))
        elif kind != _TOPOLOGY:
            skipped[document.kind] = skipped.get(document.kind, 0) + 1
    manifests.warnings += [f"{source}: skipped {count} {kind}" for kind, count in sorted(skipped.items())]
    if not manifests.inferences and not manifests.parts.groups:
        kinds = ", ".join(sorted({other.kind for other in documents}))
        raise InputError(
            where,
            f"holds nothing that can be planned, only {kinds}" if kinds else "holds nothing that can be planned",
            f"give a DisaggregatedInference, a tree of PodGroups with their pods, or one of {SOURCES}",
        )
    return manifests


def with_manifests(facts: ClusterFacts, manifests: Manifests) -> ClusterFacts:
    """The facts, and what ``-f`` adds to them: pods of trees, and all that decides about pods and their places."""
    known = {pod.metadata.key for pod in facts.pods}
    pods = [pod for key, pod in manifests.parts.pods.items() if key not in known]
    queues = {queue.metadata.name: queue for queue in (*(facts.queues or ()), *manifests.queues)}
    ranges = {limits.metadata.key: limits for limits in (*facts.limit_ranges, *manifests.limit_ranges)}
    facts = replace(
        facts,
        topologies=(*facts.topologies, *manifests.topologies),
        priority_classes=(*facts.priority_classes, *manifests.priority_classes),
        warnings=(*manifests.warnings, *facts.warnings),
        queues=tuple(queues.values()) if queues or facts.queues is not None else None,
        namespaces=(*facts.namespaces, *manifests.namespaces),
        limit_ranges=tuple(ranges.values()),
        runtime_classes=(*facts.runtime_classes, *manifests.runtime_classes),
    )
    return with_stored_pods(facts, pods)


def workloads_of(manifests: Manifests, facts: ClusterFacts) -> tuple[list[PlannedWorkload], list[str]]:
    """Everything to be planned in document order, and what there is to say about it.

    Raises:
        InputError: a tree is not whole, or is none that Covey plans.
    """
    warnings: list[str] = []
    pods: dict[tuple[str, str], list[core.Pod]] = {}
    for pod in facts.pods:
        owner = pod.metadata.label(LABEL_INFERENCE)
        if owner:
            pods.setdefault((pod.metadata.namespace, owner), []).append(pod)
    revisions = revisions_of(facts)
    store = partial(as_stored, facts=facts, tolerations=adds_tolerations(facts))
    keys = [(inference.metadata.namespace, inference.metadata.name) for _, inference, _ in manifests.inferences]
    workloads = [
        inference_workload(document, inference, number, pods.get(key, ()), revisions.get(key, ()), store)
        for key, (document, inference, number) in zip(keys, manifests.inferences, strict=True)
    ]
    workloads += tree_workloads(manifests.parts, facts.pods, warnings)
    warnings += [warning for workload in workloads for warning in workload.warnings]
    warnings += unknown_remarks(workloads, facts)
    return workloads, warnings


def revisions_of(facts: ClusterFacts) -> dict[tuple[str, str], list[Revision]]:
    """The stored revisions of each DisaggregatedInference, the newest first."""
    revisions: dict[tuple[str, str], list[Revision]] = {}
    for stored in sorted(facts.revisions, key=lambda stored: stored.revision, reverse=True):
        owner, record = stored.metadata.label(LABEL_INFERENCE), read_record(stored.data)
        if owner and record is not None:
            revisions.setdefault((stored.metadata.namespace, owner), []).append(record.revision)
    return revisions


def _kind(document: Document) -> tuple[str, str]:
    return document.group, document.kind


def _check_namespace(document: Document, namespace: str | None) -> None:
    own = (document.body.get("metadata") or {}).get("namespace")
    if namespace and own and own != namespace:
        place = document.place.at("metadata.namespace")
        raise InputError(place, f"is {own}, but -n says {namespace}", "make them agree, or leave -n out")


def _check_new(sorted_manifests: Manifests, document: Document, inference: DisaggregatedInference) -> None:
    meta = inference.metadata
    for _, other, _ in sorted_manifests.inferences:
        if (other.metadata.namespace, other.metadata.name) == (meta.namespace, meta.name):
            what = f"there are two DisaggregatedInferences {meta.namespace}/{meta.name}"
            raise InputError(document.place.at("metadata.name"), what, "give each a name of its own, or remove one")
