"""Decoding of lists and watch streams, without I/O.

A watch is a stream of JSON objects, one a line.  Lines may be longer than any buffer (an object may have 1.5 MB),
and chunks end anywhere.
"""

from __future__ import annotations

from typing import Any, Final, Generic, Literal, TypeVar, cast

import msgspec

from covey.kube.errors import Undecodable, api_error

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
        Undecodable: not JSON, or not of that type.
    """
    try:
        return _decoder(kind).decode(body)
    except msgspec.MsgspecError as error:
        raise Undecodable(f"{getattr(kind, '__name__', kind)}: {error}") from error


def decode_chunk(body: bytes, kind: type[T]) -> Chunk[T]:
    """One answer to a LIST of objects of a type."""
    return decode(body, cast("type[Chunk[T]]", Chunk[kind]))  # type: ignore[valid-type] # made at run time


def decode_event(line: bytes, kind: type[T]) -> tuple[EventType, T]:
    """One line of a watch.

    A bookmark is an object of the type that has only a resourceVersion: the server fills the rest of it with
    nulls that no projection would accept.

    Raises:
        ApiError: the line is an ERROR event (``Gone``: the resourceVersion is too old).
        Undecodable: not an event, or its object not of that type.
    """
    event = decode(line, _Event)
    if event.type == _ERROR:
        raise api_error(0, bytes(event.object))  # its HTTP status was 200
    if event.type == BOOKMARK:
        version = decode(bytes(event.object), _Bookmark).metadata.resource_version
        return BOOKMARK, decode(msgspec.json.encode({"metadata": {"resourceVersion": version}}), kind)
    return cast("EventType", event.type), decode(cast("bytes", event.object), kind)
