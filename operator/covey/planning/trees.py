"""Ready trees of groups and pods as workloads: of Covey's kinds or of Kubernetes' own.

Ready trees: groups and pods that some controller has made, of Covey's kinds or of Kubernetes' own.

Both families have the same fields, so both become the scheduler's read projections. What differs is mended on the
way: upstream pods name their group in ``spec.schedulingGroup`` and carry no gate of ours; a constraint there is a
bare label key; a ``basic`` composite below another group is there what one satisfied child satisfies.

One thing to be planned: the units of a DisaggregatedInference, or one ready tree of groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from covey.admission.compiled_units import build_units, stand_in
from covey.admission.tree import Unit, WorkloadTemplate, positions
from covey.api import core
from covey.api.constants import GATE_GANG, INFERENCE_API, LABEL_POD_GROUP, SCHEDULING_GROUP
from covey.api.groups import CompositePodGroup, PodGroup
from covey.api.structs import model_of_struct
from covey.manifests.documents import Document
from covey.manifests.errors import InputError, ManifestPath
from covey.manifests.strict import validate
from covey.model import podstate
from covey.planning.changes import Change
from covey.planning.facts import read_pod


@dataclass(frozen=True, slots=True)
class Mention:
    """A level (or raw label key) that a workload names, and where; a preferred one must lie ``within`` a required."""

    place: ManifestPath
    level: str = ""
    key: str = ""
    within: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedWorkload:
    """Units that are planned and reported together.

    ``created`` orders workloads of one priority: a creation time, else a stand-in that follows all times, in document
    order. ``pods`` are all pods of the units by UID, placed or not.
    """

    place: ManifestPath
    namespace: str
    name: str
    created: str
    units: tuple[Unit, ...]
    pods: Mapping[str, core.Pod]
    topology_name: str | None
    mentions: tuple[Mention, ...]
    priority_class: str | None = None
    priority: int | None = None
    warnings: tuple[str, ...] = ()
    #: What the API server knows it as: API version and kind.
    resource: tuple[str, str] = (INFERENCE_API, "DisaggregatedInference")
    #: Roles whose number of replicas is a sum over all units, as an autoscaler sets it.
    summed: frozenset[str] = frozenset()
    #: The Workload that the root of a ready tree refers to.
    made_for: str | None = None
    #: Covey's own scheduler places it, so that Queues count it.
    is_counted: bool = True
    #: It runs with another revision than it asks for.
    change: Change | None = None

    @property
    def title(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


def age(timestamp: str, number: int) -> str:
    """Return a key that sorts by age.

    ``~`` comes after every digit, so workloads that do not exist yet follow those that do.
    """
    return timestamp or f"~{number:06d}"


UPSTREAM_GROUP: Final = "scheduling.k8s.io"
#: Releases of the upstream API whose groups are objects of their own (Kubernetes 1.36 and later).
_UPSTREAM_VERSIONS: Final = ("v1alpha2", "v1alpha3", "v1beta1", "v1")
_DEEPEST: Final = 4

Key = tuple[str, str]


@dataclass(slots=True)
class TreeDocuments:
    """The documents of ready trees, sorted by kind; ``groups`` and ``workloads`` by namespace and name."""

    groups: dict[tuple[str, str, str], tuple[Document, core.Group, int]] = field(default_factory=dict)
    workloads: dict[Key, Document] = field(default_factory=dict)
    pods: dict[Key, core.Pod] = field(default_factory=dict)

    def add(self, document: Document, namespace: str, number: int) -> None:
        """Take in a Workload, CompositePodGroup, PodGroup or Pod.

        Raises:
            InputError: it is not valid, or its name is taken.
        """
        if document.kind == "Pod":
            pod = read_pod(document, namespace)
            self._claim(document, self.pods, pod.metadata.key)
            self.pods[pod.metadata.key] = pod
            return
        version = str(document.body["apiVersion"]).rpartition("/")[2]
        if document.group == UPSTREAM_GROUP and version not in _UPSTREAM_VERSIONS:
            known = ", ".join(_UPSTREAM_VERSIONS)
            raise InputError(document.place.at("apiVersion"), f"{version} is not understood", f"convert it to {known}")
        if document.kind == "Workload":
            key = (_namespace(document, namespace), document.name)
            self._claim(document, self.workloads, key)
            self.workloads[key] = document
            return
        group = _group(document, namespace)
        identity = (document.kind, *group.metadata.key)
        self._claim(document, self.groups, identity)
        self.groups[identity] = (document, group, number)

    def _claim(self, document: Document, taken: Mapping[Any, object], key: Any) -> None:
        if key in taken:
            what = f"there are two objects {document.kind} {document.name}"
            raise InputError(document.place.at("metadata.name"), what, "give each a name of its own, or remove one")


def tree_workloads(
    parts: TreeDocuments, cluster_pods: Iterable[core.Pod], warnings: list[str]
) -> list[PlannedWorkload]:
    """Assemble the trees, each root one workload.

    Raises:
        InputError: a group's parent is missing, or a tree is none that Covey plans.
    """
    if not parts.groups:
        if parts.pods:
            warnings.append(f"{len(parts.pods)} pods belong to no group in the input; they are left out")
        return []
    parts.groups = {
        identity: (document, _with_upstream_basic(parts, document, group), number)
        for identity, (document, group, number) in parts.groups.items()
    }
    root_of = {identity: _root(parts, identity) for identity in parts.groups}
    members = _members(parts, cluster_pods, warnings)
    workloads = []
    for identity in (identity for identity, root in root_of.items() if root == identity):
        below = [parts.groups[member][1] for member, root in root_of.items() if root == identity]
        workloads.append(_workload(parts, identity, below, members, warnings))
    return workloads


def _namespace(document: Document, namespace: str) -> str:
    return str((document.body.get("metadata") or {}).get("namespace") or namespace)


def _group(document: Document, namespace: str) -> core.Group:
    if not document.name:
        raise InputError(document.place.at("metadata.name"), "is missing", "give the group a name")
    if document.group == SCHEDULING_GROUP:
        validate(model_of_struct(CompositePodGroup if document.kind == "CompositePodGroup" else PodGroup), document)
    group = document.read(core.Group)
    policy = group.spec.scheduling_policy
    count = policy.gang and (
        policy.gang.min_group_count if group.kind == "CompositePodGroup" else policy.gang.min_count
    )
    if (policy.gang is None) == (policy.basic is None):
        raise InputError(document.place.at("spec.schedulingPolicy"), "needs exactly one of gang and basic", "set one")
    if policy.gang is not None and (count or 0) < 1:
        name = "minGroupCount" if group.kind == "CompositePodGroup" else "minCount"
        raise InputError(document.place.at(f"spec.schedulingPolicy.gang.{name}"), "is missing or below 1", "set it")
    meta = group.metadata
    place = meta.namespace or namespace
    uid = meta.uid or stand_in(group.kind, place, meta.name)
    return msgspec.structs.replace(group, metadata=msgspec.structs.replace(meta, namespace=place, uid=uid))


def _with_upstream_basic(parts: TreeDocuments, document: Document, group: core.Group) -> core.Group:
    """Return the group; one of upstream's whose policy is ``basic``, below another, as a gang of one.

    Upstream's scheduler takes ``basic`` for a minimum of 1. Covey's own trees mean "outside the gang" by it.
    """
    spec, meta = group.spec, group.metadata
    is_composite = group.kind == "CompositePodGroup"
    above = parts.groups.get(("CompositePodGroup", meta.namespace, spec.parent_composite_pod_group_name or ""))
    if document.group != UPSTREAM_GROUP or spec.scheduling_policy.gang is not None or above is None:
        return group
    if not is_composite and (above[1].spec.scheduling_policy.gang or not above[1].spec.parent_composite_pod_group_name):
        return group
    gang = core.GangPolicy(min_group_count=1) if is_composite else core.GangPolicy(min_count=1)
    return msgspec.structs.replace(
        group, spec=msgspec.structs.replace(spec, scheduling_policy=core.SchedulingPolicy(gang))
    )


def _root(parts: TreeDocuments, identity: tuple[str, str, str]) -> tuple[str, str, str]:
    current = identity
    for _ in range(_DEEPEST):
        document, group, _number = parts.groups[current]
        parent = group.spec.parent_composite_pod_group_name
        if not parent:
            return current
        above = ("CompositePodGroup", group.metadata.namespace, parent)
        if above not in parts.groups:
            place = document.place.at("spec.parentCompositePodGroupName")
            raise InputError(place, f"there is no CompositePodGroup {parent}", "give the whole tree")
        current = above
    place = parts.groups[identity][0].place.at("spec.parentCompositePodGroupName")
    raise InputError(place, f"the tree is deeper than {_DEEPEST} levels, or a circle", "correct the parents")


def _members(
    parts: TreeDocuments, cluster_pods: Iterable[core.Pod], warnings: list[str]
) -> dict[Key, list[tuple[core.Pod, core.Group]]]:
    """Pods by the key of their PodGroup. A pod that the cluster has counts as the cluster has it."""
    of_root: dict[Key, list[tuple[core.Pod, core.Group]]] = {}
    strangers = 0
    known = dict(parts.pods)
    known.update({pod.metadata.key: pod for pod in cluster_pods if _leaf(pod) or pod.metadata.key in known})
    for key, pod in known.items():
        leaf = _leaf(pod)
        entry = parts.groups.get(("PodGroup", pod.metadata.namespace, leaf)) if leaf else None
        if entry is None or _foreign(pod, entry[1]):
            strangers += key in parts.pods
            continue
        of_root.setdefault(entry[1].metadata.key, []).append((pod, entry[1]))
    if strangers:
        warnings.append(f"{strangers} pods belong to no group in the input; they are left out")
    return of_root


def _leaf(pod: core.Pod) -> str | None:
    """Return the name of the PodGroup that a pod names, our way or upstream's."""
    upstream = (pod.spec.scheduling_group or {}).get("podGroupName")
    return pod.metadata.label(LABEL_POD_GROUP) or (str(upstream) if upstream else None)


def _foreign(pod: core.Pod, group: core.Group) -> bool:
    """Tell whether both have a controlling owner, and not the same one."""
    mine, theirs = pod.metadata.controller, group.metadata.controller
    return bool(mine and theirs and mine.uid and theirs.uid and mine.uid != theirs.uid)


def _workload(
    parts: TreeDocuments,
    identity: tuple[str, str, str],
    groups: Sequence[core.Group],
    members: Mapping[Key, Sequence[tuple[core.Pod, core.Group]]],
    warnings: list[str],
) -> PlannedWorkload:
    document, root, number = parts.groups[identity]
    reference = root.spec.workload_ref
    above = parts.workloads.get((root.metadata.namespace, reference.workload_name)) if reference else None
    made = str(((above.body if above else {}).get("metadata") or {}).get("creationTimestamp") or "")
    created = age(root.metadata.creation_timestamp or made, number)
    owned = [_owned(group, root, created) for group in groups]
    pods: dict[str, core.Pod] = {}
    leaf_of: dict[str, str] = {}
    for group in groups:
        for pod, leaf in members.get(group.metadata.key, ()) if group.kind == "PodGroup" else ():
            member = _member(pod, leaf, root.metadata.owner_references)
            pods[member.metadata.uid] = member
            leaf_of[member.metadata.uid] = leaf.metadata.name
    declared = _declared_order(above)
    (unit,) = build_units(owned, pods.values(), leaf_of, declared)
    if unit.problem:
        raise InputError(document.place.at("spec"), unit.problem, "correct the tree")
    warnings.extend(_left_out(unit, pods))
    constraints = root.spec.scheduling_constraints
    return PlannedWorkload(
        document.place,
        root.metadata.namespace,
        root.metadata.name,
        created,
        (unit,),
        pods,
        constraints.topology_name if constraints else None,
        tuple(mention for group in groups for mention in _mentions(parts, group)),
        root.spec.priority_class_name,
        root.spec.priority,
        resource=(str(document.body["apiVersion"]), root.kind),
        made_for=(reference.workload_name if reference else "") or None,
        is_counted=document.group == SCHEDULING_GROUP,
    )


def _owned(group: core.Group, root: core.Group, created: str) -> core.Group:
    """Return the group with the owners of its root, and the root with its age.

    That the members belong together is settled already, and pods may lack what groups have.
    """
    meta = msgspec.structs.replace(group.metadata, owner_references=root.metadata.owner_references)
    if group is root:
        meta = msgspec.structs.replace(meta, creation_timestamp=created)
    return msgspec.structs.replace(group, metadata=meta)


def _member(pod: core.Pod, leaf: core.Group, owners: tuple[core.OwnerReference, ...]) -> core.Pod:
    """Return a pod as one of ours would be: labelled, owned as its groups are, and gated while it has no place."""
    meta, spec = pod.metadata, pod.spec
    labels = {**(meta.labels or {}), LABEL_POD_GROUP: leaf.metadata.name}
    meta = msgspec.structs.replace(meta, labels=labels, owner_references=owners)
    gates = spec.scheduling_gates or ()
    if podstate.holding(pod) is None and not podstate.is_gated(pod):
        spec = msgspec.structs.replace(spec, scheduling_gates=(*gates, core.SchedulingGate(GATE_GANG)))
    return msgspec.structs.replace(pod, metadata=meta, spec=spec)


def _declared_order(workload: Document | None) -> dict[str, int]:
    """The declared order of a Workload's templates.

    Raises:
        InputError: its spec is no tree of templates.
    """
    if workload is None:
        return {}
    try:
        return positions(msgspec.convert(workload.body.get("spec") or {}, WorkloadTemplate))
    except msgspec.ValidationError as error:
        raise InputError(workload.place.at("spec"), str(error), "a Workload is a tree of templates") from error


def _left_out(unit: Unit, pods: Mapping[str, core.Pod]) -> Iterator[str]:
    """Pods that count for nothing in the plan: beyond their replica's size, ended, or being deleted."""
    planned = {pod.metadata.uid for pod in unit.pods()}
    extra = [pod.metadata.name for uid, pod in pods.items() if uid not in planned]
    title = f"{unit.root.metadata.namespace}/{unit.root.metadata.name}"
    if extra:
        yield f"{title}: {len(extra)} pods (such as {extra[0]}) are not counted: beyond their group's size, or ended"


def _mentions(parts: TreeDocuments, group: core.Group) -> Iterator[Mention]:
    document = parts.groups[group.kind, *group.metadata.key][0]
    constraints = group.spec.scheduling_constraints
    if constraints is None:
        return
    place: ManifestPath = document.place.at("spec.schedulingConstraints")
    for number, constraint in enumerate(constraints.topology or ()):
        if constraint.level:
            yield Mention(place.at(f"topology[{number}].level"), constraint.level)
        elif constraint.key:
            yield Mention(place.at(f"topology[{number}].key"), key=constraint.key)
        else:
            raise InputError(place.at(f"topology[{number}]"), "has neither level nor key", "name one")
    for number, rule in enumerate(constraints.proximity or ()):
        yield Mention(place.at(f"proximity[{number}].level"), rule.level)
    if constraints.spread:
        yield Mention(place.at("spread.level"), constraints.spread.level)
