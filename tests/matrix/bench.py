"""One scenario's place on a cluster: a namespace and nodes of its own, and everything that happens to its pods."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from builders.manifests import Object
from cluster.namespaces import empty_namespace, make_namespace
from cluster.serving import BLOCK, RACK, Serving
from cluster.workbench import name_of, uid_of
from covey.api.inference import BackendName
from localcluster import Cluster, Nodes, Recording, eventually
from matrix.columns import Column
from matrix.history import Need, Partial, Pods, Whole, partials
from matrix.outcome import DiffersError, RefusedError
from scheduler_trees import node_of

#: Longer than any binding of a whole gang takes, also where pods are bound one by one.
LONGEST_PARTIAL: Final = 10.0
_HYPER_NODES: Final = "/apis/topology.volcano.sh/v1alpha1/hypernodes"
_GROUPS: Final = ("scheduling.covey.dev", "scheduling.k8s.io", "scheduling.volcano.sh", "policy", "apps")


@dataclass
class View:
    """The pods as the recording has them now, and since when nothing of note has changed."""

    recording: Recording
    pods: Pods
    read: int = 0
    signature: Mapping[str, Any] = field(default_factory=dict)
    changed: float = field(default_factory=time.monotonic)

    def update(self) -> float:
        """Take what has come; returns for how many seconds no pod has come, gone, been let go or been bound."""
        for event in self.recording.events[self.read :]:
            self.read += 1
            self.pods.take(event)
        signature = {
            uid: (node_of(pod), len(pod["spec"].get("schedulingGates", ()))) for uid, pod in self.pods.by_uid.items()
        }
        if signature != self.signature:
            self.signature = signature
            self.touch()
        return time.monotonic() - self.changed

    def touch(self) -> None:
        """Something has been done that will change something."""
        self.changed = time.monotonic()

    @property
    def bound(self) -> int:
        """Bound pods, of complete replicas or not."""
        return sum(bool(node_of(pod)) for pod in self.pods.by_uid.values())


@dataclass(frozen=True)
class Bench(Serving):
    """A namespace of a cluster on which one backend is tried."""

    column: Column
    view: View
    prefix: str
    names: list[str]
    hyper_nodes: list[str]

    # What a scenario does

    def nodes(self, count: int = 1, *, racks: int = 1, blocks: int = 1, gpus: int = 8) -> None:
        """Add ready nodes: ``count`` in each of so many racks of so many blocks, none of which there was before.

        Volcano knows the same racks and blocks as HyperNodes, of the first and the second tier.
        """
        described = Nodes(
            blocks=blocks, racks=racks, nodes=count, gpus=gpus, prefix=f"{self.prefix}-{len(self.names)}-"
        )
        self.names.extend(described.names)
        if self.column.backend is BackendName.VOLCANO:
            self._add_hyper_nodes(described)
        self.view.touch()
        self.cluster.add_nodes(described)
        self.view.touch()

    def create(self, *roles: Object, name: str = "llm", **spec: Any) -> Object:
        """Create a resource of this backend, and wait until its pods are there.

        Raises:
            RefusedError: when the backend cannot carry it.
        """
        needs = {each["name"]: Need(each.get("size", 1), each.get("minReplicas", 1)) for each in roles}
        self.needs[name] = needs
        made = super().create(*roles, name=name, backend=str(self.column.backend), **spec)
        self.view.touch()

        def answered() -> bool:
            self.check_refusal(name)
            return bool(self.pods(inference=name))

        eventually(answered, 60, f"{name} has pods, or is refused")
        self.view.touch()
        return made

    def change(self, spec: Object, name: str = "llm") -> None:
        """Merge something into a resource's spec."""
        for each in spec.get("roles", ()):
            self.needs[name][each["name"]] = Need(each.get("size", 1), each.get("minReplicas", 1))
        super().change(spec, name)
        self.view.touch()

    def ask(self, scaler: str, replicas: int) -> None:
        """Ask for so many replicas of a role, as an autoscaler does."""
        self.cluster.api("PATCH", f"{self.path('RoleScaler', scaler)}/scale", {"spec": {"replicas": replicas}})
        self.view.touch()

    def remove(self, kind: str, name: str) -> None:
        """Delete an object."""
        self.delete(kind, name)
        self.view.touch()

    # What it claims

    @property
    def needs(self) -> dict[str, dict[str, Need]]:
        """What each resource asks for."""
        return self.view.pods.needs  # type: ignore[return-value] # made below, as a dict of dicts

    def check_refusal(self, name: str = "llm") -> None:
        """Raises RefusedError when the backend has refused a resource."""
        conditions = self.get("DisaggregatedInference", name).get("status", {}).get("conditions", ())
        for condition in conditions:
            if condition["type"] == "BackendSupported" and condition["status"] == "False":
                raise RefusedError(condition["message"])

    def whole(self, name: str = "llm", unit: int = 0) -> Whole:
        """Complete bound replicas of each role of a unit."""
        self.view.update()
        return self.view.pods.whole((name, str(unit)))

    def expect(self, name: str = "llm", unit: int = 0, **wanted: int) -> None:
        """Come to rest with exactly so many complete bound replicas of each role of a unit, the others none.

        Raises:
            DiffersError: when the scheduler has come to rest elsewhere.
        """
        self.expect_all({(name, unit): wanted})

    def expect_all(self, wanted: Mapping[tuple[str, int], Mapping[str, int]]) -> None:
        """The same of several units at once."""
        goal = {gang: {role: counts.get(role, 0) for role in self.needs[gang[0]]} for gang, counts in wanted.items()}
        pods = sum(
            count * self.needs[name][role].size for (name, _), counts in goal.items() for role, count in counts.items()
        )
        while True:
            still = self.view.update()
            now = {gang: self.whole(*gang) for gang in goal}
            is_there = now == goal and (len(goal) < len(self.needs) or self.view.bound == pods)
            if is_there and still >= self.column.rest:
                return
            if not is_there and still >= self.column.patience:
                if not self.view.bound:
                    raise DiffersError("nothing is bound")
                raise DiffersError(f"{_told(now)} bound instead of {_told(goal)}{self._loose(now)}")
            time.sleep(0.05)

    def _loose(self, now: Mapping[tuple[str, int], Whole]) -> str:
        """Bound pods that belong to no complete replica."""
        complete = sum(
            count * self.needs[name][role].size for (name, _), counts in now.items() for role, count in counts.items()
        )
        return f", and {self.view.bound - complete} pods of halves" if self.view.bound > complete else ""

    def rest(self) -> None:
        """Wait until nothing has changed for a while."""
        while self.view.update() < self.column.rest:
            time.sleep(0.05)

    def domains_of(self, key: str, **labels: Any) -> set[str]:
        """The domains that bound pods lie in, by a label of their nodes."""
        return {values[0] for values in self.domains(self.bound(**labels), key)}

    def left(self) -> str:
        """An object of the namespace that belongs to something, of any kind that a backend uses; empty where none is left."""
        for plural, path in _paths(self.cluster, self.namespace):
            for item in self.cluster.api("GET", path)["items"]:
                if item["metadata"].get("ownerReferences"):
                    return f"{item.get('kind', plural)} {name_of(item)}"
        return ""

    def groups(self) -> list[tuple[str, Object]]:
        """The lowest groups of whatever API, with their paths; where there are none but those in a Workload, that."""
        paths = _paths(self.cluster, self.namespace)
        lowest = "podgroups" if self.column.version != "1.35" else "workloads"
        return [
            (f"{path}/{name_of(item)}", item)
            for plural, path in paths
            if plural == lowest
            for item in self.cluster.api("GET", path)["items"]
        ]

    # Its own affairs

    def _add_hyper_nodes(self, described: Nodes) -> None:
        """A HyperNode for each rack and, above them, for each block."""
        racks: dict[str, set[str]] = {}
        for node in described.manifests():
            labels = node["metadata"]["labels"]
            racks.setdefault(labels[BLOCK], set()).add(labels[RACK])
        for block, inside in racks.items():
            for rack in inside:
                self._add_hyper_node(rack, 1, "rack", [{"type": "Node", "selector": _labelled(rack)}])
            members = [{"type": "HyperNode", "selector": {"exactMatch": {"name": rack}}} for rack in sorted(inside)]
            self._add_hyper_node(block, 2, "block", members)

    def _add_hyper_node(self, name: str, tier: int, tier_name: str, members: Sequence[Object]) -> None:
        body = {
            "apiVersion": "topology.volcano.sh/v1alpha1",
            "kind": "HyperNode",
            "metadata": {"name": name},
            "spec": {"tier": tier, "tierName": tier_name, "members": list(members)},
        }
        self.hyper_nodes.append(name)
        self.cluster.api("POST", _HYPER_NODES, body)

    def check_history(self) -> list[Partial]:
        """The gangs that were bound in part for longer than binding takes."""
        recording = self.view.recording
        recording.check()
        count = len(recording.events)
        found = partials(recording.events[:count], recording.times[:count], self.needs)
        return [each for each in found if each.for_good or each.seconds > LONGEST_PARTIAL]


@contextlib.contextmanager
def opened(cluster: Cluster, column: Column) -> Iterator[Bench]:
    """A bench, empty; what is in it at the end goes, and its nodes after that."""
    namespace = make_namespace(cluster, "matrix")
    prefix = namespace.removeprefix("matrix-")
    needs: dict[str, dict[str, Need]] = {}
    with cluster.record(f"/api/v1/namespaces/{namespace}/pods") as recording:
        bench = Bench(cluster, namespace, column, View(recording, Pods(needs)), prefix, [], [])
        try:
            yield bench
        finally:
            _close(bench)


def _close(bench: Bench) -> None:
    """Take everything away, the nodes last."""
    cluster = bench.cluster
    cluster.api("DELETE", bench.path("DisaggregatedInference"))
    cluster.api("DELETE", f"/api/v1/namespaces/{bench.namespace}/configmaps")

    def empty() -> bool:
        cluster.api("DELETE", f"{bench.path('Pod')}?gracePeriodSeconds=0")
        assert not (left := bench.left()), left
        return True

    eventually(empty, 60, f"{bench.namespace} is empty")
    for name in bench.hyper_nodes:
        cluster.delete(f"{_HYPER_NODES}/{name}")
    cluster.delete_nodes(bench.names)
    empty_namespace(cluster, bench.namespace)


def _labelled(rack: str) -> Object:
    return {"labelMatch": {"matchLabels": {RACK: rack}}}


def _told(counts: Mapping[tuple[str, int], Whole]) -> str:
    """A sentence's part: ``prefill 2, decode 1``, with names and units where there are several."""
    several = len(counts) > 1
    parts = []
    for (name, unit), whole in sorted(counts.items()):
        text = ", ".join(f"{role} {count}" for role, count in whole.items())
        parts.append(f"{name}/{unit}: {text}" if several else text)
    return "; ".join(parts)


def _paths(cluster: Cluster, namespace: str) -> list[tuple[str, str]]:
    """Plural and list path of each namespaced kind that a backend may use, in every version that is served."""
    return [(plural, f"{base}/namespaces/{namespace}/{plural}") for base, plural in _kinds(cluster)]


@functools.cache
def _kinds(cluster: Cluster) -> list[tuple[str, str]]:
    found = [("/api/v1", "pods"), ("/api/v1", "services")]
    for group in cluster.api("GET", "/apis")["groups"]:
        if group["name"] in _GROUPS:
            for version in group["versions"]:
                base = f"/apis/{version['groupVersion']}"
                found += [(base, each["name"]) for each in cluster.api("GET", base)["resources"] if _is_listed(each)]
    return found


def _is_listed(resource: Mapping[str, Any]) -> bool:
    return resource["namespaced"] and "list" in resource["verbs"] and "/" not in resource["name"]


__all__ = ["BLOCK", "RACK", "Bench", "opened", "uid_of"]
