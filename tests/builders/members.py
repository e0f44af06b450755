"""Objects as the watches deliver them, for the unit tests of the scheduler process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from builders.pods import pod_body
from covey.admission.nodes import Key
from covey.admission.tree import Unit, build_unit
from covey.admission.volumes import PersistentVolume, VolumeClaim
from covey.api import core
from covey.kube.clock import SYSTEM
from covey.scheduler.cache import Cache

GATE = "scheduling.covey.dev/gang"
START = "scheduling.covey.dev/start"
RELEASE = "scheduling.covey.dev/release"
PINNED = "scheduling.covey.dev/pinned"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OWNER = {"apiVersion": "v1", "kind": "Thing", "name": "owner", "uid": "owner", "controller": True}
Json = dict[str, Any]


def decode_pod(body: Mapping[str, Any]) -> core.Pod:
    return msgspec.convert(body, core.Pod)


def pin_terms(node: str) -> Json:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}}}


def pod(
    name: str = "pod",
    *,
    group: str | None = None,
    role: str = "",
    replica: int | None = None,
    index: int | None = None,
    gates: Sequence[str] = (),
    pin: str | None = None,
    node: str | None = None,
    uid: str | None = None,
    gpus: int = 1,
    phase: str = "Pending",
    deleted: bool = False,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    owner: Mapping[str, Any] | None = OWNER,
    created: str = "2026-01-01T00:00:00Z",
    conditions: Sequence[Mapping[str, str]] = (),
    spec: Mapping[str, Any] | None = None,
) -> core.Pod:
    """A pod; with ``group`` it claims to be a member, and with ``pin`` too it carries the mark of our own pins."""
    marks = dict(labels or {})
    notes = dict(annotations or {})
    if group and pin:
        notes = {PINNED: uid or f"uid-{name}"} | notes
    for key, value in (("role", role or None), ("replica", replica), ("index", index)):
        if value is not None:
            marks[f"covey.dev/{key}"] = str(value)
    if group:
        marks["scheduling.covey.dev/pod-group"] = group
    amounts = {"cpu": "100m"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    owners = [dict(owner)] if owner and group else []
    body = pod_body(
        name,
        uid=uid,
        labels=marks,
        annotations=notes,
        node=node,
        spec={
            "schedulerName": "covey-scheduler",
            "schedulingGates": [{"name": gate} for gate in gates],
            "containers": [{"name": "main", "resources": {"requests": amounts}}],
            **({"affinity": pin_terms(pin)} if pin else {}),
            **dict(spec or {}),
        },
        status={"phase": phase, "conditions": list(conditions)},
        creationTimestamp=created,
        ownerReferences=owners,
        **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}),
    )
    return decode_pod(body)


def node(
    name: str,
    *,
    gpus: int = 8,
    ready: bool = True,
    labels: Mapping[str, str] | None = None,
    created: str = "2026-01-01T00:00:00Z",
    **spec: Any,
) -> core.Node:
    """A node."""
    metadata = {"name": name, "uid": f"uid-{name}", "labels": dict(labels or {}), "creationTimestamp": created}
    body = {
        "metadata": metadata,
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }
    return msgspec.convert(body, core.Node)


def group(
    name: str,
    *,
    composite: bool = False,
    parent: str | None = None,
    minimum: int | None = None,
    desired: int | None = None,
    labels: Mapping[str, str] | None = None,
    constraints: Mapping[str, Any] | None = None,
    owner: Mapping[str, Any] = OWNER,
    status: Mapping[str, Any] | None = None,
    created: str = "2026-01-01T00:00:00Z",
    **spec: Any,
) -> core.Group:
    """A PodGroup or, with ``composite``, a CompositePodGroup; without a minimum it is outside the gang."""
    counted, wanted = ("minGroupCount", "desiredGroupCount") if composite else ("minCount", "desiredCount")
    body: Json = {
        "apiVersion": "scheduling.covey.dev/v1alpha1",
        "kind": "CompositePodGroup" if composite else "PodGroup",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "creationTimestamp": created,
            "labels": dict(labels or {}),
            "ownerReferences": [dict(owner)],
        },
        "spec": {
            "schedulingPolicy": {"gang": {counted: minimum}} if minimum else {"basic": {}},
            "schedulingConstraints": dict(constraints or {}),
            **({"parentCompositePodGroupName": parent} if parent else {}),
            **({wanted: desired} if desired is not None else {}),
            **spec,
        },
        "status": dict(status or {}),
    }
    return msgspec.convert(body, core.Group)


def root_key(name: str, *, composite: bool = True) -> Key:
    """The key of a root."""
    return Key("CompositePodGroup" if composite else "PodGroup", "ns", name)


def role_groups(name: str, *, replicas: int, minimum: int, size: int, root: str = "root") -> list[core.Group]:
    """The groups of one role, as the operator makes them."""
    labels = {"covey.dev/role": name}
    top = f"{root}-{name}"
    if size == 1:
        return [group(top, parent=root, minimum=minimum, desired=replicas, labels=labels)]
    found = [group(top, composite=True, parent=root, minimum=minimum, desired=replicas, labels=labels)]
    for replica in range(replicas):
        marks = labels | {"covey.dev/replica": str(replica)}
        found.append(group(f"{top}-{replica}", parent=top, minimum=size, desired=size, labels=marks))
    return found


def member(role: str, replica: int, index: int = 0, *, size: int = 1, root: str = "root", **state: Any) -> core.Pod:
    """A pod of such a role."""
    leaf = f"{root}-{role}" + (f"-{replica}" if size > 1 else "")
    name = state.pop("name", f"{root}-{role}-{replica}-{index}")
    return pod(name, group=leaf, role=role, replica=replica, index=index, **state)


def unit(root: core.Group, groups: Sequence[core.Group], pods: Sequence[core.Pod]) -> Unit:
    """The unit of these objects."""
    return build_unit(
        root,
        lambda parent: [g for g in groups if g.spec.parent_composite_pod_group_name == parent.metadata.name],
        lambda leaf: [p for p in pods if p.metadata.label("scheduling.covey.dev/pod-group") == leaf.metadata.name],
    )


Seen = (
    core.Node | core.Group | core.Pod | core.Queue | core.Namespace | PersistentVolume | VolumeClaim | core.Preemption
)


def queue(name: str, nominal: int = 8, resource: str = "nvidia.com/gpu", **spec: Any) -> core.Queue:
    """A Queue of one resource, which selects every namespace unless it is told otherwise."""
    amounts: dict[str, Any] = {key: spec.pop(key) for key in ("borrow", "lend") if key in spec}
    flavors = spec.pop("flavors", [{"resources": [{"name": resource, "nominal": nominal, **amounts}]}])
    body: Json = {"metadata": {"name": name}, "spec": {"namespaces": {"selector": {}}, "flavors": flavors, **spec}}
    return msgspec.convert(body, core.Queue)


def cache(*objects: Seen) -> Cache:
    """A cache that was told of these objects; it has no API server behind it."""
    made = Cache(None, clock=SYSTEM)  # type: ignore[arg-type] # nothing is watched
    for each in objects:
        put(made, each)
    return made


def put(made: Cache, each: Seen, previous_group: core.Group | None = None) -> None:
    """Tell a cache of an object, as its watch would; for a group the test says what it was before."""
    if isinstance(each, core.Queue):
        before = made.queues.store.get(each.metadata.key)
        made.queues.store[each.metadata.key] = each
        made._on_queue("MODIFIED" if before else "ADDED", each, before)
    elif isinstance(each, core.Namespace):
        known = made.namespaces.store.get(each.metadata.key)
        made.namespaces.store[each.metadata.key] = each
        made._on_namespace("MODIFIED" if known else "ADDED", each, known)
    elif isinstance(each, core.Node):
        made.nodes.store[each.metadata.key] = each
        made._on_node("ADDED", each, None)
    elif isinstance(each, core.Group):
        if each.spec.priority is not None:  # a test's priority is one of a class, as those of a cluster are
            name = f"priority-{each.spec.priority}"
            made.priority_classes.store[("", name)] = core.PriorityClass(core.Meta(name=name), value=each.spec.priority)
            each = replace(each, spec=replace(each.spec, priority_class_name=name))
        made._on_group("MODIFIED" if previous_group else "ADDED", each, previous_group)
    elif isinstance(each, PersistentVolume):
        made._on_volume("ADDED", each, None)
    elif isinstance(each, VolumeClaim):
        made._on_claim("ADDED", each, None)
    elif isinstance(each, core.Preemption):
        (preemptions,) = made.preemptions
        for change in preemptions._objects.update(each):
            preemptions._announce(change)
    else:
        previous = made.pods.store.get(each.metadata.key)
        if previous is not None and previous.metadata.uid != each.metadata.uid:  # as the reflector's store tells it
            drop(made, previous)
            previous = None
        made.pods.store[each.metadata.key] = each
        made._on_pod("MODIFIED" if previous else "ADDED", each, previous)


def drop(made: Cache, each: Seen) -> None:
    """Tell a cache that an object is gone."""
    if isinstance(each, core.Queue):
        del made.queues.store[each.metadata.key]
        made._on_queue("DELETED", each, None)
    elif isinstance(each, core.Namespace):
        del made.namespaces.store[each.metadata.key]
        made._on_namespace("DELETED", each, None)
    elif isinstance(each, core.Node):
        del made.nodes.store[each.metadata.key]
        made._on_node("DELETED", each, None)
    elif isinstance(each, core.Group):
        made._on_group("DELETED", each, None)
    elif isinstance(each, PersistentVolume):
        made._on_volume("DELETED", each, None)
    elif isinstance(each, VolumeClaim):
        made._on_claim("DELETED", each, None)
    elif isinstance(each, core.Preemption):
        (preemptions,) = made.preemptions
        for change in preemptions._objects.drop(each):
            preemptions._announce(change)
    else:
        del made.pods.store[each.metadata.key]
        made._on_pod("DELETED", each, None)
