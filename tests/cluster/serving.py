"""A namespace as a person sees it where all of Covey runs: resources in, and what kubectl shows of them.

``check_history`` makes the claim that everything else rests on, about every moment of a recording.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from builders.manifests import Object, workers
from cluster.workbench import Workbench, is_gated, is_ready, label, name_of, uid_of
from localcluster import Cluster, eventually
from scheduler_trees import node_of, pin_of

BLOCK = "cloud.provider.com/topology-block"
RACK = "cloud.provider.com/topology-rack"
#: Everything that a resource causes to exist, by the path below its namespace's API.
KINDS = (
    "Workload",
    "CompositePodGroup",
    "PodGroup",
    "Service",
    "PodDisruptionBudget",
    "ControllerRevision",
    "Pod",
)
AddNodes = Callable[..., list[str]]
Event = tuple[str, Object]


@dataclass(frozen=True)
class Serving(Workbench):
    """One namespace; the processes run."""

    def bound(self, **labels: Any) -> list[Object]:
        """Live pods that have a node."""
        return [pod for pod in self.pods(**labels) if node_of(pod)]

    def await_bound(self, count: int, timeout: float = 120, **labels: Any) -> list[Object]:
        """Wait until exactly so many live pods exist and all of them are bound."""

        def reached() -> tuple[list[Object]]:
            pods = self.pods(**labels)
            assert len(pods) == count, f"{len(pods)} pods of {count}: {sorted(map(name_of, pods))}"
            waiting = [f"{name_of(pod)} (pinned to {pin_of(pod)})" for pod in pods if not node_of(pod)]
            assert not waiting, f"{len(waiting)} of {count} are not bound: {waiting[:8]}; {self.states()}"
            return (pods,)

        (pods,) = eventually(reached, timeout, f"{count} pods are bound")
        return pods

    def await_ready(self, count: int, **labels: Any) -> list[Object]:
        """Wait until exactly so many live pods exist and all of them are Ready."""
        self.await_bound(count, **labels)

        def ready() -> tuple[list[Object]]:
            pods = self.pods(**labels)
            assert len(pods) == count, f"{len(pods)} pods of {count}: {sorted(map(name_of, pods))}"
            assert all(map(serves, pods)), f"not all are Ready; {self.states()}"
            return (pods,)

        (pods,) = eventually(ready, 60, "all pods are Ready")
        return pods

    def states(self) -> dict[str, str]:
        """What the REASON column says of each resource."""
        return {
            name_of(item): item.get("status", {}).get("summary", {}).get("reason", "")
            for item in self.all("DisaggregatedInference")
        }

    def await_pinned(self, count: int, **labels: Any) -> list[Object]:
        """Wait until exactly so many live pods have been let go, to nodes that they are not bound to yet."""

        def reached() -> list[Object]:
            pods = [pod for pod in self.pods(**labels) if pin_of(pod) and not is_gated(pod) and not node_of(pod)]
            assert len(pods) == count, f"{len(pods)} of {count} pods are pinned; {self.states()}"
            return pods

        return eventually(reached, 60, f"{count} pods are pinned")

    def kubectl(self, *arguments: str) -> str:
        """What kubectl prints about this namespace."""
        return self.cluster.kubectl(*arguments, "--namespace", self.namespace)

    def await_event(self, reason: str) -> str:
        """Wait for an Event of a resource and return its note."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"

        def found() -> list[str]:
            return [
                event["note"]
                for event in self.cluster.api("GET", path)["items"]
                if event["reason"] == reason and event["regarding"]["kind"] == "DisaggregatedInference"
            ]

        return eventually(found, 60, f"an Event {reason}")[-1]

    def take_room(self, node: str, *, gpus: int = 8, name: str = "") -> str:
        """A pod that another scheduler has bound to a node; returns its name."""
        name = name or f"other-{node}"
        container = {"name": "job", "image": "registry.test/job:1", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
        spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0}
        self.cluster.api("POST", self.path("Pod"), {"metadata": {"name": name}, "spec": spec})
        return name

    def domains(self, pods: Iterable[Object], *keys: str) -> set[tuple[str, ...]]:
        """The domains that bound pods lie in, as values of these node labels."""
        nodes = {name_of(node): node for node in self.cluster.api("GET", "/api/v1/nodes")["items"]}
        return {tuple(nodes[node_of(pod)]["metadata"]["labels"].get(key, "") for key in keys) for pod in pods}

    def await_nothing_left(self) -> None:
        """Wait until no object of any kind that Covey makes is left."""

        def empty() -> bool:
            left = [f"{kind} {name_of(item)}" for kind in KINDS for item in self.owned(kind)]
            assert not left, str(left[:10])
            return True

        eventually(empty, 120, "nothing is left")


def replicas(pods: Iterable[Object]) -> dict[tuple[str, str, str, str], list[Object]]:
    """Pods by inference, unit, role and replica."""
    found: dict[tuple[str, str, str, str], list[Object]] = {}
    for pod in pods:
        key = (label(pod, "inference"), label(pod, "unit"), label(pod, "role"), label(pod, "replica"))
        found.setdefault(key, []).append(pod)
    return found


def check_history(events: Sequence[Event], *roles: Object) -> int:
    """Whenever a pod was bound, its whole replica and its unit's whole minimum were bound or about to be, no other
    pod had the same address, and no node had too many GPUs taken. Returns how many binds there were.

    Args:
        events: recorded pods of one namespace; those that were bound when the recording began are facts.
        roles: as in the spec of all resources.
    """
    sizes = {each["name"]: each.get("size", 1) for each in roles}
    minimums = {each["name"]: each.get("minReplicas", 1) for each in roles}
    pods: dict[str, Object] = {}
    binds = 0
    for kind, pod in events:
        before = pods.pop(uid_of(pod), None)
        if kind == "DELETED":
            continue
        pods[uid_of(pod)] = pod
        is_bind = node_of(pod) and before is not None and not node_of(before)
        if not is_bind or "covey.dev/unit" not in pod["metadata"]["labels"]:
            continue
        binds += 1
        live = [each for each in pods.values() if _is_live(each) and "covey.dev/unit" in each["metadata"]["labels"]]
        _check_bind(pod, live, sizes, minimums)
    return binds


def _check_bind(pod: Object, live: Sequence[Object], sizes: Mapping[str, int], minimums: Mapping[str, int]) -> None:
    namesakes = [each for each in live if node_of(each) and each["spec"]["hostname"] == pod["spec"]["hostname"]]
    assert sum(label(each, "inference") == label(pod, "inference") for each in namesakes) == 1, "a double"
    on_node = [each for each in live if node_of(each) == node_of(pod)]
    assert sum(map(_gpus, on_node)) <= 8, f"{node_of(pod)} is over-committed"
    unit = (label(pod, "inference"), label(pod, "unit"))
    whole = dict.fromkeys(sizes, 0)
    for (*owner, part, _), members in replicas(live).items():
        if tuple(owner) == unit:
            whole[part] += sum(map(_is_decided, members)) == sizes[part]
    for part, count in minimums.items():
        assert whole[part] >= count, f"{name_of(pod)} is bound, of {part} there are {whole[part]} of {count}"
    (mine,) = (members for key, members in replicas(live).items() if pod in members)
    assert sum(map(_is_decided, mine)) == sizes[label(pod, "role")], f"replica of {name_of(pod)} is half bound"


def _is_live(pod: Object) -> bool:
    ended = pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
    return not pod["metadata"].get("deletionTimestamp") and not ended


def _is_decided(pod: Object) -> bool:
    return bool(node_of(pod) or (pin_of(pod) and not is_gated(pod)))


def _gpus(pod: Object) -> int:
    limits = (container["resources"]["limits"] for container in pod["spec"]["containers"])
    return sum(int(each["nvidia.com/gpu"]) for each in limits)


@pytest.fixture
def serving(cluster: Cluster, namespace: str) -> Serving:
    """A new namespace; which processes run is up to the test's other fixtures."""
    return Serving(cluster, namespace)


__all__ = ["serving", "workers"]


def fewest_serving(before: Sequence[Object], events: Sequence[Event], role: str, size: int) -> int:
    """The fewest replicas of a role that served at any moment since ``before``."""
    pods = {uid_of(pod): pod for pod in before}
    found = [_serving(pods.values(), role, size)]
    for kind, pod in events:
        pods.pop(uid_of(pod), None)
        if kind != "DELETED":
            pods[uid_of(pod)] = pod
        found.append(_serving(pods.values(), role, size))
    return min(found)


def _serving(pods: Iterable[Object], role: str, size: int) -> int:
    ready = Counter(label(pod, "replica") for pod in pods if label(pod, "role") == role and serves(pod))
    return sum(count >= size for count in ready.values())


def serves(pod: Object) -> bool:
    return is_ready(pod) and not pod["metadata"].get("deletionTimestamp")
