"""Groups and pods as a tree of nodes, of any shape up to the API's depth, and the capacity that a pod takes: pure.

A node is a group with what hangs under it: a PodGroup with its pods (a *leaf*), or a CompositePodGroup with its child
groups. What a policy means is the API's (Kubernetes 1.37, ``scheduling.k8s.io``): a leaf with ``gang`` is satisfied by
``minCount`` of its pods, a composite by ``minGroupCount`` of its children; ``basic`` is satisfied by nothing.

Only pods that can stand for their place are in the tree: members by label, namespace and controlling owner, not
ended, not being deleted, not released; one for each place, and a bound one before any other.

While a pod is resized in place, kube-scheduler counts the largest of what is asked for, what the kubelet has set aside,
and what runs; a resize that the kubelet calls infeasible is not counted (``PodRequests`` of
``k8s.io/component-helpers`` with ``UseStatusResources``). Before 1.37 it did so container by container, now it compares
the sums; Covey does the former, which is never less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec.structs import replace

from covey.api import core
from covey.api.constants import LABEL_INDEX, LABEL_REPLICA, LABEL_ROLE
from covey.model import podstate
from covey.placement.cluster.resources import Quantity, amount
from covey.placement.model import NaturalOrder, natural


def counted_spec(pod: core.Pod) -> core.PodSpec:
    """The pod's spec with the requests that count; the spec itself unless a resize is under way."""
    spec = pod.spec
    if pod.status.container_statuses is None and pod.status.init_container_statuses is None:
        return spec
    pending = core.condition(pod.status.conditions, "PodResizePending")
    infeasible = pending is not None and pending.reason == "Infeasible"

    def counted_container(container: core.Container) -> core.Container:
        status = core.container_status(pod, container.name)
        if status is None:
            return container
        resources = container.resources or core.Resources()
        running = status.resources.requests if status.resources else None
        held = [each for each in (running, status.allocated_resources) if each is not None]
        if not held:
            return container
        asked = [] if infeasible else [resources.requests or {}]
        return replace(container, resources=replace(resources, requests=_largest([*asked, *held])))

    starting = None if spec.init_containers is None else tuple(map(counted_container, spec.init_containers))
    return replace(spec, containers=tuple(map(counted_container, spec.containers)), init_containers=starting)


def _largest(lists: list[Mapping[str, Quantity]]) -> dict[str, Quantity]:
    found: dict[str, Quantity] = {}
    for each in lists:
        for name, quantity in each.items():
            if name not in found or amount(name, quantity) > amount(name, found[name]):
                found[name] = quantity
    return found


#: Groups from a root down to a leaf, both counted (upstream's limit, and ours).
MAX_DEPTH: Final = 4

Accepted = Callable[[core.Pod], bool]


class Key(NamedTuple):
    """A group. Its kind belongs to it: a PodGroup and a CompositePodGroup may have the same name."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A group with what exists under it. ``pods`` are those that can stand for a place, in no order."""

    group: core.Group
    children: tuple[TreeNode, ...] = ()
    pods: tuple[core.Pod, ...] = ()

    @property
    def leaf(self) -> bool:
        """True for a PodGroup: it has pods, and no groups."""
        return self.group.kind == "PodGroup"

    @property
    def count(self) -> int:
        """``minCount`` or ``minGroupCount``; 0 for ``basic``."""
        return minimum_of(self.group)

    @property
    def gangs(self) -> tuple[TreeNode, ...]:
        """The children that can satisfy it."""
        return tuple(child for child in self.children if child.count)

    @property
    def confined(self) -> bool:
        """All that is under it must, or should, share a domain."""
        constraints = self.group.spec.scheduling_constraints
        return any(each.scope == "Group" for each in (constraints.topology or ())) if constraints else False

    @property
    def follows(self) -> bool:
        """True for a group that lies in its unit's domain."""
        constraints = self.group.spec.scheduling_constraints
        return constraints is None or constraints.follow_unit is not False

    def walk(self) -> Iterator[TreeNode]:
        """Yield the node and all below, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def is_satisfied(self, accepted: Accepted) -> bool:
        """Its minimum holds when only the pods that are accepted are counted; never for ``basic``."""
        return 0 < self.count <= self.count_met(accepted)

    def count_met(self, accepted: Accepted) -> int:
        """Count its accepted pods, or its satisfied children."""
        if self.leaf:
            return sum(map(accepted, self.pods))
        return sum(child.is_satisfied(accepted) for child in self.children)


def grow(
    root: core.Group,
    children: Callable[[core.Group], Sequence[core.Group]],
    pods: Callable[[core.Group], Iterable[core.Pod]],
    declared: Mapping[str, int],
    depth: int = 1,
) -> TreeNode:
    """The tree under a group, as deep as trees may be.

    Args:
        root: the group.
        children: the groups whose parent a composite group is.
        pods: the pods that carry a PodGroup's label, members or not.
        declared: template name → position in the Workload, which orders children; without it names do.
        depth: of the group, 1 for a root.
    """
    if root.kind == "PodGroup":
        members = [pod for pod in podstate.members(root, pods(root)) if podstate.counts(pod)]
        return TreeNode(root, pods=tuple(_one_for_each_place(_expected_members(root, members))))
    below = sorted(children(root), key=lambda group: _order(group, declared)) if depth < MAX_DEPTH else ()
    return TreeNode(root, tuple(grow(group, children, pods, declared, depth + 1) for group in below))


def _expected_members(group: core.Group, pods: list[core.Pod]) -> list[core.Pod]:
    """Members of a group that anybody's pods may join, no more than it wants: all that have a place, then the oldest."""
    most = group.spec.desired_count
    if group.spec.membership != "Namespace" or most is None or len(pods) <= most:
        return pods
    return sorted(pods, key=rank)[: max(most, sum(map(podstate.is_placed, pods)))]


def _one_for_each_place(pods: Iterable[core.Pod]) -> Iterator[core.Pod]:
    """The best of pods that our operator has numbered alike, and all others."""
    best: dict[tuple[str | None, str | None], core.Pod] = {}
    for pod in pods:
        place = (pod.metadata.label(LABEL_REPLICA), pod.metadata.label(LABEL_INDEX))
        if place == (None, None):
            yield pod
        elif place not in best or rank(pod) < rank(best[place]):
            best[place] = pod
    yield from best.values()


def places(node: TreeNode, label: str) -> list[tuple[int, core.Pod]]:
    """One pod of a leaf for each value of the label, by that number; pods without it follow by name."""
    best: dict[int, core.Pod] = {}
    unnumbered: list[core.Pod] = []
    for pod in node.pods:
        place = number(pod.metadata.label(label), -1)
        if place < 0:
            unnumbered.append(pod)
        elif place not in best or rank(pod) < rank(best[place]):
            best[place] = pod
    after = max(best, default=-1) + 1
    unnumbered.sort(key=lambda pod: natural(pod.metadata.name))
    return [*sorted(best.items()), *enumerate(unnumbered, start=after)]


def rank(pod: core.Pod) -> tuple[int, str, str]:
    """Bound before pinned before gated before what somebody else let go, then the older."""
    return (_state(pod), pod.metadata.creation_timestamp, pod.metadata.uid)


def gang_of(node: TreeNode) -> tuple[list[core.Pod], list[core.Pod]]:
    """The pods of a leaf that count as its minimum, and its surplus: bound ones first, then the lowest index.

    Pods that are numbered by our label are counted by it: beyond the minimum there is no place for them.
    """
    found = places(node, LABEL_INDEX)
    if len(found) <= node.count:
        return [pod for _, pod in found], []
    if any(pod.metadata.label(LABEL_INDEX) is not None for _, pod in found):
        return [pod for _, pod in found[: node.count]], []
    chosen = {place for place, _ in sorted(found, key=lambda each: (_state(each[1]), each[0]))[: node.count]}
    return [pod for place, pod in found if place in chosen], [pod for place, pod in found if place not in chosen]


def split_by_minimum(node: TreeNode) -> tuple[list[TreeNode], list[TreeNode]]:
    """The children of a composite gang that count as its minimum, and the others.

    First those that exist whole; of them those with all places they need, then those with some, then by their order.
    """
    least = {id(child) for child in sorted(node.gangs, key=_progress)[: node.count]}
    gangs = [(id(child) in least, child) for child in node.gangs]
    return [child for taken, child in gangs if taken], [child for taken, child in gangs if not taken]


def number(text: str | None, default: int = 0) -> int:
    """A label's value as a number."""
    return int(text) if text is not None and text.isdecimal() else default


def minimum_of(group: core.Group) -> int:
    """``minCount`` or ``minGroupCount``; 0 for a group outside the gang (``basic``)."""
    gang = group.spec.scheduling_policy.gang
    if gang is None:
        return 0
    count = gang.min_group_count if group.kind == "CompositePodGroup" else gang.min_count
    return count or 0


def role_name(group: core.Group) -> str:
    """The role's label; a tree that is not from our operator is named by its groups."""
    return group.metadata.label(LABEL_ROLE) or group.metadata.name


def levels_of(group: core.Group) -> tuple[tuple[str | None, str | None, str], ...]:
    """The levels, keys and modes that a group names."""
    constraints = group.spec.scheduling_constraints
    return tuple((each.level, each.key, each.mode) for each in (constraints.topology or ())) if constraints else ()


def prefers(group: core.Group) -> bool:
    """Tell whether a group prefers a level."""
    return any(mode == "Preferred" for _, _, mode in levels_of(group))


def replica_number(node: TreeNode) -> int | None:
    """The number that our operator gave to a replica's group."""
    label = node.group.metadata.label(LABEL_REPLICA)
    return None if label is None else number(label)


def key_of(group: core.Group) -> Key:
    """A group's key."""
    return Key(group.kind, group.metadata.namespace, group.metadata.name)


def _order(group: core.Group, declared: Mapping[str, int]) -> tuple[int, NaturalOrder, str]:
    reference = group.spec.workload_ref
    position = declared.get(reference.template_name, len(declared)) if reference else len(declared)
    return (position, natural(group.metadata.name), group.kind)


def _state(pod: core.Pod) -> int:
    return 0 if podstate.occupies_node(pod) else 1 if podstate.pinned_node(pod) else 2 if podstate.is_gated(pod) else 3


def _progress(node: TreeNode) -> tuple[bool, int]:
    """A sort key, the distance of a child from what it needs: all exists or not; all bound, all with their places, some, none."""
    absent = not node.is_satisfied(lambda _pod: True)
    if node.is_satisfied(podstate.occupies_node):
        return absent, 0
    if node.is_satisfied(_is_placed):
        return absent, 1
    return absent, 2 if any(_is_placed(pod) for each in node.walk() for pod in each.pods) else 3


def _is_placed(pod: core.Pod) -> bool:
    return podstate.occupies_node(pod) or podstate.pinned_node(pod) is not None
