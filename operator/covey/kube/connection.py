"""Where the API server is, how to reach and trust it, and as whom Covey speaks to it."""

from __future__ import annotations

import base64
import binascii
import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import aiohttp

from covey.kube.credentials import SILENT, Credentials, ExecPlugin, Fixed, Oidc, TokenFile, use_certificate
from covey.kube.errors import ConfigurationError
from covey.kube.kubeconfig import Chosen, Provider, User, choose, default_files, find_user

#: Where the kubelet mounts a pod's account.
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: The extension of a cluster that plugins are given (client.authentication.k8s.io).
_FOR_PLUGINS: Final = "client.authentication.k8s.io/exec"


@dataclass(frozen=True, slots=True)
class Connection:
    """A server (URL without trailing slash), how to trust it, who speaks, and the context's namespace.

    ``proxy`` is a URL; ``server_name`` is what the server's certificate is checked for, where its address is another;
    ``headers`` go with every request (impersonation).
    """

    server: str
    tls: ssl.SSLContext | None = None
    credentials: Credentials = SILENT
    namespace: str = "default"
    proxy: str | None = None
    server_name: str | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def options(self) -> dict[str, Any]:
        """What each request of aiohttp takes beside the address."""
        options = {"proxy": self.proxy, "server_hostname": self.server_name}
        return {name: value for name, value in options.items() if value is not None}


def load(path: str | None = None, context: str | None = None) -> Connection:
    """Find the configuration as kubectl does, then in the cluster.

    Args:
        path: a kubeconfig; None looks at ``$KUBECONFIG``, ``~/.kube/config`` and the pod's service account.
        context: its name; None is the current one.

    Raises:
        ConfigurationError: nothing usable was found.
    """
    files = [Path(path)] if path else default_files()
    if not files:
        return _in_cluster()
    chosen = choose(files, context)
    try:
        return _connection(chosen)
    except ConfigurationError as error:
        raise ConfigurationError(f"{_named(files)}: {error}") from error
    except (OSError, ssl.SSLError, binascii.Error) as error:
        raise ConfigurationError(f"{_named(files)}: {getattr(error, 'filename', None) or ''} {error}") from error


def load_server(path: str | None = None, context: str | None = None) -> Connection:
    """The same server, and how to trust it, but without anybody's identity: no token, certificate or impersonation.

    Args:
        path: as for ``load``.
        context: likewise.

    Raises:
        ConfigurationError: nothing usable was found.
    """
    files = [Path(path)] if path else default_files()
    if not files:
        return replace(_in_cluster(), credentials=SILENT)
    try:
        return _connection(replace(choose(files, context), user=User()))
    except (OSError, ssl.SSLError, binascii.Error) as error:
        raise ConfigurationError(f"{_named(files)}: {getattr(error, 'filename', None) or ''} {error}") from error


def context_name(path: str | None = None) -> str:
    """The name of the current context; empty where there is none, as in a cluster.

    Raises:
        ConfigurationError: the kubeconfig cannot be read.
    """
    files = [Path(path)] if path else default_files()
    return choose(files).name if files else ""


def bearer(server: Connection, token: str) -> Connection:
    """That server, for whoever has this token and nothing else."""
    return replace(server, credentials=Fixed(f"Bearer {token}"))


def _named(files: Sequence[Path]) -> str:
    return ", ".join(map(str, files))


def _in_cluster() -> Connection:
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    if not host or not port:
        raise ConfigurationError("no kubeconfig was found, and this is no pod of a cluster: set KUBECONFIG")
    try:
        tls = ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt"))
        namespace = (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigurationError(f"the pod's service account {SERVICE_ACCOUNT}: {error}") from error
    address = f"[{host}]" if ":" in host else host
    return Connection(f"https://{address}:{port}", tls, TokenFile(SERVICE_ACCOUNT / "token"), namespace)


def _connection(chosen: Chosen) -> Connection:
    cluster = chosen.cluster
    server = cluster.server.rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise ConfigurationError(f"cluster {chosen.context.cluster} has no server; an address like https://host:6443")
    if cluster.proxy_url and not cluster.proxy_url.startswith(("http://", "https://")):
        raise ConfigurationError(f"proxy-url {cluster.proxy_url} is not supported; http and https are")
    tls = _tls(chosen) if server.startswith("https:") else None
    return Connection(
        server,
        tls,
        _credentials(chosen, tls),
        chosen.context.namespace or "default",
        proxy=cluster.proxy_url,
        server_name=cluster.tls_server_name if tls is not None else None,
        headers=_impersonation(chosen.user),
    )


def _tls(chosen: Chosen) -> ssl.SSLContext:
    cluster, user = chosen.cluster, chosen.user
    if cluster.certificate_authority_data:
        tls = ssl.create_default_context(cadata=_decoded(cluster.certificate_authority_data).decode())
    elif cluster.certificate_authority:
        tls = ssl.create_default_context(cafile=str(chosen.cluster_home / cluster.certificate_authority))
    else:
        tls = ssl.create_default_context()
    if cluster.insecure_skip_tls_verify:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    certificate = _content(user.client_certificate_data, user.client_certificate, chosen.user_home)
    key = _content(user.client_key_data, user.client_key, chosen.user_home)
    if (certificate is None) != (key is None):
        lacking = "client-certificate" if certificate is None else "client-key"
        raise ConfigurationError(
            f"user {chosen.context.user} has no {lacking}: a certificate and its key belong together"
        )
    if certificate is not None and key is not None:
        use_certificate(tls, certificate, key)
    return tls


def _content(data: str | None, file: str | None, home: Path) -> bytes | None:
    """Data comes before a file, as in client-go."""
    if data:
        return _decoded(data)
    return (home / file).read_bytes() if file else None


def _decoded(data: str) -> bytes:
    return base64.b64decode(data, validate=True)


def _credentials(chosen: Chosen, tls: ssl.SSLContext | None) -> Credentials:
    user = chosen.user
    if user.token_file:
        return TokenFile(chosen.user_home / user.token_file)
    if user.token:
        return Fixed(f"Bearer {user.token}")
    if user.exec:
        return ExecPlugin(user.exec, chosen.user_home, _told(chosen), tls)
    if user.username and user.password:
        return Fixed(aiohttp.encode_basic_auth(user.username, user.password))
    if user.auth_provider:
        return _oidc(user.auth_provider, chosen)
    return SILENT


def _oidc(provider: Provider, chosen: Chosen) -> Credentials:
    if provider.name != "oidc":
        raise ConfigurationError(f"auth-provider {provider.name} was removed from Kubernetes 1.26: use an exec plugin")

    def read() -> str:
        found = find_user(chosen.user_file, chosen.context.user).auth_provider
        return ((found and found.config) or {}).get("id-token", "")

    return Oidc(read)


def _told(chosen: Chosen) -> dict[str, Any]:
    """The cluster as a plugin is told of it (``ExecCredential.spec.cluster``)."""
    cluster = chosen.cluster
    authority = _content(cluster.certificate_authority_data, cluster.certificate_authority, chosen.cluster_home)
    extension = next((each for each in cluster.extensions or () if each.get("name") == _FOR_PLUGINS), {})
    told = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify or None,
        "certificate-authority-data": base64.b64encode(authority).decode() if authority else None,
        "proxy-url": cluster.proxy_url,
        "config": extension.get("extension"),
    }
    return {name: value for name, value in told.items() if value is not None}


def _impersonation(user: User) -> tuple[tuple[str, str], ...]:
    """The headers of ``as`` and its companions (transport.ImpersonationConfig)."""
    named = [("Impersonate-User", user.as_), ("Impersonate-Uid", user.as_uid)]
    groups = [("Impersonate-Group", group) for group in user.as_groups or ()]
    extra = [
        (f"Impersonate-Extra-{quote(key, safe='')}", value)
        for key, values in (user.as_user_extra or {}).items()
        for value in values
    ]
    return (*((name, value) for name, value in named if value), *groups, *extra)
