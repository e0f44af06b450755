"""A stand-in for the cluster-autoscaler, and for what Karpenter does with buffers: it answers as the real ones do.

Traced in kubernetes-sigs/cluster-autoscaler (33c3f97b) and kubernetes-sigs/karpenter (1.14.1). One ProvisioningRequest a
loop, the oldest that has no final answer; what fits on the nodes that there are is *found*, and no node is made; the
rest comes from one node group, whole, or is not found and tried again later. Its simulation is first-fit: selectors,
requests, and affinity of the pods among themselves, one after another. Of a cloud nothing is here: nodes are kwok's.

The kinds are written by hand after the published API, as far as Covey and this stand-in use them; what they refuse, the
published ones refuse too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from kubernetes.client import ApiException

from builders.manifests import Object
from localcluster import Cluster

GROUP: Final = "autoscaling.x-k8s.io"
DEVICE: Final = "nvidia.com/gpu"
_LOOP: Final = 0.2


def _definition(kind: str, version: str, spec: Object) -> Object:
    plural = f"{kind.lower()}s"
    conditions = {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {"spec": spec, "status": {"type": "object", "properties": {"conditions": conditions}}},
    }
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GROUP}",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1111"},
        },
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [served]},
    }


_TEXT: Final = {"type": "string", "minLength": 1}
_REFERENCE: Final = {"type": "object", "required": ["name"], "properties": {"name": _TEXT}}
PROVISIONING_REQUEST: Final = _definition(
    "ProvisioningRequest",
    "v1",
    {
        "type": "object",
        "required": ["podSets", "provisioningClassName"],
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Value is immutable"}],
        "properties": {
            "provisioningClassName": {**_TEXT, "maxLength": 253},
            "podSets": {
                "type": "array",
                "minItems": 1,
                "maxItems": 32,
                "items": {
                    "type": "object",
                    "required": ["count", "podTemplateRef"],
                    "properties": {"count": {"type": "integer", "minimum": 1}, "podTemplateRef": _REFERENCE},
                },
            },
        },
    },
)
CAPACITY_BUFFER: Final = _definition(
    "CapacityBuffer",
    "v1beta1",
    {
        "type": "object",
        "x-kubernetes-validations": [
            {"rule": "!has(self.podTemplateRef) || has(self.replicas)", "message": "replicas must be set"}
        ],
        "properties": {
            "provisioningStrategy": {"type": "string", "default": "buffer.x-k8s.io/active-capacity"},
            "podTemplateRef": _REFERENCE,
            "replicas": {"type": "integer", "minimum": 0},
        },
    },
)


@dataclass
class NodeGroup:
    """Nodes of one kind.

    ``add`` makes so many and returns their names; ``fresh`` is a node as it would come. ``most``: how many there may be.
    ``whole``: all of them come, or none (ZeroOrMaxNodeScaling).
    """

    add: Callable[[int], Sequence[str]]
    most: int
    gpus: int = 8
    labels: dict[str, str] = field(default_factory=dict)
    whole: bool = False
    size: int = 0


@dataclass(frozen=True)
class _Room:
    """A node of the simulation."""

    labels: dict[str, str]
    free: list[int]


@dataclass
class Autoscaler:
    """Answers requests while it runs.

    Knobs: ``lies`` says that nodes come and makes none; ``finds`` says that everything fits; ``fails`` gives requests up.
    """

    cluster: Cluster
    namespace: str
    groups: list[NodeGroup] = field(default_factory=list)
    lies: bool = False
    finds: bool = False
    fails: bool = False
    #: Seconds until what was not found is tried again; a minute and more in the real one.
    back_off: float = 1.0
    _tried: dict[str, float] = field(default_factory=dict)
    _coming: list[tuple[NodeGroup, int]] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[None]:
        stop, failures = threading.Event(), list[str]()

        def run() -> None:
            while not stop.wait(_LOOP):
                try:
                    self.look()
                except ApiException as error:
                    # Whoever asked has gone meanwhile, or the kind has just come.
                    if error.status not in {404, 409, 429}:
                        failures.append(f"{error.status}: {error.body}")

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            assert not failures, failures

    def look(self) -> None:
        """One loop."""
        waiting = [each for each in self.requests() if self._is_due(each)]
        for request in waiting[:1]:
            (pods,) = request["spec"]["podSets"]
            template = self._template(pods["podTemplateRef"]["name"])
            self._tried[request["metadata"]["uid"]] = time.monotonic()
            if self.fails:
                self._say(request, "Failed", "True", "Failed", "the cloud has given up")
            else:
                self._say(request, "Provisioned", *self._provide(template, pods["count"], self._booked()))
                self._bring()
        buffers = self.buffers()
        for place, buffer in enumerate(buffers):
            # Karpenter gathers for a second (``BATCH_IDLE_DURATION``): meanwhile pods take the nodes that came.
            if not self._is_due(buffer):
                continue
            self._tried[buffer["metadata"]["uid"]] = time.monotonic()
            template = self._template(buffer["spec"]["podTemplateRef"]["name"])
            _, reason, message = self._provide(
                template, buffer["spec"]["replicas"], [each["spec"] for each in buffers[:place]]
            )
            found = reason == "CapacityIsFound"
            word = "FitsExistingCapacity" if found else "RequiresNewCapacity"
            self._say(buffer, "Provisioning", "True" if found else "False", word, message)
            self._bring()

    def _booked(self) -> list[Object]:
        """Pods of the requests that were granted: their room is theirs until they go."""
        return [
            pods
            for request in self.requests()
            for told in request.get("status", {}).get("conditions", ())
            if (told["type"], told["status"]) == ("Provisioned", "True")
            for pods in request["spec"]["podSets"]
        ]

    def requests(self) -> list[Object]:
        return self._list("provisioningrequests", "v1")

    def buffers(self) -> list[Object]:
        return self._list("capacitybuffers", "v1beta1")

    def templates(self) -> list[Object]:
        return list(self.cluster.api("GET", f"/api/v1/namespaces/{self.namespace}/podtemplates")["items"])

    def _list(self, plural: str, version: str) -> list[Object]:
        path = f"/apis/{GROUP}/{version}/namespaces/{self.namespace}/{plural}"
        try:
            return list(self.cluster.api("GET", path)["items"])
        except ApiException as error:
            if error.status == 404:
                return []
            raise

    def _template(self, name: str) -> Object:
        path = f"/api/v1/namespaces/{self.namespace}/podtemplates/{name}"
        return dict(self.cluster.api("GET", path)["template"])

    def _is_due(self, request: Object) -> bool:
        told = {each["type"]: each["status"] for each in request.get("status", {}).get("conditions", ())}
        if "True" in {told.get("Failed"), told.get("Provisioned")}:
            return False
        return time.monotonic() > self._tried.get(request["metadata"]["uid"], float("-inf")) + self.back_off

    def _say(self, request: Object, kind: str, status: str, reason: str, message: str) -> None:
        before = next((each for each in request.get("status", {}).get("conditions", ()) if each["type"] == kind), {})
        if (before.get("status"), before.get("reason")) == (status, reason):
            return
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        told = {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}
        metadata = request["metadata"]
        plural = "provisioningrequests" if "podSets" in request["spec"] else "capacitybuffers"
        path = f"/apis/{request['apiVersion']}/namespaces/{self.namespace}/{plural}/{metadata['name']}/status"
        body = {"metadata": {"uid": metadata["uid"]}, "status": {"conditions": [told]}}
        self.cluster.api("PATCH", path, body, patch="merge")

    def _bring(self) -> None:
        """Make the nodes that were promised: as in a cloud, they come after the answer."""
        while self._coming:
            group, grow = self._coming.pop()
            group.add(grow)

    def _provide(self, template: Object, count: int, booked: Sequence[Object]) -> tuple[str, str, str]:
        """Find room beside what others were told that they have."""
        rooms = self._rooms()
        for each in booked:
            _place(self._template(each["podTemplateRef"]["name"]), each.get("count", each.get("replicas")), rooms)
        left = count - _place(template, count, _copies(rooms))
        if self.finds or not left:
            return "True", "CapacityIsFound", "capacity is found in the cluster"
        for group in self.groups:
            fresh = [_Room(group.labels, [group.gpus]) for _ in range(group.most - group.size)]
            # What has a place stays there: with affinity the rest has to join it.
            sizes = range(1, len(fresh) + 1)
            needed = next(
                (size for size in sizes if _place(template, count, _copies([*rooms, *fresh[:size]])) == count), 0
            )
            if needed:
                grow = len(fresh) if group.whole else needed
                group.size += grow
                if not self.lies:
                    self._coming.append((group, grow))
                return "True", "CapacityIsProvisioned", f"{grow} nodes come"
        return "False", "CapacityIsNotFound", f"no node group has room for {left} pods"

    def _rooms(self) -> list[_Room]:
        pods = self.cluster.api("GET", "/api/v1/pods")["items"]
        taken: dict[str, int] = {}
        for pod in pods:
            node = pod["spec"].get("nodeName")
            if node and pod["status"].get("phase") not in {"Succeeded", "Failed"}:
                taken[node] = taken.get(node, 0) + sum(map(_devices, pod["spec"]["containers"]))
        nodes = sorted(
            self.cluster.api("GET", "/api/v1/nodes")["items"], key=lambda each: str(each["metadata"]["name"])
        )
        return [
            _Room(
                each["metadata"]["labels"],
                [int(each["status"]["allocatable"].get(DEVICE, 0)) - taken.get(each["metadata"]["name"], 0)],
            )
            for each in nodes
        ]


def _devices(container: Object) -> int:
    resources = container.get("resources", {})
    return int((resources.get("requests") or resources.get("limits") or {}).get(DEVICE, 0))


def _place(template: Object, count: int, rooms: Sequence[_Room]) -> int:
    """Place pods one after another, each in the first node that takes it; take their room, and return how many."""
    spec = template["spec"]
    size, selector = sum(map(_devices, spec["containers"])), spec.get("nodeSelector", {})
    key, domain = _near(spec), None
    for placed in range(count):
        for room in rooms:
            fits = selector.items() <= room.labels.items() and room.free[0] >= size
            if fits and (key is None or (key in room.labels and domain in {None, room.labels[key]})):
                room.free[0] -= size
                domain = room.labels[key] if key else None
                break
        else:
            return placed
    return count


def _copies(rooms: Sequence[_Room]) -> list[_Room]:
    return [_Room(room.labels, list(room.free)) for room in rooms]


def _near(spec: Object) -> str | None:
    terms = spec.get("affinity", {}).get("podAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", ())
    return next((str(term["topologyKey"]) for term in terms), None)
