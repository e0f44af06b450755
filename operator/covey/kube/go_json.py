"""JSON as the API server writes it, for fields that it compares byte by byte.

``apps/v1`` ControllerRevisions are the case: ``data`` is immutable, and is compared as text (``RawExtension``) after a
patch of any other field had the object written again. Go's ``encoding/json`` sorts the keys of maps and escapes
``& < >``, U+2028 and U+2029, no blanks; a client that sends other text of the same meaning can never patch the object
again.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

_encode: Final = msgspec.json.Encoder(order="sorted").encode


#: Outside of strings none of these occurs, and within them an escape means the same.
_ESCAPES: Final = {
    b"&": b"\\u0026",
    b"<": b"\\u003c",
    b">": b"\\u003e",
    "\u2028".encode(): b"\\u2028",
    "\u2029".encode(): b"\\u2029",
}


def go_json(value: Any) -> msgspec.Raw:
    """A value as Go writes it; part of any body that is encoded as JSON."""
    text = _encode(value)
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return msgspec.Raw(text)
