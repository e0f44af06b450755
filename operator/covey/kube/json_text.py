"""JSON text taken apart without being decoded: what is too deep for a decoder, which has a stack, is not for this.

Kubernetes' own decoder goes down 10,000 levels, Python's and msgspec's some 1,000: beyond that they raise
RecursionError.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np

from covey.kube.errors import Undecodable

#: Bad JSON or another type than was declared; and deeper than Python's stack, which is neither for msgspec.
UNREADABLE: Final = (msgspec.MsgspecError, RecursionError)
_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)
_NAME: Final = re.compile(rb'\s*("(?:[^"\\]|\\.)*")\s*:', re.DOTALL)
#: Bytes that are looked at together: what is kept for each is some twenty bytes.
_BLOCK: Final = 1 << 18


def split_object(text: bytes) -> dict[str, bytes]:
    """The members of a JSON object by name, each as JSON text, however deep they are.

    Raises:
        Undecodable: it is not an object.
    """
    members: dict[str, bytes] = {}
    for piece in _pieces(text, b"{", b"}"):
        name = _NAME.match(piece)
        if name is None:
            raise Undecodable("not a JSON object")
        members[str(read_plain(name[1]))] = piece[name.end() :].strip()
    return members


def split_array(text: bytes) -> Iterator[bytes]:
    """The elements of a JSON array, each as JSON text, however deep they are.

    Raises:
        Undecodable: it is not an array.
    """
    return (piece.strip() for piece in _pieces(text, b"[", b"]"))


def read_plain(text: bytes) -> Any:
    """A JSON text as plain Python values.

    Raises:
        Undecodable: it is no JSON, or too deep.
    """
    try:
        return msgspec.json.decode(text)
    except UNREADABLE as error:
        raise Undecodable(str(error)) from error


def _pieces(text: bytes, opening: bytes, closing: bytes) -> list[bytes]:
    """The texts between the commas of an object or array, found without going down into it."""
    text = text.strip()
    if not (text.startswith(opening) and text.endswith(closing)):
        raise Undecodable("not a JSON " + ("object" if opening == b"{" else "array"))
    cuts = list(_commas(_ESCAPE.sub(b"__", text)))
    inner = [
        text[start:end] for start, end in zip([1, *(cut + 1 for cut in cuts)], [*cuts, len(text) - 1], strict=True)
    ]
    return inner if len(inner) > 1 or inner[0].strip() else []


def _commas(text: bytes) -> Iterator[int]:
    """The offsets of the commas at depth 1 of a JSON text without escapes: counted by numpy, a block at a time."""
    quotes, depth = 0, 0
    for start in range(0, len(text), _BLOCK):
        data = np.frombuffer(text, np.uint8, min(_BLOCK, len(text) - start), start)
        count = np.cumsum(data == ord('"'), dtype=np.int32) + quotes
        outside = (count & 1) == 0
        # In ASCII { and [ differ by one bit, as do } and ].
        brackets = data & 0b1101_1111
        change = ((brackets == ord("[")).astype(np.int8) - (brackets == ord("]")).astype(np.int8)) * outside
        depths = np.cumsum(change, dtype=np.int32) + depth
        quotes, depth = int(count[-1]), int(depths[-1])
        yield from (np.flatnonzero((data == ord(",")) & (depths == 1) & outside) + start).tolist()
