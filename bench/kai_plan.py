"""The shape of KAI-Scheduler's scale test through the planner alone: what ``covey plan`` answers, without a cluster."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from bench.kai_shape import FLOOR, Floor, Placement, Spot, deployment_resource
from covey.planning.facts import read_facts
from covey.planning.request import read_manifests, with_manifests, workloads_of
from covey.planning.run import plan_all


def plan_alone(deployments: int) -> dict[str, Any]:
    """What ``covey plan -f deployments.yaml --nodes nodes.yaml`` does, once, in this process."""
    with tempfile.TemporaryDirectory() as directory:
        nodes, resources = Path(directory, "nodes.json"), Path(directory, "deployments.yaml")
        nodes.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": FLOOR.manifests()}))
        resources.write_text(yaml.safe_dump_all(map(deployment_resource, range(deployments))))
        started = time.perf_counter()
        manifests = read_manifests([str(resources)], None)
        facts = with_manifests(read_facts([str(nodes)], [], []), manifests)
    workloads, _ = workloads_of(manifests, facts)
    read = time.perf_counter()
    report = plan_all(workloads, facts, time.perf_counter).report
    ended = time.perf_counter()
    spots = [
        Spot(workload.name, role.name, pod.node)
        for workload in report.workloads
        for unit in workload.units
        for role in unit.roles
        for instance in role.instances
        for pod in instance.pods
    ]
    times = sorted(workload.elapsed_ms for workload in report.workloads)
    return {
        "case": "covey plan, no control plane",
        "seconds": round(ended - read, 2),
        "readSeconds": round(read - started, 2),
        "planSeconds": round(sum(times) / 1000, 2),
        "planMilliseconds": {"median": round(statistics.median(times), 1), "max": round(times[-1], 1)},
        "refused": [
            f"{workload.name}: {reason.message}" for workload in report.workloads for reason in workload.reasons
        ],
        **Placement(Floor(), tuple(spots)).report(),
    }
