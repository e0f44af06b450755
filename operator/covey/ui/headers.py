"""Headers of every answer, and the check for requests that are not answered at all.

The page runs its own scripts alone, and talks to the server that it came from alone. No other site may have its answers
(no CORS), send it anything (Sec-Fetch-Site, Origin), show it in a frame, or reach it by a name of its own (DNS
rebinding).

Limits of a server of the UI, so that no viewer harms another, or the process.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class PageLimits:
    """Bounds. Times are in seconds, sizes in bytes.

    ``feeds``: views (of one viewer with different namespaces counted apart) whose objects are kept at the same time;
    ``views``: of one viewer. ``tenant_feeds``: of the service accounts of one namespace, and ``account_feeds`` of all
    service
    accounts: whoever may make accounts has as many names as he likes. ``streams``: event streams of one feed. ``idle``:
    how long a feed outlives its last stream. ``pace``: time between two changes at least; drawing never takes more than
    a fifth of the time. ``recheck``: between two questions whether something may still be read. ``patience``: for the
    first answers of the API server, and for a page to take what it is sent. ``behind``: changes that may wait for a
    slow stream before it is sent a whole state instead. ``manifest``: size of what is pasted.
    ``questions``: stories, plans and new feeds of one viewer that are under way at the same time; ``all_questions``: of
    all viewers. ``tenant_questions`` and ``account_questions``: stories and plans of service accounts, as for views.
    ``namespaces``: that one view looks at.
    """

    feeds: int = 16
    views: int = 8
    tenant_feeds: int = 4
    account_feeds: int = 12
    streams: int = 8
    idle: float = 60.0
    pace: float = 1.0
    recheck: float = 30.0
    patience: float = 20.0
    behind: int = 8
    manifest: int = 1 << 20
    questions: int = 8
    all_questions: int = 32
    tenant_questions: int = 4
    account_questions: int = 24
    namespaces: int = 20


DEFAULT: Final = PageLimits()


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
