"""Callers' certificates: whose name may call, and when they expire.

An authority may sign for others than kube-scheduler, and whoever may call could have pods bound. So a caller's name is
one of a list, as kube-apiserver has it for front proxies (``--requestheader-allowed-names``): the common name of its
certificate's subject, or one of its DNS names.

A caller's certificate is often a copy that nothing renews. Once it has expired no handshake tells any more who calls,
so its end is noted while it is good.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from covey.observability import scheduler_metrics as metrics
from covey.observability.logging import get_logger
from covey.scheduler.settings import SchedulerSettings

log = get_logger(__name__)

_UNNAMED: Final = "nobody"


def add_check(application: web.Application, settings: SchedulerSettings) -> None:
    """Check the callers of an application, if they show certificates."""
    if settings.tls is not None and settings.tls.client_ca_file is not None:
        application.middlewares.append(checking(settings.client_names))


def checking(allowed: Collection[str]) -> Middleware:
    """Refuse calls of other names, and note when the certificates of these expire."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        certificate = request.get_extra_info("peercert") or {}
        found = list(names(certificate))
        name = next((each for each in found if each in allowed), None)
        if name is None:
            metrics.EXTENDER_REQUESTS.labels("connect", "wrong_name").inc()
            said = found[0] if found else _UNNAMED
            log.warning("caller refused by its name", name=said, allowed=", ".join(allowed))
            response = web.Response(status=403, text=f"{said} may not call: --client-name has {', '.join(allowed)}\n")
            response.force_close()
            return response
        metrics.CALLER_EXPIRATION.labels(name).set(_seconds(certificate["notAfter"]))
        return await handler(request)

    return check


def names(certificate: Mapping[str, Any]) -> Iterator[str]:
    """The common names and the DNS names of a certificate, as ``ssl`` decodes it."""
    yield from (value for part in certificate.get("subject", ()) for key, value in part if key == "commonName")
    yield from (value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS")


@lru_cache(maxsize=64)
def _seconds(written: str) -> float:
    return float(ssl.cert_time_to_seconds(written))
