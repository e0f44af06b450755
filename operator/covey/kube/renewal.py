"""The Authorization header, fresh for months: hooks of the official client's configuration.

In-cluster tokens rotate every hour or so, exec plugins say when theirs expire, and kubectl renews OIDC tokens in the
file. The client has a hook for such things, and renews a pod's token alone by it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import ssl
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from covey.kube.errors import ConfigurationError
from covey.kube.kubeconfig_guards import private_files
from covey.kube.official_client import ConfigNode, Configuration, ExecProvider, parse_rfc3339

#: Seconds a token file's content is trusted; the kubelet renews it long before it expires.
_TOKEN_FILE_AGE: Final = 60.0
#: Seconds before its expiry that a token or a certificate is renewed.
_EXPIRY_MARGIN: Final = 60.0
_EXEC_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")

#: Gives a header (empty for none) and the time until which it is good, for the time that it is (seconds since the
#: epoch).
Read = Callable[[float], Awaitable[tuple[str, float]]]


class Renewal:
    """``Configuration.refresh_api_key_hook``: the header is read again at its time, and after it was refused.

    Args:
        read: gives the header. Of many requests at once, one reads.
        wall: seconds since the epoch.
    """

    def __init__(self, read: Read, wall: Callable[[], float] = time.time) -> None:
        self._read = read
        self._wall = wall
        self._header = ""
        self._good = (math.inf, -math.inf)
        self._lock = asyncio.Lock()

    def refuse(self, header: str) -> None:
        """Have a header read again that the server does not take; one that was renewed since then is left alone."""
        if header == self._header:
            self._good = (math.inf, -math.inf)

    async def __call__(self, configuration: Configuration) -> None:
        """Put the header where the client looks for it.

        Raises:
            ConfigurationError: there is none to be had.
        """
        async with self._lock:
            now = self._wall()
            since, until = self._good
            # A clock that was set back is no reason to trust a header for longer.
            if not since <= now < until:
                self._header, until = await self._read(now)
                self._good = now, until
        configuration.api_key["BearerToken"] = self._header


def token_file(path: Path) -> Read:
    """A bearer token in a file that is rewritten from outside; each minute, and without its newline.

    The client reads a kubeconfig's ``tokenFile`` once, and keeps the newline of each:
    https://github.com/kubernetes-client/python/blob/v37.0.2/kubernetes/aio/config/kube_config.py#L362
    https://github.com/kubernetes-client/python/blob/v37.0.2/kubernetes/aio/config/incluster_config.py#L107
    """

    async def read(now: float) -> tuple[str, float]:
        try:
            # A few hundred bytes in memory-backed files: read in place.
            token = path.read_text(encoding="ascii").strip()  # noqa: ASYNC240
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"token file {path}: {getattr(error, 'strerror', None) or error}") from error
        if not token:
            raise ConfigurationError(f"token file {path} is empty")
        return f"Bearer {token}", now + _TOKEN_FILE_AGE

    return read


def id_token(find: Callable[[], str]) -> Read:
    """The ID token of an OIDC ``auth-provider``, as the kubeconfig has it; kubectl is to renew a spent one there.

    A provider may answer with a new refresh token, and the file would be left with one that is spent. The client
    refreshes it, and does not verify the server that it sends the refresh token to unless an authority is given:
    https://github.com/kubernetes-client/python/blob/v37.0.2/kubernetes/aio/config/kube_config.py#L290
    https://github.com/kubernetes-client/python/blob/v37.0.2/kubernetes/aio/config/openid.py#L25

    Args:
        find: the ID token as it is in the file now; empty when there is none.
    """

    async def read(now: float) -> tuple[str, float]:
        token = find()
        expires = _expiry(token)
        if expires <= now:
            raise ConfigurationError("the OIDC token has expired: any kubectl command renews it in the kubeconfig")
        return f"Bearer {token}", expires

    return read


def _expiry(token: str) -> float:
    """A JWT carries its own end (RFC 7519, 4.1.4)."""
    try:
        middle = token.split(".")[1]
        return float(json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        return -math.inf


class ExecPlugin(ExecProvider):
    """A program that prints a bearer token, a client certificate, or both (``client.authentication.k8s.io``).

    The client says nothing to a program about the cluster, takes its output for the terminal, and lets it read standard
    input and take its time with a full pipe; its failure is logged, and requests go out as nobody's; its certificate is
    not used together with a token, and never renewed:
    https://github.com/kubernetes-client/python/blob/v37.0.2/kubernetes/aio/config/exec_provider.py#L64
    https://github.com/kubernetes-client/python/blob/v37.0.2/kubernetes/aio/config/kube_config.py#L331
    https://github.com/kubernetes-client/python/blob/v37.0.2/kubernetes/aio/config/kube_config.py#L358

    Args:
        entry: as the kubeconfig has it.
        cluster: the cluster as it is described to a plugin that asks for it (``provideClusterInfo``).
        tls: takes a client certificate for the connections made from then on.

    Raises:
        ConfigurationError: the plugin cannot be run from here.
    """

    def __init__(
        self, entry: Mapping[str, Any], cluster: Mapping[str, Any] | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        command, version = entry.get("command", ""), entry.get("apiVersion") or "(none)"
        if version not in _EXEC_VERSIONS:
            known = " and ".join(_EXEC_VERSIONS)
            raise ConfigurationError(f"exec plugin {command}: apiVersion {version} is not supported; {known} are")
        mode = entry.get("interactiveMode")
        self._interactive = mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
        if mode == "Always" and not self._interactive:
            raise ConfigurationError(f"exec plugin {command} wants a terminal, and there is none")
        super().__init__(ConfigNode("exec", entry))  # type: ignore[no-untyped-call]
        hint = entry.get("installHint")
        self._hint = f"; {hint.strip()}" if hint else ""
        spec: dict[str, Any] = {"interactive": self._interactive}
        if entry.get("provideClusterInfo") and cluster is not None:
            spec["cluster"] = dict(cluster)
        self.env["KUBERNETES_EXEC_INFO"] = json.dumps({"apiVersion": version, "kind": "ExecCredential", "spec": spec})
        self._tls = tls

    async def run(self, previous_response: object = None) -> dict[str, Any]:  # noqa: ARG002 - of an API version long gone
        """The ``status`` that the program prints.

        Raises:
            ConfigurationError: it fails, or prints none.
        """
        name = self.args[0]
        try:
            process = await asyncio.create_subprocess_exec(
                *self.args,
                env=self.env,
                stdin=None if self._interactive else DEVNULL,
                stdout=PIPE,
                stderr=None if self._interactive else PIPE,
            )
        except OSError as error:
            raise ConfigurationError(f"exec plugin {name}: {error.strerror}{self._hint}") from error
        stdout, stderr = await process.communicate()
        if process.returncode:
            output = (stderr or b"").decode(errors="replace").strip()
            raise ConfigurationError(f"exec plugin {name} ended with {process.returncode}: {output}")
        try:
            answer = json.loads(stdout)
            version, status = answer["apiVersion"], dict(answer["status"])
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(f"exec plugin {name} printed no credentials: {error!r}") from error
        if version != self.api_version:
            raise ConfigurationError(f"exec plugin {name} printed {version} and not {self.api_version}")
        return status

    async def read(self, now: float) -> tuple[str, float]:  # noqa: ARG002 - the plugin says when, not for how long
        """The header of a run, whose certificate is shown from then on."""
        status = await self.run()
        token, certificate, key = (status.get(part) for part in ("token", "clientCertificateData", "clientKeyData"))
        if not token and not certificate:
            raise ConfigurationError(f"exec plugin {self.args[0]} printed neither a token nor a certificate")
        if bool(certificate) != bool(key):
            raise ConfigurationError(
                f"exec plugin {self.args[0]} printed a certificate without its key, or the reverse"
            )
        try:
            if certificate and key and self._tls is not None:
                show_certificate(self._tls, certificate, key)
            expiry = status.get("expirationTimestamp")
            until = parse_rfc3339(expiry).timestamp() - _EXPIRY_MARGIN if expiry else math.inf
        except (ssl.SSLError, AttributeError, TypeError, ValueError) as error:
            raise ConfigurationError(f"exec plugin {self.args[0]} printed no credentials: {error}") from error
        return f"Bearer {token}" if token else "", until


def show_certificate(tls: ssl.SSLContext, certificate: str, key: str) -> None:
    """Show this client certificate (PEM) on connections made from now on.

    Raises:
        ssl.SSLError: the two are not a certificate and its key.
    """
    with private_files({"certificate": certificate.encode(), "key": key.encode()}) as files:
        tls.load_cert_chain(files["certificate"], files["key"])
