"""Karpenter with its provider of simulated nodes: it makes Node objects, which kwok plays, and takes them away.

Only tests and the story of autoscaling start it; it is built when it is wanted for the first time.
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from localcluster.binaries import KARPENTER, ensure_files
from localcluster.cluster import Cluster
from localcluster.ports import address, free_port
from localcluster.probe import answers
from localcluster.process import Process

GPUS: Final = 8
DEVICE: Final = "nvidia.com/gpu"
RACK: Final = "cloud.provider.com/topology-rack"
BLOCK: Final = "cloud.provider.com/topology-block"
_ZONE: Final = "zone-k"
_PODS: Final = "/api/v1/namespaces/default/pods"
_RESOURCES: Final = {"cpu": "128", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "110", DEVICE: str(GPUS)}
_NODE_CLASS: Final = {
    "apiVersion": "karpenter.kwok.sh/v1alpha1",
    "kind": "KWOKNodeClass",
    "metadata": {"name": "default"},
    "spec": {"nodeRegistrationDelay": "1s"},
}


def start_karpenter(cluster: Cluster, *, report: bool = True) -> Process:
    """Start Karpenter with one instance type of eight GPUs, and the feature gate CapacityBuffer.

    Args:
        cluster: that runs; the CRDs are applied first.
        report: Say on standard error what is built.

    Raises:
        BuildError: when it is missing and cannot be built.
        ProcessError: when it does not come up.
    """
    program, crds = ensure_files(KARPENTER, report=report)
    cluster.install_crds(crds)
    cluster.apply(_NODE_CLASS)
    types = cluster.directory / "instance-types.json"
    types.write_text(json.dumps([_instance_type()]))

    def build() -> Process:
        health, metrics = free_port(), free_port()
        flags = {
            "health-probe-port": health,
            "metrics-port": metrics,
            "disable-leader-election": "true",
            "feature-gates": "CapacityBuffer=true",
            "instance-types-file-path": types,
        }
        return Process(
            "karpenter",
            [str(program), *(f"--{name}={value}" for name, value in flags.items())],
            directory=cluster.directory,
            ready=lambda: answers(f"http://{address(health)}/readyz"),
            environment={"KUBECONFIG": str(cluster.kubeconfig), "KARPENTER_SERVICE": ""},
            urls={"metrics_url": f"http://{address(metrics)}/metrics"},
        )

    return cluster.launch(build)[0]


def rack_pool(name: str, *, block: str, nodes: int, idle: str = "30s") -> dict[str, Any]:
    """A NodePool whose nodes are all in one rack.

    Args:
        name: of the pool and of the rack.
        block: that the rack is in.
        nodes: the most there may be.
        idle: how long a node stays empty before it goes (``consolidateAfter``).
    """
    where = {RACK: name, BLOCK: block, "karpenter.sh/capacity-type": "on-demand"}
    requirements = [{"key": key, "operator": "In", "values": [value]} for key, value in where.items()]
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {"spec": {"requirements": requirements, "nodeClassRef": reference}},
            "limits": {DEVICE: str(nodes * GPUS)},
            # Ten per cent of few nodes are none at a time.
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": idle,
                "budgets": [{"nodes": "100%"}],
            },
        },
    }


def delete_pools(cluster: Cluster, names: Sequence[str]) -> None:
    """Delete NodePools, and with them their nodes; return when these are gone."""
    cluster.kubectl("delete", "nodepools", "--ignore-not-found", *names)


@contextlib.contextmanager
def waiting_pod(cluster: Cluster) -> Iterator[None]:
    """Let Karpenter look at everything once more, since a pod waits that no pool has a node for.

    Where it last looked just before a buffer went, release 1.14.1 keeps the nodes of that buffer until it looks again
    (``HasBufferPods``), and nothing but a pod, a buffer or a node that goes makes it look.
    """
    # Karpenter looks for pods that a scheduler has refused; this one runs wherever Covey does.
    spec = {
        "schedulerName": "covey-scheduler",
        "nodeSelector": {"example.com/nowhere": "true"},
        "containers": [{"name": "c", "image": "registry.test/job:1"}],
    }
    cluster.api("POST", _PODS, {"metadata": {"name": "waiting"}, "spec": spec})
    try:
        yield
    finally:
        cluster.delete(f"{_PODS}/waiting")


def _instance_type() -> dict[str, Any]:
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [_ZONE]},
    ]
    return {
        "name": "gpu-8x",
        "offerings": [{"Price": 1.0, "Available": True, "Requirements": requirements}],
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": _RESOURCES,
    }
