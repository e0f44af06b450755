"""A process that holds the cache of a cluster: what it takes to fill it, and how much memory it then has.

Run as a program it prints one JSON object; ``plan_speed`` starts it so that nothing else is in the process.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.machine import megabytes
from bench.plan_floor import TOPOLOGY, hierarchical, node
from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import shape_of
from covey.placement.planner import plan_minimum

NODES: Final = 5_000
PODS: Final = 10_000
CHUNK: Final = 500


def node_json(number: int) -> dict[str, Any]:
    """A node as the API server sends it, in its usual width."""
    found = node(number)
    conditions = [
        {
            "type": kind,
            "status": status,
            "lastHeartbeatTime": "2026-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "reason": f"Kubelet{kind}",
            "message": f"kubelet has posted {kind}",
        }
        for kind, status in (
            ("MemoryPressure", "False"),
            ("DiskPressure", "False"),
            ("PIDPressure", "False"),
            ("Ready", "True"),
        )
    ]
    more = {f"feature.example.com/label-{index}": f"value-{index}" for index in range(30)}
    return {
        "metadata": {
            "name": found.metadata.name,
            "uid": f"00000000-0000-0000-0000-{number:012}",
            "resourceVersion": str(1000 + number),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {**(found.metadata.labels or {}), **more},
            "annotations": {"node.alpha.kubernetes.io/ttl": "0", "volumes.example.com/attach": "true"},
        },
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": f"example:///{number}"},
        "status": {
            "capacity": found.status.allocatable,
            "allocatable": found.status.allocatable,
            "conditions": conditions,
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "images": [{"names": [f"registry.example.com/image-{index}"], "sizeBytes": 10**9} for index in range(10)],
        },
    }


def pod_json(number: int, name: str, gpus: int) -> dict[str, Any]:
    """A bound pod as the API server sends it, in its usual width."""
    limits = {"cpu": str(12 * gpus), "memory": f"{96 * gpus}Gi", "nvidia.com/gpu": str(gpus)}
    owner = {
        "apiVersion": "inference.covey.dev/v1alpha1",
        "kind": "DisaggregatedInference",
        "name": f"model-{number // 32}",
        "uid": f"00000000-0000-0000-0001-{number // 32:012}",
        "controller": True,
    }
    return {
        "metadata": {
            "name": f"model-{number // 32}-0-prefill-{number % 32}-0-abcde",
            "namespace": f"team-{number % 7}",
            "uid": f"00000000-0000-0000-0002-{number:012}",
            "resourceVersion": str(100_000 + number),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "covey.dev/inference": f"model-{number // 32}",
                "covey.dev/unit": "0",
                "covey.dev/role": "prefill",
                "covey.dev/replica": str(number % 32),
                "covey.dev/index": "0",
                "covey.dev/revision": "abc123",
                "scheduling.covey.dev/pod-group": f"model-{number // 32}-0-prefill",
            },
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": name,
            "schedulerName": "covey-scheduler",
            "containers": [
                {
                    "name": "engine",
                    "image": "registry.example.com/engine:1",
                    "args": ["serve", "--model", "example"],
                    "env": [{"name": f"VARIABLE_{index}", "value": "value"} for index in range(20)],
                    "resources": {"requests": limits, "limits": limits},
                    "ports": [{"containerPort": 8000, "protocol": "TCP"}],
                }
            ],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
                        ]
                    }
                }
            },
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "podIP": "10.0.0.1"},
    }


def answers() -> tuple[list[bytes], list[bytes]]:
    """What the API server would answer to LIST, in chunks."""
    source = random.Random(1)
    names = [f"n{number:05}" for number in range(NODES)]
    nodes = [node_json(number) for number in range(NODES)]
    pods = [pod_json(number, source.choice(names), source.choice((1, 1, 2, 4))) for number in range(PODS)]

    def chunks(items: list[dict[str, Any]]) -> list[bytes]:
        return [msgspec.json.encode(items[start : start + CHUNK]) for start in range(0, len(items), CHUNK)]

    return chunks(nodes), chunks(pods)


def main(directory: str) -> None:
    """Fill the cache from the answers in a directory, as a starting process does, and say what it cost."""
    before = megabytes()
    started = time.perf_counter()
    nodes: dict[tuple[str, str], core.Node] = {}
    for path in sorted(Path(directory).glob("nodes-*")):
        nodes |= {found.metadata.key: found for found in msgspec.json.decode(path.read_bytes(), type=list[core.Node])}
    pods: dict[tuple[str, str], core.Pod] = {}
    for path in sorted(Path(directory).glob("pods-*")):
        pods |= {found.metadata.key: found for found in msgspec.json.decode(path.read_bytes(), type=list[core.Pod])}
    decoded = time.perf_counter()
    inventory = Inventory([TOPOLOGY])
    for found in nodes.values():
        inventory.set_node(found)
    for pod in pods.values():
        inventory.hold(pod.metadata.uid, pod.spec.node_name or "", shape_of(pod))
    built = time.perf_counter()
    plan_minimum(hierarchical(), inventory)
    planned = time.perf_counter()
    figures = {
        "nodes": len(nodes),
        "pods": len(pods),
        "decodeSeconds": decoded - started,
        "buildSeconds": built - decoded,
        "firstPlanSeconds": planned - built,
        "importedMegabytes": before,
        "residentMegabytes": megabytes(),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1])
