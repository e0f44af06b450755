"""Equal trees of groups and pods in two dialects: Kubernetes' own (``scheduling.k8s.io``) and Covey's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from covey.api.constants import (
    DEFAULT_SCHEDULER_NAME,
    GATE_GANG,
    LABEL_POD_GROUP,
    LABEL_REPLICA,
    LABEL_ROLE,
    LABEL_UNIT,
)
from covey.kube.client import Client
from covey.kube.resources import COMPOSITE_POD_GROUPS, POD_GROUPS, PODS, WORKLOADS, Resource

NAMESPACE: Final = "default"
KEYS: Final = {
    "rack": "cloud.provider.com/topology-rack",
    "block": "cloud.provider.com/topology-block",
    "zone": "topology.kubernetes.io/zone",
}
TREE_LABEL: Final = "tree"
_NATIVE: Final = "scheduling.k8s.io"
_CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")


@dataclass(frozen=True)
class Dialect:
    """Which API the groups belong to."""

    native: bool
    workloads: Resource
    composites: Resource
    pod_groups: Resource


NATIVE: Final = Dialect(
    native=True,
    workloads=Resource(_NATIVE, "v1beta1", "workloads", "Workload"),
    composites=Resource(_NATIVE, "v1alpha3", "compositepodgroups", "CompositePodGroup"),
    pod_groups=Resource(_NATIVE, "v1beta1", "podgroups", "PodGroup"),
)
COVEY: Final = Dialect(native=False, workloads=WORKLOADS, composites=COMPOSITE_POD_GROUPS, pod_groups=POD_GROUPS)


@dataclass(frozen=True)
class GroupSpec:
    """One PodGroup: ``pods`` of them, of which ``minimum`` must start, ``gpus`` each, sharing a level if one is named."""

    name: str
    pods: int
    gpus: int
    minimum: int | None = None
    level: str | None = None

    @property
    def min_count(self) -> int:
        return self.pods if self.minimum is None else self.minimum

    @property
    def limits(self) -> dict[str, str]:
        """What one pod asks for: its GPUs, or without any what a front end needs."""
        return {"nvidia.com/gpu": str(self.gpus)} if self.gpus else {"cpu": "2", "memory": "4Gi"}


@dataclass(frozen=True)
class Tree:
    """One CompositePodGroup over PodGroups, all of which must start; all in one domain of ``level`` if one is named.

    ``priority`` names a PriorityClass; ``mode`` is Kubernetes' own way to let preemption take it, ``all`` or ``single``.
    """

    name: str
    groups: tuple[GroupSpec, ...]
    level: str | None = None
    priority: str | None = None
    mode: str | None = None

    @property
    def rank(self) -> dict[str, Any]:
        """The fields of its groups that say who gives way to whom."""
        mode = {"disruptionMode": {self.mode: {}}} if self.mode else {}
        return {"priorityClassName": self.priority, **mode} if self.priority else mode

    @property
    def size(self) -> int:
        return sum(group.pods for group in self.groups)


class Objects:
    """The objects of trees in a dialect. Trees of one Workload share their templates, so each has its own Workload."""

    def __init__(self, dialect: Dialect, owner: Mapping[str, Any]) -> None:
        self._dialect = dialect
        self._owner = dict(owner)

    def groups(self, trees: Iterable[Tree]) -> Iterator[tuple[Resource, list[dict[str, Any]]]]:
        """Level by level, in creation order."""
        trees = list(trees)
        yield self._dialect.workloads, [self._workload(tree) for tree in trees]
        yield self._dialect.composites, [self._composite(tree) for tree in trees]
        yield self._dialect.pod_groups, [self._pod_group(tree, group) for tree in trees for group in tree.groups]

    def pods(self, tree: Tree) -> Iterator[dict[str, Any]]:
        """Group by group."""
        for group in tree.groups:
            for index in range(group.pods):
                yield self._pod(tree, group, index)

    def _metadata(self, tree: Tree, name: str, **labels: str) -> dict[str, Any]:
        marks = {TREE_LABEL: tree.name, LABEL_UNIT: "0"} | labels
        return {"name": name, "namespace": NAMESPACE, "labels": marks, "ownerReferences": [self._owner]}

    def _topology(self, level: str | None) -> dict[str, Any]:
        if level is None:
            return {}
        constraint = {"key": KEYS[level]} if self._dialect.native else {"level": level, "mode": "Required"}
        return {"schedulingConstraints": {"topology": [constraint]}}

    def _workload(self, tree: Tree) -> dict[str, Any]:
        leaves = [
            {
                "name": group.name,
                "schedulingPolicy": {"gang": {"minCount": group.min_count}},
                **self._topology(group.level),
                **tree.rank,
            }
            for group in tree.groups[:8]  # upstream's limit: more groups refer to the same templates
        ]
        root = {
            "name": "tree",
            "schedulingPolicy": {"gang": {"minGroupCount": len(tree.groups)}},
            "podGroupTemplates": leaves,
            **self._topology(tree.level),
            **tree.rank,
        }
        return {"metadata": self._metadata(tree, tree.name), "spec": {"compositePodGroupTemplates": [root]}}

    def _composite(self, tree: Tree) -> dict[str, Any]:
        return {
            "metadata": self._metadata(tree, tree.name),
            "spec": {
                "workloadRef": {"workloadName": tree.name, "templateName": "tree"},
                "schedulingPolicy": {"gang": {"minGroupCount": len(tree.groups)}},
                **({} if self._dialect.native else {"desiredGroupCount": len(tree.groups)}),
                **tree.rank,
                **self._topology(tree.level),
            },
        }

    def _pod_group(self, tree: Tree, group: GroupSpec) -> dict[str, Any]:
        template = group.name if group in tree.groups[:8] else tree.groups[0].name
        return {
            "metadata": self._metadata(tree, f"{tree.name}-{group.name}", **{LABEL_ROLE: group.name}),
            "spec": {
                "parentCompositePodGroupName": tree.name,
                "workloadRef": {"workloadName": tree.name, "templateName": template},
                "schedulingPolicy": {"gang": {"minCount": group.min_count}},
                **({} if self._dialect.native else {"desiredCount": group.pods}),
                **tree.rank,
                **self._topology(group.level),
            },
        }

    def _pod(self, tree: Tree, group: GroupSpec, index: int) -> dict[str, Any]:
        name = f"{tree.name}-{group.name}"
        container = {"name": "main", "image": "example.com/none:1", "resources": {"limits": group.limits}}
        spec: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": 0}
        if tree.priority:
            spec["priorityClassName"] = tree.priority
        labels = {LABEL_ROLE: group.name, LABEL_REPLICA: str(index)}
        if self._dialect.native:
            spec["schedulingGroup"] = {"podGroupName": name}
        else:
            labels[LABEL_POD_GROUP] = name
            spec |= {"schedulingGates": [{"name": GATE_GANG}], "schedulerName": DEFAULT_SCHEDULER_NAME}
        return {"metadata": self._metadata(tree, f"{name}-{index}", **labels), "spec": spec}


async def make_owner(client: Client) -> dict[str, Any]:
    """A controller reference that all objects share: members of a group have the group's owner."""
    owner = await client.create(_CONFIG_MAPS, {"metadata": {"name": "owner", "namespace": NAMESPACE}})
    uid = owner["metadata"]["uid"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "controller": True}


async def create_all(client: Client, resource: Resource, bodies: Iterable[Mapping[str, Any]], width: int = 48) -> None:
    """Create objects in their order, a number of them at a time."""
    source = iter(bodies)

    async def worker() -> None:
        for body in source:
            await client.create(resource, body)

    async with asyncio.TaskGroup() as group:
        for _ in range(width):
            group.create_task(worker())


async def create_pods(client: Client, objects: Objects, trees: Iterable[Tree]) -> None:
    """Create the pods of trees, tree by tree."""
    await create_all(client, PODS, (pod for tree in trees for pod in objects.pods(tree)))
