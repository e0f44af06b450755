"""Gangs made by hand for the tests of the scheduler process: owner, Workload, groups, and gated pods.

No operator runs in those tests, so that what is seen is the scheduler's doing alone; ``Replacing`` does the one thing
that the scheduler relies on: pods that were released or deleted are created again, gated.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from kubernetes.client import ApiException

from localcluster import Cluster, concurrently, eventually

GATE = "scheduling.covey.dev/gang"
START_GATE = "scheduling.covey.dev/start"
RELEASE = "scheduling.covey.dev/release"
GROUP = "/apis/scheduling.covey.dev/v1alpha1/namespaces/{}/{}"
SCHEDULER = "covey-scheduler"
Json = dict[str, Any]


@dataclass(frozen=True)
class Role:
    """One role of a unit."""

    name: str
    replicas: int = 1
    minimum: int = 1
    size: int = 1
    gpus: int = 8
    required: str | None = None
    preferred: str | None = None
    spec: Mapping[str, Any] = field(default_factory=dict)
    gates: Sequence[str] = (GATE,)


def resources(gpus: int) -> Json:
    """One container that asks for GPUs and a little CPU."""
    amounts = {"cpu": "100m", "memory": "64Mi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    return {"name": "main", "image": "registry.invalid/none", "resources": {"requests": amounts, "limits": amounts}}


class Bench:
    """Creates trees in one namespace and looks at their pods."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.pods_path = f"/api/v1/namespaces/{namespace}/pods"
        self._suffix = itertools.count(1)

    def workload(self, name: str) -> Json:
        """An owner of the groups and pods, and a Workload; returns the owner's reference."""
        body = {"metadata": {"name": name}}
        made = self.cluster.api("POST", f"/api/v1/namespaces/{self.namespace}/configmaps", body)
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made["metadata"]["uid"]}
        owner |= {"controller": True, "blockOwnerDeletion": False}
        leaf = {"name": "leaf", "schedulingPolicy": {"gang": {"minCount": 1}}}
        root = {"name": "root", "schedulingPolicy": {"gang": {"minGroupCount": 1}}, "podGroupTemplates": [leaf]}
        self._group("workloads", "Workload", name, {"compositePodGroupTemplates": [root]}, owner, {})
        return owner

    def unit(
        self,
        name: str,
        *roles: Role,
        required: str | None = None,
        unit: int = 0,
        timeout: int = 300,
        priority_class: str | None = None,
        topology: str | None = None,
        owner: Json | None = None,
        pods: bool = True,
        spread: Json | None = None,
        queue: str | None = None,
    ) -> Tree:
        """Create one unit; its pods too, unless told not to."""
        owner = owner or self.workload(name)
        gang_roles = sum(role.minimum > 0 for role in roles)
        spec: Json = {
            "workloadRef": {"workloadName": owner["name"], "templateName": "root"},
            "schedulingPolicy": {"gang": {"minGroupCount": gang_roles}},
            "desiredGroupCount": len(roles),
            "timeoutSeconds": timeout,
            "schedulingConstraints": _constraints(required, None, "Group")
            | ({"topologyName": topology} if topology else {})
            | ({"spread": spread} if spread else {}),
        }
        if priority_class:
            spec["priorityClassName"] = priority_class
        if queue:
            spec["queue"] = queue
        labels = {"covey.dev/inference": owner["name"], "covey.dev/unit": str(unit)}
        self._group("compositepodgroups", "CompositePodGroup", name, spec, owner, labels)
        tree = Tree(self, name, owner, labels, priority_class)
        for role in roles:
            tree.add_role(role)
        if pods:
            tree.create()
        return tree

    def pod(
        self, name: str, *, gpus: int = 8, node: str | None = None, scheduler: str = SCHEDULER, **spec: Any
    ) -> Json:
        """An ordinary pod; with ``node`` it is bound at once, as by another scheduler."""
        body = {
            "metadata": {"name": name},
            "spec": {"schedulerName": scheduler, "containers": [resources(gpus)]} | spec,
        }
        if node:
            body["spec"]["nodeName"] = node
        return self.cluster.api("POST", self.pods_path, body)

    def get(self, name: str) -> Json:
        """A pod."""
        return self.cluster.api("GET", f"{self.pods_path}/{name}")

    def all(self) -> list[Json]:
        """All pods of the namespace."""
        return self.cluster.api("GET", self.pods_path)["items"]

    def delete(self, name: str, grace: int = 0) -> None:
        """Delete a pod at once."""
        self.cluster.api("DELETE", f"{self.pods_path}/{name}?gracePeriodSeconds={grace}")

    def condition(self, name: str, kind: str = "Admitted") -> Json:
        """A condition of a root; empty while it is not there."""
        path = f"{GROUP.format(self.namespace, 'compositepodgroups')}/{name}"
        found = self.cluster.api("GET", path).get("status", {}).get("conditions", [])
        return next((each for each in found if each["type"] == kind), {})

    def suffix(self) -> str:
        """Makes a pod's name unique."""
        return f"{next(self._suffix):05d}"

    def _group(self, plural: str, kind: str, name: str, spec: Json, owner: Json, labels: Json) -> Json:
        metadata = {"name": name, "labels": labels, "ownerReferences": [owner]}
        body = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
        return self.cluster.api("POST", GROUP.format(self.namespace, plural), body)


class Tree:
    """One unit: its groups are on the API server, and the manifests of its pods are kept here."""

    def __init__(self, bench: Bench, name: str, owner: Json, labels: Json, priority_class: str | None) -> None:
        self.bench = bench
        self.name = name
        self.owner = owner
        self.labels = labels
        self.manifests: list[Json] = []
        self._priority_class = priority_class

    def add_role(self, role: Role) -> None:
        """Create a role's groups, and note the manifests of its pods."""
        name = f"{self.name}-{role.name}"
        labels = self.labels | {"covey.dev/role": role.name}
        own = _constraints(role.required, role.preferred, "Pod" if role.size == 1 else "Group")
        if role.size == 1:
            policy = {"gang": {"minCount": role.minimum}} if role.minimum else {"basic": {}}
            self._child("podgroups", "PodGroup", name, self.name, policy, labels, own, desiredCount=role.replicas)
        else:
            policy = {"gang": {"minGroupCount": role.minimum}} if role.minimum else {"basic": {}}
            kind = ("compositepodgroups", "CompositePodGroup")
            self._child(*kind, name, self.name, policy, labels, {}, desiredGroupCount=role.replicas)
        for replica in range(role.replicas):
            marked = labels | {"covey.dev/replica": str(replica)}
            group = name
            if role.size > 1:
                group = f"{name}-{replica}"
                policy = {"gang": {"minCount": role.size}}
                self._child("podgroups", "PodGroup", group, name, policy, marked, own, desiredCount=role.size)
            for index in range(role.size):
                self.manifests.append(self._pod(role, group, marked | {"covey.dev/index": str(index)}))

    def create(self, manifests: Sequence[Json] | None = None) -> None:
        """Create pods: all, or those given."""
        path = self.bench.pods_path
        concurrently(
            lambda body: self.bench.cluster.api("POST", path, body), self.manifests if manifests is None else manifests
        )

    def replace(self, names: Collection[str]) -> None:
        """Delete those of these pods that are the unit's, and create their successors, gated."""
        for manifest in [each for each in self.manifests if each["metadata"]["name"] in names]:
            self.bench.delete(manifest["metadata"]["name"])
            stem = manifest["metadata"]["name"].rpartition("-")[0]
            manifest["metadata"]["name"] = f"{stem}-{self.bench.suffix()}"
            self.create([manifest])

    def pods(self) -> list[Json]:
        """The unit's pods as they are."""
        path = f"{self.bench.pods_path}?labelSelector=covey.dev/inference%3D{self.owner['name']}"
        unit = self.labels["covey.dev/unit"]
        return [
            pod
            for pod in self.bench.cluster.api("GET", path)["items"]
            if pod["metadata"]["labels"]["covey.dev/unit"] == unit
        ]

    def bound(self, role: str | None = None) -> list[Json]:
        """The pods that have a node; those of one role."""
        return [
            pod
            for pod in self.pods()
            if node_of(pod) and (role is None or pod["metadata"]["labels"]["covey.dev/role"] == role)
        ]

    def wait_bound(self, count: int | None = None, timeout: float = 60.0) -> list[Json]:
        """Wait until so many pods are bound, all by default."""
        wanted = len(self.manifests) if count is None else count
        eventually(lambda: len(self.bound()) == wanted, timeout, lambda: f"{len(self.bound())} bound of {wanted}")
        return self.bound()

    def wait_refused(self, reason: str = "Infeasible", words: str = "") -> str:
        """Wait until the root says why it is not admitted, in these words; returns the message."""

        def refused() -> Json | None:
            found = self.bench.condition(self.name)
            is_refused = found.get("status") == "False" and found["reason"] == reason
            return found if is_refused and words in found["message"] else None

        return str(eventually(refused, 60, lambda: str(self.bench.condition(self.name)))["message"])

    def _child(
        self,
        plural: str,
        kind: str,
        name: str,
        parent: str,
        policy: Json,
        labels: Json,
        constraints: Json,
        **spec: Any,
    ) -> None:
        spec |= {"parentCompositePodGroupName": parent, "schedulingPolicy": policy}
        if constraints:
            spec["schedulingConstraints"] = constraints
        self.bench._group(plural, kind, name, spec, self.owner, labels)

    def _pod(self, role: Role, group: str, labels: Json) -> Json:
        base = f"{self.name}-{role.name}-{labels['covey.dev/replica']}-{labels['covey.dev/index']}"
        spec = {
            "schedulerName": SCHEDULER,
            "schedulingGates": [{"name": gate} for gate in role.gates],
            "containers": [resources(role.gpus)],
            "terminationGracePeriodSeconds": 0,
        }
        # By this, and not by its quantity, a kube-scheduler tells whose binding it must ask for.
        spec["containers"][0]["resources"]["limits"] = {
            **spec["containers"][0]["resources"]["limits"],
            "scheduling.covey.dev/member": "0",
        }
        if self._priority_class:
            spec["priorityClassName"] = self._priority_class
        return {
            "metadata": {
                "name": f"{base}-{self.bench.suffix()}",
                "labels": labels | {"scheduling.covey.dev/pod-group": group},
                "ownerReferences": [self.owner],
            },
            "spec": spec | copy.deepcopy(dict(role.spec)),
        }


class Replacing:
    """Deletes released pods and creates the successor of every pod that is gone, gated; a context manager."""

    def __init__(self, *trees: Tree) -> None:
        self._bench = trees[0].bench
        self._manifests = {each["metadata"]["name"]: each for tree in trees for each in tree.manifests}
        self._recording = self._bench.cluster.record(self._bench.pods_path)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._seen: set[str] = set()
        #: Release reasons in the order in which they were seen.
        self.released: list[str] = []

    def __enter__(self) -> Self:
        self._recording.__enter__()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._recording.__exit__(kind, error, trace)

    def _run(self) -> None:
        seen = 0
        while not self._stop.is_set():
            try:
                self._recording.wait(lambda events, seen=seen: len(events) > seen, 0.2)
            except TimeoutError:
                continue
            for kind, pod in self._recording.events[seen:]:
                seen += 1
                self._look(kind, pod)

    def _look(self, kind: str, pod: Json) -> None:
        meta = pod["metadata"]
        if meta["name"] not in self._manifests:
            return
        if kind == "DELETED":
            self._succeed(self._manifests.pop(meta["name"]))
        elif RELEASE in meta.get("annotations", {}) and meta["uid"] not in self._seen:
            self._seen.add(meta["uid"])
            self.released.append(meta["annotations"][RELEASE])
            try:
                self._bench.delete(meta["name"])
            except ApiException as error:
                if error.status != 404:
                    raise

    def _succeed(self, manifest: Json) -> None:
        successor = copy.deepcopy(manifest)
        stem = manifest["metadata"]["name"].rpartition("-")[0]
        successor["metadata"]["name"] = f"{stem}-{self._bench.suffix()}"
        self._manifests[successor["metadata"]["name"]] = successor
        self._bench.cluster.api("POST", self._bench.pods_path, successor)


def node_of(pod: Json) -> str:
    """Where a pod is bound; empty when it is not."""
    return str(pod["spec"].get("nodeName", ""))


def gates_of(pod: Json) -> list[str]:
    """The names of a pod's gates."""
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]


def pin_of(pod: Json) -> str | None:
    """The one node that every required term of a pod's affinity names."""
    required = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED)
    terms = [term for term in (required or {}).get("nodeSelectorTerms", []) if term]
    names = {
        value
        for term in terms
        for item in term.get("matchFields", [])
        if item["key"] == "metadata.name" and item["operator"] == "In"
        for value in item["values"]
    }
    whole = all(any(item["key"] == "metadata.name" for item in term.get("matchFields", [])) for term in terms)
    return names.pop() if len(names) == 1 and whole else None


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _constraints(required: str | None, preferred: str | None, scope: str) -> Json:
    wanted = [(required, "Required"), (preferred, "Preferred")]
    topology = [{"level": level, "mode": mode, "scope": scope} for level, mode in wanted if level]
    return {"topology": topology} if topology else {}
