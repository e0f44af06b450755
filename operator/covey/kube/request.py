"""Requests as values: what is sent, and what may be done when no answer comes.

Preparing a request does no I/O, so that every path, parameter and body is checked by tables of plain values;
``client`` only carries them.

A request is ``repeatable`` when sending it a second time after an unknown outcome does no harm:

=================  ===========================================================================================
get, list          reads
create             no: the name may now exist by our own hand; only a dry run is
apply, merge       yes: the second gives the same object
patch (JSON)       when it has a ``test``: a repetition after success fails with Invalid and changes nothing
replace            no: the resourceVersion has moved on if the first one arrived (a Conflict may mean "done")
delete             with a uid: a successor of the same name is never hit (NotFound may mean "done")
bind               yes, it carries the uid: a repetition after success is a Conflict
=================  ===========================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from covey.kube.resources import PODS, Resource

JSON: Final = "application/json"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
#: JSON is YAML, too.
APPLY_PATCH: Final = "application/apply-patch+yaml"

#: An object, and a list of objects, without all that is not metadata.
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Request:
    """One request; ``verb`` and ``resource`` (a plural, or "") label it in metrics."""

    verb: str
    method: str
    path: str
    resource: str = ""
    params: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    content_type: str = JSON
    accept: str = JSON
    repeatable: bool = False

    @property
    def url(self) -> str:
        """Path and query, ready to be appended to the server's address."""
        return f"{self.path}?{urlencode(self.params)}" if self.params else self.path


def get(resource: Resource, name: str, namespace: str | None) -> Request:
    """Read one object."""
    return Request("get", "GET", resource.path(namespace, name), resource.plural, repeatable=True)


def list_(
    resource: Resource,
    namespace: str | None,
    *,
    labels: str | None = None,
    fields: str | None = None,
    limit: int = 0,
    continue_: str = "",
) -> Request:
    """Read a collection, or the next chunk of one."""
    params = _present(
        labelSelector=labels, fieldSelector=fields, limit=str(limit) if limit else None, **{"continue": continue_}
    )
    return Request("list", "GET", resource.path(namespace), resource.plural, params, repeatable=True)


def watch(
    resource: Resource,
    namespace: str | None,
    *,
    resource_version: str,
    seconds: int,
    labels: str | None = None,
    fields: str | None = None,
) -> Request:
    """Follow a collection from a resourceVersion on; the server ends the stream after ``seconds``.

    Not repeatable: who watches has to decide from where to go on.
    """
    params = _present(
        labelSelector=labels,
        fieldSelector=fields,
        resourceVersion=resource_version,
        watch="true",
        allowWatchBookmarks="true",
        timeoutSeconds=str(seconds),
    )
    return Request("watch", "GET", resource.path(namespace), resource.plural, params)


def logs(namespace: str, pod: str, options: Mapping[str, str]) -> Request:
    """Read a container's log."""
    return Request("logs", "GET", f"{PODS.path(namespace, pod)}/log", PODS.plural, tuple(options.items()), accept="*/*")


def create(
    resource: Resource,
    body: Mapping[str, Any],
    namespace: str | None,
    *,
    manager: str | None = None,
    dry_run: bool = False,
    strict: bool = False,
) -> Request:
    """Create an object, in ``namespace`` or the one its metadata names."""
    namespace = namespace or body.get("metadata", {}).get("namespace")
    if resource.namespaced and not namespace:
        raise ValueError(f"a new {resource.kind} needs a namespace")
    params = _present(
        fieldManager=manager,
        dryRun="All" if dry_run else None,
        fieldValidation="Strict" if strict else None,
    )
    path = resource.path(namespace)
    return Request("create", "POST", path, resource.plural, params, _whole(resource, body), repeatable=dry_run)


def apply(
    resource: Resource, body: Mapping[str, Any], *, manager: str, force: bool, subresource: str | None
) -> Request:
    """Server-side apply."""
    params = _present(fieldManager=manager, force="true" if force else None)
    path = _object_path(resource, body, subresource)
    return Request(
        "apply", "PATCH", path, resource.plural, params, _whole(resource, body), APPLY_PATCH, repeatable=True
    )


def json_patch(
    resource: Resource,
    name: str,
    namespace: str | None,
    operations: Sequence[Mapping[str, Any]],
    *,
    manager: str | None,
    dry_run: bool = False,
) -> Request:
    """RFC 6902."""
    return Request(
        "patch",
        "PATCH",
        resource.path(namespace, name),
        resource.plural,
        _present(fieldManager=manager, dryRun="All" if dry_run else None),
        _encode(operations),
        JSON_PATCH,
        repeatable=any(operation["op"] == "test" for operation in operations),
    )


def merge_patch(
    resource: Resource,
    name: str,
    namespace: str | None,
    body: Mapping[str, Any],
    *,
    manager: str | None,
    subresource: str | None = None,
    dry_run: bool = False,
) -> Request:
    """RFC 7386."""
    path = resource.path(namespace, name, subresource)
    params = _present(fieldManager=manager, dryRun="All" if dry_run else None)
    return Request("patch", "PATCH", path, resource.plural, params, _encode(body), MERGE_PATCH, repeatable=True)


def replace(resource: Resource, body: Mapping[str, Any], *, manager: str | None) -> Request:
    """PUT; its metadata carries name, namespace and the resourceVersion that it replaces."""
    path = _object_path(resource, body, None)
    params = _present(fieldManager=manager)
    return Request("update", "PUT", path, resource.plural, params, _whole(resource, body))


def delete(
    resource: Resource,
    name: str,
    namespace: str | None,
    *,
    uid: str | None,
    version: str | None,
    propagation: str,
    grace_seconds: int | None,
) -> Request:
    """Delete one object; with ``uid``, only that incarnation of the name, with ``version`` only as it was then."""
    options: dict[str, Any] = {"propagationPolicy": propagation}
    asked = {"uid": uid, "resourceVersion": version}
    preconditions = {key: value for key, value in asked.items() if value is not None}
    if preconditions:
        options["preconditions"] = preconditions
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    path = resource.path(namespace, name)
    return Request("delete", "DELETE", path, resource.plural, body=_encode(options), repeatable=uid is not None)


def bind(namespace: str, pod: str, uid: str, node: str) -> Request:
    """Bind a pod. The uid keeps a successor of the same name from being bound in its place."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, "namespace": namespace, "uid": uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    path = PODS.path(namespace, pod, "binding")
    return Request("bind", "POST", path, PODS.plural, body=_encode(body), repeatable=True)


def evict(namespace: str, pod: str, uid: str, *, dry_run: bool) -> Request:
    """Evict a pod of this uid, as far as its budgets allow."""
    options = {"preconditions": {"uid": uid}, **({"dryRun": ["All"]} if dry_run else {})}
    metadata = {"name": pod, "namespace": namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
    path = PODS.path(namespace, pod, "eviction")
    return Request("evict", "POST", path, PODS.plural, body=_encode(body), repeatable=True)


def version() -> Request:
    """Prepare the request for the server's version."""
    return Request("get", "GET", "/version", repeatable=True)


def _whole(resource: Resource, body: Mapping[str, Any]) -> bytes:
    """An object with its ``apiVersion`` and ``kind``, which callers may leave out."""
    return _encode({"apiVersion": resource.api_version, "kind": resource.kind, **body})


def _object_path(resource: Resource, body: Mapping[str, Any], subresource: str | None) -> str:
    metadata = body["metadata"]
    return resource.path(metadata.get("namespace"), metadata["name"], subresource)


def _present(**params: str | None) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in params.items() if value)
