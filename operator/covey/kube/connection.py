"""Where the API server is, and as whom Covey speaks to it.

lightkube reads kubeconfig files and the in-cluster service account, and builds TLS contexts.  Credentials are
our own, since tokens must stay fresh for months: in-cluster tokens rotate every hour or so, and exec plugins
say when theirs expire.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

import aiohttp
import msgspec
import yaml
from lightkube import ConfigError, KubeConfig, SingleConfig
from lightkube.config.client_adapter import verify_cluster
from lightkube.config.kubeconfig import SERVICE_ACCOUNT
from lightkube.config.models import User, UserExec

from covey.kube.errors import ConfigurationError

#: Seconds a token file's content is trusted; the kubelet renews it long before it expires.
_TOKEN_FILE_AGE: Final = 60.0
#: Seconds before its expiry that an exec plugin's token is renewed.
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


class _ExecStatus(msgspec.Struct, rename="camel"):
    token: str
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct):
    status: _ExecStatus


class ExecPlugin:
    """A bearer token printed by a program (``client.authentication.k8s.io``, v1 and v1beta1)."""

    def __init__(self, plugin: UserExec, wall: Callable[[], float] = time.time) -> None:
        if plugin.apiVersion not in _EXEC_VERSIONS:
            raise ConfigurationError(f"exec plugin {plugin.command}: {plugin.apiVersion} is not supported")
        self._command = [plugin.command, *(plugin.args or [])]
        self._environment = {pair.name: pair.value for pair in plugin.env or []}
        self._environment["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(
            {"apiVersion": plugin.apiVersion, "kind": "ExecCredential", "spec": {"interactive": False}}
        ).decode()
        self._wall = wall
        self._lock = asyncio.Lock()
        self._header: str | None = None
        self._expires = float("inf")

    async def header(self, *, refresh: bool = False) -> str | None:
        """The token of the last run; the program runs again when it is about to expire."""
        stale = self._header
        async with self._lock:
            fresh = self._header is not None and self._wall() < self._expires - _EXPIRY_MARGIN
            # Of many requests refused at once only the first runs the program.
            if not fresh or (refresh and self._header == stale):
                await self._run()
            return self._header

    async def _run(self) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env={**os.environ, **self._environment},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise ConfigurationError(f"exec plugin {self._command[0]}: {error.strerror}") from error
        stdout, stderr = await process.communicate()
        if process.returncode:
            said = stderr.decode(errors="replace").strip()
            raise ConfigurationError(f"exec plugin {self._command[0]} ended with {process.returncode}: {said}")
        try:
            status = msgspec.json.decode(stdout, type=_ExecCredential).status
        except msgspec.MsgspecError as error:
            raise ConfigurationError(f"exec plugin {self._command[0]} printed no token: {error}") from error
        self._header = f"Bearer {status.token}"
        self._expires = status.expiration_timestamp.timestamp() if status.expiration_timestamp else float("inf")


@dataclass(frozen=True, slots=True)
class Connection:
    """A server (URL without trailing slash), how to trust it, who speaks, and the context's namespace."""

    server: str
    tls: ssl.SSLContext | None = None
    credentials: Credentials = Fixed()
    namespace: str = "default"


def load(path: str | None = None, context: str | None = None) -> Connection:
    """Find the configuration as kubectl does, then in the cluster.

    Args:
        path: a kubeconfig; None looks at ``$KUBECONFIG``, ``~/.kube/config`` and the pod's service account.
            Of several files in ``$KUBECONFIG`` the first that has the context is used whole; they are not merged.
        context: its name; None is the file's current one.

    Raises:
        ConfigurationError: nothing usable was found.
    """
    with _explained(path):
        return _connection(_select(path, context))


def _select(path: str | None, context: str | None) -> SingleConfig:
    candidates = [Path(path)] if path else _default_files()
    if not candidates:
        return _chosen(KubeConfig.from_service_account(SERVICE_ACCOUNT), None)
    configs = [KubeConfig.from_file(file) for file in candidates]
    wanted = (config for config in configs if (context in config.contexts if context else config.current_context))
    return _chosen(next(wanted, configs[0]), context)


def _default_files() -> list[Path]:
    named = os.environ.get("KUBECONFIG", "")
    # Unlike Path.expanduser this leaves the path alone for a user without a home, as in a container.
    usual = os.path.expanduser("~/.kube/config")  # noqa: PTH111
    files = [Path(name) for name in named.split(os.pathsep) if name] or [Path(usual)]
    found = [file for file in files if file.is_file()]
    if named and not found:
        raise ConfigurationError(f"$KUBECONFIG names no file that exists: {named}")
    return found


def _chosen(config: KubeConfig, context: str | None) -> SingleConfig:
    chosen = config.get(context)
    if chosen is None:
        raise ConfigurationError("no current context")
    return chosen


def _connection(config: SingleConfig) -> Connection:
    user = config.user or User()
    server = config.cluster.server.rstrip("/")
    tls = verify_cluster(config.cluster, user, config.abs_file) if server.startswith("https:") else None
    return Connection(server, tls, _credentials(user, config), config.namespace)


def _credentials(user: User, config: SingleConfig) -> Credentials:
    if user.token_file:
        return TokenFile(Path(config.abs_file(user.token_file)))
    if user.token:
        return Fixed(f"Bearer {user.token}")
    if user.exec:
        return ExecPlugin(user.exec)
    if user.username and user.password:
        return Fixed(aiohttp.encode_basic_auth(user.username, user.password))
    if user.auth_provider:
        raise ConfigurationError("auth-provider was removed from Kubernetes 1.26: use an exec plugin")
    return Fixed()


@contextmanager
def _explained(path: str | None) -> Iterator[None]:
    """Whatever is wrong with a file becomes one error that says which."""
    try:
        yield
    except (ConfigError, OSError, ssl.SSLError, yaml.YAMLError, msgspec.MsgspecError) as error:
        raise ConfigurationError(f"{path or 'kubeconfig'}: {error}") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"{path or 'kubeconfig'} is malformed: {error!r}") from error
