"""As whom Covey speaks: the Authorization header of each request, fresh for months.

In-cluster tokens rotate every hour or so, exec plugins say when theirs expire, and kubectl renews OIDC tokens in the
file.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from covey.kube.errors import ConfigurationError
from covey.kube.kubeconfig import Plugin

#: Seconds a token file's content is trusted; the kubelet renews it long before it expires.
_TOKEN_FILE_AGE: Final = 60.0
#: Seconds before its expiry that a token is renewed.
_EXPIRY_MARGIN: Final = 60.0
_EXEC_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class Credentials(Protocol):
    """The value of the Authorization header."""

    async def header(self, *, refresh: bool = False) -> str | None:
        """The header, or None for none; ``refresh`` after a 401: what was given last is not good any more."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A header that never changes; None when the client certificate says it all."""

    value: str | None = None

    async def header(self, *, refresh: bool = False) -> str | None:  # noqa: ARG002 - nothing to renew
        """The value as given."""
        return self.value


#: Nothing is said in a header.
SILENT: Final = Fixed()


class TokenFile:
    """A bearer token in a file that is rewritten from outside."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._read_at = float("-inf")
        self._header = ""

    async def header(self, *, refresh: bool = False) -> str | None:
        """The token as of at most a minute ago. A few hundred bytes in memory-backed files: read in place."""
        if refresh or self._clock() - self._read_at > _TOKEN_FILE_AGE:
            try:
                self._header = f"Bearer {self._path.read_text(encoding='ascii').strip()}"
            except OSError as error:
                raise ConfigurationError(f"token file {self._path}: {error.strerror}") from error
            self._read_at = self._clock()
        return self._header


class Oidc:
    """The ID token of an OIDC ``auth-provider``, as the kubeconfig has it.

    It is not renewed here: a provider may answer with a new refresh token, and the file would be left with one that is
    spent. Whoever uses kubectl has it renewed there, and it is read again from there.

    Args:
        read: the ID token as it is in the file now; empty when there is none.
        wall: seconds since the epoch.
    """

    def __init__(self, read: Callable[[], str], wall: Callable[[], float] = time.time) -> None:
        self._read = read
        self._wall = wall
        self._token = ""

    async def header(self, *, refresh: bool = False) -> str | None:
        """The token, read again when it has expired."""
        if refresh or self._expired():
            self._token = self._read()
            if self._expired():
                raise ConfigurationError("the OIDC token has expired: any kubectl command renews it in the kubeconfig")
        return f"Bearer {self._token}"

    def _expired(self) -> bool:
        """A JWT carries its own end (RFC 7519, 4.1.4)."""
        try:
            middle = self._token.split(".")[1]
            claims = msgspec.json.decode(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
            return float(claims["exp"]) <= self._wall()
        except (IndexError, KeyError, TypeError, ValueError):
            return True


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct):
    status: _Status


class ExecPlugin:
    """A program that prints a bearer token, a client certificate, or both (``client.authentication.k8s.io``).

    Args:
        plugin: as the kubeconfig has it.
        home: the folder of the kubeconfig, from which a relative command is meant.
        cluster: what a plugin is told that wants to know the cluster (``provideClusterInfo``).
        tls: takes a client certificate for the connections made from then on.
        wall: seconds since the epoch.

    Raises:
        ConfigurationError: the plugin cannot be run from here.
    """

    def __init__(
        self,
        plugin: Plugin,
        home: Path = Path(),
        cluster: Mapping[str, Any] | None = None,
        tls: ssl.SSLContext | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        if plugin.api_version not in _EXEC_VERSIONS:
            known = " and ".join(_EXEC_VERSIONS)
            raise ConfigurationError(
                f"exec plugin {plugin.command}: apiVersion {plugin.api_version or '(none)'} is not supported; {known} are"
            )
        self._interactive = plugin.interactive_mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
        if plugin.interactive_mode == "Always" and not self._interactive:
            raise ConfigurationError(f"exec plugin {plugin.command} wants a terminal, and there is none")
        beside = os.sep in plugin.command and not Path(plugin.command).is_absolute()
        self._command = [str(home / plugin.command) if beside else plugin.command, *(plugin.args or [])]
        self._hint = f"; {plugin.install_hint.strip()}" if plugin.install_hint else ""
        spec: dict[str, Any] = {"interactive": self._interactive}
        if plugin.provide_cluster_info and cluster is not None:
            spec["cluster"] = dict(cluster)
        info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
        self._environment = {pair.name: pair.value for pair in plugin.env or []}
        self._environment["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(info).decode()
        self._tls = tls
        self._wall = wall
        self._lock = asyncio.Lock()
        self._ran = False
        self._header: str | None = None
        self._expires = float("inf")

    async def header(self, *, refresh: bool = False) -> str | None:
        """What the last run gave; the program runs again when that is about to expire."""
        stale = self._header
        async with self._lock:
            fresh = self._ran and self._wall() < self._expires - _EXPIRY_MARGIN
            # Of many requests refused at once only the first runs the program.
            if not fresh or (refresh and self._header == stale):
                await self._run()
            return self._header

    async def _run(self) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env={**os.environ, **self._environment},
                stdin=None if self._interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=None if self._interactive else asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise ConfigurationError(f"exec plugin {self._command[0]}: {error.strerror}{self._hint}") from error
        stdout, stderr = await process.communicate()
        if process.returncode:
            said = (stderr or b"").decode(errors="replace").strip()
            raise ConfigurationError(f"exec plugin {self._command[0]} ended with {process.returncode}: {said}")
        try:
            status = msgspec.json.decode(stdout, type=_ExecCredential).status
        except msgspec.MsgspecError as error:
            raise ConfigurationError(f"exec plugin {self._command[0]} printed no credentials: {error}") from error
        if not status.token and not status.client_certificate_data:
            raise ConfigurationError(f"exec plugin {self._command[0]} printed neither a token nor a certificate")
        if status.client_certificate_data and status.client_key_data and self._tls is not None:
            use_certificate(self._tls, status.client_certificate_data.encode(), status.client_key_data.encode())
        self._ran = True
        self._header = f"Bearer {status.token}" if status.token else None
        self._expires = status.expiration_timestamp.timestamp() if status.expiration_timestamp else float("inf")


def use_certificate(tls: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Show this client certificate (PEM) on connections made from now on.

    Raises:
        ssl.SSLError: the two are not a certificate and its key.
    """
    # OpenSSL reads them from files only; they are gone before anything else happens.
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "tls.crt"), Path(folder, "tls.key")
        for file, content in zip(files, (certificate, key), strict=True):
            file.touch(mode=0o600)
            file.write_bytes(content)
        tls.load_cert_chain(*files)
