"""Simulated GPU nodes from a small description: zones x blocks x racks x nodes."""

import itertools
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from localcluster.components import FAKE_NODE

Preset = Literal["kueue", "topograph", "clique"]
_CLUSTER_UUID = uuid.UUID("b1d6a5c0-5c3e-4d42-9f5e-6f0f0a6f7c11")
_CONDITIONS = (("MemoryPressure", "False"), ("DiskPressure", "False"), ("PIDPressure", "False"), ("Ready", "True"))


@dataclass(frozen=True)
class Nodes:
    """A regular set of nodes.

    Attributes:
        zones: Zones.
        blocks: Blocks in each zone.
        racks: Racks in each block.
        nodes: Nodes in each rack.
        gpus: ``nvidia.com/gpu`` on each node; with 0 the resource and the GPU labels are absent.
        preset: Whose topology labels the nodes carry. ``clique`` has no label for blocks.
        prefix: Begins the name of every node, zone, block and rack, so that several sets can share a cluster.
        local_racks: Number racks within their block, so that equal rack values exist under two blocks.
        labels: More labels; None takes one away.
        taints: As in a Node's ``spec.taints``, or ``key=value:Effect`` as kubectl writes it.
        cpu: Cores of each node.
        memory: Memory of each node.
        pods: How many pods a node may hold.
        product: Value of ``nvidia.com/gpu.product``.
        resources: More resources of each node, such as ``rdma/ib``.
    """

    blocks: int = 1
    racks: int = 1
    nodes: int = 1
    gpus: int = 8
    preset: Preset = "kueue"
    taints: Sequence[str | Mapping[str, str]] = ()
    labels: Mapping[str, str | None] = field(default_factory=dict)
    prefix: str = ""
    local_racks: bool = False
    cpu: str = "128"
    memory: str = "1Ti"
    pods: int = 110
    zones: int = 1
    product: str = "NVIDIA-H100-80GB-HBM3"
    resources: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.zones * self.blocks * self.racks * self.nodes

    @property
    def names(self) -> list[str]:
        """The nodes' names, ``node-<block>-<rack>-<number>``; with several zones ``node-<zone>-<block>-…``."""
        return [place.name for place in self._places()]

    def manifests(self) -> list[dict[str, Any]]:
        """The Node objects to create: of nodes that are ready, and that no controller has anything to add to."""
        return [self._manifest(place) for place in self._places()]

    def _places(self) -> Iterator["_Place"]:
        sizes = (self.zones, self.blocks, self.racks, self.nodes)
        for place in itertools.product(*map(range, sizes)):
            z, *inner = map(str, place)
            b, r, n = inner
            if self.zones > 1:
                b = f"{z}-{b}"
            rack = f"{self.prefix}rack-{b}-{r}"
            yield _Place(
                zone=f"{self.prefix}zone-{z}",
                block=f"{self.prefix}block-{b}",
                rack=f"{self.prefix}rack-{r}" if self.local_racks else rack,
                rack_path=rack,
                name=f"{self.prefix}node-{b}-{r}-{n}",
            )

    def _manifest(self, place: "_Place") -> dict[str, Any]:
        labels = {
            "kubernetes.io/hostname": place.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            # As kubelets write them; the node life cycle controller would.
            "beta.kubernetes.io/os": "linux",
            "beta.kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": place.zone,
            **_topology_labels(self.preset, place),
        }
        resources = {"cpu": self.cpu, "memory": self.memory, "ephemeral-storage": "1Ti", "pods": str(self.pods)}
        if self.gpus:
            resources["nvidia.com/gpu"] = str(self.gpus)
            labels |= {"nvidia.com/gpu.product": self.product, "nvidia.com/gpu.count": str(self.gpus)}
        resources |= self.resources
        conditions = [{"type": kind, "status": value, "reason": "Simulated"} for kind, value in _CONDITIONS]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": place.name,
                "labels": {key: value for key, value in (labels | dict(self.labels)).items() if value is not None},
                # The controller of time-to-live writes the second.
                "annotations": dict([FAKE_NODE, ("node.alpha.kubernetes.io/ttl", "0")]),
            },
            "spec": {"taints": [_taint(taint) for taint in self.taints]} if self.taints else {},
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "conditions": conditions,
                "nodeInfo": {"kubeletVersion": "simulated"},
            },
        }


@dataclass(frozen=True)
class _Place:
    """Names of one node and of the domains around it; ``rack`` is the label, ``rack_path`` is unique."""

    zone: str
    block: str
    rack: str
    rack_path: str
    name: str


def _topology_labels(preset: Preset, place: _Place) -> dict[str, str]:
    match preset:
        case "kueue":
            return {
                "cloud.provider.com/topology-block": place.block,
                "cloud.provider.com/topology-rack": place.rack,
            }
        case "topograph":
            return {
                # Topograph counts from the nearest switch.
                "fabric.topograph.run/tier-1": place.block,
                "fabric.topograph.run/tier-0": place.rack_path,
                "accelerator.topograph.run/domain": place.rack,
            }
        case "clique":
            fabric = uuid.uuid5(_CLUSTER_UUID, place.rack_path)
            return {"nvidia.com/gpu.clique": f"{fabric}.0"}


def _taint(taint: str | Mapping[str, str]) -> dict[str, str]:
    if not isinstance(taint, str):
        return dict(taint)
    pair, _, effect = taint.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "effect": effect} | ({"value": value} if value else {})
