"""The extender's certificate and the authority of its callers, read again when their files change.

cert-manager renews by swapping the symlink that a Secret's files hang on, so a file is known by what the link leads
to: its inode, time and size, looked at every few seconds. Files that cannot be used (half written, a key that does not
belong) leave the old set in force, and are tried again when they change once more.

An ``ssl.SSLContext`` takes more authorities but gives none up, so every set of files has a context of its own. The
listener keeps the first; each handshake is moved to the newest by the callback for server names, which OpenSSL calls
also when the caller sends none. There are no session tickets: a resumed session would not be verified again.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any, Final

from covey.observability import scheduler_metrics as metrics
from covey.observability.logging import get_logger
from covey.scheduler.settings import Tls

log = get_logger(__name__)


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
