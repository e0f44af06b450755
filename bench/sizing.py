"""What both processes and kube-scheduler take in clusters of several sizes, at rest: the table of docs/operations/installation.md."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from bench.creation import resident
from bench.machine import describe_machine
from localcluster import Cluster, Nodes, concurrently, eventually

PROGRAMS = ("covey-operator", "covey-scheduler", "kube-scheduler")
_PODS = "/api/v1/namespaces/default/pods?resourceVersion=0"
_RESOURCES = "/apis/inference.covey.dev/v1alpha1/namespaces/default/disaggregatedinferences"


def resource(number: int) -> dict[str, object]:
    """Four pods of one GPU."""
    limits = {"limits": {"nvidia.com/gpu": 1}}
    template = {"spec": {"containers": [{"name": "engine", "image": "example.com/engine:1", "resources": limits}]}}
    roles = [{"name": name, "size": 2, "template": template} for name in ("prefill", "decode")]
    return {
        "apiVersion": "inference.covey.dev/v1alpha1",
        "kind": "DisaggregatedInference",
        "metadata": {"name": f"sized-{number}"},
        "spec": {"roles": roles},
    }


def measure(racks: int, steps: Sequence[int]) -> None:
    """One cluster; resources are added step by step."""
    with Cluster(kwok=False, max_inflight=2000) as cluster:
        nodes = Nodes(blocks=1, racks=racks, nodes=18)
        cluster.start_all(nodes)
        there = 0
        for wanted in steps:
            create = [resource(number) for number in range(there, wanted)]
            concurrently(lambda each: cluster.api("POST", _RESOURCES, each), create)
            there = wanted

            def bound(pods_wanted: int = 4 * wanted) -> bool:
                # Asked seldom, for asking is what costs most.
                time.sleep(2)
                pods = cluster.api("GET", _PODS)["items"]
                return sum("nodeName" in pod["spec"] for pod in pods) == pods_wanted

            eventually(bound, 600, f"{4 * there} pods are bound")
            time.sleep(20)
            found = "  ".join(f"{name} {resident(cluster.processes[name]):4.0f} MB" for name in PROGRAMS)
            print(f"{len(nodes):6,} nodes  {4 * there:6,} pods  {found}", flush=True)


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--racks", type=int, nargs="+", default=[6, 56, 278])
    parser.add_argument("--resources", type=int, nargs="+", default=[0, 50, 500])
    options = parser.parse_args()
    print(describe_machine())
    for racks in options.racks:
        room = racks * 18 * 8 // 4
        measure(racks, [each for each in options.resources if each <= room])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
