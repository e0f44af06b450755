"""The shape of KAI-Scheduler's scale test "Disaggregated inference allocation", and how a placement of it is judged.

2 zones x 8 blocks x 16 racks x 2 nodes of 8 GPUs.  128 deployments, each of prefill 2 x 8 GPUs in one required rack,
decode 4 x 4 GPUs in a preferred block and 2 front ends without GPU, all of it in one required zone.  Prefill fills a
rack and decode the worth of another, so that 128 deployments take every GPU there is, and whoever breaks one rack too
many finds no place for the last.  (``test/e2e/scale`` of KAI-Scheduler, Apache-2.0; 512 nodes are its least size.)
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from bench.trees import KEYS, NAMESPACE, TREE_LABEL, GroupSpec, Tree
from localcluster import Nodes

FLOOR: Final = Nodes(zones=2, blocks=8, racks=16, nodes=2, gpus=8)
DEPLOYMENTS: Final = 128
LEVELS: Final = ("zone", "block", "rack")
PREFILL: Final = GroupSpec("prefill", 2, gpus=8, level="rack")
DECODE: Final = GroupSpec("decode", 4, gpus=4)
FRONTEND: Final = GroupSpec("frontend", 2, gpus=0)


def deployment_tree(number: int) -> Tree:
    """One deployment as Kubernetes' own groups can say it: they have no preferred level."""
    return Tree(f"kai-{number}", (PREFILL, DECODE, FRONTEND), level="zone")


def deployment_resource(number: int) -> dict[str, Any]:
    """One deployment as a DisaggregatedInference: prefill and decode are one replica each, front ends are single pods."""
    name = f"kai-{number}"
    return {
        "apiVersion": "inference.covey.dev/v1alpha1",
        "kind": "DisaggregatedInference",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "topology": {"required": "zone"},
            "roles": [
                _role(name, PREFILL, size=2, topology={"required": "rack"}),
                _role(name, DECODE, size=4, topology={"preferred": "block"}),
                _role(name, FRONTEND, replicas=2, minReplicas=2),
            ],
        },
    }


def _role(tree: str, group: GroupSpec, **fields: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "example.com/none:1", "resources": {"limits": group.limits}}
    template = {
        "metadata": {"labels": {TREE_LABEL: tree}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }
    return {"name": group.name, "template": template, **fields}


@dataclass(frozen=True)
class Spot:
    """A pod and where it lies."""

    tree: str
    role: str
    node: str


class Floor:
    """The nodes' domains, and what a placement on them amounts to."""

    def __init__(self) -> None:
        manifests = FLOOR.manifests()
        labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in manifests}
        self._paths = {name: tuple(own[KEYS[level]] for level in LEVELS) for name, own in labels.items()}

    def nodes(self, level: str) -> Mapping[tuple[str, ...], list[str]]:
        """The nodes of each domain of a level."""
        depth = LEVELS.index(level) + 1
        found: dict[tuple[str, ...], list[str]] = {}
        for name, path in self._paths.items():
            found.setdefault(path[:depth], []).append(name)
        return found

    def domains(self, spots: Iterable[Spot], level: str) -> int:
        """Over how many domains of a level pods lie."""
        depth = LEVELS.index(level) + 1
        return len({self._paths[spot.node][:depth] for spot in spots})


@dataclass(frozen=True)
class Placement:
    """Pods that have a node; what is said of deployments is said of those that have all their pods."""

    floor: Floor
    spots: tuple[Spot, ...]

    @cached_property
    def _trees(self) -> Mapping[str, list[Spot]]:
        trees: dict[str, list[Spot]] = {}
        for spot in self.spots:
            trees.setdefault(spot.tree, []).append(spot)
        return trees

    @cached_property
    def whole(self) -> Mapping[str, list[Spot]]:
        """Deployments that have all their pods."""
        size = deployment_tree(0).size
        return {tree: spots for tree, spots in self._trees.items() if len(spots) == size}

    @property
    def gpus(self) -> int:
        """GPUs in use."""
        return sum(_GPUS[spot.role] for spot in self.spots)

    @property
    def decode_blocks(self) -> list[int]:
        """Blocks that decode lies in, for each deployment."""
        return sorted(self.floor.domains(_of(spots, DECODE), "block") for spots in self.whole.values())

    @property
    def still_fit(self) -> int:
        """More deployments that the free GPUs would take: each needs a free rack, and room for decode in its zone."""
        used = self._used
        fit = 0
        for zone, names in self.floor.nodes("zone").items():
            places = sum((FLOOR.gpus - used[name]) // DECODE.gpus for name in names)
            racks = sum(
                not any(used[name] for name in rack)
                for path, rack in self.floor.nodes("rack").items()
                if path[:1] == zone
            )
            a_rack = FLOOR.nodes * FLOOR.gpus // DECODE.gpus
            fit += min(racks, places // (a_rack + DECODE.pods))
        return fit

    @cached_property
    def _used(self) -> Counter[str]:
        used: Counter[str] = Counter()
        for spot in self.spots:
            used[spot.node] += _GPUS[spot.role]
        return used

    def report(self) -> dict[str, Any]:
        """The figures."""
        blocks = self.decode_blocks
        return {
            "pods": len(self.spots),
            "deployments": len(self.whole),
            "gpus": self.gpus,
            "stillFit": self.still_fit,
            "decodeBlocks": {"min": min(blocks), "median": statistics.median(blocks), "max": max(blocks)}
            if blocks
            else None,
            "decodeInOneBlock": blocks.count(1),
            "problems": self.problems(),
        }

    def problems(self) -> list[str]:
        """What must not be: a gang in part, a required level broken, a node with more GPUs in use than it has."""
        found = {
            "nodes over-committed": sum(gpus > FLOOR.gpus for gpus in self._used.values()),
            "deployments bound in part": len(self._trees) - len(self.whole),
            "deployments in several zones": sum(self.floor.domains(each, "zone") > 1 for each in self._trees.values()),
            "prefills in several racks": sum(
                self.floor.domains(_of(each, PREFILL), "rack") > 1 for each in self._trees.values()
            ),
        }
        return [f"{count} {what}" for what, count in found.items() if count]


_GPUS: Final = {group.name: group.gpus for group in (PREFILL, DECODE, FRONTEND)}


def _of(spots: Iterable[Spot], group: GroupSpec) -> list[Spot]:
    return [spot for spot in spots if spot.role == group.name]
