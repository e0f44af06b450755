"""What the API server holds, and what each write of a plan makes of it: pods, objects, revisions and scalers."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from covey.api import constants as names
from covey.api import core
from covey.api.core import rfc3339
from covey.backends import Owned
from covey.compile import Slot, type_of
from covey.compile.identity import hostname, slot_of
from covey.kube.resources import PODS, ROLE_SCALERS
from covey.model import image_update, podstate
from covey.operator.model.accepted import read_record
from covey.operator.model.actions import (
    Actions,
    Annotate,
    CreatePod,
    DeleteObject,
    Drain,
    Mark,
    PutScaler,
    Relabel,
    Serve,
    Ungate,
    UpdateInPlace,
)
from covey.operator.model.objects import ANNOTATION_NUMBER, CONTROLLER_REVISIONS, StoredScaler
from covey.operator.model.observed import SHARED_BUDGET, StoredRevision, place_pods
from covey.operator.model.place import Tombstone, current


class Stored:
    """Pods, objects and revisions of one resource, and what happens to them."""

    def __init__(self) -> None:
        self.pods: dict[str, core.Pod] = {}
        self.objects: dict[tuple[str, str], Owned] = {}
        #: What the namespace has for all resources together.
        self.shared: dict[tuple[str, str], Owned] = {}
        #: The annotations of each object that were applied last.
        self._applied: dict[tuple[str, str], frozenset[str]] = {}
        self.revisions: list[StoredRevision] = []
        self.scalers: dict[str, StoredScaler] = {}
        self.tombstones: dict[Slot, Tombstone] = {}
        self.retired: set[str] = set()
        #: What defaults and webhooks of the API server make of an object's spec, by kind.
        self.admit: Callable[[str, Mapping[str, Any]], Mapping[str, Any]] = lambda _, spec: spec
        #: What the kubelet says of the containers of each pod (by UID), also where nobody reads it.
        self.statuses: dict[str, tuple[core.ContainerStatus, ...]] = {}
        self.now = 1_800_000_000.0
        self._uids = itertools.count(1)

    def finish(self) -> None:
        """Terminating pods are gone."""
        for name in [name for name, pod in self.pods.items() if pod.metadata.deletion_timestamp]:
            self._bury(name)

    def delete(self, name: str) -> None:
        pod = self.pods.get(name)
        if pod is None:
            return
        if podstate.is_bound(pod):
            self.change(name, metadata={"deletion_timestamp": rfc3339(self.now)})
        else:
            self._bury(name)

    def vanish(self, name: str) -> None:
        self._bury(name)

    def bind(self, name: str, node: str = "node-1") -> None:
        self.pin(name)
        self.change(name, spec={"node_name": node})

    def pin(self, name: str) -> None:
        self.change(name, spec={"scheduling_gates": None})

    def ready(self, name: str) -> None:
        self.change(name, status={"phase": "Running", "conditions": (core.Condition("Ready", "True"),)})

    def place(self) -> None:
        """All that waits has its place: of Covey's gates only that of the start is left."""
        for name, pod in list(self.pods.items()):
            gates = tuple(gate for gate in pod.spec.scheduling_gates or () if gate.name != names.GATE_GANG)
            self.change(name, spec={"scheduling_gates": gates or None})

    def held(self) -> set[str]:
        """The host names of the pods that the start gate holds."""
        return {pod.spec.hostname or "" for pod in self.pods.values() if names.GATE_START in core.gates(pod)}

    def bind_all(self) -> None:
        """Every pod gets a node."""
        for name in list(self.pods):
            self.bind(name)

    def serve(self, *hosts: str, apart: bool = False) -> None:
        """Every live pod (of these host names) gets a node, and Ready.

        Args:
            hosts: beginnings of host names.
            apart: each replica has a node of its own, named like decode-0.
        """
        for name, pod in list(self.pods.items()):
            if podstate.is_dead(pod) or not (pod.spec.hostname or "").startswith(hosts or ""):
                continue
            role, replica = pod.metadata.label(names.LABEL_ROLE), pod.metadata.label(names.LABEL_REPLICA)
            self.bind(name, f"{role}-{replica}" if apart else "node-1")
            self.ready(name)

    def names_of(self, role: str = "", replica: int | None = None, unit: int | None = None) -> list[str]:
        """The names of the pods of a role, replica or unit."""
        wanted = {names.LABEL_ROLE: role or None, names.LABEL_REPLICA: replica, names.LABEL_UNIT: unit}
        labels = {key: str(value) for key, value in wanted.items() if value is not None}
        return sorted(name for name, pod in self.pods.items() if labels.items() <= (pod.metadata.labels or {}).items())

    def name_at(self, hostname: str) -> str:
        """The name of the pod that has a host name now."""
        current_pods = (current(pods) for pods in place_pods(self.pods.values())[0].values())
        return next(pod.metadata.name for pod in current_pods if pod is not None and pod.spec.hostname == hostname)

    def fail(self, name: str) -> None:
        self.change(name, status={"phase": "Failed"})

    def release(self, name: str) -> None:
        self.change(name, metadata={"annotations": {names.ANNOTATION_RELEASE: names.RELEASE_TIMEOUT}})

    def label(self, name: str, labels: Mapping[str, str | None]) -> None:
        merged = {**(self.pods[name].metadata.labels or {}), **labels}
        kept = {key: value for key, value in merged.items() if value is not None}
        self.change(name, metadata={"labels": kept})

    def annotate(self, name: str, annotations: Mapping[str, str | None]) -> None:
        merged = {**(self.pods[name].metadata.annotations or {}), **annotations}
        kept = {key: value for key, value in merged.items() if value is not None}
        self.change(name, metadata={"annotations": kept or None})

    def run(self, name: str) -> None:
        """The kubelet runs what the pod's spec says, each container anew whose image is another one."""
        pod = self.pods[name]
        before = {each.name: each for each in self.statuses.get(pod.metadata.uid, ())}
        told = []
        for container in pod.spec.containers:
            status = before.get(container.name)
            if status is None or status.image_id != container.image:
                count = status.restart_count + 1 if status is not None else 0
                status = core.ContainerStatus(container.name, image_id=container.image, restart_count=count)
            told.append(status)
        self.say(name, *told)
        self.ready(name)

    def say(self, name: str, *statuses: core.ContainerStatus) -> None:
        """The kubelet has told of its containers."""
        pod = self.pods[name]
        self.statuses[pod.metadata.uid] = statuses
        self.change(name, status={"container_statuses": statuses, "observed_generation": pod.metadata.generation})

    def change(self, name: str, **parts: dict[str, Any]) -> None:
        pod = self.pods[name]
        changed = {part: msgspec.structs.replace(getattr(pod, part), **fields) for part, fields in parts.items()}
        self.pods[name] = msgspec.structs.replace(pod, **changed)

    def scale(self, name: str, replicas: int) -> None:
        """An autoscaler asks for so many replicas."""
        found = self.scalers[name]
        metadata = msgspec.structs.replace(found.metadata, generation=found.metadata.generation + 1)
        self.scalers[name] = msgspec.structs.replace(
            found, metadata=metadata, spec={**found.spec, "replicas": replicas}
        )

    # What the operator writes

    def _bury(self, name: str) -> None:
        pod = self.pods.pop(name)
        slot = slot_of(pod.spec.hostname)
        if slot is not None:
            self.tombstones[slot] = Tombstone.of(pod, retired=pod.metadata.uid in self.retired)

    def _store(self, body: Mapping[str, Any]) -> None:
        name = body["metadata"]["name"]
        record = read_record(json.loads(json.dumps(body["data"])))
        assert record is not None
        # One that is there keeps its marks.
        found = next((each for each in self.revisions if each.name == name), StoredRevision(name, 0, record))
        kept = [stored for stored in self.revisions if stored.name != name]
        shown = int(body["metadata"]["annotations"][ANNOTATION_NUMBER])
        self.revisions = [*kept, dataclasses.replace(found, number=body["revision"], record=record, shown=shown)]

    def _mark(self, action: Mark) -> None:
        self.revisions = [
            dataclasses.replace(stored, failed=action.failed, completed=action.completed)
            if stored.name == action.name
            else stored
            for stored in self.revisions
        ]

    def _remove(self, action: DeleteObject) -> None:
        if action.type == ROLE_SCALERS.type:
            del self.scalers[action.name]
        elif action.type == CONTROLLER_REVISIONS.type:
            self.revisions = [stored for stored in self.revisions if stored.name != action.name]
        else:
            del self.objects[action.type, action.name]

    def _annotate(self, action: Annotate) -> None:
        if action.type == PODS.type:
            found = self.pods.get(action.name)
            if found is not None and found.metadata.uid == action.uid:
                merged = {**(found.metadata.annotations or {}), **action.annotations}
                kept = {key: value for key, value in merged.items() if value is not None}
                self.change(action.name, metadata={"annotations": kept})
            return
        owned = self.objects.get((action.type, action.name))
        if owned is not None and owned.metadata.uid == action.uid:
            merged = {**(owned.metadata.annotations or {}), **action.annotations}
            kept = {key: value for key, value in merged.items() if value is not None}
            metadata = msgspec.structs.replace(owned.metadata, annotations=kept)
            self.objects[action.type, action.name] = msgspec.structs.replace(owned, metadata=metadata)

    def _relabel(self, action: Relabel) -> None:
        found = self.pods.get(action.pod.metadata.name)
        if found is not None and found.metadata.uid == action.pod.metadata.uid:
            self.label(action.pod.metadata.name, action.labels)
            self.annotate(action.pod.metadata.name, action.annotations)

    def _update_in_place(self, action: UpdateInPlace) -> None:
        """As the API server applies the patch."""
        name = action.pod.metadata.name
        pod = self.pods.get(name)
        if pod is None or pod.metadata.uid != action.pod.metadata.uid:
            return
        patched = json.loads(msgspec.json.encode(pod))
        status = msgspec.structs.replace(pod.status, container_statuses=self.statuses.get(pod.metadata.uid))
        stored = image_update.Stored(pod.metadata, pod.spec, status)
        for each in image_update.operations(stored, action.images, action.revision, action.at):
            *path, last = (part.replace("~1", "/").replace("~0", "~") for part in each["path"].split("/")[1:])
            at = patched
            for part in path:
                at = at[int(part)] if isinstance(at, list) else at.setdefault(part, {})
            assert each["op"] != "test" or at.get(last, "") == each["value"]
            if each["op"] == "remove":
                del at[last]
            else:
                at[last] = each["value"]
        patched["metadata"]["generation"] = pod.metadata.generation + 1
        patched["status"]["containerStatuses"] = msgspec.to_builtins(status.container_statuses or ())
        self.pods[name] = msgspec.convert(patched, core.Pod)

    def _put_scaler(self, action: PutScaler) -> None:
        found = self.scalers.get(action.name)
        if found is None:
            assert action.stored is None
            body = {**action.body, "metadata": {**action.body["metadata"], "uid": f"uid-{next(self._uids)}"}}
            found = msgspec.convert({**body, "metadata": {**body["metadata"], "generation": 1}}, StoredScaler)
        spec = {**found.spec, **action.patch.get("spec", {})}
        assert [spec.get(each) for each in ("replicas", "targets")] == [
            found.spec.get(each) for each in ("replicas", "targets")
        ], "that is the autoscaler's"
        generation = found.metadata.generation + (spec != found.spec)
        metadata = msgspec.structs.replace(found.metadata, generation=generation)
        status = dict(action.status) or found.status
        self.scalers[action.name] = msgspec.structs.replace(found, metadata=metadata, spec=spec, status=status)

    def _drain(self, action: Drain) -> None:
        name = action.pod.metadata.name
        if name in self.pods:
            self.label(
                name, {names.LABEL_DRAINING: "true", names.LABEL_ENDPOINT: None, **dict.fromkeys(action.withdrawn)}
            )
            claimed = {names.ANNOTATION_CLAIMED_BY: action.claimed_by} if action.claimed_by else {}
            marks = {
                names.ANNOTATION_DRAINING_SINCE: rfc3339(action.since),
                names.ANNOTATION_DRAIN_UNTIL: rfc3339(action.until),
            }
            self.annotate(name, {**marks, **claimed})

    def _serve(self, action: Serve) -> None:
        pod = self.pods.get(action.pod.metadata.name)
        if pod is not None:
            others = (each for each in pod.status.conditions or () if each.type != names.GATE_SERVING)
            ours = core.Condition(names.GATE_SERVING, "True" if action.serving else "False")
            self.change(pod.metadata.name, status={"conditions": (*others, ours)})

    def _apply(self, body: Mapping[str, Any]) -> None:
        key = (type_of(body), body["metadata"]["name"])
        store = self.shared if key == SHARED_BUDGET else self.objects
        found = store.get(key)
        uid = found.metadata.uid if found is not None else f"uid-{next(self._uids)}"
        # What others have noted on it stays, and what was applied and is not any more goes.
        noted = (found.metadata.annotations if found is not None else None) or {}
        applied = body["metadata"].get("annotations", {})
        annotations = {name: text for name, text in noted.items() if name not in self._applied.get(key, ())} | applied
        self._applied[key] = frozenset(applied)
        created = {"creationTimestamp": rfc3339(self.now)} if found is None else {}
        metadata = {**body["metadata"], **created, "uid": uid, "annotations": annotations}
        spec = self.admit(body["kind"], body.get("spec", {}))
        store[key] = msgspec.convert({**body, "metadata": metadata, "spec": spec}, Owned)

    def _ungate(self, action: Ungate) -> None:
        name = action.pod.metadata.name
        if name in self.pods:
            gates = tuple(gate for gate in self.pods[name].spec.scheduling_gates or () if gate.name != action.gate)
            self.change(name, spec={"scheduling_gates": gates or None})

    def _create(self, item: CreatePod, actions: Actions) -> None:
        assert actions.factory is not None
        group = actions.factory.anchor(item.slot)
        predecessor = item.predecessor or self.objects[group].metadata.uid
        while True:
            body = actions.factory.build(item.slot, predecessor, item.told)
            name = body["metadata"]["name"]
            found = self.pods.get(name)
            if found is None:
                break
            if not podstate.is_dead(found) and not podstate.is_released(found):
                return
            self.label(name, {names.LABEL_ADDRESS: None})
            predecessor = found.metadata.uid
        number = next(self._uids)
        body["metadata"] |= {"uid": f"uid-{number}", "creationTimestamp": f"2026-01-01T00:00:{number % 2:02}Z"}
        self.pods[name] = msgspec.convert(body, core.Pod)
        assert self.pods[name].spec.hostname == hostname(item.slot)
