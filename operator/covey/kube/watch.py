"""Decoding of lists and watch streams, without I/O.

A watch is a stream of JSON objects, one a line.  Lines may be longer than any buffer (an object may have 1.5 MB),
and chunks end anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Literal, TypeVar, cast

import msgspec

from covey.kube.errors import Undecodable, api_error
from covey.kube.json_text import UNREADABLE, read_plain, split_array, split_object

T = TypeVar("T")

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"
BOOKMARK: Final = "BOOKMARK"
_ERROR: Final = "ERROR"


class ListMeta(msgspec.Struct, rename="camel", frozen=True):
    """``metav1.ListMeta``."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Chunk(msgspec.Struct, Generic[T], frozen=True):
    """One answer to a LIST."""

    items: list[T] | None = None
    metadata: ListMeta = ListMeta()


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Bookmark(msgspec.Struct, frozen=True):
    metadata: ListMeta = ListMeta()


#: Called with the error, which says in which object.
OnUnreadable = Callable[[Undecodable], None]


class LineBuffer:
    """Cuts a stream of chunks into lines; parts are joined once, however many chunks a line spans."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their ends; empty lines are left out."""
        head, *rest = chunk.split(b"\n")
        self._parts.append(head)
        if not rest:
            return []
        lines = [b"".join(self._parts), *rest[:-1]]
        self._parts = [rest[-1]]
        return [line for line in lines if line]


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """The decoder of a type, made once; there are as many as types in the code."""
    made = _decoders.get(kind)
    if made is None:
        made = _decoders[kind] = msgspec.json.Decoder(kind)
    return made


def decode(body: bytes, kind: type[T]) -> T:
    """One object.

    Raises:
        Undecodable: not JSON, too deep, or not of that type.
    """
    try:
        return _decoder(kind).decode(body)
    except UNREADABLE as error:
        raise Undecodable(f"{getattr(kind, '__name__', kind)}: {error}") from error


def decode_chunk(body: bytes, kind: type[T], on_unreadable: OnUnreadable | None = None) -> Chunk[T]:
    """One answer to a LIST of objects of a type.

    Args:
        body: the answer.
        kind: of the objects.
        on_unreadable: called for each object that cannot be read, which is left out.

    Raises:
        Undecodable: it is no list, or, without ``on_unreadable``, an object in it cannot be read.
    """
    try:
        return decode(body, cast("type[Chunk[T]]", Chunk[kind]))  # type: ignore[valid-type] # made at run time
    except Undecodable:
        if on_unreadable is None:
            raise
    # Item by item: a hundred times slower, and only where there is one that cannot be read.
    parts = split_object(body)
    items = []
    for text in split_array(parts.get("items", b"[]")):
        try:
            items.append(_decode_object(text, kind))
        except Undecodable as error:
            on_unreadable(Undecodable(str(error), _read_key(text)))
    return Chunk(items, decode(parts.get("metadata", b"{}"), ListMeta))


def decode_event(line: bytes, kind: type[T]) -> tuple[EventType, T]:
    """One line of a watch.

    A bookmark is an object of the type that has only a resourceVersion: the server fills the rest of it with
    nulls that no projection would accept.

    Raises:
        ApiError: the line is an ERROR event (``Gone``: the resourceVersion is too old).
        Undecodable: not an event, or its object not of that type.
    """
    try:
        event = decode(line, _Event)
        name, content = event.type, bytes(event.object)
    except Undecodable:
        parts = split_object(line)
        name, content = str(read_plain(parts.get("type", b'""'))), parts.get("object", b"{}")
    if name == _ERROR:
        raise api_error(0, content)  # its HTTP status was 200
    if name == BOOKMARK:
        version = decode(content, _Bookmark).metadata.resource_version
        return BOOKMARK, decode(msgspec.json.encode({"metadata": {"resourceVersion": version}}), kind)
    try:
        return cast("EventType", name), _decode_object(content, kind)
    except Undecodable as error:
        raise Undecodable(str(error), _read_key(content)) from error


def _decode_object(text: bytes, kind: type[T]) -> T:
    """One object, without its managedFields where it cannot be read with them: they are deeper than all else of it."""
    try:
        return decode(text, kind)
    except Undecodable:
        members = split_object(text)
        metadata = split_object(members.get("metadata", b"{}"))
        if metadata.pop("managedFields", None) is None:
            raise
        return decode(_join_object(members | {"metadata": _join_object(metadata)}), kind)


def _join_object(members: Mapping[str, bytes]) -> bytes:
    return b"{" + b",".join(msgspec.json.encode(name) + b":" + text for name, text in members.items()) + b"}"


def _read_key(text: bytes) -> tuple[str, str]:
    """The namespace and name of an object that cannot be read otherwise."""
    try:
        metadata = split_object(split_object(text).get("metadata", b"{}"))
        namespace, name = (str(read_plain(metadata.get(field, b'""'))) for field in ("namespace", "name"))
    except Undecodable:
        return "", ""
    return namespace, name
