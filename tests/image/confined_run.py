"""The whole of Covey as the image has it, on a control plane of its own; prints what became of it as JSON.

A program, since the network namespace that the test puts it into is a process's for all its life.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import confinement
import imaged
from imaging import ROOT, Image
from localcluster import Cluster, Nodes, eventually
from localcluster.programs import scheduler_config
from scheduler_trees import node_of

_PODS = "/api/v1/namespaces/default/pods"
#: Of examples/disaggregated.yaml: 4 prefill replicas of 2 pods and 2 decode replicas of 4.
_EXPECTED = 16


def main() -> None:
    """Start both processes, apply the example, wait until every pod is bound."""
    description = json.loads(sys.argv[1])
    image = Image(Path(description.pop("root")), **description)
    with Cluster() as cluster, imaged.readable_directory() as mount:
        cluster.install_rbac()
        cluster.add_nodes(Nodes(blocks=2, racks=3, nodes=6))
        processes = {
            "operator": imaged.process(cluster, image, "operator", mount),
            "scheduler": imaged.process(cluster, image, "scheduler", mount),
        }
        try:
            for process in processes.values():
                process.start()
            cluster.start_scheduler(scheduler_config(processes["scheduler"]))
            cluster.apply((ROOT / "examples" / "disaggregated.yaml").read_text())
            eventually(lambda: _bound(cluster) == _EXPECTED, 120, f"{_EXPECTED} pods are bound")
            found = {name: confinement.status(process.pid) for name, process in processes.items()}
            ends = {name: process.stop(timeout=30) for name, process in processes.items()}
        finally:
            for process in processes.values():
                process.stop()
        logs = {name: process.log_text(last_run=False) for name, process in processes.items()}
        print(json.dumps({"status": found, "ends": ends, "logs": logs, "bound": _bound(cluster)}))


def _bound(cluster: Cluster) -> int:
    return sum(bool(node_of(pod)) for pod in cluster.api("GET", _PODS)["items"])


if __name__ == "__main__":
    main()
