"""The index of groups and pods by unit, kept up to date event by event.

Derived from the watched objects alone: a PodGroup's pods by their label, a group's children by the parent's name.
A unit is assembled (``tree``) when it is asked for and kept until something in it changes. Order of arrival does not
matter: what hangs under a parent that is not there yet belongs to no unit until it is. A group whose parents lead to no
root, since they are a circle or too many, is a unit by itself that cannot be planned: its status has the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Final

from covey.admission.expected import ExpectedPod, is_of_job
from covey.admission.native import adapt_children, adapt_root
from covey.admission.nodes import MAX_DEPTH, Key, key_of
from covey.admission.tree import Unit, build_unit
from covey.api import core
from covey.api.constants import LABEL_POD_GROUP
from covey.model import podstate

#: Groups above another one that are looked at to find a circle.
_MOST_PARENTS: Final = 8

#: Namespace and name of a Workload, of a parent (a CompositePodGroup), or of a pod's PodGroup.
Name = tuple[str, str]


class Index:
    """Units by the key of their root."""

    def __init__(self) -> None:
        self._groups: dict[Key, core.Group] = {}
        self._children: dict[Name, set[Key]] = {}
        self._pods: dict[Name, dict[str, core.Pod]] = {}
        self._by_uid: dict[str, core.Pod] = {}
        #: Pods that do not exist yet, by UID; they are members of units and nothing else.
        self._expected: dict[Name, Mapping[str, ExpectedPod]] = {}
        self._expected_by_uid: dict[str, ExpectedPod] = {}
        #: Those of them that are being deleted, or drain.
        self._ending: dict[str, core.Pod] = {}
        self._declared: dict[Name, dict[str, int]] = {}
        #: Workload → the roots that refer to it.
        self._of_workload: dict[Name, set[Key]] = {}
        self._roots: dict[Key, None] = {}
        #: UID of a controller → the roots that it owns.
        self._of_owner: dict[str, set[Key]] = {}
        #: Groups whose parents lead to no root.
        self._lost: dict[Key, None] = {}
        self._units: dict[Key, Unit] = {}

    def set_group(self, group: core.Group) -> set[Key]:
        """Store a group. Returns the roots whose units it changed."""
        before = self._groups.get(key_of(group))
        changed = self._remove_group(group)
        self._groups[key_of(group)] = group
        if parent := _parent(group):
            self._children.setdefault(parent, set()).add(key_of(group))
        else:
            self._roots[key_of(group)] = None
            self._of_workload.setdefault(workload_key(group), set()).add(key_of(group))
            if owner := group.metadata.controller:
                self._of_owner.setdefault(owner.uid, set()).add(key_of(group))
        if before is None or _parent(before) != _parent(group) or not _same_owner(before, group):
            changed |= self._find_lost(group)
        return self._touch(changed, self.root_of(group))

    def remove_group(self, group: core.Group) -> set[Key]:
        """Forget a group. Returns the roots whose units it changed."""
        return self._remove_group(group) | self._find_lost(group)

    def _remove_group(self, group: core.Group) -> set[Key]:
        old = self._groups.get(key_of(group))
        if old is None:
            return set()
        changed = self._touch(set(), self.root_of(old))
        del self._groups[key_of(group)]
        if parent := _parent(old):
            siblings = self._children.get(parent, set())
            siblings.discard(key_of(group))
            if not siblings:
                self._children.pop(parent, None)
        else:
            self._roots.pop(key_of(old), None)
            roots = self._of_workload.get(workload_key(old), set())
            roots.discard(key_of(old))
            if not roots:
                self._of_workload.pop(workload_key(old), None)
            owner = old.metadata.controller
            siblings = self._of_owner.get(owner.uid, set()) if owner else set()
            siblings.discard(key_of(old))
            if owner and not siblings:
                self._of_owner.pop(owner.uid, None)
        return changed

    def set_pod(self, pod: core.Pod) -> set[Key]:
        """Store a pod. Returns the roots whose units it changed."""
        uid = pod.metadata.uid
        changed = self.remove_pod(uid)
        self._by_uid[uid] = pod
        if pod.metadata.deletion_timestamp is not None or podstate.drains_until(pod) is not None:
            self._ending[uid] = pod
        leaf = _leaf(pod)
        if leaf is not None:
            self._pods.setdefault(leaf, {})[uid] = pod
        return self._touch(changed, self._root_of_leaf(leaf))

    def remove_pod(self, uid: str) -> set[Key]:
        """Forget a pod. Returns the roots whose units it changed."""
        old = self._by_uid.pop(uid, None)
        self._ending.pop(uid, None)
        leaf = _leaf(old) if old else None
        if leaf is None:
            return set()
        members = self._pods.get(leaf, {})
        members.pop(uid, None)
        if not members:
            self._pods.pop(leaf, None)
        return self._touch(set(), self._root_of_leaf(leaf))

    def set_expected(self, group: core.Group, pods: Mapping[str, ExpectedPod]) -> set[Key]:
        """Store the pods, by UID, that a PodGroup expects. Returns the roots whose units it changed."""
        leaf = group.metadata.key
        for uid in self._expected.pop(leaf, {}):
            del self._expected_by_uid[uid]
        if pods:
            self._expected[leaf] = pods
            self._expected_by_uid.update(pods)
        return self._touch(set(), self.root_of(group))

    def set_declared(self, workload: Name, positions: Mapping[str, int]) -> set[Key]:
        """Store the order of a Workload's templates; empty forgets it. Returns the roots that refer to the Workload."""
        roots = set(self._of_workload.get(workload, ()))
        if self._declared.get(workload, {}) != positions:
            if positions:
                self._declared[workload] = dict(positions)
            else:
                del self._declared[workload]
            for root in roots:
                self._units.pop(root, None)
        return roots

    def unit(self, root: Key) -> Unit | None:
        """The unit under a root, if the root exists and has no parent, or parents that lead to no root."""
        if root in self._units:
            return self._units[root]
        group = self._root(root)
        if group is None:
            return None
        if isinstance(group, core.NativeGroup) or is_of_job(group):
            group = adapt_root(group, self._pods_of(group))
        children = self._children_of if root not in self._lost else lambda _: []
        unit = build_unit(group, children, self._pods_of, self._declared.get(workload_key(group)))
        if root in self._lost:
            unit = replace(unit, problem=self._describe_lost(group))
        self._units[root] = unit
        return unit

    def root(self, key: Key) -> core.Group | None:
        """A group that has no parent, or whose parents lead to no root."""
        return self._root(key)

    def group(self, like: core.Group) -> core.Group | None:
        """The group of the same kind and name as it was stored last."""
        return self._groups.get(key_of(like))

    def roots(self) -> list[Key]:
        """The keys of all roots, and of groups whose parents lead to none."""
        return [*self._roots, *self._lost]

    def roots_of(self, owner: str) -> list[Key]:
        """The keys of the roots that a controller owns, by its UID."""
        return sorted(self._of_owner.get(owner, ()))

    def groups(self, root: Key) -> list[core.Group]:
        """All groups of a unit, the root first."""
        group = self._root(root)
        found = [group] if group else []
        for parent in found:  # grows while it is walked: breadth first
            if parent.kind == "CompositePodGroup" and root not in self._lost:
                found.extend(self._children_of(parent))
        return found

    def members(self, root: Key) -> list[core.Pod]:
        """All pods that carry the label of a group of the unit, also those that no longer stand for a place."""
        return [pod for group in self.groups(root) if group.kind == "PodGroup" for pod in self._pods_of(group)]

    def pod(self, uid: str) -> core.Pod | None:
        """A pod by UID; not one that is only expected."""
        return self._by_uid.get(uid)

    def member(self, uid: str) -> core.Pod | None:
        """A pod by UID, or one that is expected."""
        return self._by_uid.get(uid) or self._expected_by_uid.get(uid)

    def expected(self, group: core.Group) -> Mapping[str, ExpectedPod]:
        """The pods that a PodGroup expects, by UID."""
        return self._expected.get(group.metadata.key, {})

    def pods(self) -> Iterable[core.Pod]:
        """Every pod of the cluster."""
        return self._by_uid.values()

    def ending(self) -> Iterable[core.Pod]:
        """Every pod that is being deleted or drains."""
        return self._ending.values()

    def leaf_of(self, pod: core.Pod) -> core.Group | None:
        """The PodGroup that a pod's label names, if it exists."""
        leaf = _leaf(pod)
        return self._groups.get(Key("PodGroup", *leaf)) if leaf else None

    def pinned_node(self, pod: core.Pod) -> str | None:
        """The node that an unbound member of an existing group is pinned to; a pod that only says so has no pin."""
        node = podstate.pinned_node(pod)
        leaf = self.leaf_of(pod) if node else None
        return node if leaf is not None and podstate.is_member(pod, leaf) else None

    def holding(self, pod: core.Pod) -> str | None:
        """The node whose capacity a pod holds now, if any."""
        if pod.spec.node_name is None and not core.is_terminal(pod):
            return self.pinned_node(pod)
        return podstate.holding(pod)

    def pins_below(self, group: core.Group) -> list[core.Pod]:
        """The unbound pods that say that they are pinned members of a PodGroup; the group need not exist."""
        if group.kind != "PodGroup":
            return []
        return [pod for pod in self._pods_of(group) if podstate.pinned_node(pod) is not None]

    def root_of_pod(self, pod: core.Pod) -> Key | None:
        """The root of the unit that a pod's label points into."""
        return self._root_of_leaf(_leaf(pod))

    def root_of(self, group: core.Group) -> Key | None:
        """The root above a group, itself where its parents lead to none; None while a parent is missing."""
        *_, top = islice(self._upwards(group), MAX_DEPTH + 1)
        if _parent(top) is None:
            return key_of(top)
        return key_of(group) if key_of(group) in self._lost else None

    def _root(self, root: Key) -> core.Group | None:
        group = self._groups.get(root)
        return group if group is not None and (_parent(group) is None or root in self._lost) else None

    def _upwards(self, group: core.Group) -> Iterator[core.Group]:
        """Yield a group and those above it, as far as they exist; in a circle for ever."""
        above: core.Group | None = group
        while above is not None:
            group = above
            yield group
            parent = _parent(group)
            above = self._groups.get(Key("CompositePodGroup", *parent)) if parent else None
            above = above if above is not None and _same_owner(above, group) else None

    def _find_lost(self, group: core.Group) -> set[Key]:
        """Find the groups that a group, which has come or gone, has cut off from any root, or that may have one again."""
        changed, pending = set[Key](), [group]
        while pending:
            group = pending.pop()
            key = key_of(group)
            stored = self._groups.get(key)
            # One that is a level too deep is told of by its root.
            is_lost = stored is not None and len([*islice(self._upwards(stored), MAX_DEPTH + 2)]) > MAX_DEPTH + 1
            if is_lost == (key in self._lost):
                continue
            if is_lost:
                self._lost[key] = None
            else:
                del self._lost[key]
            self._touch(changed, key)
            pending += islice(self._upwards(group), 1, 2)
            if group.kind == "CompositePodGroup":
                pending += map(self._groups.__getitem__, self._children.get(group.metadata.key, ()))
        return changed

    def _describe_lost(self, group: core.Group) -> str:
        names = [above.metadata.name for above in islice(self._upwards(group), 1 + _MOST_PARENTS)]
        again = next((number for number, name in enumerate(names) if name in names[:number]), None)
        if again is None:
            return f"group {group.metadata.name} is below the level {MAX_DEPTH}, where a tree ends"
        circle = " → ".join(names[names.index(names[again]) : again + 1])
        return (
            f"the parents of group {group.metadata.name} lead to no root, but in a circle ({circle}): make one of these"
            " groups anew, without spec.parentCompositePodGroupName or with another"
        )

    def _root_of_leaf(self, leaf: Name | None) -> Key | None:
        group = self._groups.get(Key("PodGroup", *leaf)) if leaf else None
        return self.root_of(group) if group else None

    def _children_of(self, group: core.Group) -> list[core.Group]:
        keys = self._children.get(group.metadata.key, ())
        found = [child for key in sorted(keys) if _same_owner(child := self._groups[key], group)]
        return adapt_children(group, found) if isinstance(group, core.NativeGroup) else found

    def existing(self, group: core.Group) -> Iterable[core.Pod]:
        """The pods that carry the label of a PodGroup."""
        return self._pods.get(group.metadata.key, {}).values()

    def _pods_of(self, group: core.Group) -> Iterable[core.Pod]:
        expected = self._expected.get(group.metadata.key)
        return chain(self.existing(group), expected.values()) if expected else self.existing(group)

    def _touch(self, changed: set[Key], root: Key | None) -> set[Key]:
        if root is not None:
            self._units.pop(root, None)
            changed.add(root)
        return changed


def workload_key(group: core.Group) -> Name:
    """Namespace and name of the Workload that a group refers to; the name is empty without one."""
    reference = group.spec.workload_ref
    return (group.metadata.namespace, reference.workload_name if reference else "")


def _parent(group: core.Group) -> Name | None:
    name = group.spec.parent_composite_pod_group_name
    return (group.metadata.namespace, name) if name else None


def _leaf(pod: core.Pod) -> Name | None:
    name = pod.metadata.label(LABEL_POD_GROUP)
    return (pod.metadata.namespace, name) if name else None


def _same_owner(one: core.Group, other: core.Group) -> bool:
    mine, theirs = one.metadata.controller, other.metadata.controller
    return (mine.uid if mine else None) == (theirs.uid if theirs else None)
