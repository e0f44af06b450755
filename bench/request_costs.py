"""What each request of a gang's life costs: processor time of the API server, of etcd, and of the controllers that watch.

Beside them what the API server allocates, which is the same whatever else runs on the machine.

One resource of 2 x 4 pods is created and bound by Covey; its objects, as they are stored then, are the patterns. Both processes
and kube-scheduler end, and each kind of request is made alone, some hundred times under new names, eight at a time; by turns,
so that the machine's speed falls on all alike. Nobody but the controllers watches, so what a change costs for each process
that follows pods is not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import statistics
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.machine import describe_machine
from bench.native import Case, control_plane, cpu_seconds, measure, quiet
from bench.trees import NAMESPACE, make_owner
from covey.api import core
from covey.api.constants import GATE_GANG, MANAGER_OPERATOR_STATUS, MANAGER_SCHEDULER
from covey.kube import resources
from covey.kube.client import Client, Ignored
from covey.kube.resources import Resource
from covey.operator.model.objects import CONTROLLER_REVISIONS
from covey.scheduler.pin import pin_patch
from localcluster import Cluster

Body = dict[str, Any]
_WIDTH: Final = 8
_CREATED: Final = (
    resources.DISAGGREGATED_INFERENCES,
    CONTROLLER_REVISIONS,
    resources.WORKLOADS,
    resources.COMPOSITE_POD_GROUPS,
    resources.POD_GROUPS,
    resources.SERVICES,
    resources.PODS,
    resources.EVENTS,
)
_PROGRAMS: Final = ("kube-apiserver", "etcd", "kube-controller-manager")
#: Bytes that the API server has allocated: what other programs on the machine do not change.
_ALLOCATED: Final = "go_memstats_alloc_bytes_total"
#: What the API server fills in, or what makes a pod one that is bound.
_SERVER: Final = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "ownerReferences")
_OF_BOUND_PODS: Final = ("nodeName", "affinity", "volumes", "priority", "preemptionPolicy", "tolerations")


class Requests:
    """The requests, each by a number that names its object."""

    def __init__(self, client: Client, patterns: Mapping[Resource, Body], owner: Mapping[str, Any]) -> None:
        self._client = client
        self._patterns = patterns
        self._owner = owner

    def all(self) -> Mapping[str, Callable[[int], Awaitable[object]]]:
        """The requests by what the tables call them, in an order in which each finds what it needs."""
        made: dict[str, Callable[[int], Awaitable[object]]] = {
            f"create {resource.plural}": lambda number, resource=resource: self._create(resource, number)
            for resource in _CREATED
        }
        roots, inferences = resources.COMPOSITE_POD_GROUPS, resources.DISAGGREGATED_INFERENCES
        return made | {
            "patch pods": self._pin,
            "create pods/binding": self._bind,
            "apply compositepodgroups/status": lambda number: self._tell(roots, number, MANAGER_SCHEDULER),
            "apply disaggregatedinferences/status": lambda number: self._tell(
                inferences, number, MANAGER_OPERATOR_STATUS
            ),
        }

    async def _create(self, resource: Resource, number: int) -> None:
        body = copy.deepcopy(self._patterns[resource])
        metadata = {key: value for key, value in body["metadata"].items() if key not in _SERVER}
        body["metadata"] = metadata | {"name": f"again-{number}", "ownerReferences": [self._owner]}
        body.pop("status", None)
        if resource == resources.SERVICES:
            body["spec"] = {key: value for key, value in body["spec"].items() if key != "clusterIPs"}
        if resource == resources.PODS:
            spec = {key: value for key, value in body["spec"].items() if key not in _OF_BOUND_PODS}
            for container in spec["containers"]:
                container.pop("volumeMounts", None)
            body["spec"] = spec | {"schedulingGates": [{"name": GATE_GANG}]}
            body["metadata"].pop("annotations", None)
        await self._client.create(resource, body, type=Ignored)

    async def _pin(self, number: int) -> None:
        metadata = {"name": f"again-{number}", "namespace": NAMESPACE}
        pod = msgspec.convert({"metadata": metadata, "spec": {"schedulingGates": [{"name": GATE_GANG}]}}, core.Pod)
        patch = pin_patch(pod, "node-0-0-0", {"zone": "z", "block": "b", "rack": "r", "host": "node-0-0-0"}, 0.0)
        for precondition in ("uid", "resourceVersion"):
            del patch["metadata"][precondition]
        await self._client.merge_patch(resources.PODS, pod.metadata.name, NAMESPACE, patch, type=Ignored)

    async def _bind(self, number: int) -> None:
        await self._client.bind(NAMESPACE, f"again-{number}", "", "node-0-0-0")

    async def _tell(self, resource: Resource, number: int, manager: str) -> None:
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": f"again-{number}", "namespace": NAMESPACE},
            "status": self._patterns[resource]["status"],
        }
        await self._client.apply(resource, body, manager=manager, subresource="status", type=Ignored)


async def run(cluster: Cluster, rounds: int, count: int) -> dict[str, dict[str, float]]:
    """What one request of each kind costs, as ``_spent`` counts it: the median of some rounds."""
    async with Client.from_kubeconfig(str(cluster.kubeconfig), user_agent="bench", connections=_WIDTH) as client:
        patterns = {resource: (await client.list(resource, NAMESPACE, type=Body))[0][-1] for resource in _CREATED}
        cluster.stop_all()
        await quiet(cluster)
        requests = Requests(client, patterns, await make_owner_of_copies(client)).all()
        spent: dict[str, list[Mapping[str, float]]] = {name: [] for name in requests}
        for number in range(rounds):
            for name, request in requests.items():
                before = _spent(cluster)
                await _each(request, range(number * count, (number + 1) * count))
                after = _spent(cluster)
                spent[name].append({key: after[key] - value for key, value in before.items()})
        return {
            name: {key: statistics.median(round_[key] for round_ in found) / count for key in found[0]}
            for name, found in spent.items()
        }


def _spent(cluster: Cluster) -> dict[str, float]:
    """Milliseconds of processor time by program, and kilobytes that the API server has allocated, so far."""
    seconds = cpu_seconds(cluster)
    lines = cluster.kubectl("get", "--raw", "/metrics").splitlines()
    [allocated] = (line.split()[1] for line in lines if line.startswith(f"{_ALLOCATED} "))
    return {program: 1000 * seconds[program] for program in _PROGRAMS} | {_ALLOCATED: float(allocated) / 1024}


async def make_owner_of_copies(client: Client) -> dict[str, Any]:
    """An owner that is there, so that nothing is collected as garbage; the bench before has made it."""
    found, _ = await client.list(resources.Resource("", "v1", "configmaps", "ConfigMap"), NAMESPACE, type=Body)
    owner = next((each for each in found if each["metadata"]["name"] == "owner"), None)
    if owner is None:
        return await make_owner(client)
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}


async def _each(request: Callable[[int], Awaitable[object]], numbers: range) -> None:
    waiting = iter(numbers)

    async def work() -> None:
        for number in waiting:
            await request(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(_WIDTH):
            group.create_task(work())


def main() -> int:
    """Print the figures, as text and JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--count", type=int, default=200, help="requests of each kind in a round")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with control_plane("covey", 20) as cluster:
        cluster.start_covey("operator")
        asyncio.run(measure(cluster, Case("covey", rack=False, resources=True), gangs=1, patience=60))
        asyncio.run(asyncio.sleep(10))
        figures = asyncio.run(run(cluster, options.rounds, options.count))
    print(describe_machine())
    title = "milliseconds of processor time for one request"
    print(f"{title:<52}{'API server':>12}{'etcd':>8}{'controllers':>13}{'KB allocated':>14}")
    for name, spent in figures.items():
        server, etcd, controllers, allocated = spent.values()
        print(f"{name:<52}{server:>12.2f}{etcd:>8.2f}{controllers:>13.2f}{allocated:>14.0f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
