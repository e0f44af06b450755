"""Facts about the cluster on which a plan depends: nodes, pods that hold capacity, topologies, priorities.

Read from files as kubectl prints them, or (``cluster``) from an API server; from here on both are the same.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import msgspec

from covey.admission import obstacles
from covey.admission.compiled_units import stand_in
from covey.admission.taken_room import counted_shape
from covey.admission.topologies import TopologyChoice, presets_in_use
from covey.admission.volumes import PersistentVolume, VolumeClaim
from covey.api import core
from covey.api.constants import SCHEDULING_API, SCHEDULING_GROUP
from covey.manifests.documents import Document, read_documents
from covey.manifests.errors import InputError, ManifestPath
from covey.manifests.strict import read_checked
from covey.model import podstate
from covey.operator.model.objects import ControllerRevision
from covey.operator.model.template_faults import bad_amounts, bad_quantities
from covey.placement.cluster.classes import DeviceClasses
from covey.placement.cluster.device_claims import (
    DeviceAsk,
    UnsupportedClaimError,
    asks_of_pod,
    asks_of_templates,
    templates_of,
)
from covey.placement.cluster.presets import LabelCounts
from covey.placement.cluster.slices import DeviceCounts, Requests

T = TypeVar("T", core.Node, core.Pod)
#: Kinds that say where pods may go, what nodes have, or by what right, taken wherever they come along
#: (`kubectl get pods,pvc,pv`).
_ASIDE: Final[Mapping[tuple[str, str], type[core.Read]]] = {
    ("v1", "PersistentVolume"): PersistentVolume,
    ("v1", "PersistentVolumeClaim"): VolumeClaim,
    ("v1", "LimitRange"): core.LimitRange,
    ("v1", "ResourceQuota"): core.ResourceQuota,
    ("node.k8s.io/v1", "RuntimeClass"): core.RuntimeClass,
    ("v1", "Namespace"): core.Namespace,
    ("resource.k8s.io/v1", "ResourceSlice"): core.ResourceSlice,
    ("resource.k8s.io/v1", "DeviceClass"): core.DeviceClass,
    ("resource.k8s.io/v1", "ResourceClaim"): core.ResourceClaim,
    ("resource.k8s.io/v1", "ResourceClaimTemplate"): core.ResourceClaimTemplate,
    ("resource.k8s.io/v1", "DeviceTaintRule"): core.DeviceTaintRule,
    (SCHEDULING_API, "CompositePodGroup"): core.Group,
    (SCHEDULING_API, "PodGroup"): core.Group,
    (SCHEDULING_API, "Queue"): core.Queue,
    ("apps/v1", "ControllerRevision"): ControllerRevision,
}

#: How each kind is taken over.
_SETTERS: Final[Mapping[type, Callable[[DeviceCounts, Any], object]]] = {
    core.DeviceClass: DeviceCounts.set_class,
    core.ResourceSlice: DeviceCounts.set_slice,
    core.DeviceTaintRule: DeviceCounts.set_rule,
}


#: A template of a resource's pods: its namespace and name, the role, the role's revision, and whether of leaders.
TemplateKey = tuple[str, str, str, str, bool]


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A cluster at one moment. ``queues`` are None where nobody has looked for any; then quota is not counted."""

    nodes: tuple[core.Node, ...] = ()
    pods: tuple[core.Pod, ...] = ()
    topologies: tuple[core.ClusterTopology, ...] = ()
    priority_classes: tuple[core.PriorityClass, ...] = ()
    groups: tuple[core.Group, ...] = ()
    claims: tuple[VolumeClaim, ...] = ()
    volumes: tuple[PersistentVolume, ...] = ()
    warnings: tuple[str, ...] = ()
    queues: tuple[core.Queue, ...] | None = None
    namespaces: tuple[core.Namespace, ...] = ()
    #: The revisions of DisaggregatedInferences, which say as what their pods were made.
    revisions: tuple[ControllerRevision, ...] = ()
    #: Without it the nodes have no devices of drivers.
    devices: DeviceFacts | None = None
    limit_ranges: tuple[core.LimitRange, ...] = ()
    runtime_classes: tuple[core.RuntimeClass, ...] = ()
    resource_quotas: tuple[core.ResourceQuota, ...] = ()
    #: A pod of each template of which the API server was asked, as it would be stored; else why it gave no answer.
    samples: Mapping[TemplateKey, core.Pod | str] = field(default_factory=dict)

    def runtime_class(self, name: str | None) -> core.RuntimeClass | None:
        """The RuntimeClass of a name; the last one given counts."""
        return next(
            (class_ for class_ in reversed(self.runtime_classes) if name and class_.metadata.name == name), None
        )

    def topology_choice(self) -> TopologyChoice:
        """All by which topologies are chosen."""
        return TopologyChoice.of(self.topologies, LabelCounts(self.nodes), presets_in_use(self.groups))

    def classes(self) -> dict[str, core.PriorityClass]:
        """The priority classes by name."""
        return {class_.metadata.name: class_ for class_ in self.priority_classes}


def read_facts(
    nodes: Sequence[str], pods: Sequence[str], topologies: Sequence[str], *, recursive: bool = False
) -> ClusterFacts:
    """Read files and directories of nodes, of pods and of ClusterTopologies, and what comes along.

    Args:
        nodes: paths, or ``-``.
        pods: the same.
        topologies: the same.
        recursive: look into directories in directories too.

    Raises:
        InputError: a file is malformed, or a path holds nothing of what it was given for.
    """
    warnings: list[str] = []

    def of_kind(kind: str, option: str, paths: Sequence[str], *, may_be_empty: bool = False) -> Iterable[Document]:
        return _of_kind(kind, option, paths, warnings, aside, may_be_empty=may_be_empty, recursive=recursive)

    aside: list[core.Read] = []
    found_nodes = [read_node(document) for document in of_kind("Node", "--nodes", nodes)]
    found_pods = [_pod(document) for document in of_kind("Pod", "--pods", pods, may_be_empty=True)]
    found_topologies = [read_topology(document) for document in of_kind("ClusterTopology", "--topology", topologies)]
    facts = ClusterFacts(
        _once(found_nodes, "node", warnings),
        _once(found_pods, "pod", warnings),
        tuple(found_topologies),
        groups=tuple(thing for thing in aside if isinstance(thing, core.Group)),
        claims=tuple(thing for thing in aside if isinstance(thing, VolumeClaim)),
        volumes=tuple(thing for thing in aside if isinstance(thing, PersistentVolume)),
        warnings=tuple(warnings),
        queues=tuple(thing for thing in aside if isinstance(thing, core.Queue)) or None,
        namespaces=tuple(thing for thing in aside if isinstance(thing, core.Namespace)),
        revisions=tuple(thing for thing in aside if isinstance(thing, ControllerRevision)),
        limit_ranges=tuple(thing for thing in aside if isinstance(thing, core.LimitRange)),
        runtime_classes=tuple(thing for thing in aside if isinstance(thing, core.RuntimeClass)),
        resource_quotas=tuple(thing for thing in aside if isinstance(thing, core.ResourceQuota)),
    )
    return with_devices(facts, (thing for thing in aside if isinstance(thing, core.DeviceObject)))


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """Devices of drivers: the nodes without them, all that says of them, and how pods count whose claims take some."""

    nodes: tuple[core.Node, ...]
    things: tuple[core.DeviceObject, ...]
    claims: Mapping[tuple[str, str], core.ResourceClaim] = field(default_factory=dict)
    templates: Mapping[tuple[str, str], core.ResourceClaimTemplate] = field(default_factory=dict)
    classes: DeviceClasses | None = None

    def asks(self, pod: core.Pod) -> Mapping[DeviceAsk, int]:
        """List all that the claims of a pod ask for: those that were made for it, else those that templates would become.

        Raises:
            UnsupportedClaimError: some of it is not known, or cannot be counted.
        """
        for key in templates_of(pod):
            if key not in self.templates:
                raise UnsupportedClaimError(f"ResourceClaimTemplate {key[1]} is not known: give it beside the nodes")
        return asks_of_pod(pod, self.claims) + asks_of_templates(pod, self.templates)

    def count(self, pod: core.Pod) -> core.Pod:
        """The pod with what its claims ask for, as overhead."""
        try:
            asks = self.asks(pod) if pod.spec.resource_claims and self.classes else {}
        except UnsupportedClaimError:
            return pod
        more = Counter[str]()
        for ask, count in asks.items():
            more.update(dict.fromkeys(self.classes.names_of(ask) if self.classes else (), count))
        overhead = {**(pod.spec.overhead or {}), **more}
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, overhead=overhead)) if more else pod


def with_devices(facts: ClusterFacts, things: Iterable[core.DeviceObject]) -> ClusterFacts:
    """The facts with devices among what the nodes have.

    Args:
        facts: nodes as they are, and the pods that hold room on them.
        things: slices, classes, claims with their templates, and taint rules of the cluster.
    """
    counts, things = DeviceCounts(), tuple(things)
    claims = {thing.metadata.key: thing for thing in things if isinstance(thing, core.ResourceClaim)}
    templates = {thing.metadata.key: thing for thing in things if isinstance(thing, core.ResourceClaimTemplate)}
    known = DeviceFacts(facts.nodes, things, claims, templates)
    for node in facts.nodes:
        counts.set_node(node)
    owners = {
        (pod.metadata.namespace, status.resource_claim_name): pod.metadata.uid
        for pod in facts.pods
        for status in pod.status.resource_claim_statuses or ()
    }
    for thing in things:
        if isinstance(thing, core.ResourceClaim):
            counts.set_claim(thing, owners.get(thing.metadata.key))
        elif not isinstance(thing, core.ResourceClaimTemplate):
            _SETTERS[type(thing)](counts, thing)
    for pod in facts.pods:
        if not pod.spec.resource_claims or core.is_terminal(pod) or obstacles.foreign_gates(pod):
            continue
        with suppress(UnsupportedClaimError):
            asks = known.asks(pod).keys()
            counts.ask(pod, asks, obstacles.find_yielding(pod, asks, claims))
    deque(counts.judge(), maxlen=0)
    known = replace(known, classes=counts.classes)
    held: dict[str, list[tuple[str, Requests]]] = {}
    for pod in facts.pods:
        if counts.has_claim(pod.metadata.uid) and (place := podstate.holding(pod)):
            held.setdefault(place, []).append((pod.metadata.uid, counted_shape(known.count(pod)).requests))
    nodes = tuple(counts.extend(node, held.get(node.metadata.name, ())) for node in facts.nodes)
    return replace(facts, nodes=nodes, devices=known)


def read_topology(document: Document) -> core.ClusterTopology:
    """A ClusterTopology, checked as the API server would.

    Raises:
        InputError: it is not valid.
    """
    topology = read_checked(core.ClusterTopology, document)
    names = [level.name for level in topology.spec.levels]
    for number, name in enumerate(names):
        if name in names[:number]:
            place = document.place.at(f"spec.levels[{number}].name")
            raise InputError(place, f"there are two levels {name}", "give each level a name of its own")
    return topology


def read_queue(document: Document) -> core.Queue:
    """A Queue, checked as the API server would.

    Raises:
        InputError: it is not valid.
    """
    return read_checked(core.Queue, document)


def read_pod(document: Document, namespace: str = "default") -> core.Pod:
    """A pod; one that was trimmed of its UID or namespace gets a stand-in.

    Raises:
        InputError: it is not valid.
    """
    pod = document.read(core.Pod)
    meta = pod.metadata
    if not meta.name:
        raise InputError(document.place.at("metadata.name"), "is missing", "give the pod a name")
    meta = msgspec.structs.replace(meta, namespace=meta.namespace or namespace)
    meta = msgspec.structs.replace(meta, uid=meta.uid or stand_in("pod", meta.namespace, meta.name))
    for path, what, instead in bad_quantities(document.body.get("spec") or {}):
        raise InputError(document.place.at(f"spec.{path}"), what, instead)
    return msgspec.structs.replace(pod, metadata=meta)


def read_limit_range(document: Document, namespace: str = "default") -> core.LimitRange:
    """A LimitRange; one without a namespace is of the one given.

    Raises:
        InputError: something in it is no quantity.
    """
    limits = document.read(core.LimitRange)
    for number, item in enumerate(limits.spec.limits):
        lists = {
            "default": item.default, "defaultRequest": item.default_request, "max": item.max, "min": item.min,
        }  # fmt: skip
        for name, quantities in lists.items():
            _check_amounts(document, f"spec.limits[{number}].{name}", quantities)
    meta = msgspec.structs.replace(limits.metadata, namespace=limits.metadata.namespace or namespace)
    return msgspec.structs.replace(limits, metadata=meta)


def read_runtime_class(document: Document) -> core.RuntimeClass:
    """A RuntimeClass.

    Raises:
        InputError: something in it is no quantity.
    """
    runtime_class = document.read(core.RuntimeClass)
    _check_amounts(document, "overhead.podFixed", runtime_class.overhead.pod_fixed if runtime_class.overhead else None)
    return runtime_class


def _check_amounts(document: Document, path: str, quantities: Mapping[str, str | int | float] | None) -> None:
    for where, what, instead in bad_amounts(path, quantities):
        raise InputError(document.place.at(where), what, instead)


class _Capacity(core.Read, frozen=True):
    capacity: dict[str, str | int | float] | None = None


class _Sized(core.Read, frozen=True):
    """A node's capacity, which the API server takes for what is allocatable where nobody says that."""

    status: _Capacity = _Capacity()


def read_node(document: Document) -> core.Node:
    """A node; what is allocatable is its capacity where only that is written.

    Raises:
        InputError: it has no name, or something in it is no quantity.
    """
    node = document.read(core.Node)
    if not node.metadata.name:
        raise InputError(document.place.at("metadata.name"), "is missing", "give the node its name")
    _check_amounts(document, "status.allocatable", node.status.allocatable)
    if node.status.allocatable is None and (capacity := document.read(_Sized).status.capacity):
        _check_amounts(document, "status.capacity", capacity)
        node = msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, allocatable=capacity))
    return node


#: Readers of kinds that have quantities.
_CHECKED: Final[Mapping[type[core.Read], Callable[[Document], core.Read]]] = {
    core.LimitRange: read_limit_range,
    core.RuntimeClass: read_runtime_class,
}


def _pod(document: Document) -> core.Pod:
    return read_pod(document)


def _of_kind(
    kind: str,
    option: str,
    paths: Sequence[str],
    warnings: list[str],
    aside: list[core.Read],
    *,
    may_be_empty: bool,
    recursive: bool,
) -> Iterable[Document]:
    """Documents of one kind; those that come along are put aside, others are skipped with a warning."""
    skipped: dict[str, int] = {}
    for path in paths:
        count = 0
        for document in read_documents((path,), may_be_empty=True, recursive=recursive):
            ours = document.group == (SCHEDULING_GROUP if kind == "ClusterTopology" else "")
            if document.kind == kind and ours:
                count += 1
                yield document
            elif aside_kind := _ASIDE.get((str(document.body.get("apiVersion", "")), document.kind)):
                aside.append(_CHECKED[aside_kind](document) if aside_kind in _CHECKED else document.read(aside_kind))
            else:
                skipped[document.kind] = skipped.get(document.kind, 0) + 1
        if not count and not may_be_empty:
            what = f"kubectl get {kind.lower()}s -o json" if kind != "ClusterTopology" else "a ClusterTopology"
            raise InputError(ManifestPath(path), f"holds no {kind}", f"give {option} what `{what}` prints")
    warnings.extend(f"{option}: skipped {count} {name}" for name, count in sorted(skipped.items()))


def _once(objects: Iterable[T], what: str, warnings: list[str]) -> tuple[T, ...]:
    """Each object once: the last one of a name counts."""
    last: dict[tuple[str, str], T] = {}
    for thing in objects:
        if thing.metadata.key in last:
            warnings.append(f"{what} {thing.metadata.name} is given twice; the last one counts")
        last[thing.metadata.key] = thing
    return tuple(last.values())
