"""An API server in memory, for storms over whole passes: it stores, defaults, charges quotas, and tells of it late.

It decides nothing that a test of Kubernetes' own behaviour would be about; those run on a real one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from covey.api import constants as names
from covey.api.core import rfc3339
from covey.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from covey.kube.resources import PODS, RESOURCE_QUOTAS, Resource
from covey.operator.model.objects import CONTROLLER_REVISIONS
from covey.operator.quota.charge import charge_of
from covey.placement.cluster.resources import parse_quantity
from merge_patch import merge
from unit.operator.wild.defaults import add_defaults
from unit.operator.wild.patches import apply, patch

Json = dict[str, Any]
Key = tuple[str, str, str]
_ENDED: Final = {"Failed", "Succeeded"}


@dataclass(frozen=True)
class Event:
    """One write: the object before it and after it."""

    at: float
    version: int
    before: Json | None
    after: Json | None

    def seen_by(self, label: str | None) -> tuple[str, Json] | None:
        """The event as a watch with a label selector has it: an object that loses the label is deleted for it."""
        before, after = (
            each if each is not None and _matches(each, label) else None for each in (self.before, self.after)
        )
        if after is not None:
            return ("MODIFIED" if before is not None else "ADDED"), after
        if before is None:
            return None
        gone = deepcopy(self.after or before)
        gone["metadata"]["resourceVersion"] = str(self.version)
        return "DELETED", gone


def _matches(body: Json, label: str | None) -> bool:
    return label is None or label in (body["metadata"].get("labels") or {})


class ApiServer:
    """All objects, and how they came to be.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.version = 0
        self.objects: dict[Key, Json] = {}
        self._log: dict[str, list[Event]] = defaultdict(list)
        self._news: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._applied: dict[tuple[str, str], Mapping[str, Any]] = {}

    # Reading

    def find(self, kind: Resource, name: str, namespace: str | None) -> Json:
        """One object."""
        found = self.objects.get((kind.type, namespace or "", name))
        if found is None:
            raise NotFound(404, "NotFound", f'{kind.plural} "{name}" not found')
        return found

    def items(self, kind: Resource, namespace: str | None = None, label: str | None = None) -> list[Json]:
        """All objects of a kind."""
        return [
            body
            for (type_, space, _), body in self.objects.items()
            if type_ == kind.type and namespace in {None, space} and _matches(body, label)
        ]

    async def follow(self, kind: Resource, version: int) -> AsyncIterator[Event]:
        """Every write of a kind after a version, as they happen."""
        log, at = self._log[kind.type], 0
        while True:
            while at < len(log):
                at += 1
                if log[at - 1].version > version:
                    yield log[at - 1]
            self._news[kind.type].clear()
            await self._news[kind.type].wait()

    # Writing

    def create(self, kind: Resource, body: Mapping[str, Any], namespace: str | None, *, dry_run: bool = False) -> Json:
        """Store a new object."""
        made = deepcopy(dict(body))
        metadata = made["metadata"]
        namespace = namespace or metadata.get("namespace") or ""
        key = kind.type, namespace if kind.namespaced else "", metadata["name"]
        if key in self.objects and not dry_run:
            raise AlreadyExists(409, "AlreadyExists", f'{kind.plural} "{metadata["name"]}" already exists')
        add_defaults(kind.type, made)
        if kind == PODS:
            self._admit(made, namespace)
        metadata |= {"uid": f"uid-{self.version + 1}", "generation": 1, "creationTimestamp": rfc3339(self.clock())}
        metadata["managedFields"] = [{"manager": names.MANAGER_OPERATOR, "operation": "Update"}]
        if kind.namespaced:
            metadata["namespace"] = namespace
        made |= {"apiVersion": kind.api_version, "kind": kind.kind}
        if dry_run:
            return made
        self._applied[metadata["uid"], names.MANAGER_OPERATOR] = _fields(body)
        return self._write(key, made)

    def merge(self, kind: Resource, name: str, namespace: str | None, body: Mapping[str, Any]) -> Json:
        """Apply a merge patch."""
        found = self.find(kind, name, namespace)
        self._compare(found, body)
        return self._change(kind, found, merge(found, _fields(body)))

    def patch(self, kind: Resource, name: str, namespace: str | None, operations: Sequence[Mapping[str, Any]]) -> Json:
        """Apply a JSON patch."""
        found = self.find(kind, name, namespace)
        return self._change(kind, found, patch(found, operations))

    def apply(self, kind: Resource, body: Mapping[str, Any], manager: str, subresource: str | None) -> Json:
        """Apply fields for a manager."""
        metadata = body["metadata"]
        try:
            found = self.find(kind, metadata["name"], metadata.get("namespace"))
        except NotFound:
            if subresource is not None or "uid" in metadata or "resourceVersion" in metadata:
                raise
            made = self.create(kind, body, None)
            return self._manage(kind, made, manager, body)
        self._compare(found, body)
        if subresource == "status":
            status = found.get("status") or {}
            # Nobody else writes the status of Covey's own kinds.
            after = apply(status, None, body["status"]) if kind == PODS else deepcopy(body["status"])
            return self._change(kind, found, {**found, "status": after})
        fields = _fields(body)
        before = self._applied.get((found["metadata"]["uid"], manager))
        owns = {"manager": manager, "operation": "Apply"} in found["metadata"]["managedFields"]
        made = self._change(kind, found, apply(found, before if owns else None, fields))
        return self._manage(kind, made, manager, fields)

    def delete(self, kind: Resource, name: str, namespace: str | None, uid: str | None, version: str | None) -> None:
        """Delete an object; a pod that runs ends first."""
        found = self.find(kind, name, namespace)
        self._compare(found, {"metadata": {"uid": uid, "resourceVersion": version}})
        runs = kind == PODS and found["spec"].get("nodeName") and found["status"].get("phase") not in _ENDED
        if not runs:
            self.remove(kind, name, namespace)
        elif "deletionTimestamp" not in found["metadata"]:
            self._change(kind, found, merge(found, {"metadata": {"deletionTimestamp": rfc3339(self.clock())}}))

    def remove(self, kind: Resource, name: str, namespace: str | None) -> None:
        """Have an object gone."""
        self._write((kind.type, namespace or "", name), None)

    def store(self, kind: Resource, body: Json) -> None:
        """Write an object whatever it is, as those do who are not of interest here."""
        metadata = body["metadata"]
        self._write((kind.type, metadata.get("namespace", ""), metadata["name"]), deepcopy(body))

    def _manage(self, kind: Resource, made: Json, manager: str, body: Mapping[str, Any]) -> Json:
        self._applied[made["metadata"]["uid"], manager] = _fields(body)
        entry = {"manager": manager, "operation": "Apply"}
        managers = made["metadata"].get("managedFields") or []
        if entry in managers:
            return made
        return self._change(kind, made, merge(made, {"metadata": {"managedFields": [*managers, entry]}}))

    def _compare(self, found: Json, body: Mapping[str, Any]) -> None:
        for field in ("uid", "resourceVersion"):
            given = body.get("metadata", {}).get(field)
            if given is not None and given != found["metadata"][field]:
                raise Conflict(
                    409, "Conflict", f"{field} in precondition: {given}, in object: {found['metadata'][field]}"
                )

    def _change(self, kind: Resource, found: Json, made: Json) -> Json:
        """Store another version of an object; what changes nothing is none."""
        if made == found:
            return found
        if kind == CONTROLLER_REVISIONS and made.get("data") != found.get("data"):
            causes = [{"reason": "FieldValueInvalid", "field": "data"}]
            raise Invalid(422, "Invalid", "data: Invalid value: field is immutable", {"causes": causes})
        if kind != PODS:
            add_defaults(kind.type, made)
        metadata = made["metadata"] = dict(made["metadata"])
        if made.get("spec") != found.get("spec"):
            metadata["generation"] = metadata.get("generation", 0) + 1
        return self._write((kind.type, metadata.get("namespace", ""), metadata["name"]), made)

    def _write(self, key: Key, after: Json | None) -> Json:
        self.version += 1
        before = self.objects.pop(key, None)
        if after is not None:
            after["metadata"]["resourceVersion"] = str(self.version)
            self.objects[key] = after
        self._log[key[0]].append(Event(self.clock(), self.version, before, after))
        self._news[key[0]].set()
        if key[0] == PODS.type:
            self._charge(key[1])
        return after or {}

    # Quotas

    def _admit(self, pod: Json, namespace: str) -> None:
        asked = dict(charge_of(pod).amounts)
        for quota in self.items(RESOURCE_QUOTAS, namespace):
            hard, used = quota["spec"]["hard"], quota["status"]["used"]
            for name in asked.keys() & hard.keys():
                if parse_quantity(used[name]) + asked[name] > parse_quantity(hard[name]):
                    said = f"exceeded quota: {quota['metadata']['name']}, requested: {name}={asked[name]}, used: {used[name]}"
                    raise Forbidden(403, "Forbidden", f'pods "{pod["metadata"]["name"]}" is forbidden: {said}')

    def _charge(self, namespace: str) -> None:
        """Bring what is used up to date."""
        for quota in self.items(RESOURCE_QUOTAS, namespace):
            used = dict.fromkeys(quota["spec"]["hard"], 0)
            for pod in self.items(PODS, namespace):
                if (pod.get("status") or {}).get("phase") not in _ENDED:
                    for name, amount in charge_of(pod).amounts:
                        if name in used:
                            used[name] += int(amount)
            status = {"hard": quota["spec"]["hard"], "used": {name: str(count) for name, count in used.items()}}
            self._change(RESOURCE_QUOTAS, quota, {**quota, "status": status})


def _fields(body: Mapping[str, Any]) -> Json:
    """The fields of a body that may be written: metadata have others, too."""
    metadata = body.get("metadata", {})
    kept = ("labels", "annotations", "ownerReferences", "finalizers", "managedFields", "deletionTimestamp")
    return deepcopy({**body, "metadata": {key: metadata[key] for key in kept if key in metadata}})
