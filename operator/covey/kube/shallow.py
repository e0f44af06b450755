r"""Shallow copies of objects: the metadata decoded, ``spec`` and ``status`` left as JSON text.

A tenant may store 1.4 MB in one object, 10,000 levels deep (the limit of Kubernetes' own decoder). Decoded whole, as
Kopf would, one such object costs 30 MiB and most of a second, and one that is too deep ends the process. A shallow copy
costs what its text does, and cannot be too deep. ``managedFields`` are left out.

A shallow object is JSON itself, which is what Kopf takes::

    {"apiVersion": …, "kind": …, "metadata": {…}, "spec": "{\"roles\": …}", "status": "{…}"}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from covey.api.core import Meta
from covey.kube.errors import Undecodable
from covey.kube.json_text import UNREADABLE, read_plain, split_array, split_object
from covey.kube.watch import ListMeta

_ABSENT: Final = msgspec.Raw(b"null")
_encode: Final = msgspec.json.Encoder().encode


class _Object(msgspec.Struct, rename="camel"):
    metadata: Meta
    api_version: str = ""
    kind: str = ""
    spec: msgspec.Raw = _ABSENT
    status: msgspec.Raw = _ABSENT


class _List(msgspec.Struct, rename="camel"):
    # Go writes null for a list that is nil.
    items: list[msgspec.Raw] | None
    api_version: str = ""
    kind: str = ""
    metadata: ListMeta = ListMeta()


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_object: Final = msgspec.json.Decoder(_Object)
_list: Final = msgspec.json.Decoder(_List)
_event: Final = msgspec.json.Decoder(_Event)
_meta: Final = msgspec.json.Decoder(Meta)


@dataclass(frozen=True, slots=True)
class Page:
    """One answer to a LIST.

    ``body`` is the list of shallow copies as JSON; ``found`` the UIDs of its objects by namespace and name;
    ``unreadable`` counts the objects left out because not even their metadata could be read.
    """

    body: bytes
    found: dict[tuple[str, str], str]
    metadata: ListMeta
    unreadable: int = 0


def shallow_event(line: bytes) -> tuple[str, bytes]:
    """The type of a watch event, and its object as a shallow copy; of an ERROR the object as it is.

    Raises:
        Undecodable: it is not an event, or its object has no metadata that can be read.
    """
    try:
        event = _event.decode(line)
        kind, content = event.type, bytes(event.object)
    except UNREADABLE:
        parts = split_object(line)
        kind, content = str(read_plain(parts.get("type", b'""'))), parts.get("object", b"{}")
    return kind, content if kind == "ERROR" else _encode(_copy(content)[0])


def shallow_list(body: bytes) -> Page:
    """The answer to a LIST, with a shallow copy of each object.

    Raises:
        Undecodable: it is not a list.
    """
    try:
        found = _list.decode(body)
        kind, items, metadata = found.kind, [bytes(item) for item in found.items or ()], found.metadata
        api_version = found.api_version
    except UNREADABLE:
        parts = split_object(body)
        if "items" not in parts:
            raise Undecodable("not a list") from None
        items = list(split_array(parts["items"]))
        kind, api_version = (str(read_plain(parts.get(name, b'""'))) for name in ("kind", "apiVersion"))
        metadata = msgspec.convert(read_plain(parts.get("metadata", b"{}")), ListMeta)
    copies: list[dict[str, Any]] = []
    uids: dict[tuple[str, str], str] = {}
    for item in items:
        try:
            copy, meta = _copy(item)
        except Undecodable:
            continue
        copies.append(copy)
        uids[meta.key] = meta.uid
    answer = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "items": copies}
    return Page(_encode(answer), uids, metadata, unreadable=len(items) - len(copies))


def _copy(text: bytes) -> tuple[dict[str, Any], Meta]:
    try:
        found = _object.decode(text)
        api_version, kind, metadata = found.api_version, found.kind, found.metadata
        parts = {"spec": bytes(found.spec), "status": bytes(found.status)}
    except UNREADABLE:
        parts = split_object(text)
        api_version, kind = (str(read_plain(parts.get(name, b'""'))) for name in ("apiVersion", "kind"))
        metadata = _read_meta(parts.get("metadata", b"{}"))
    copy: dict[str, Any] = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
    for name in ("spec", "status"):
        if parts.get(name, b"null") != b"null":
            copy[name] = parts[name].decode()
    return copy, metadata


def _read_meta(text: bytes) -> Meta:
    """The metadata without what the API server notes for itself: managedFields are as deep as the object."""
    fields = {name: value for name, value in split_object(text).items() if name != "managedFields" and value != b"null"}
    try:
        return _meta.decode(b"{" + b",".join(_encode(name) + b":" + value for name, value in fields.items()) + b"}")
    except UNREADABLE as error:
        raise Undecodable(f"metadata: {error}") from error
