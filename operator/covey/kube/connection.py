"""Address of the API server, trust in it, and Covey's identity towards it: the official client's configuration.

``kubernetes.aio.config`` reads kubeconfigs and a pod's service account; where it differs from kubectl it is corrected
by the guards in ``kubeconfig_guards`` and ``renewal``.
"""

from __future__ import annotations

import base64
import copy
import os
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from covey.kube import kubeconfig_guards as guards
from covey.kube.errors import ConfigurationError
from covey.kube.kubeconfig_guards import Entry, Merger
from covey.kube.official_client import (
    ConfigException,
    Configuration,
    InClusterConfigLoader,
    KubeConfigLoader,
    RESTClientObject,
)
from covey.kube.renewal import ExecPlugin, Renewal, id_token, token_file

#: Where the kubelet mounts a pod's account.
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: The extension of a cluster that plugins are given (client.authentication.k8s.io).
_FOR_PLUGINS: Final = "client.authentication.k8s.io/exec"
#: What the client and Python raise over entries that are no entries of a kubeconfig, and files that are not there.
_UNUSABLE: Final = (ConfigException, OSError, AttributeError, KeyError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Connection:
    """The client's configuration, and what is not in it: TLS with client certificates, and the context's namespace.

    The files of a certificate may be gone that the configuration names: ``tls`` has read them. ``headers`` go with
    every request (impersonation).
    """

    configuration: Configuration
    tls: ssl.SSLContext | None = None
    namespace: str = "default"
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def server(self) -> str:
        """URL without trailing slash."""
        return self.configuration.host

    async def authorization(self, refused: str | None = None) -> str | None:
        """The Authorization header, renewed when it is time; None when the client certificate says it all.

        Args:
            refused: what was answered with a 401.

        Raises:
            ConfigurationError: there is none to be had.
        """
        hook: object = self.configuration.refresh_api_key_hook
        if refused is not None and isinstance(hook, Renewal):
            hook.refuse(refused)
        return await self.configuration.get_api_key_with_prefix("BearerToken")


async def load(path: str | None = None, context: str | None = None) -> Connection:
    """Find the configuration as kubectl does, then in the cluster.

    Args:
        path: a kubeconfig; None looks at ``$KUBECONFIG``, ``~/.kube/config`` and the pod's service account.
        context: its name; None is the current one.

    Raises:
        ConfigurationError: nothing usable was found.
    """
    files = _files(path)
    return await _connection(files, _choose(files, context)) if files else _in_cluster()


async def load_server(path: str | None = None, context: str | None = None) -> Connection:
    """The same server, and how to trust it, but without anybody's identity: no token, certificate or impersonation.

    Args:
        path: as for ``load``.
        context: likewise.

    Raises:
        ConfigurationError: nothing usable was found.
    """
    files = _files(path)
    if not files:
        return _server_in_cluster()
    return await _connection(files, replace(_choose(files, context), user={}))


def context_name(path: str | None = None) -> str:
    """The name of the current context; empty where there is none, as in a cluster.

    Raises:
        ConfigurationError: the kubeconfig cannot be read.
    """
    files = _files(path)
    return _choose(files, None).name if files else ""


def bearer(server: Connection, token: str) -> Connection:
    """Return the connection to that server for a caller that has this token and nothing else."""
    configuration = copy.copy(server.configuration)
    configuration.api_key = {"BearerToken": f"Bearer {token}"} if token else {}
    configuration.refresh_api_key_hook = None
    return replace(server, configuration=configuration)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A context with what it names; paths are absolute, and what is null or empty is not there."""

    name: str
    context: Entry
    cluster: Entry
    user: Entry
    user_file: Path


def _files(path: str | None) -> list[Path]:
    return [Path(path)] if path else guards.existing_files()


@contextmanager
def _explain(files: Sequence[Path]) -> Iterator[None]:
    """Say which files an error is about; they may hold anything."""
    try:
        yield
    except (ConfigurationError, *_UNUSABLE) as error:
        raise ConfigurationError(f"{', '.join(map(str, files))}: {error}") from error


def _choose(files: Sequence[Path], context: str | None) -> _Chosen:
    content = Merger(files).config.value
    with _explain(files):
        name = context or content.get("current-context")
        if not name:
            raise ConfigurationError("no current context; name one, or run kubectl config use-context")
        entry = _find(content["contexts"], "context", name)
        if entry is None:
            known = ", ".join(sorted(str(context["name"]) for context in content["contexts"])) or "none"
            raise ConfigurationError(f"there is no context {name}; there is {known}")
        chosen = entry[0]
        cluster = _find(content["clusters"], "cluster", chosen.get("cluster", ""))
        if cluster is None:
            raise ConfigurationError(f"context {name} names cluster {chosen.get('cluster')}, which is not there")
        # The client goes on as nobody where the user is not there.
        # https://github.com/kubernetes-client/python/blob/v37.0.2/kubernetes/aio/config/kube_config.py#L177
        user = _find(content["users"], "user", chosen["user"]) if "user" in chosen else ({}, files[0])
        if user is None:
            raise ConfigurationError(f"context {name} names user {chosen['user']}, who is not there")
        return _Chosen(name, chosen, cluster[0], *user)


def _find(entries: Sequence[Any], kind: str, name: str) -> tuple[Entry, Path] | None:
    """An entry by its name, and the file that it is written in."""
    entry = next((candidate for candidate in entries if candidate["name"] == name), None)
    if entry is None:
        return None
    file = Path(entry.path).absolute()
    return guards.anchor_paths(guards.without_nulls(entry.value.get(kind) or {}), file.parent), file


async def _connection(files: Sequence[Path], chosen: _Chosen) -> Connection:
    with _explain(files):
        return await _configure(chosen)


async def _configure(chosen: _Chosen) -> Connection:
    cluster = dict(guards.resolve_server(chosen.cluster, chosen.context["cluster"]))
    user = guards.first_credential(chosen.user)
    guards.refuse_removed_providers(user)
    user, certificate = guards.take_inline_certificate(user)
    configuration = Configuration()
    if authority := cluster.pop("certificate-authority-data", None):
        configuration.ca_cert_data = base64.b64decode(authority, validate=True).decode()
        cluster.pop("certificate-authority", None)
    renewed: Entry = {name: user.pop(name) for name in ("tokenFile", "exec", "auth-provider") if name in user}
    with guards.private_files(certificate) as files:
        content = {
            "current-context": chosen.name,
            "contexts": [{"name": chosen.name, "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": {**user, **files}}],
        }
        await KubeConfigLoader(content).load_and_set(configuration)
        tls = RESTClientObject(configuration).ssl_context if configuration.host.startswith("https:") else None
    configuration.refresh_api_key_hook = _renewal(chosen, renewed, tls)  # type: ignore[assignment] # declared as None
    return Connection(
        configuration, tls, chosen.context.get("namespace", "default"), guards.impersonation_headers(chosen.user)
    )


def _renewal(chosen: _Chosen, renewed: Entry, tls: ssl.SSLContext | None) -> Renewal | None:
    """The hook of a user whose credentials change with time."""
    if "tokenFile" in renewed:
        return Renewal(token_file(Path(renewed["tokenFile"])))
    if "exec" in renewed:
        return Renewal(ExecPlugin(renewed["exec"], _cluster_info(chosen.cluster), tls).read)
    if "auth-provider" in renewed:
        return Renewal(id_token(lambda: _id_token(chosen)))
    return None


def _id_token(chosen: _Chosen) -> str:
    with _explain([chosen.user_file]):
        user = _find(Merger([chosen.user_file]).config.value["users"], "user", chosen.context["user"])
        provider = user[0].get("auth-provider", {}) if user is not None else {}
        return (provider.get("config") or {}).get("id-token") or ""


def _cluster_info(cluster: Entry) -> Entry:
    """Return the cluster as it is described to a plugin (``ExecCredential.spec.cluster``)."""
    authority = cluster.get("certificate-authority-data")
    if not authority and "certificate-authority" in cluster:
        authority = base64.b64encode(Path(cluster["certificate-authority"]).read_bytes()).decode()
    extension: Entry = next(
        (extension for extension in cluster.get("extensions", ()) if extension.get("name") == _FOR_PLUGINS), {}
    )
    info = {
        "server": cluster["server"],
        "tls-server-name": cluster.get("tls-server-name"),
        "insecure-skip-tls-verify": cluster.get("insecure-skip-tls-verify") or None,
        "certificate-authority-data": authority,
        "proxy-url": cluster.get("proxy-url"),
        "config": extension.get("extension"),
    }
    return guards.without_nulls(info)


def _address_in_cluster() -> tuple[str, str]:
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}") for part in ("HOST", "PORT"))
    if not host or not port:
        raise ConfigurationError("no kubeconfig was found, and this is no pod of a cluster: set KUBECONFIG")
    return host, port


def _server_in_cluster() -> Connection:
    """Find the API server from a pod without a token, whose ``ca.crt`` is the ConfigMap ``kube-root-ca.crt``.

    The client's own loader wants a token.
    """
    host, port = _address_in_cluster()
    authority, configuration = SERVICE_ACCOUNT / "ca.crt", Configuration()
    configuration.host = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    configuration.ssl_ca_cert = str(authority)
    try:
        tls = RESTClientObject(configuration).ssl_context
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"the cluster's authority {authority}: {error}") from error
    configuration.proxy = guards.environment_proxy(configuration.host)
    return Connection(configuration, tls)


def _in_cluster() -> Connection:
    _address_in_cluster()
    configuration, token = Configuration(), SERVICE_ACCOUNT / "token"
    try:
        InClusterConfigLoader(str(token), str(SERVICE_ACCOUNT / "ca.crt"), False).load_and_set(configuration)  # noqa: FBT003 - it names none of them otherwise
        tls = RESTClientObject(configuration).ssl_context
        namespace = (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except (ConfigException, OSError) as error:
        raise ConfigurationError(f"the pod's service account {SERVICE_ACCOUNT}: {error}") from error
    configuration.proxy = guards.environment_proxy(configuration.host)
    # Ours in place of the client's: it keeps the newline, and does not read it again after a 401.
    configuration.refresh_api_key_hook = Renewal(token_file(token))  # type: ignore[assignment] # declared as None
    return Connection(configuration, tls, namespace)
