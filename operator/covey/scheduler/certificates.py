"""The extender's certificate and the authority of its callers, read again when their files change.

cert-manager renews by swapping the symlink that a Secret's files hang on, so a file is known by what the link leads
to: its inode, time and size, looked at every few seconds. Files that cannot be used (half written, a key that does not
belong) leave the old set in force, and are tried again when they change once more.

An ``ssl.SSLContext`` takes more authorities but gives none up, so every set of files has a context of its own. The
listener keeps the first; each handshake is moved to the newest by the callback for server names, which OpenSSL calls
also when the caller sends none. There are no session tickets: a resumed session would not be verified again.

Callers' certificates: whose name may call, and when they expire.

An authority may sign for others than kube-scheduler, and whoever may call could have pods bound. So a caller's name is
one of a list, as kube-apiserver has it for front proxies (``--requestheader-allowed-names``): the common name of its
certificate's subject, or one of its DNS names.

A caller's certificate is often a copy that nothing renews. Once it has expired no handshake tells any more who calls,
so its end is noted while it is good.

The presence of kube-scheduler: while it does not call, no pin is late for it.

Without that all pins that wait would be undone, and their pods made anew, each time that the gangs' time is over.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from covey.observability import scheduler_metrics as metrics
from covey.observability.logging import get_logger
from covey.scheduler.settings import SchedulerSettings, Tls

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


#: Seconds without a call, and without one that is held, after which kube-scheduler counts as away.
QUIET: Final = 60.0
#: Seconds for which that is believed at most: its calls may go to another replica by now.
BELIEVED: Final = 3600.0


class Callers:
    """Times of calls. Where none ever came, another replica may be the one that is called, and nothing is known.

    Args:
        held: whether a call is held: whoever waits for an answer is there.
        clock: monotonic seconds.
    """

    def __init__(self, held: Callable[[], bool] = lambda: False, *, clock: Callable[[], float]) -> None:
        self._held = held
        self._clock = clock
        self._last: float | None = None
        #: Since when calls have come again after a silence.
        self.back: float | None = None

    def note(self) -> None:
        """A call has come, or a pod was bound as only kube-scheduler could have asked for."""
        now = self._clock()
        if self._last is not None and self.away:
            self.back = now
        self._last = now

    @property
    def away(self) -> bool:
        """kube-scheduler called, and does not any more."""
        if self._last is None or self._held():
            return False
        return QUIET < self._clock() - self._last <= BELIEVED


#: Seconds between two looks at the files.
INTERVAL: Final = 5.0

_Stamp = tuple[tuple[int, int, int] | None, ...]


class Certificates:
    """The newest set of files that could be used.

    Raises:
        OSError: at the start, when a file cannot be read, or (``ssl.SSLError``) is not what it should be.
        ValueError: likewise.
    """

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._stamp = _stamp(tls)
        #: What the listener is started with.
        self.context = self._newest = _load(tls)
        self.context.sni_callback = self._choose

    def refresh(self) -> bool:
        """Look at the files. True when a new set is in force."""
        stamp = _stamp(self._tls)  # before they are read: what changes meanwhile is read again
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self._newest = _load(self._tls)
        except (OSError, ValueError) as error:
            metrics.CERTIFICATE_RELOADS.labels("error").inc()
            log.warning("new certificate files cannot be used; the old ones stay in force", error=str(error))
            return False
        metrics.CERTIFICATE_RELOADS.labels("success").inc()
        log.info("certificate files read again", file=self._tls.cert_file)
        return True

    async def watch(self, interval: float = INTERVAL) -> None:
        """Look at the files for ever."""
        while True:
            await asyncio.sleep(interval)
            self.refresh()

    def is_outdated(self, transport: asyncio.BaseTransport | None) -> bool:
        """The connection was made with an older set of files: its caller should make a new one."""
        connection = transport.get_extra_info("ssl_object") if transport else None
        return connection is not None and connection.context is not self._newest

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._newest


def _stamp(tls: Tls) -> _Stamp:
    def look(file: str | None) -> tuple[int, int, int] | None:
        try:
            found = Path(file).stat() if file else None
        except OSError:
            return None
        return (found.st_ino, found.st_mtime_ns, found.st_size) if found else None

    return tuple(look(file) for file in (tls.cert_file, tls.private_key_file, tls.client_ca_file))


def _load(tls: Tls) -> Any:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.load_cert_chain(tls.cert_file, tls.private_key_file, password="")
    if tls.client_ca_file:
        context.load_verify_locations(tls.client_ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
