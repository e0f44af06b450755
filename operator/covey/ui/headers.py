"""Headers of every answer, and the check for requests that are not answered at all.

The page runs its own scripts alone, and talks to the server that it came from alone. No other site may have its answers
(no CORS), send it anything (Sec-Fetch-Site, Origin), show it in a frame, or reach it by a name of its own (DNS
rebinding).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import urlsplit

SECURITY: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_FRIENDLY: Final = frozenset({"same-origin", "none"})
_UNSAFE: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


def is_meant(headers: Mapping[str, str], hosts: Collection[str] | None) -> bool:
    """Tell whether a request is meant for this server, by the name that it was asked under.

    Args:
        headers: of the request; names as aiohttp compares them, in any case.
        hosts: the only values of Host that are good; None for any.
    """
    return hosts is None or headers.get("Host", "").lower() in hosts


def is_strange(method: str, headers: Mapping[str, str]) -> bool:
    """Tell whether a request to the API comes from a page of another site.

    Args:
        method: of the request.
        headers: as for ``is_meant``.
    """
    if headers.get("Sec-Fetch-Site", "none") not in _FRIENDLY:
        return True
    origin = headers.get("Origin")
    if origin is None or method not in _UNSAFE:
        return False
    return urlsplit(origin).netloc.lower() != headers.get("Host", "").lower()


def bearer_token(header: str | None) -> str | None:
    """The token of an Authorization header; None for none, or for another scheme."""
    scheme, _, token = (header or "").partition(" ")
    token = token.strip()
    plain = token.isascii() and token.isprintable() and " " not in token
    return token if scheme.lower() == "bearer" and token and plain else None
