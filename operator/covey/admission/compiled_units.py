"""Resources as units, before they have groups of Covey's own, or without them: pure.

Groups are those that the compiler gives; pods are put in their places, whatever names and labels they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from covey.admission.tree import Unit, build_unit
from covey.api import core
from covey.compile import Slot, Tree
from covey.compile.group_hierarchy import role_template

_GROUPS = ("CompositePodGroup", "PodGroup")


def compiled_units(
    tree: Tree, pods: Mapping[Slot, core.Pod], roles: Iterable[str], created: str = ""
) -> tuple[tuple[Unit, ...], dict[str, core.Pod]]:
    """The units of a resource, and their pods by UID as they stand in them.

    Args:
        tree: with groups of Covey's own.
        pods: by place; places without one stay empty.
        roles: in the order in which they are declared.
        created: RFC 3339, or whatever orders by age.
    """
    owner = msgspec.convert(tree.owner.reference(), core.OwnerReference)
    groups = [
        _with_identity(msgspec.convert(body, core.Group), created)
        for level in tree.levels
        for body in level.objects
        if body["kind"] in _GROUPS
    ]
    members: dict[str, core.Pod] = {}
    leaf_of: dict[str, str] = {}
    for slot in tree.slots:
        pod = pods.get(slot)
        if pod is not None:
            members[pod.metadata.uid] = _with_owner(pod, owner, tree.pods.labels(slot))
            leaf_of[pod.metadata.uid] = tree.pods.anchor(slot)[1]
    declared = {role_template(name): position for position, name in enumerate(roles)}
    return tuple(build_units(groups, members.values(), leaf_of, declared)), members


def build_units(
    groups: Iterable[core.Group], pods: Iterable[core.Pod], leaf_of: Mapping[str, str], declared: Mapping[str, int]
) -> Iterator[Unit]:
    """The units of some groups, in order of their roots.

    Args:
        groups: all of one namespace and owner.
        pods: members.
        leaf_of: pod UID → name of its PodGroup.
        declared: template name → position, as the scheduler orders roles.
    """
    children: dict[str, list[core.Group]] = {}
    roots: list[core.Group] = []
    for group in groups:
        parent = group.spec.parent_composite_pod_group_name
        if parent:
            children.setdefault(parent, []).append(group)
        else:
            roots.append(group)
    members: dict[str, list[core.Pod]] = {}
    for pod in pods:
        members.setdefault(leaf_of[pod.metadata.uid], []).append(pod)
    for root in roots:
        yield build_unit(
            root,
            lambda group: children.get(group.metadata.name, []) if group.kind == "CompositePodGroup" else [],
            lambda group: members.get(group.metadata.name, []),
            declared,
        )


def stand_in(*parts: object) -> str:
    """An identity for an object that has no UID, because no API server has seen it."""
    return "/".join(("offline", *map(str, parts)))


def _with_identity(group: core.Group, created: str) -> core.Group:
    meta = group.metadata
    uid = stand_in(group.kind, meta.namespace, meta.name)
    meta = msgspec.structs.replace(meta, uid=uid, creation_timestamp=created)
    return msgspec.structs.replace(group, metadata=meta)


def _with_owner(pod: core.Pod, owner: core.OwnerReference, labels: Mapping[str, str]) -> core.Pod:
    """Give a pod the owner and labels of its place, also where it was trimmed of them or has another backend's."""
    meta = pod.metadata
    meta = msgspec.structs.replace(meta, owner_references=(owner,), labels={**(meta.labels or {}), **labels})
    return msgspec.structs.replace(pod, metadata=meta)
